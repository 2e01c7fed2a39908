# SPDX-License-Identifier: Apache-2.0
"""The history of a group, a row for each alarm and order: its outcome, and how long it waited."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from mistral_lib.actions.context import ActionContext, ExecutionContext, SecurityContext

from mistral_failover.actions import reports
from mistral_failover.model.ids import group_id
from mistral_failover.runtime.request import DEFAULT_PROJECT
from mistral_failover.store import tables

CONTEXT = ActionContext(SecurityContext(), ExecutionContext())


@pytest.fixture
def serving(group: Any) -> Any:
    """A group that serves on db_a."""
    group.activate()
    return group


def moves(group: Any) -> list[dict[str, Any]]:
    found = reports.Moves(group.name).run(CONTEXT)
    assert isinstance(found, list), found
    for move in found:
        waited = move["waited"]
        assert all(0.0 <= each <= move["seconds"] + 0.01 for each in waited.values()), move
        assert move["to_service"] is None or move["to_service"] <= move["seconds"]
    return found


def earlier(group: Any, table: Any, seconds: float, *names: str) -> None:
    """Have what these columns tell be that much earlier."""
    identity = group_id(DEFAULT_PROJECT, group.name)
    values = {name: table.c[name] - seconds for name in names}
    change = table.update().where(table.c.group_id == identity).values(**values)
    group.state.database.atomically(lambda tx: tx.execute(change))


def test_each_alarm_and_order_has_a_row_the_latest_first(serving: Any) -> None:
    serving.run("on_alarm", **serving.fails())
    failover, activation = moves(serving)

    assert (failover["outcome"], failover["moved"]) == ("COMPLETE", True)
    assert (failover["before"], failover["roles"]) == ({"active": "db_a"}, {"active": "db_b"})
    assert failover["by"] not in ("operator", "engine")
    assert "db_a" in failover["cause"]
    assert failover["to_service"] is not None
    assert 0 < failover["to_service"] < 60
    assert (activation["by"], activation["moved"]) == ("operator", False)
    assert activation["began_at"] < failover["began_at"]


def test_the_time_for_which_an_alarm_was_held_is_part_of_the_whole_and_shown_apart(
    serving: Any,
) -> None:
    serving.run("pause", group=serving.name, because="work")
    serving.fails()
    body = {"group": serving.name, "member": "db_a"}
    run = serving.run("on_event", body=body, kind="signal").assert_succeeded()
    (held,) = run.output["admissions"]
    earlier(serving, tables.incidents, 500, "first_at")
    serving.run(
        "failover", group=serving.name, incident=held["incident"], because="it is off"
    ).assert_succeeded()
    move = moves(serving)[0]

    assert 500 < move["waited"]["alarm"] < 560
    assert move["to_service"] > 500
    assert move["seconds"] - move["waited"]["alarm"] < 60


def test_the_time_for_which_it_waited_for_a_person_is_shown_apart(
    protect: Callable[..., Any],
) -> None:
    group = protect(fence=["confirm"])
    group.activate()
    group.run("failover", group=group.name, lost=["db_a"]).assert_failed_with("BLOCKED")

    move = moves(group)[0]
    assert (move["outcome"], move["by"]) == ("BLOCKED", "operator")
    assert (move["ended_at"], move["to_service"]) == (None, None)

    for table, name in ((tables.journal, "at"), (tables.traversals, "started_at")):
        earlier(group, table, 300, name)
    assert 300 < moves(group)[0]["waited"]["person"] < 360

    group.run("confirm_fenced", group=group.name, member="db_a", because="I pulled the plug")
    move = moves(group)[0]
    assert (move["outcome"], move["moved"]) == ("COMPLETE", True)
    assert 300 < move["waited"]["person"] < 360
    assert move["to_service"] > 300
    assert move["seconds"] - move["waited"]["person"] < 60


def test_a_move_that_came_back_has_returned_and_moved_nothing(serving: Any) -> None:
    serving.cloud.api_fault("attach", "error", status=400)
    serving.run("switchover", group=serving.name, to="db_b").assert_failed_with("RETURNED")
    serving.run("switchover", group=serving.name, to="db_b").assert_succeeded()
    moved, returned, _ = moves(serving)

    assert (returned["outcome"], returned["moved"]) == ("RETURNED", False)
    assert returned["to_service"] is not None, "it serves again where it did"
    assert (moved["outcome"], moved["moved"], moved["by"]) == ("COMPLETE", True, "operator")


def test_an_outage_that_needed_several_orders_has_one_row_until_it_served(
    protect: Callable[..., Any],
) -> None:
    group = protect(fence=["quiesce"])
    group.activate()
    group.fails()
    lost = {"group": group.name, "lost": ["db_a"]}
    group.run("failover", **lost, because="it is silent").assert_failed_with("BLOCKED")
    outage, _ = moves(group)
    assert (outage["outcome"], outage["to_service"]) == ("BLOCKED", None)

    group.run("failover", **lost, because="once more").assert_failed_with("BLOCKED")
    for table, name in ((tables.journal, "at"), (tables.traversals, "started_at")):
        earlier(group, table, 300, name)
    group.run("confirm_fenced", group=group.name, member="db_a", because="I pulled the plug")

    outage, activation = moves(group)
    assert 300 < outage["waited"]["person"] < 360
    assert (outage["cause"], outage["outcome"]) == ("it is silent", "COMPLETE")
    assert (outage["before"], outage["roles"]) == ({"active": "db_a"}, {"active": "db_b"})
    assert outage["to_service"] > 300
    assert activation["outcome"] == "COMPLETE"


def test_a_start_that_failed_and_its_repeat_are_one_outage(serving: Any) -> None:
    serving.fails()
    serving.cloud.api_fault("command_start", "fail", times=100)
    serving.run("failover", group=serving.name, lost=["db_a"]).assert_failed_with("FAILED")
    serving.cloud.clear_api_faults()
    serving.run("failover", group=serving.name, lost=[]).assert_succeeded()

    outage, _ = moves(serving)

    assert (outage["outcome"], outage["moved"]) == ("COMPLETE", True)
    assert outage["to_service"] is not None


def test_an_order_after_a_failure_that_left_the_service_up_has_a_row_of_its_own(
    serving: Any,
) -> None:
    serving.cloud.api_fault("stack_patch", "fail", times=100)
    serving.run("switchover", group=serving.name, to="db_b")
    serving.cloud.clear_api_faults()
    serving.run("failover", group=serving.name, lost=[])

    assert len(moves(serving)) == 3


def test_the_moves_of_all_groups_name_each(serving: Any) -> None:
    found = reports.Moves(None, 1000).run(CONTEXT)

    assert serving.name in {move["group"] for move in found}
