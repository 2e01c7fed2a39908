# SPDX-License-Identifier: Apache-2.0
"""on_alarm, failover, activate_first, confirm_fenced, sweep: which tasks run, and in which order.

Only the actions are replaced; their signatures are the real ones.
"""

from __future__ import annotations

from typing import Any

import pytest
from mistral_lib.actions import Result

from mistral_failover.testing.run import Run
from mistral_failover.testing.workflows import Workflows

NOTHING_LEFT = {"spread": [], "operation": None, "said": ["done"]}
COMPLETE = {"status": "COMPLETE", "reason": ""}
REFUSED = Result(error={"code": "REFUSED", "message": "no", "remedy": "ask again"})
ALARM = {
    "alarm_name": "server_lost",
    "alarm_id": "a1",
    "severity": "critical",
    "previous": "ok",
    "current": "alarm",
    "reason": "an event",
    "reason_data": {"type": "event"},
}

# (workflow, inputs, the action it begins with, the task of it, the task that works)
STARTERS = [
    ("on_alarm", ALARM, "failover.admit", "admit", "converge"),
    ("failover", {"group": "g"}, "failover.begin", "begin", "converge"),
    ("activate_first", {"group": "g"}, "failover.begin", "begin", "converge"),
    ("switchover", {"group": "g"}, "failover.switchover", "begin", "converge"),
    (
        "confirm_fenced",
        {"group": "g", "member": "m", "because": "sure"},
        "failover.confirm_fenced",
        "confirm",
        "converge",
    ),
]
BY_HAND = STARTERS[1:]


def ready(count: int) -> list[dict[str, str]]:
    return [{"traversal": "t", "node": f"update:{n}"} for n in range(count)]


def begun(count: int, **more: Any) -> dict[str, Any]:
    return {"group": "g", "traversal": "t", "ready": ready(count), **more}


def start(
    pack: Workflows, starter: tuple[Any, ...], answer: Any, report: Any = COMPLETE, **more: Any
) -> Run:
    name, inputs, action, _, _ = starter
    pack.replace(action, answer)
    pack.replace("failover.work", NOTHING_LEFT)
    pack.replace("failover.report", report)
    return pack.run(f"failover.{name}", {**inputs, **more})


@pytest.mark.parametrize("starter", STARTERS, ids=lambda s: s[0])
@pytest.mark.parametrize("count", [1, 3])
def test_each_ready_node_is_worked_by_an_execution_of_its_own_and_the_end_is_reported(
    pack: Workflows, starter: tuple[Any, ...], count: int
) -> None:
    run = start(pack, starter, begun(count, decision="ADMITTED")).assert_succeeded()

    run.assert_tasks(starter[3], starter[4], "report")
    assert run.output["outcome"] == COMPLETE
    assert [sub.name for sub in run.task(starter[4]).subs] == ["failover._work"] * count
    calls = sorted(pack.calls("failover.work"), key=lambda call: call["node"])
    assert calls == ready(count)
    assert pack.calls("failover.report") == [{"group": "g", "traversal": "t"}]


@pytest.mark.parametrize("starter", BY_HAND, ids=lambda s: s[0])
def test_with_nothing_ready_a_start_by_hand_goes_straight_to_the_report(
    pack: Workflows, starter: tuple[Any, ...]
) -> None:
    run = start(pack, starter, begun(0)).assert_succeeded()

    run.assert_tasks(starter[3], "report")
    assert pack.calls("failover.work") == []


@pytest.mark.parametrize("decision", ["IGNORED", "DUPLICATE", "HELD", "ADMITTED"])
def test_an_alarm_that_leaves_nothing_to_do_ends_with_its_decision(
    pack: Workflows, decision: str
) -> None:
    answer = begun(0, decision=decision, sentence="because", incident=None)

    run = start(pack, STARTERS[0], answer).assert_succeeded()

    run.assert_tasks("admit")
    assert run.output == {"admission": answer, "outcome": None}


def test_the_alarm_s_body_reaches_the_admission_as_aodh_posts_it(pack: Workflows) -> None:
    start(pack, STARTERS[0], begun(0), group="payments", member="db_a").assert_succeeded()

    assert pack.calls("failover.admit") == [{"alarm": ALARM, "group": "payments", "member": "db_a"}]


def test_keys_that_an_alarm_does_not_have_are_empty(pack: Workflows) -> None:
    pack.replace("failover.admit", begun(0))

    pack.run("failover.on_alarm", {"alarm_id": "a1"}).assert_succeeded()

    (call,) = pack.calls("failover.admit")
    empty = dict.fromkeys(ALARM, "") | {"alarm_id": "a1", "reason_data": {}}
    assert call == {"alarm": empty, "group": "", "member": ""}


def test_an_admission_is_retried_three_times_and_then_fails_with_its_code(pack: Workflows) -> None:
    run = start(pack, STARTERS[0], REFUSED).assert_failed_with("REFUSED")

    run.assert_tasks("admit")
    assert run.task("admit").attempts == 4
    assert run.output["error"] == REFUSED.error
    assert run.output["admission"] is None


def test_an_admission_that_succeeds_at_the_third_attempt_goes_on(pack: Workflows) -> None:
    pack.replace("failover.admit", sequence=[REFUSED, REFUSED, begun(1)])
    pack.replace("failover.work", NOTHING_LEFT)
    pack.replace("failover.report", COMPLETE)

    run = pack.run("failover.on_alarm", ALARM).assert_succeeded()

    run.assert_tasks("admit", "converge", "report")
    assert "error" not in run.output


@pytest.mark.parametrize("starter", BY_HAND, ids=lambda s: s[0])
def test_a_start_by_hand_that_is_refused_ends_at_once_with_the_code(
    pack: Workflows, starter: tuple[Any, ...]
) -> None:
    run = start(pack, starter, REFUSED).assert_failed_with("REFUSED")

    run.assert_tasks(starter[3])
    assert run.task(starter[3]).attempts == 1
    assert run.output["error"] == REFUSED.error
    assert pack.calls("failover.work") == []


@pytest.mark.parametrize("starter", STARTERS, ids=lambda s: s[0])
def test_work_that_broke_off_is_an_error_and_the_standing_is_reported_all_the_same(
    pack: Workflows, starter: tuple[Any, ...]
) -> None:
    pack.replace(starter[2], begun(2))
    pack.replace("failover.work", REFUSED)
    pack.replace("failover.report", {"status": "IN_PROGRESS", "reason": ""})

    run = pack.run(f"failover.{starter[0]}", starter[1]).assert_failed_with("INTERRUPTED")

    run.assert_tasks(starter[3], starter[4], "report")
    assert run.task(starter[4]).state == "ERROR"
    assert run.output["outcome"]["status"] == "IN_PROGRESS"
    assert "failover sweep" in run.output["error"]["remedy"]


@pytest.mark.parametrize("starter", STARTERS, ids=lambda s: s[0])
@pytest.mark.parametrize("status", ["FAILED", "BLOCKED"])
def test_a_goal_that_was_not_reached_is_an_error_with_status_and_reason(
    pack: Workflows, starter: tuple[Any, ...], status: str
) -> None:
    facts = {"code": status, "message": "the plug is gone", "remedy": "look"}
    report = Result(error=facts)

    run = start(pack, starter, begun(1), report).assert_failed_with(status)

    run.assert_tasks(starter[3], starter[4], "report")
    assert run.output["error"] == facts


def test_failover_hands_every_input_on_to_begin(pack: Workflows) -> None:
    given = {
        "group": "g",
        "to": "db_b",
        "lost": ["db_a"],
        "recovered": ["db_c"],
        "incident": "i1",
        "because": "maintenance",
    }

    start(pack, STARTERS[1], begun(0), **given).assert_succeeded()

    assert pack.calls("failover.begin") == [given]


def test_failover_without_more_than_a_group_leaves_the_facts_to_the_standing(
    pack: Workflows,
) -> None:
    start(pack, STARTERS[1], begun(0)).assert_succeeded()

    (call,) = pack.calls("failover.begin")
    assert (call["to"], call["lost"], call["recovered"], call["incident"]) == (None, None, [], None)


def test_the_first_activation_declares_nobody_lost(pack: Workflows) -> None:
    start(pack, STARTERS[2], begun(0), to="db_b").assert_succeeded()

    (call,) = pack.calls("failover.begin")
    assert (call["to"], call["lost"]) == ("db_b", [])


def test_a_switchover_hands_every_input_on(pack: Workflows) -> None:
    given = {"group": "g", "to": "db_b", "role": "active", "because": "maintenance"}
    given["holder"] = "db_a"
    pack.replace("failover.switchover", begun(0))
    pack.replace("failover.report", COMPLETE)

    pack.run("failover.switchover", given).assert_succeeded()

    assert pack.calls("failover.switchover") == [given]


@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_sweep_works_each_node_that_it_found_and_reports_no_single_group(
    pack: Workflows, count: int
) -> None:
    pack.replace("failover.sweep", {"ready": ready(count), "started": [], "refused": []})
    pack.replace("failover.work", NOTHING_LEFT)

    run = pack.run("failover.sweep", {"group": "g"}).assert_succeeded()

    run.assert_tasks(*(["sweep", "work"] if count else ["sweep"]))
    assert run.output["swept"]["ready"] == ready(count)
    assert pack.calls("failover.sweep") == [{"group": "g"}]
    assert len(pack.calls("failover.work")) == count


def test_a_sweep_that_can_not_look_fails_with_the_code(pack: Workflows) -> None:
    pack.replace("failover.sweep", REFUSED)

    run = pack.run("failover.sweep").assert_failed_with("REFUSED")

    assert run.output["error"] == REFUSED.error
    assert run.output["swept"] is None
