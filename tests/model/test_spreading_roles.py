# SPDX-License-Identifier: Apache-2.0
"""Several roles: whom each goes to, by preference, load and priority, and where each is at home."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mistral_failover.model.assignment import (
    MemberFact,
    as_planned,
    assign_roles,
    doubts,
    eligible,
    homes,
    ideal_homes,
    reasons,
)
from mistral_failover.model.errors import InvalidDocument, NoEligibleMember
from mistral_failover.model.group import Group, parse_group

A, B, C, D = (MemberFact(name, age) for age, name in enumerate("abcd"))


def group(roles: Any = ("active",), **members: Any) -> Group:
    return parse_group(
        {
            "failover_template_version": "2026-11-21",
            "stack": "s",
            "members": {"autoscaling_group": "g", **members},
            "roles": roles if isinstance(roles, dict) else list(roles),
            "resources": {},
        }
    )


# -- preference, load, priority


def test_a_role_goes_to_the_first_that_it_prefers_and_that_can_take_it() -> None:
    preferring = group({"left": {"prefer": ["d", "c"]}})

    assert assign_roles(preferring, [A, B, C, D], {}, set()) == {"left": "d"}
    assert assign_roles(preferring, [A, B, C, D], {"left": "d"}, {"d"}) == {"left": "c"}
    assert assign_roles(preferring, [A, B, C, D], {"left": "d"}, {"c", "d"}) == {"left": "a"}


def test_a_preference_counts_more_than_the_load() -> None:
    both = group({"left": {"prefer": ["b"]}, "right": {"prefer": ["b"]}})

    assert assign_roles(both, [A, B], {}, set()) == {"left": "b", "right": "b"}


def test_who_goes_by_load_keeps_clear_of_those_that_somebody_prefers() -> None:
    three = group({"any": {}, "left": {"prefer": ["a"]}, "other": {}})

    assert assign_roles(three, [A, B], {}, set()) == {"any": "b", "left": "a", "other": "a"}


def test_a_heavy_role_counts_as_much_as_several_light_ones() -> None:
    roles = {"heavy": {"weight": 10}, "l1": {"weight": 4}, "l2": {"weight": 4}, "l3": {}}

    found = assign_roles(group(roles), [A, B], {}, set())

    assert found == {"heavy": "a", "l1": "b", "l2": "b", "l3": "b"}


def test_of_a_lost_member_s_roles_each_survivor_takes_its_share() -> None:
    six = group([f"r{number}" for number in range(6)])
    current = {f"r{number}": "abc"[number % 3] for number in range(6)}

    after = assign_roles(six, [A, B, C], current, {"a"})

    assert {role: member for role, member in after.items() if current[role] != "a"} == {
        role: member for role, member in current.items() if member != "a"
    }
    assert Counter(after.values()) == {"b": 3, "c": 3}


def test_among_equals_the_higher_priority_comes_before_the_choice_of_the_group() -> None:
    assert assign_roles(group(priority={"b": 60}), [A, B], {}, set()) == {"active": "b"}
    assert assign_roles(group(priority={"a": 49}), [A, B], {}, set()) == {"active": "b"}
    two = group(["left", "right"], priority={"b": 100})
    assert assign_roles(two, [A, B], {}, set()) == {"left": "b", "right": "a"}


def test_who_has_priority_0_takes_a_role_only_where_somebody_names_it() -> None:
    spare = group(priority={"b": 0})

    with pytest.raises(NoEligibleMember, match="priority 0"):
        assign_roles(spare, [A, B], {"active": "a"}, {"a"})

    assert assign_roles(spare, [A, B], {"active": "a"}, {"a"}, "b") == {"active": "b"}
    assert assign_roles(spare, [A, B], {"active": "b"}, set()) == {"active": "b"}


# -- what forbids, and what only speaks against


def test_every_member_that_can_not_is_told_with_its_reason() -> None:
    members = [
        A,
        replace(B, healthy=False, why_not="its server is SHUTOFF"),
        replace(C, maintenance="it is in maintenance until noon"),
        replace(D, host="h1"),
        MemberFact("e", 9.0, healthy=False, host="h1", host_down=True, why_not="its host is DOWN"),
        MemberFact("f", 9.0),
    ]
    spare = group(priority={"f": 0})

    found = reasons(spare, members, {"a"})

    assert found == {
        "a": "it is declared lost",
        "b": "its server is SHUTOFF",
        "c": "it is in maintenance until noon",
        "d": "it is on the host of e, which is down",
        "e": "its host is DOWN",
        "f": "it has priority 0, so it takes a role only if it is named for it",
    }
    with pytest.raises(NoEligibleMember) as caught:
        assign_roles(spare, members, {"active": "a"}, {"a"})
    assert caught.value.reasons == found


def test_who_is_worked_on_takes_a_role_only_where_somebody_names_it() -> None:
    members = [A, replace(B, maintenance="it is in maintenance")]

    with pytest.raises(NoEligibleMember):
        assign_roles(group(), members, {"active": "a"}, {"a"})

    assert assign_roles(group(), members, {"active": "a"}, {"a"}, "b") == {"active": "b"}


def test_no_member_takes_a_role_on_a_host_that_is_down_not_even_by_name() -> None:
    members = [replace(A, host="h", host_down=True), replace(B, host="h"), replace(C, host="i")]

    assert assign_roles(group(), members, {"active": "a"}, {"a"}) == {"active": "c"}
    with pytest.raises(NoEligibleMember, match="on the host of a, which is down"):
        assign_roles(group(), members, {"active": "a"}, {"a"}, "b")


def test_the_host_of_the_lost_and_a_silent_agent_are_passed_over_while_others_are_left() -> None:
    members = [replace(A, host="h"), replace(B, host="h"), replace(C, silent="silent"), D]
    wanting = group({"active": {"prefer": ["b", "c"]}})

    def next_after(lost: set[str]) -> str:
        return assign_roles(wanting, members, {"active": "a"}, lost)["active"]

    assert doubts(members, {"a"}) == {
        "b": "it is on the same host as a, which is lost",
        "c": "silent",
    }
    assert next_after({"a"}) == "d"
    assert next_after({"a", "d"}) == "b", "a host is suspected, a silent agent is worse"
    assert next_after({"a", "b", "d"}) == "c", "service comes first: it is tried"
    assert eligible(wanting, members, {"a"}) == ["d", "b", "c"]


def test_an_agent_that_lacks_a_command_for_the_role_is_passed_over_for_that_role_alone() -> None:
    members = [A, replace(B, lacks={"left": "no left-start"}), C]

    def next_after(role: str, lost: set[str]) -> str:
        return assign_roles(group(["left", "right"]), members, SPREAD | {role: "a"}, lost)[role]

    assert doubts(members, set()) == {"b": "no left-start"}
    assert next_after("left", {"a"}) == "c"
    assert next_after("left", {"a", "c"}) == "b", "service comes first: it is tried"
    assert assign_roles(group(["right"]), members, {"right": "a"}, {"a"}) == {"right": "b"}


def test_a_planned_move_has_time_and_takes_no_silent_one() -> None:
    assert reasons(group(), as_planned([A, replace(B, silent="silent")]), set()) == {"b": "silent"}


# -- at home


TWO = group(["left", "right"])
SPREAD = {"left": "a", "right": "b"}


@pytest.mark.parametrize(
    ("current", "members", "lost", "home"),
    [
        (SPREAD, [A, B], set(), SPREAD),
        ({"left": "b", "right": "b"}, [A, B], set(), SPREAD),
        ({"left": "b", "right": "a"}, [A, B], set(), SPREAD),
        # Whose home can not take it stays where that is as good.
        ({"left": "b", "right": "b"}, [A, B], {"a"}, {"left": "b", "right": "b"}),
        ({"left": "c", "right": "b"}, [A, B, C], {"a"}, {"left": "c", "right": "b"}),
        # and goes where there is more room.
        ({"left": "b", "right": "b"}, [A, B, C], {"a"}, {"left": "c", "right": "b"}),
        # Who can not be asked to stop keeps what has no better place.
        (
            {"left": "c", "right": "b"},
            [A, B, replace(C, healthy=False)],
            {"a"},
            {"left": "c", "right": "b"},
        ),
    ],
)
def test_the_home_of_each_role(
    current: dict[str, str], members: list[MemberFact], lost: set[str], home: dict[str, str]
) -> None:
    assert homes(TWO, members, current, lost) == home


def test_the_member_that_a_role_prefers_is_its_home_even_if_another_is_older() -> None:
    one = group({"active": {"prefer": ["c"]}})

    assert homes(one, [A, B, C], {"active": "a"}, set()) == {"active": "c"}
    assert homes(one, [A, B, C], {"active": "b"}, {"c"}) == {"active": "b"}


# -- whatever the facts


names = st.sampled_from("abcdef")
ROLES = ("r1", "r2", "r3", "r4", "r5")
facts = st.builds(
    MemberFact,
    names,
    st.none() | st.floats(0, 10),
    healthy=st.booleans() | st.just(True),
    host=st.none() | st.sampled_from("xyz"),
    host_down=st.just(False) | st.booleans(),
    maintenance=st.none() | st.just("worked on"),
    silent=st.none() | st.just("silent"),
)
members_of_a_group = st.lists(facts, max_size=6, unique_by=lambda fact: fact.name)
groups = st.builds(
    lambda specs, priority: group(
        {
            role: {"prefer": [m for m in p if priority.get(m) != 0], "weight": w}
            for role, (p, w) in zip(ROLES, specs, strict=True)
        },
        priority=priority,
    ),
    st.lists(
        st.tuples(st.lists(names, max_size=3, unique=True), st.integers(1, 100)),
        min_size=len(ROLES),
        max_size=len(ROLES),
    ),
    st.dictionaries(names, st.integers(0, 100)),
)
holders = st.dictionaries(st.sampled_from(ROLES), names)


@given(groups, members_of_a_group, holders, st.sets(names), st.randoms(use_true_random=False))
def test_every_vacant_role_finds_one_that_may_take_it_and_nothing_else_moves(
    any_group: Group,
    members: list[MemberFact],
    current: dict[str, str],
    lost: set[str],
    dice: Any,
) -> None:
    able = eligible(any_group, members, lost)
    present = {fact.name for fact in members}
    kept = {r: m for r, m in current.items() if m in present and m not in lost}
    refused: dict[str, str] | None = None
    try:
        roles = assign_roles(any_group, members, current, lost)
    except NoEligibleMember as error:
        refused = error.reasons
    if refused is not None:
        assert able == [], "there was somebody"
        assert set(refused) == present, "every member's reason is told"
        return
    assert kept.items() <= roles.items(), "a role whose holder is there never moves"
    assert {roles[role] for role in ROLES if role not in kept} <= set(able)
    dice.shuffle(members)
    assert assign_roles(any_group, members, current, lost) == roles, "the order says nothing"


@given(groups, members_of_a_group, holders, st.sets(names))
def test_no_role_that_went_by_load_would_have_less_company_elsewhere(
    any_group: Group, members: list[MemberFact], current: dict[str, str], lost: set[str]
) -> None:
    able = eligible(any_group, members, lost)
    if not able:
        return
    present = {fact.name for fact in members}
    roles = assign_roles(any_group, members, current, lost)
    against = doubts(members, lost)
    best = [name for name in able if name not in against]
    load: Counter[str] = Counter()
    for role, member in roles.items():
        load[member] += any_group.role_specs[role].weight
    for role, member in roles.items():
        spec = any_group.role_specs[role]
        moved = current.get(role) not in present - lost
        if moved and best and not set(spec.prefer) & set(able):
            assert member in best
            assert all(load[member] - spec.weight <= load[other] for other in best)


@given(groups, members_of_a_group, st.sets(names))
def test_two_members_lost_at_once_or_one_after_the_other_leave_no_role_vacant(
    any_group: Group, members: list[MemberFact], lost: set[str]
) -> None:
    try:
        roles = assign_roles(any_group, members, {}, set())
        for member in sorted(lost):
            before, roles = roles, assign_roles(any_group, members, roles, {member})
            assert all(roles[r] == m for r, m in before.items() if m != member)
    except NoEligibleMember:
        return
    assert set(roles) == set(ROLES)


@given(groups, members_of_a_group, holders, st.sets(names))
def test_a_role_at_home_stays_and_none_moves_to_a_home_that_cannot_take_it(
    any_group: Group, members: list[MemberFact], current: dict[str, str], lost: set[str]
) -> None:
    able = eligible(any_group, members, lost)
    try:
        ideal = ideal_homes(any_group, members)
        home = homes(any_group, members, current, lost)
    except NoEligibleMember:
        return
    for role, member in home.items():
        assert member in able or member == current.get(role)
        if ideal[role] in able or (ideal[role] == current.get(role) not in lost):
            assert member == ideal[role]
    assert homes(any_group, members, home, lost) == home, "who is at home is at home"


# -- the group file


@pytest.mark.parametrize(
    ("changed", "path"),
    [
        ({"roles": {}}, "roles"),
        ({"roles": {"left": 5}}, "roles.left"),
        ({"roles": {"left": {"weight": 0}}}, "roles.left.weight"),
        ({"roles": {"left": {"weight": 101}}}, "roles.left.weight"),
        ({"roles": {"left": {"weight": 1.5}}}, "roles.left.weight"),
        ({"roles": {"left": {"prefers": []}}}, "roles.left.prefers"),
        ({"roles": {"left": {"prefer": ["x"]}}}, "roles.left.prefer[0]"),
        ({"roles": {"left": {"prefer": ["a", "a"]}}}, "roles.left.prefer[1]"),
        ({"roles": {"left": {"prefer": ["b"]}}}, "roles.left.prefer[0]"),
        ({"roles": {"1left": {}}}, "roles.1left"),
        ({"roles": ["left", "left"]}, "roles[1]"),
        ({"roles": "left"}, "roles"),
        ({"members": {"servers": ["a"], "priority": {"c": 5}}}, "members.priority.c"),
        (
            {"members": {"servers": ["a", "b"], "choose": "b", "priority": {"b": 0}}},
            "members.choose",
        ),
        ({"members": {"servers": ["a"], "priority": {"a": 101}}}, "members.priority.a"),
        ({"members": {"servers": ["a"], "priority": {"a": -1}}}, "members.priority.a"),
        ({"members": {"servers": ["a"], "priority": ["a"]}}, "members.priority"),
    ],
)
def test_what_makes_no_sense_of_roles_and_priorities_is_refused_at_its_place(
    changed: dict[str, Any], path: str
) -> None:
    document = {
        "failover_template_version": "2026-11-21",
        "stack": "s",
        "members": {"servers": ["a", "b"], "priority": {"b": 0}},
        "resources": {},
        **changed,
    }
    with pytest.raises(InvalidDocument) as caught:
        parse_group(document)

    assert caught.value.path == path
    assert caught.value.remedy


def test_roles_of_a_mapping_stand_in_the_order_of_the_alphabet() -> None:
    """A database need not keep the order of a mapping's keys."""
    assert group({"right": None, "left": {}}).roles == ("left", "right")
    assert group(["right", "left"]).roles == ("right", "left")
