# SPDX-License-Identifier: Apache-2.0
"""Forgetting groups, and where all groups of a project stand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa
from mistral_lib.actions.context import ActionContext

from mistral_failover.actions import alarms, reports, suspensions
from mistral_failover.actions import groups as group_actions
from mistral_failover.convergence.records import Ready
from mistral_failover.model.ids import group_id
from mistral_failover.runtime.process import Runtime
from mistral_failover.store import counters, groups
from mistral_failover.store.tables import metadata

ALARM = {"group": "payments", "member": "db_a", "id": "w1"}


def names(context: ActionContext) -> list[str]:
    found: list[str] = reports.Status().run(context)["groups"]
    return found


def left(state: Runtime, project: str) -> set[str]:
    """The tables that still have something of the group."""
    identity = group_id(project, "payments")

    def read(tx: Any) -> set[str]:
        found = set()
        for table in metadata.sorted_tables:
            column = table.c.get("group_id")
            if column is None:
                continue
            query = sa.select(sa.func.count()).where(column == identity)
            if tx.connection.execute(query).scalar_one():
                found.add(table.name)
        return found

    return state.database.reading(read)


def test_a_group_that_was_never_brought_up_is_forgotten(
    define: Callable[..., str], context: ActionContext
) -> None:
    define()

    answer = group_actions.Undefine("payments").run(context)

    assert (answer["group"], answer["dismissed"]) == ("payments", [])
    assert names(context) == []
    assert group_actions.Undefine("payments").run(context).error["code"] == "UNKNOWN_GROUP"


def test_a_group_of_which_something_is_left_is_not(begun: Ready, context: ActionContext) -> None:
    answer = group_actions.Undefine("payments").run(context)

    assert answer.error["code"] == "IN_SERVICE"
    assert "failover.remove" in answer.error["remedy"]
    assert names(context) == ["payments"]


def test_a_group_that_was_removed_goes_with_all_its_rows_but_for_its_members_epochs(
    begun: Ready, remove: Callable[[], None], state: Runtime, project: str, context: ActionContext
) -> None:
    identity = group_id(project, "payments")
    state.database.atomically(lambda tx: tx.raise_epochs(identity, ["db_a"]))
    remove()
    settled(state, project)

    answer = group_actions.Undefine("payments").run(context)

    assert answer["group"] == "payments"
    assert left(state, project) == {"failover_former_members"}


def test_a_group_that_is_defined_again_has_the_members_of_its_file_alone(
    begun: Ready,
    remove: Callable[[], None],
    define: Callable[..., str],
    state: Runtime,
    project: str,
    context: ActionContext,
) -> None:
    identity = group_id(project, "payments")
    state.database.atomically(lambda tx: tx.raise_epochs(identity, ["db_a"]))
    remove()
    settled(state, project)
    group_actions.Undefine("payments").run(context)

    define("payments", members={"servers": ["db_a", "db_c"]})

    assert reports.Status("payments").run(context)["members"] == []
    alarms.AdmitEvent({"server": "s-b", "id": "w2"}).run(context)
    (held,) = alarms.Held().run(context)["held"]
    assert held["group"] is None, "its server is no concern of the new group"
    seen = [("db_a", "s-a", 1.0), ("db_c", "s-c", 1.0)]
    state.database.for_project(project).atomically(
        lambda tx: groups.record_members(tx, identity, seen)
    )
    rows = reports.Status("payments").run(context)["members"]
    assert [(row["name"], row["server"], row["epoch"]) for row in rows] == [
        ("db_a", "s-a", 2),
        ("db_c", "s-c", 1),
    ], "the agent on db_a knows its epoch"


def settled(state: Runtime, project: str) -> None:
    """Nothing is left, and the goal is reached."""
    identity = group_id(project, "payments")
    tables = metadata.tables

    def end(tx: Any) -> None:
        mine = tables["failover_resources"].c.group_id == identity
        tx.execute(
            tables["failover_resources"]
            .update()
            .where(mine)
            .values(action="DELETE", status="COMPLETE")
        )
        current = groups.get(tx, identity).current_traversal
        tx.mark_traversal(current, "COMPLETE", "")

    state.database.atomically(end)


def counted(state: Runtime, project: str) -> dict[Any, float]:
    """Every counter of the project."""
    found = state.database.for_project(project).reading(counters.counters)
    return {key: count.value for key, count in found.items()}


def test_alarms_that_are_held_for_it_end_with_it_and_are_told(
    define: Callable[..., str],
    serve: Callable[..., str],
    remove: Callable[[], None],
    state: Runtime,
    project: str,
    context: ActionContext,
) -> None:
    serve("payments")
    suspensions.Pause("payments", "we upgrade").run(context)
    held = alarms.AdmitEvent(ALARM).run(context)["admissions"][0]
    assert held["decision"] == "HELD"
    remove()
    settled(state, project)
    before = counted(state, project)

    answer = group_actions.Undefine("payments").run(context)

    after = counted(state, project)
    assert {key: after.get(key, 0) for key in before if after.get(key, 0) < before[key]} == {}
    ((told),) = answer["dismissed"]
    assert (told["incident"], told["lost"]) == (held["incident"], ["db_a"])
    assert "dismissed, since payments was deleted by" in told["sentence"]
    assert "1 alarm about it dismissed" in answer["sentence"]
    assert told["lost"] == ["db_a"], "a list, as everywhere"
    assert alarms.Held().run(context)["total"] == 0
    define()
    assert alarms.Held("payments").run(context)["total"] == 0


def test_all_groups_of_a_project_stand_in_one_answer(
    serve: Callable[..., str],
    define: Callable[..., str],
    goal: Callable[..., None],
    context: ActionContext,
) -> None:
    serve("ledger")
    goal("db_a", group="ledger")
    serve("payments")
    suspensions.Maintenance("payments", "new disks", minutes=30, members=["db_a"]).run(context)
    held = alarms.AdmitEvent(ALARM).run(context)["admissions"][0]
    assert held["decision"] == "HELD"
    define("shop")

    answer = reports.Status().run(context)

    assert answer["groups"] == ["ledger", "payments", "shop"]
    assert answer["total"] == 3
    ledger, payments, shop = answer["overview"]
    assert reports.Status(after="ledger").run(context)["overview"] == [payments, shop]
    assert (ledger["status"], ledger["roles"], ledger["lost"], ledger["held"]) == (
        "IN_PROGRESS",
        {"active": "db_b"},
        ["db_a"],
        0,
    )
    assert (payments["held"], payments["maintenance"]["members"]) == (1, ["db_a"])
    assert (shop["status"], shop["roles"], shop["stack"]) == ("DEFINED", {}, "shop")
    assert shop["since"] <= answer["now"]


def test_the_definition_is_shown_as_it_was_given_and_a_dry_run_says_what_would_change(
    define: Callable[..., str], context: ActionContext
) -> None:
    define()
    given = reports.Status("payments", definition=True).run(context)["definition"]
    changed = {**given["document"], "fence": ["stop", "confirm"], "limits": {"cooldown": 5}}

    answer = group_actions.Define(changed, name="payments", types=given["types"], dry_run=True).run(
        context
    )

    assert answer["created"] is False
    assert answer["lines"] == [
        '+ fence: ["stop", "confirm"]',
        '+ limits: {"cooldown": 5}',
    ]
    after = reports.Status("payments", definition=True).run(context)["definition"]
    assert after == given, "nothing was written"
    assert group_actions.Define(changed, types=given["types"]).run(context)["differences"]
    assert "definition" not in reports.Status("payments").run(context)


@pytest.mark.parametrize("said", ["yes", 1, None])
def test_a_flag_is_true_or_false(context: ActionContext, state: Runtime, said: Any) -> None:
    assert group_actions.Define({}, dry_run=said).run(context).error["code"] == "BAD_INPUT"
