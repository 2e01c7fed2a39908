# SPDX-License-Identifier: Apache-2.0
"""Members are replaced on the real engine with an emulated cloud: who failed, who is well, a
standby, all of them in turn, and by an alarm."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mistral_failover.cloud import stack_updates
from mistral_failover.cloud.errors import CloudError
from mistral_failover.lab.testing.engine import TestEngine
from support.operators import Operator
from support.waiting import patiently, until


@pytest.fixture
def up(protect: Callable[..., Any]) -> Any:
    """Three members, up on db_a; by an alarm who is lost is replaced."""
    servers = ("db_a", "db_b", "db_c")
    members = {"servers": list(servers), "replace": "lost", "restart": ["replace"]}
    group = protect(servers=servers, members=members)
    group.activate()
    return group


def replaced(group: Any, *members: str, **more: Any) -> Any:
    """Replace a member; only those named get other servers."""
    before = {name: group.server(name) for name in group.members}
    run = patiently(group, "replace_member", group=group.name, **more).assert_succeeded()
    after = {name: group.server(name) for name in group.members}
    assert sorted(name for name in before if before[name] != after[name]) == sorted(members)
    return run


def epochs(group: Any) -> dict[str, int]:
    return {member["name"]: member["epoch"] for member in group.status()["members"]}


def test_a_standby_is_replaced_while_the_others_serve(up: Any) -> None:
    run = replaced(up, "db_b", member="db_b")

    assert run.output["outcome"]["status"] == "COMPLETE"
    status = up.status()
    assert (status["roles"], status["lost"]) == ({"active": "db_a"}, [])
    assert {m["name"]: m["server"] for m in status["members"]}["db_b"] == up.server("db_b")
    assert epochs(up) == {"db_a": 1, "db_b": 2, "db_c": 1}
    assert not any("Fence" in sentence for sentence in up.told())
    assert up.cloud.violations() == []


def test_the_active_one_moves_before_it_is_replaced_and_can_serve_again(up: Any) -> None:
    replaced(up, "db_a", member="db_a")

    assert up.status()["roles"]["active"] != "db_a"
    assert up.runs_on() == ["db_b"]
    assert not any("Fence" in sentence for sentence in up.told())
    up.run("switchover", group=up.name, to="db_a").assert_succeeded()
    assert (up.holders(), up.runs_on()) == (["db_a"], ["db_a"])
    assert up.cloud.violations() == []


def test_the_active_one_that_failed_is_fenced_and_another_serves_before_it_is_replaced(
    up: Any,
) -> None:
    up.fails("crash")
    Operator(up.cloud).reset_server(up.server("db_a"), "error")

    before = len(up.told("done"))

    replaced(up, "db_a")

    order = [sentence.removesuffix(": done") for sentence in up.told("done")[before:]]
    status = up.status()
    other = status["roles"]["active"]
    started = order.index(f"Start database on {other}")
    assert order.index("Fence db_a") < started < order.index("Bring back db_a")
    assert (other != "db_a", status["lost"]) == (True, [])
    up.run("failover", group=up.name, to="db_a", lost=[other]).assert_succeeded()
    assert up.runs_on() == ["db_a"]
    assert up.status()["lost"] == [other]
    assert up.cloud.violations() == []


def test_a_move_that_returns_replaces_no_member(up: Any) -> None:
    before = up.server("db_a")
    up.cloud.api_fault("command_start", "fail")

    patiently(up, "replace_member", group=up.name, member="db_a").assert_failed_with("NOT_MOVED")

    assert up.server("db_a") == before
    assert (up.holders(), up.runs_on()) == (["db_a"], ["db_a"])


def test_an_alarm_heals_the_group_and_the_next_one_finds_a_standby(up: Any) -> None:
    former = up.server("db_a")

    patiently(up, "on_alarm", **up.fails("crash", "db_a")).assert_succeeded()

    status = up.status()
    assert up.runs_on() == [status["roles"]["active"]] != ["db_a"]
    assert up.server("db_a") != former
    assert (status["lost"], status["status"]) == ([], "COMPLETE")
    up.run("switchover", group=up.name, to="db_a").assert_succeeded()


def test_all_are_replaced_in_turn_the_active_one_last(up: Any) -> None:
    before = {name: up.server(name) for name in up.members}

    run = patiently(up, "replace_members", group=up.name).assert_succeeded()

    assert run.output["outcome"]["reason"] == "rolling replacement: 3 of 3 members replaced"
    assert all(up.server(name) != before[name] for name in up.members)
    turns = [line.partition("; next is ")[2].partition(":")[0] for line in up.told("rolling")]
    assert (sorted(turns[:2]), turns[2:]) == (["db_b", "db_c"], ["db_a", ""])
    assert up.runs_on() == [up.status()["roles"]["active"]] != ["db_a"]
    assert up.cloud.violations() == []


def test_the_first_failure_stops_the_rest(up: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def fail(cloud: Any, stack: str, member: str, **more: Any) -> Any:
        asked.append(member)
        raise CloudError("STACK_FAILED", "no valid host was found", remedy="Make room.")

    monkeypatch.setattr(stack_updates, "replace_member", fail)

    run = patiently(up, "replace_members", group=up.name).assert_failed_with("FAILED")

    assert "no valid host was found" in run.output["error"]["message"]
    assert len(asked) == 1
    assert up.status()["roles"] == {"active": "db_a"}
    patiently(up, "replace_members", group=up.name).assert_failed_with("NOT_COMPLETE")
    assert len(asked) == 1


@pytest.mark.parametrize("how", ["PAUSED", "CANCELLED"])
def test_a_rolling_replacement_can_be_stopped_at_any_moment(
    up: Any, mistral: TestEngine, how: str
) -> None:
    from mistral.rpc import clients  # when the engine has chosen its threads

    before = {name: up.server(name) for name in up.members}
    execution = up.start("replace_members", group=up.name)
    until(lambda: len(up.told("rolling")) > 1, "the first is replaced")
    with mistral.context():
        engine = clients.get_engine_client()
        if how == "PAUSED":
            engine.pause_workflow(execution)
        else:
            engine.stop_workflow(execution, how, "by an operator")

    def at_rest() -> bool:
        up.run("sweep", group=up.name).assert_succeeded()
        return bool(up.status()["status"] == "COMPLETE")

    until(at_rest, "at rest")
    assert any(up.server(name) != before[name] for name in before)
    assert up.runs_on() == [up.status()["roles"]["active"]]

    if how == "PAUSED":
        with mistral.context():
            engine.resume_workflow(execution)
        up.workflows.wait(execution, timeout=90).assert_succeeded()
        assert all(up.server(name) != before[name] for name in before)
    assert up.cloud.violations() == []
