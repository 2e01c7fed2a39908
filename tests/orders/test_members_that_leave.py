# SPDX-License-Identifier: Apache-2.0
"""A group has the members that its group file has: one that was taken out of the file leaves once
nothing of the group is there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mistral_failover.actions import alarms, orders, recovery
from mistral_failover.actions import groups as group_actions
from support.planned_groups import PlannedGroup, emulated, protect, state

__all__ = ["emulated", "protect", "state"]


@pytest.fixture
def group(protect: Callable[..., PlannedGroup]) -> PlannedGroup:
    """A group of three members that serves on db_a."""
    group = protect(("db_a", "db_b", "db_c"))
    group.order(orders.Begin(group.name, lost=[]))
    assert members(group) == {"db_a": 1, "db_b": 1, "db_c": 1}
    return group


def members(group: PlannedGroup) -> dict[str, int]:
    """The epochs of the group's members."""
    return {row["name"]: row["epoch"] for row in group.status()["members"]}


def give(group: PlannedGroup, *servers: str) -> None:
    """Give the group a file with these members."""
    document = {**group.document(), "members": {"servers": list(servers)}}
    group.done(group_actions.Define(document, name=group.name))


def observe(group: PlannedGroup) -> None:
    """Look at the group, as a sweep does."""
    group.done(recovery.Observe(group.name))


def converge(group: PlannedGroup, **more: Any) -> None:
    group.order(orders.Begin(group.name, lost=[], definition="defined", **more))


def test_a_standby_leaves_with_the_update_and_its_server_is_no_concern_of_the_group(
    group: PlannedGroup,
) -> None:
    give(group, "db_a", "db_b")
    assert "db_c" in members(group), "the file in force still has it"
    converge(group)

    observe(group)

    assert members(group) == {"db_a": 1, "db_b": 1}
    alarm = {"server": group.server("db_c"), "id": f"gone-{group.name}"}
    (decided,) = group.done(alarms.AdmitEvent(alarm))["admissions"]
    held = {row["incident"]: row["group"] for row in group.done(alarms.Held())["held"]}
    assert held[decided["incident"]] is None


def test_the_active_member_leaves_after_its_role_has_moved(group: PlannedGroup) -> None:
    give(group, "db_b", "db_c")
    observe(group)
    assert "db_a" in members(group)

    converge(group)
    observe(group)

    assert group.status()["roles"] == {"active": "db_b"}
    assert members(group) == {"db_b": 1, "db_c": 1}


def test_one_that_comes_back_continues_with_its_epoch(group: PlannedGroup) -> None:
    group.order(orders.Begin(group.name, lost=["db_a"]))
    group.order(orders.Begin(group.name, lost=[], recovered=["db_a"]))
    give(group, "db_b", "db_c")
    converge(group)
    observe(group)
    assert "db_a" not in members(group)

    give(group, "db_a", "db_b")
    converge(group)

    assert members(group)["db_a"] == 2


def test_a_rollback_to_a_goal_that_names_one_that_left_is_refused(group: PlannedGroup) -> None:
    give(group, "db_b", "db_c")
    converge(group)
    observe(group)

    refused = group.ask(orders.Rollback(group.name))

    assert refused.error["code"] == "NO_ELIGIBLE_MEMBER"
    assert refused.error["reasons"] == {"db_a": "it is not a member of the group"}
