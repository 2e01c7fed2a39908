# SPDX-License-Identifier: Apache-2.0
"""on_alarm, failover, activate_first, confirm_fenced, sweep: which tasks run, and in which order.

Only the actions are replaced; their signatures are the real ones.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from mistral_lib.actions import Result

from mistral_failover.lab.testing.workflows import Run, Workflows
from mistral_failover.workflows import paths

COMPLETE = {"status": "COMPLETE", "reason": ""}
STAGES = ["fence", "quiesce", "move_volumes", "activate", "update_stack", "end"]
REFUSED = Result(error={"code": "REFUSED", "message": "no", "remedy": "ask again"})
AWAY = {"code": "UNREACHABLE", "message": "m", "remedy": "r", "transient": True}
ALARM = {
    "alarm_name": "server_lost",
    "alarm_id": "a1",
    "severity": "critical",
    "previous": "ok",
    "current": "alarm",
    "reason": "an event",
    "reason_data": {"type": "event"},
}

# (workflow, inputs, the action it begins with, the task of it)
STARTERS = [
    ("on_alarm", ALARM, "failover.admit", "admit"),
    ("failover", {"group": "g"}, "failover.begin", "begin"),
    (
        "confirm_fenced",
        {"group": "g", "member": "m", "because": "sure"},
        "failover.confirm_fenced",
        "confirm",
    ),
]
BY_HAND = STARTERS[1:]
# What these do otherwise than ``failover``: their action, and what they always say to it.
ALIKE: dict[str, tuple[str, dict[str, Any]]] = {
    "activate_first": ("failover.begin", {"lost": [], "definition": "defined"}),
    "switchover": ("failover.switchover", {}),
    "failback": ("failover.failback", {}),
    "rollback": ("failover.rollback", {}),
    "remove": ("failover.remove", {}),
    "start_plan": ("failover.start_plan", {}),
}
BEGUN = {"group": "g", "traversal": "t", "workflow": "failover.converge"}
NOTHING = {"group": "g", "traversal": None, "workflow": None}
OWN_CHAIN = """
version: '2.0'
house.chain:
  input: [traversal]
  output:
    outcome:
      status: <% $.traversal %>
  tasks:
    only:
      action: std.noop
"""


def start(
    pack: Workflows, starter: tuple[Any, ...], answer: Any, report: Any = COMPLETE, **more: Any
) -> Run:
    name, inputs, action, _ = starter
    pack.replace(action, answer)
    advancing(pack, report)
    return pack.run(f"failover.{name}", {**inputs, **more})


def advancing(pack: Workflows, report: Any = COMPLETE) -> None:
    """Replace failover.advance: every stage is done at once, the last one reports."""
    done = {"state": "IN_PROGRESS", "said": [], "again": False}

    def advance(traversal: str, through: str, hold: bool = False) -> Any:
        if through == "end":
            return report if isinstance(report, Result) else {**done, "outcome": report}
        return done

    pack.replace("failover.advance", advance)


@pytest.mark.parametrize("starter", STARTERS, ids=lambda s: s[0])
def test_whatever_begins_a_traversal_ends_in_the_chain_that_works_it_off(
    pack: Workflows, starter: tuple[Any, ...]
) -> None:
    run = start(pack, starter, {**BEGUN, "decision": "ADMITTED"}).assert_succeeded()

    run.assert_tasks(starter[3], "converge")
    assert run.output["outcome"] == COMPLETE
    (chain,) = run.task("converge").subs
    assert chain.name == "failover.converge"
    calls = pack.calls("failover.advance")
    assert [call["through"] for call in calls] == STAGES
    assert {call["traversal"] for call in calls} == {"t"}


@pytest.mark.parametrize("starter", STARTERS, ids=lambda s: s[0])
def test_a_chain_of_the_group_s_own_is_started_in_its_place(
    pack: Workflows, starter: tuple[Any, ...]
) -> None:
    pack.load(OWN_CHAIN)

    run = start(pack, starter, {**BEGUN, "workflow": "house.chain"}).assert_succeeded()

    assert [sub.name for sub in run.task("converge").subs] == ["house.chain"]
    assert run.output["outcome"] == {"status": "t"}
    assert pack.calls("failover.advance") == []


@pytest.mark.parametrize("decision", ["IGNORED", "DUPLICATE", "HELD", "ADMITTED"])
def test_an_alarm_that_leaves_nothing_to_do_ends_with_its_decision(
    pack: Workflows, decision: str
) -> None:
    answer = {**NOTHING, "decision": decision, "sentence": "because", "incident": None}

    run = start(pack, STARTERS[0], answer).assert_succeeded()

    run.assert_tasks("admit")
    assert run.output == {"admission": answer, "outcome": None}


def test_the_alarm_s_body_reaches_the_admission_as_aodh_posts_it(pack: Workflows) -> None:
    start(pack, STARTERS[0], NOTHING, group="payments", member="db_a").assert_succeeded()

    assert pack.calls("failover.admit") == [{"alarm": ALARM, "group": "payments", "member": "db_a"}]


def test_keys_that_an_alarm_does_not_have_are_empty(pack: Workflows) -> None:
    pack.replace("failover.admit", NOTHING)

    pack.run("failover.on_alarm", {"alarm_id": "a1"}).assert_succeeded()

    (call,) = pack.calls("failover.admit")
    empty = dict.fromkeys(ALARM, "") | {"alarm_id": "a1", "reason_data": {}}
    assert call == {"alarm": empty, "group": "", "member": ""}


def test_an_admission_that_is_refused_ends_at_once_with_its_code(pack: Workflows) -> None:
    run = start(pack, STARTERS[0], REFUSED).assert_failed_with("REFUSED")

    run.assert_tasks("admit")
    assert run.task("admit").attempts == 1
    assert run.output["error"] == REFUSED.error
    assert run.output["admission"] is None


@pytest.mark.parametrize("error", [AWAY, "the heartbeat of its executor is missing"])
def test_an_alarm_waits_for_a_service_that_is_away_and_for_another_executor(
    pack: Workflows, error: Any
) -> None:
    pack.replace("failover.admit", sequence=[*[Result(error=error)] * 5, BEGUN])
    advancing(pack)

    run = pack.run("failover.on_alarm", ALARM).assert_succeeded()

    run.assert_tasks("admit", "converge")
    assert "error" not in run.output


@pytest.mark.parametrize("starter", BY_HAND, ids=lambda s: s[0])
def test_a_start_by_hand_that_is_refused_ends_at_once_with_the_code(
    pack: Workflows, starter: tuple[Any, ...]
) -> None:
    run = start(pack, starter, REFUSED).assert_failed_with("REFUSED")

    run.assert_tasks(starter[3])
    assert run.task(starter[3]).attempts == 1
    assert run.output["error"] == REFUSED.error
    assert pack.calls("failover.advance") == []


@pytest.mark.parametrize(
    ("starter", "status"),
    [*((each, "FAILED") for each in STARTERS), (STARTERS[0], "BLOCKED")],
    ids=lambda given: given if isinstance(given, str) else given[0],
)
def test_a_goal_that_was_not_reached_is_an_error_with_status_and_reason(
    pack: Workflows, starter: tuple[Any, ...], status: str
) -> None:
    facts = {"code": status, "message": "the plug is gone", "remedy": "look"}
    report = Result(error=facts)

    run = start(pack, starter, BEGUN, report).assert_failed_with(status)

    run.assert_tasks(starter[3], "converge")
    assert run.output["error"] == facts


def test_failover_hands_every_input_on_to_begin(pack: Workflows) -> None:
    given = {
        "group": "g",
        "to": "db_b",
        "lost": ["db_a"],
        "recovered": ["db_c"],
        "incident": "i1",
        "because": "maintenance",
        "after": "t1",
        "definition": "defined",
    }

    start(pack, STARTERS[1], BEGUN, **given).assert_succeeded()

    assert pack.calls("failover.begin") == [given]


def body_of(name: str) -> dict[str, Any]:
    text = Path(next(path for path in paths() if Path(path).stem == name)).read_text("utf-8")
    return dict(yaml.safe_load(text)[f"failover.{name}"])


@pytest.mark.parametrize("name", ALIKE)
def test_another_order_differs_from_a_failover_in_its_action_and_inputs_alone(name: str) -> None:
    """So what is played here of a failover is true of it, too."""
    body, failover = body_of(name), body_of("failover")
    begin = body["tasks"]["begin"]
    inputs = [each if isinstance(each, str) else next(iter(each)) for each in body["input"]]
    action, always = ALIKE[name]

    assert begin.pop("action") == action
    assert begin.pop("input") == {**always, **{each: f"<% $.{each} %>" for each in inputs}}
    for each in ("action", "input"):
        del failover["tasks"]["begin"][each]
    differing = {"description", "input"}
    assert {k: v for k, v in body.items() if k not in differing} == {
        k: v for k, v in failover.items() if k not in differing
    }


def test_failover_without_more_than_a_group_leaves_the_facts_to_the_standing(
    pack: Workflows,
) -> None:
    start(pack, STARTERS[1], BEGUN).assert_succeeded()

    (call,) = pack.calls("failover.begin")
    assert (call["to"], call["lost"], call["recovered"], call["incident"]) == (None, None, [], None)


@pytest.mark.parametrize("count", [0, 3])
def test_a_sweep_starts_the_chain_of_each_traversal_that_it_found(
    pack: Workflows, count: int
) -> None:
    pack.load(OWN_CHAIN)
    advancing(pack)
    chains = [{"traversal": f"t{n}", "workflow": "failover.converge"} for n in range(count)]
    own = [{"traversal": "own", "workflow": "house.chain"}] if count else []
    pack.replace("failover.sweep", {"restarted": [], "chains": [*chains, *own]})
    pack.replace("failover.observe", [])

    run = pack.run("failover.sweep", {"group": "g"}, timeout=60).assert_succeeded()

    run.assert_tasks(*(["sweep", "converge", "look"] if count else ["sweep"]))
    assert pack.calls("failover.sweep") == [{"group": "g"}]
    advanced = {call["traversal"] for call in pack.calls("failover.advance")}
    assert advanced == {chain["traversal"] for chain in chains}
    if count:
        batches = [batch.task("converge").subs for batch in run.task("converge").subs]
        started = [sub.sub("converge").name for batch in batches for sub in batch]
        assert sorted(started) == ["failover.converge"] * count + ["house.chain"]


def test_a_sweep_of_a_group_looks_at_it_once_what_it_started_has_ended(pack: Workflows) -> None:
    advancing(pack)
    swept = {"chains": [{"traversal": "t", "workflow": "failover.converge"}], "heals": []}
    heal = {"workflow": "failover.failover", "input": {"group": "g"}}
    row = {"group": "g", "service": "DOWN", "sentence": "g is DOWN"}
    pack.replace("failover.sweep", swept)
    pack.replace("failover.observe", [row | {"heal": None}, row | {"heal": heal}])
    pack.replace("failover.launch", {})

    run = pack.run("failover.sweep", {"group": "g"}, timeout=60).assert_succeeded()

    run.assert_tasks("sweep", "converge", "look", "heal_seen")
    assert pack.calls("failover.observe") == [{"group": "g"}]
    (launched,) = pack.calls("failover.launch")
    assert (launched["workflow"], launched["input"]) == (heal["workflow"], heal["input"])
    again = pack.run("failover.sweep", timeout=60).assert_succeeded()
    again.assert_tasks("sweep", "converge")


def test_a_sweep_starts_many_chains_in_batches(pack: Workflows) -> None:
    """Each time an item of a task ends, Mistral reads all of them."""
    pack.load(OWN_CHAIN)
    chains = [{"traversal": f"t{n}", "workflow": "house.chain"} for n in range(26)]
    pack.replace("failover.sweep", {"restarted": [], "chains": chains})

    run = pack.run("failover.sweep", timeout=60).assert_succeeded()

    batches = [batch.task("converge").subs for batch in run.task("converge").subs]
    assert sorted(len(batch) for batch in batches) == [1, 25]


def test_a_sweep_that_can_not_look_fails_with_the_code(pack: Workflows) -> None:
    pack.replace("failover.sweep", REFUSED)

    run = pack.run("failover.sweep").assert_failed_with("REFUSED")

    assert run.output["error"] == REFUSED.error
    assert run.output["swept"] is None
