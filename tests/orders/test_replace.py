# SPDX-License-Identifier: Apache-2.0
"""Whose server is replaced, and when, over autoscaling groups of any size of an emulated cloud."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mistral_failover.actions.members import NextMember
from mistral_failover.actions.orders import Begin, ReplaceMember, Rollback
from support.scaled_groups import ScaledGroup, emulated, of, shared, state

__all__ = ["emulated", "of", "shared", "state"]

# -- who is chosen


def test_who_is_alone_is_never_replaced_while_it_serves(of: Callable[..., ScaledGroup]) -> None:
    group = of(1)

    for member in (None, "oldest", "newest", group.members[0]):
        refused = group.run(ReplaceMember(group.name, member))
        assert refused.error["code"] == "NO_ELIGIBLE_MEMBER"
        assert "it will be replaced" in refused.error["reasons"][group.members[0]]

    assert group.epochs() == [1]


@pytest.mark.parametrize("policy", ["oldest", "newest"])
def test_who_failed_is_replaced_before_anybody_who_is_well(
    of: Callable[..., ScaledGroup], policy: str
) -> None:
    group = of(3)
    broken = group.members[1]
    group.breaks(broken)

    begun = group.replace(policy)

    assert begun["member"] == broken
    assert "its server is ERROR" in begun["sentence"]
    assert group.active() == group.members[0]
    assert group.servers()[broken] != begun["server"]
    assert sorted(group.epochs()) == [1, 1, 2]
    assert not any("Fence" in sentence for sentence in group.told()), "nothing was on it"


def test_a_member_that_is_not_there_is_refused_by_name(of: Callable[..., ScaledGroup]) -> None:
    group = of(2)

    refused = group.run(ReplaceMember(group.name, "unknown"))

    assert refused.error["code"] == "UNKNOWN_MEMBER"
    assert "member: unknown" in refused.error["message"]
    assert group.run(NextMember(group.name, ["unknown"])).error["code"] == "UNKNOWN_MEMBER"


# -- one that failed in its role


def test_a_replaced_member_takes_the_role_again_without_an_order(
    of: Callable[..., ScaledGroup],
) -> None:
    group = of(2)
    first, second = group.members
    group.breaks(first)
    group.replace()

    group.breaks(second)
    group.done(Begin(group.name))

    status = group.status()
    assert (status["roles"], status["lost"]) == ({"active": first}, [second])
    assert group.cloud.violations() == []


def test_a_rollback_goes_to_a_replaced_member_as_well(of: Callable[..., ScaledGroup]) -> None:
    group = of(2)
    first, second = group.members
    group.breaks(first)
    group.replace()
    server = group.servers()[first]

    group.done(Rollback(group.name))

    status = group.status()
    assert (status["roles"], status["lost"]) == ({"active": first}, [])
    assert group.servers()[first] == server, "and replaces no member again"


def test_a_member_that_stays_lost_is_replaced_by_hand(of: Callable[..., ScaledGroup]) -> None:
    group = of(2)
    first, _ = group.members
    group.breaks(first)
    group.done(Begin(group.name))
    assert group.status()["lost"] == [first]

    begun = group.replace()

    assert (begun["member"], "it is declared lost" in begun["sentence"]) == (first, True)
    assert group.status()["lost"] == []


# -- alarms


def test_an_alarm_replaces_no_member_unless_the_group_s_file_says_so(
    of: Callable[..., ScaledGroup],
) -> None:
    group = of(2)
    first = group.members[0]
    server = group.servers()[first]

    group.done(group.alarm(first))

    assert group.servers()[first] == server
    assert group.status()["lost"] == [first]


def test_a_group_that_replaces_who_is_lost_heals_itself_again_and_again(
    of: Callable[..., ScaledGroup],
) -> None:
    group = of(2, members={"replace": "lost", "restart": ["replace"]})
    first, second = group.members

    for member, other in ((first, second), (second, first), (first, second)):
        group.done(group.alarm(member))
        status = group.status()
        assert (status["roles"], status["lost"]) == ({"active": other}, [])

    assert group.cloud.violations() == []


def test_an_alarm_about_a_standby_replaces_it_and_the_roles_stay(
    of: Callable[..., ScaledGroup],
) -> None:
    group = of(5, members={"replace": "lost", "restart": ["replace"]})
    active, standby = group.members[0], group.members[3]

    group.done(group.alarm(standby))

    status = group.status()
    assert (status["roles"], status["lost"]) == ({"active": active}, [])
    assert group.epochs() == [1, 1, 1, 3, 1]


def test_what_is_said_of_a_member_while_it_is_replaced_is_known(
    of: Callable[..., ScaledGroup],
) -> None:
    group = of(2)
    standby = group.members[1]
    group.run(ReplaceMember(group.name, standby))

    admission = group.done(group.alarm(standby))

    assert (admission["decision"], "being replaced" in admission["sentence"]) == (
        "DUPLICATE",
        True,
    )


# -- all of them in turn


def test_all_in_turn_are_all_once_and_the_active_one_is_the_last(
    of: Callable[..., ScaledGroup],
) -> None:
    group = of(3)
    before, order = group.servers(), []
    step = group.done(NextMember(group.name, pause=7))
    waits = [step["wait"]]
    while step["member"] is not None:
        order.append(step["member"])
        group.replace(step["member"], server=step["server"])
        step = group.done(NextMember(group.name, turn=step["turn"], pause=7))
        waits.append(step["wait"])

    assert (sorted(order), order[-1]) == (sorted(group.members), group.members[0])
    assert not before.items() & group.servers().items()
    assert waits == [0, 7, 7, 0]
    assert step["outcome"]["reason"] == "rolling replacement: 3 of 3 members replaced"


def test_a_turn_continues_where_it_was_also_if_another_order_replaced_a_member(
    of: Callable[..., ScaledGroup],
) -> None:
    group = of(5)
    begun = group.done(NextMember(group.name, members=group.members[1:4]))
    group.replace(group.members[2])

    left = []
    step = begun
    for _ in range(2):
        step = group.done(NextMember(group.name, turn=begun["turn"]))
        assert step == group.done(NextMember(group.name, turn=begun["turn"])), "asked twice"
        left.append(step["member"])
        group.replace(step["member"], server=step["server"])

    assert sorted(left) == sorted([group.members[1], group.members[3]])
    assert group.done(NextMember(group.name, turn=begun["turn"]))["member"] is None


@pytest.mark.parametrize("turn", ["all", [{"member": "a"}], [{"member": 1, "server": "s"}], {}])
def test_a_turn_that_is_none_is_refused(of: Callable[..., ScaledGroup], turn: Any) -> None:
    group = of(1)

    assert group.run(NextMember(group.name, turn=turn)).error["code"] == "BAD_INPUT"


def test_no_member_is_next_while_the_group_is_not_at_rest(of: Callable[..., ScaledGroup]) -> None:
    group = of(2)
    begun = group.done(NextMember(group.name))
    group.run(ReplaceMember(group.name, group.members[1]))

    refused = group.run(NextMember(group.name, turn=begun["turn"]))

    assert refused.error["code"] == "NOT_COMPLETE"
