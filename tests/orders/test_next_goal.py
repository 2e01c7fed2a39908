# SPDX-License-Identifier: Apache-2.0
"""Which goal follows from where a group stands and what is said now."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from mistral_failover.convergence.records import GroupState
from mistral_failover.groups.snapshot import GroupSnapshot
from mistral_failover.model.assignment import MemberFact
from mistral_failover.model.errors import InvalidDocument, NoEligibleMember
from mistral_failover.model.group import parse_group
from mistral_failover.model.order import Order
from mistral_failover.orders.failover import next_goal
from mistral_failover.runtime.errors import ActionError

STATE = GroupState("g", "p", "payments", "v", None, None, "v", None)
A, B, C = (MemberFact(name, age) for name, age in (("db_a", 1.0), ("db_b", 2.0), ("db_c", 3.0)))
SICK_B = MemberFact("db_b", 2.0, False, "its host is DOWN")
failover = partial(Order, "failover")
FAILOVER = failover()


def snapshot(
    *,
    active: str | None = "db_a",
    lost: tuple[str, ...] = (),
    roles: list[str] | None = None,
    reached: bool = True,
    occupied: tuple[str, ...] = (),
) -> GroupSnapshot:
    document: dict[str, Any] = {
        "failover_template_version": "2026-11-21",
        "stack": "payments",
        "members": {"servers": ["db_a", "db_b", "db_c"]},
        "roles": roles or ["active"],
        "resources": {
            "routing": {"type": "stack_parameters", "properties": {"parameters": {"a": 1}}}
        },
    }
    held = dict.fromkeys(roles or ["active"], active) if active else {}
    group = parse_group(document)
    return GroupSnapshot(STATE, group, held, frozenset(lost), reached, frozenset(occupied))


@pytest.mark.parametrize(
    ("standing", "order", "active", "lost"),
    [
        (snapshot(active=None), failover(lost=()), "db_a", []),
        (snapshot(active=None), FAILOVER, "db_a", []),
        (snapshot(), FAILOVER, "db_b", ["db_a"]),
        (snapshot(), failover(lost=()), "db_a", []),
        (snapshot(), failover(lost=("db_b",)), "db_a", ["db_b"]),
        (snapshot(), failover(lost=("db_a", "db_b")), "db_c", ["db_a", "db_b"]),
        (snapshot(), failover(to="db_c"), "db_c", ["db_a"]),
        (snapshot(), failover(to="db_c", lost=()), "db_c", []),
        (snapshot(), failover(to={"active": "db_c"}, lost=()), "db_c", []),
        (snapshot(active="db_b", lost=("db_a",)), FAILOVER, "db_c", ["db_a", "db_b"]),
        (snapshot(active="db_b", lost=("db_a",)), failover(lost=()), "db_b", ["db_a"]),
        (
            snapshot(active="db_b", lost=("db_a",)),
            failover(lost=(), recovered=("db_a",)),
            "db_b",
            [],
        ),
        (
            snapshot(active="db_b", lost=("db_a",)),
            failover(recovered=("db_a",)),
            "db_a",
            ["db_b"],
        ),
        (snapshot(), failover(lost=("db_a",), recovered=("db_a",)), "db_a", []),
        (snapshot(lost=("db_gone",)), failover(lost=()), "db_a", []),
        (snapshot(active="db_gone"), failover(lost=()), "db_a", []),
        # A member that left the stack stays lost as long as anything is left on it.
        (
            snapshot(lost=("db_gone",), occupied=("db_gone",)),
            failover(lost=()),
            "db_a",
            ["db_gone"],
        ),
        (
            snapshot(active="db_gone", occupied=("db_gone",)),
            failover(lost=("db_gone",)),
            "db_a",
            ["db_gone"],
        ),
        # What failed is tried again: the member that was to take over is not lost by that.
        (
            snapshot(active="db_b", lost=("db_a",), reached=False),
            FAILOVER,
            "db_b",
            ["db_a"],
        ),
    ],
)
def test_the_goal_follows_from_standing_and_facts(
    standing: GroupSnapshot, order: Order, active: str, lost: list[str]
) -> None:
    goal = next_goal(standing, order, [A, B, C]).document

    assert (goal["roles"], sorted(goal["lost"])) == ({"active": active}, lost)


def test_a_member_that_is_not_healthy_takes_no_vacant_role() -> None:
    assert next_goal(snapshot(), FAILOVER, [A, SICK_B, C]).document["roles"] == {"active": "db_c"}


def test_all_roles_of_the_lost_move_to_the_survivors() -> None:
    roles = next_goal(snapshot(roles=["left", "right"]), FAILOVER, [A, B, C]).document["roles"]

    assert roles == {"left": "db_b", "right": "db_c"}


def test_the_same_facts_give_the_same_version() -> None:
    versions = {next_goal(snapshot(), FAILOVER, members).version for members in ([A, B], [B, A])}

    assert len(versions) == 1


@pytest.mark.parametrize(
    ("order", "words"),
    [
        (failover(lost=("db_x",)), "lost: db_x is not a member of payments"),
        (failover(recovered=("db_x",)), "recovered: db_x is not a member of payments"),
    ],
)
def test_a_name_that_is_no_member_is_refused_with_those_that_are(order: Order, words: str) -> None:
    with pytest.raises(ActionError, match=words) as caught:
        next_goal(snapshot(), order, [A, B, C])

    assert caught.value.code == "UNKNOWN_MEMBER"
    assert "db_a, db_b, db_c" in caught.value.remedy
    assert 'Did you mean "db_' in caught.value.remedy


@pytest.mark.parametrize(
    ("order", "reason"),
    [
        (failover(lost=("db_a", "db_b")), {"db_a": "it is declared lost"}),
        (failover(to="db_a"), {"db_a": "it counts as lost, because no lost member was named"}),
        (failover(to="db_b", lost=()), {"db_b": "its host is DOWN"}),
    ],
)
def test_a_role_that_no_member_can_take_has_its_reasons(
    order: Order, reason: dict[str, str]
) -> None:
    with pytest.raises(NoEligibleMember) as caught:
        next_goal(snapshot(), order, [A, SICK_B])

    assert reason.items() <= caught.value.reasons.items()


def spread(**more: Any) -> GroupSnapshot:
    """Two members hold a role each."""
    held = {"left": "db_a", "right": "db_b"}
    return replace(snapshot(roles=["left", "right"]), roles=held, **more)


def test_of_several_holders_none_is_declared_lost_unless_the_request_names_it() -> None:
    with pytest.raises(ActionError, match="left on db_a, right on db_b") as caught:
        next_goal(spread(), FAILOVER, [A, B, C])

    assert caught.value.code == "BAD_INPUT"
    named = next_goal(spread(), failover(lost=("db_a",)), [A, B, C]).document
    assert named["roles"] == {"left": "db_c", "right": "db_b"}
    none_lost = next_goal(spread(), failover(lost=()), [A, B, C]).document
    assert none_lost["roles"] == {"left": "db_a", "right": "db_b"}


def test_what_was_not_reached_is_tried_again_by_several_holders_too() -> None:
    goal = next_goal(spread(reached=False), FAILOVER, [A, B, C]).document

    assert (goal["roles"], goal["lost"]) == ({"left": "db_a", "right": "db_b"}, [])


def test_a_role_that_the_group_does_not_have_is_refused() -> None:
    with pytest.raises(InvalidDocument, match="unknown role"):
        next_goal(snapshot(), failover(to={"passive": "db_b"}), [A, B, C])


def test_a_holder_that_only_counts_as_lost_is_not_said_to_be_declared_lost() -> None:
    """Two are declared lost, the third one holds the role, and the order names no lost member."""
    standing = snapshot(active="db_c", lost=("db_a", "db_b"))

    with pytest.raises(NoEligibleMember) as refused:
        next_goal(standing, FAILOVER, [A, B, C])

    assert refused.value.reasons["db_a"] == "it is declared lost"
    assert refused.value.reasons["db_c"].startswith("it counts as lost")
