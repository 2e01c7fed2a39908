# SPDX-License-Identifier: Apache-2.0
"""A plan is started as it is, once, in the world that it was made in, or not at all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from mistral_lib.actions import Result

from mistral_failover.actions import groups as group_actions
from mistral_failover.actions import orders, recovery, reports
from mistral_failover.model.alarm_fact import AlarmFact
from mistral_failover.model.ids import derived_id
from mistral_failover.orders.plan import planner, preconditions
from mistral_failover.runtime.request import DEFAULT_PROJECT
from mistral_failover.store import groups, incidents
from mistral_failover.store import plans as kept_plans
from support.driving import ready_nodes
from support.together import together


def refused(answer: Any) -> str:
    """The code of an error, which it must be."""
    assert isinstance(answer, Result), answer
    assert answer.error["remedy"]
    return str(answer.error["code"])


def test_a_plan_starts_its_goal_and_the_record_says_by_which_plan(group: Any) -> None:
    plan = group.plan()

    begun = group.start(plan["plan"])

    assert begun["goal"] == plan["goal"]
    status = group.status()
    assert (status["status"], status["roles"]) == ("COMPLETE", {"active": "db_b"})
    assert status["incidents"][0]["sentence"] == "failover as planned"


def test_a_plan_that_is_run_again_meets_its_own_traversal(group: Any) -> None:
    plan = group.plan()["plan"]
    first = group.done(orders.StartPlan(plan, because="db_a burns"))

    again = group.done(orders.StartPlan(plan, because="db_a burns"))

    assert again["traversal"] == first["traversal"]
    assert again["workflow"] == first["workflow"] == "failover.converge"
    group.carry(again)
    after = group.done(orders.StartPlan(plan))
    assert after["traversal"] == first["traversal"]
    assert ready_nodes(group.state, after["traversal"]) == []
    assert [row for row in group.journal() if row["kind"] == "traversal"][-1]["sentence"] == (
        "db_a burns"
    )


def test_one_plan_that_is_started_twice_at_once_is_one_traversal(group: Any) -> None:
    plan = group.plan()["plan"]
    before = len([row for row in group.journal() if row["kind"] == "traversal"])

    answers = together(3, lambda _: group.done(orders.StartPlan(plan)))

    assert len({answer["traversal"] for answer in answers}) == 1
    group.carry(answers[0])
    assert group.status()["roles"] == {"active": "db_b"}
    walked = [row for row in group.journal() if row["kind"] == "traversal"]
    assert len(walked) == before + 1


def test_of_two_plans_of_one_world_the_second_is_refused(group: Any) -> None:
    over, away = group.plan(verb="switchover"), group.plan(verb="remove")

    group.start(over["plan"])

    assert refused(group.ask(orders.StartPlan(away["plan"]))) == "PLAN_STALE"
    assert group.status()["roles"] == {"active": "db_b"}


def test_what_is_there_already_makes_a_plan_stale_and_is_no_defect(
    group: Any, caplog: pytest.LogCaptureFixture
) -> None:
    there, over = group.plan(verb="switchover", to="db_b"), group.plan(verb="switchover")

    group.start(over["plan"])

    assert refused(group.ask(orders.StartPlan(there["plan"]))) == "PLAN_STALE"
    assert "Defect" not in caplog.text


def define_anew(group: Any) -> None:
    definition = group.done(reports.Status(group.name, definition=True))["definition"]
    definition = definition.get("document", definition)
    group.done(group_actions.Define({**definition, "description": "another one"}, name=group.name))


def raise_an_epoch(group: Any) -> None:
    identity = groups.group_id(DEFAULT_PROJECT, group.name)
    group.state.database.atomically(lambda tx: tx.raise_epochs(identity, ["db_b"]))


def stop_the_standby(group: Any) -> None:
    group.stop("db_b")


def begin_something_else(group: Any) -> None:
    group.done(orders.Begin(group.name, lost=["db_b"]))


def say(group: Any, decision: str, lost: str | None = "db_b") -> str:
    """Record an alarm of the group whose failover has not begun."""
    identity = groups.group_id(DEFAULT_PROJECT, group.name)
    alarm = incidents.Incident(
        derived_id(group.name, decision, str(lost)),
        DEFAULT_PROJECT,
        identity,
        "aodh",
        AlarmFact(group.name, (lost,) if lost else ()),
        {},
        decision,
        f"{lost} burns",
    )
    group.state.database.atomically(lambda tx: incidents.add(tx, alarm))
    return alarm.id


def admit_an_alarm(group: Any) -> None:
    say(group, "ADMITTED")


def hold_an_alarm(group: Any) -> None:
    say(group, "HELD", None)


CHANGES: list[tuple[Callable[[Any], None], str]] = [
    (begin_something_else, "the group has received a goal"),
    (lambda group: group.replace("db_b"), "db_b was replaced: another server has its name"),
    (raise_an_epoch, "db_b was fenced"),
    (admit_an_alarm, "db_b as lost is ADMITTED"),
    (hold_an_alarm, "as lost is HELD"),
    (stop_the_standby, "db_b can no longer take a role: its server is SHUTOFF"),
]


@pytest.mark.parametrize(
    ("change", "words"), CHANGES, ids=lambda each: getattr(each, "__name__", "")
)
def test_a_plan_of_another_world_is_refused_with_what_changed(
    group: Any, change: Callable[[Any], None], words: str
) -> None:
    plan = group.plan(lost=["db_a"])
    change(group)
    last, seen = group.last(), group.seen()

    answer = group.ask(orders.StartPlan(plan["plan"]))

    assert refused(answer) == "PLAN_STALE"
    assert words in answer.error["message"]
    assert group.started(last) == []
    assert group.changes(seen) == []


def test_a_plan_is_refused_once_its_definition_is_another_one(group: Any) -> None:
    of_what_is_defined = group.plan(lost=["db_a"], definition="defined")["plan"]
    of_what_is_in_force = group.plan(lost=["db_a"])["plan"]
    define_anew(group)

    answer = group.ask(orders.StartPlan(of_what_is_defined))

    assert refused(answer) == "PLAN_STALE"
    assert "definition" in answer.error["message"]
    assert group.start(of_what_is_in_force)["traversal"]


def test_an_alarm_that_was_dismissed_since_is_told(group: Any) -> None:
    alarm = say(group, "HELD")
    plan = group.plan(lost=["db_a"])
    group.state.database.for_project(DEFAULT_PROJECT).atomically(
        lambda tx: incidents.dismiss(tx, alarm, "noise")
    )

    answer = group.ask(orders.StartPlan(plan["plan"]))

    assert refused(answer) == "PLAN_STALE"
    assert f"alarm {alarm}" in answer.error["message"]


def test_a_volume_that_is_another_one_by_now_is_told(
    group: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name is the same, so the goal is: Heat made the volume anew."""
    volume = group.cloud.resources(group.name)["volume_0"]["physical_resource_id"]
    plan = group.plan(lost=["db_a"])
    monkeypatch.setattr(preconditions, "resolve_volumes", lambda *_: {"volume_0": "another"})

    answer = group.ask(orders.StartPlan(plan["plan"]))

    assert refused(answer) == "PLAN_STALE"
    assert f"volume_0 was volume {volume}, and is now another" in answer.error["message"]


@pytest.mark.parametrize("verb", ["switchover", "failback"])
def test_nothing_is_moved_to_a_member_that_an_alarm_says_is_lost(group: Any, verb: str) -> None:
    """It was admitted, and the process died before it began the failover: no goal has it yet."""
    target = "db_b"
    if verb == "failback":
        group.order(orders.Begin(group.name, to="db_b", lost=[]))
        target = "db_a"
    say(group, "ADMITTED", target)

    answer = group.ask(orders.Plan(group.name, verb=verb, to=target))

    assert refused(answer) == "NO_ELIGIBLE_MEMBER"
    assert f"{target} may be lost" in str(answer.error)


@pytest.mark.parametrize(
    ("more", "said"),
    [(True, "db_c can now take a role"), (False, "db_c can no longer take a role: its server is")],
)
def test_a_member_more_or_less_that_can_take_a_role_is_told(
    protect: Callable[..., Any], more: bool, said: str
) -> None:
    group = protect(("db_a", "db_b", "db_c"))
    group.order(orders.Begin(group.name, lost=[]))
    if more:
        group.stop("db_c")
    plan = group.plan(lost=["db_a"], to="db_b")
    (group.replace if more else group.stop)("db_c")

    answer = group.ask(orders.StartPlan(plan["plan"]))

    assert refused(answer) == "PLAN_STALE"
    assert said in answer.error["message"]


def test_work_that_got_on_since_is_told(protect: Callable[..., Any]) -> None:
    group = protect(volumes=2)
    begun = group.done(orders.Begin(group.name, lost=[]))
    plan = group.plan(verb="remove")
    group.carry(begun, most=1)

    answer = group.ask(orders.StartPlan(plan["plan"]))

    assert refused(answer) == "PLAN_STALE"
    assert "was INIT_COMPLETE, and is now CREATE_COMPLETE" in answer.error["message"]


def test_a_plan_that_is_read_again_says_whether_it_still_holds(group: Any) -> None:
    plan = group.plan(verb="switchover")

    same = group.done(orders.Plan(plan=plan["plan"]))
    group.order(orders.Switchover(group.name))
    other = group.done(orders.Plan(plan=plan["plan"]))

    assert same == plan
    assert any("has received a goal" in each for each in other["changed"])


def test_a_plan_ends_after_its_time(group: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner, "LIFETIME", -1.0)
    plan = group.plan()["plan"]

    assert refused(group.ask(orders.StartPlan(plan))) == "PLAN_EXPIRED"


def test_a_plan_that_was_started_in_time_may_be_run_again_after_it(
    group: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = group.plan()["plan"]
    begun = group.start(plan)
    now = group.status()["now"]
    monkeypatch.setattr(planner, "_late", lambda request, kept: now)

    assert group.done(orders.StartPlan(plan))["traversal"] == begun["traversal"]


def test_of_a_plan_s_id_the_first_digits_do(group: Any) -> None:
    plan = group.plan()["plan"]

    again = group.done(orders.Plan(plan=plan[:8]))
    begun = group.done(orders.StartPlan(plan[:8]))

    assert again["plan"] == plan
    assert group.done(orders.StartPlan(plan))["traversal"] == begun["traversal"]


def test_a_planned_move_keeps_its_promise_to_return(group: Any) -> None:
    plan = group.plan(verb="switchover")
    begun = group.done(orders.StartPlan(plan["plan"]))
    group.cloud.api_fault("attach", "error", status=400)

    group.carry(begun)
    group.cloud.clear_api_faults()

    report = group.ask(recovery.Report(group.name, begun["traversal"]))
    assert refused(report) == "RETURNED"
    assert group.status()["roles"] == {"active": "db_a"}


def test_the_plans_of_a_group_are_bounded_and_the_latest_are_kept(
    group: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_plans, "KEPT", 2)

    made = [
        group.plan(**inputs)["plan"]
        for inputs in ({}, {"lost": []}, {"lost": ["db_a"]}, {"lost": ["db_a"], "to": "db_b"})
    ]

    codes = [
        answer.error["code"] if isinstance(answer, Result) else "kept"
        for answer in (group.ask(orders.Plan(plan=plan)) for plan in made)
    ]
    assert codes == ["UNKNOWN_ID", "UNKNOWN_ID", "kept", "kept"]
