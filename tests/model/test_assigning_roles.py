# SPDX-License-Identifier: Apache-2.0
"""A role stays where it is while it can; else it goes to the member that the group prefers."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mistral_failover.model.assignment import MemberFact, assign_roles, passed_over
from mistral_failover.model.errors import InvalidDocument, NoEligibleMember
from mistral_failover.model.group import Group, parse_group


def group(roles: tuple[str, ...] = ("active",), **members: object) -> Group:
    return parse_group(
        {
            "failover_template_version": "2026-11-21",
            "stack": "s",
            "members": members or {"autoscaling_group": "g"},
            "roles": list(roles),
            "resources": {},
        }
    )


OLD = MemberFact("c_old", 100.0)
MIDDLE = MemberFact("a_middle", 200.0)
NEW = MemberFact("b_new", 300.0)
UNKNOWN = MemberFact("d_unknown", None)
ALL = [NEW, UNKNOWN, OLD, MIDDLE]


@pytest.mark.parametrize(
    ("choose", "chosen"),
    [
        ("oldest", "c_old"),
        ("newest", "b_new"),
        ("a_middle", "a_middle"),
        ("d_unknown", "d_unknown"),
        ("unknown", "c_old"),
    ],
)
def test_the_first_holder_is_chosen_as_the_group_prefers(choose: str, chosen: str) -> None:
    preferring = group(autoscaling_group="g", choose=choose)
    assert assign_roles(preferring, ALL, {}, set()) == {"active": chosen}


@pytest.mark.parametrize("choose", ["oldest", "newest"])
def test_a_member_of_unknown_age_comes_last(choose: str) -> None:
    preferring = group(autoscaling_group="g", choose=choose)
    lost = {"c_old", "b_new"}
    assert assign_roles(preferring, ALL, {}, lost) == {"active": "a_middle"}
    assert assign_roles(preferring, ALL, {}, {*lost, "a_middle"}) == {"active": "d_unknown"}


def test_members_of_the_same_age_follow_the_group_file_then_the_alphabet() -> None:
    same = [MemberFact(name, 5.0) for name in ("a", "b", "c")]
    assert assign_roles(group(servers=["c", "b", "a"]), same, {}, set()) == {"active": "c"}
    assert assign_roles(group(), same[::-1], {}, set()) == {"active": "a"}


def test_a_holder_that_is_not_lost_keeps_its_role_even_when_unhealthy() -> None:
    slow = MemberFact("b_new", 300.0, healthy=False, why_not="it answers slowly")
    current = {"active": "b_new", "former_role": "c_old"}
    assert assign_roles(group(), [OLD, slow], current, set()) == {"active": "b_new"}


def test_a_lost_holder_is_succeeded() -> None:
    assert assign_roles(group(), ALL, {"active": "c_old"}, {"c_old"}) == {"active": "a_middle"}


def test_a_holder_that_is_no_member_any_more_is_succeeded() -> None:
    assert assign_roles(group(), ALL, {"active": "gone"}, set()) == {"active": "c_old"}


def test_two_roles_start_on_two_members_and_a_survivor_takes_both() -> None:
    both = group(("left", "right"))
    members = [OLD, NEW]
    roles = assign_roles(both, members, {}, set())
    assert roles == {"left": "c_old", "right": "b_new"}
    assert assign_roles(both, members, roles, {"c_old"}) == {"left": "b_new", "right": "b_new"}


def test_a_member_without_a_role_is_preferred() -> None:
    both = group(("left", "right"))
    current = {"left": "c_old", "right": "b_new"}
    moved = assign_roles(both, [OLD, NEW, MIDDLE], current, {"b_new"})
    assert moved == {"left": "c_old", "right": "a_middle"}


TWO = {"left": "c_old", "right": "b_new"}


@pytest.mark.parametrize(
    ("to", "lost", "roles"),
    [
        ("a_middle", set(), {"left": "a_middle", "right": "a_middle"}),
        ("a_middle", {"c_old"}, {"left": "a_middle", "right": "b_new"}),
        ({"right": "a_middle"}, set(), {"left": "c_old", "right": "a_middle"}),
        ({"right": "a_middle"}, {"c_old"}, {"left": "b_new", "right": "a_middle"}),
        ({"left": "b_new", "right": "c_old"}, set(), {"left": "b_new", "right": "c_old"}),
        ({}, set(), TWO),
    ],
)
def test_roles_go_where_somebody_said(
    to: str | dict[str, str], lost: set[str], roles: dict[str, str]
) -> None:
    members = [OLD, NEW, MIDDLE, UNKNOWN]
    assert assign_roles(group(("left", "right")), members, TWO, lost, to) == roles


def test_when_no_member_can_take_the_role_each_reason_is_reported() -> None:
    members = [
        OLD,
        MemberFact("b_new", 300.0, healthy=False, why_not="its server is in ERROR"),
        MemberFact("a_middle", None, healthy=False),
    ]
    with pytest.raises(NoEligibleMember) as caught:
        assign_roles(group(), members, {"active": "c_old"}, {"c_old"})
    assert caught.value.reasons == {
        "c_old": "it is declared lost",
        "b_new": "its server is in ERROR",
        "a_middle": "it is not healthy",
    }
    assert '"active"' in caught.value.message
    assert caught.value.remedy


def test_a_group_without_members_finds_none() -> None:
    with pytest.raises(NoEligibleMember) as caught:
        assign_roles(group(), [], {}, set())
    assert caught.value.reasons == {}


@pytest.mark.parametrize(
    ("to", "reason", "remedy"),
    [
        ("c_old", "it is declared lost", "repair"),
        ({"active": "sick"}, "it has no network", "repair"),
        ("c_olt", "it is not a member of the group", 'mean "c_old"'),
    ],
)
def test_a_target_that_is_not_eligible_is_refused_with_the_reason(
    to: str | Mapping[str, str], reason: str, remedy: str
) -> None:
    sick = MemberFact("sick", 1.0, healthy=False, why_not="it has no network")
    with pytest.raises(NoEligibleMember) as caught:
        assign_roles(group(), [OLD, NEW, sick], {"active": "c_old"}, {"c_old"}, to)
    target = to if isinstance(to, str) else to["active"]
    assert caught.value.reasons == {target: reason}
    assert remedy in caught.value.remedy


def test_each_member_that_would_come_first_is_named_with_the_reason() -> None:
    off = replace(OLD, healthy=False, why_not="its server is SHUTOFF")
    silent = replace(MIDDLE, silent="its agent is silent")
    last = replace(UNKNOWN, healthy=False, why_not="its server is SHUTOFF")
    members = [off, silent, NEW, last]

    roles = assign_roles(group(), members, {}, set())

    assert roles == {"active": "b_new"}
    assert passed_over(group(), members, {}, set(), roles) == {
        "c_old": "its server is SHUTOFF",
        "a_middle": "its agent is silent",
    }


def test_a_role_that_the_group_does_not_have_is_refused() -> None:
    with pytest.raises(InvalidDocument) as caught:
        assign_roles(group(), ALL, {}, set(), {"activ": "c_old"})
    assert caught.value.path == "to.activ"
    assert 'mean "active"' in caught.value.remedy


names = st.sampled_from("abcdef")
facts = st.builds(
    MemberFact, names, st.none() | st.floats(0, 10), st.booleans(), st.none() | st.just("broken")
)


@given(
    st.lists(facts, max_size=6, unique_by=lambda fact: fact.name),
    st.dictionaries(st.sampled_from(["r1", "r2", "r3"]), names),
    st.sets(names),
    st.sampled_from(["oldest", "newest", "a"]),
    st.randoms(use_true_random=False),
)
def test_whatever_the_facts_roles_go_to_members_that_are_not_lost(
    members: list[MemberFact], current: dict[str, str], lost: set[str], choose: str, dice: object
) -> None:
    three = group(("r1", "r2", "r3"), autoscaling_group="g", choose=choose)
    present = {fact.name: fact for fact in members}
    try:
        roles = assign_roles(three, members, current, lost)
    except NoEligibleMember as error:
        none = error
    else:
        none = None
    if none is not None:
        assert set(none.reasons) == set(present)
        return
    assert list(roles) == ["r1", "r2", "r3"]
    for role, member in roles.items():
        assert member in present
        assert member not in lost
        kept = current.get(role)
        if kept in present and kept not in lost:
            assert member == kept
        else:
            assert present[member].healthy
    over = passed_over(three, members, current, lost, roles)
    assert not over.keys() & (lost | set(roles.values()))
    assert all(not present[member].healthy for member in over)
    dice.shuffle(members)  # type: ignore[attr-defined]
    assert assign_roles(three, members, current, lost) == roles


def test_a_member_apart_from_the_volumes_of_a_role_comes_after_those_beside_them() -> None:
    far = replace(OLD, apart={"active": "volume data is in zone az1 and its server in az2"})
    assert assign_roles(group(), [far, MIDDLE], {}, set()) == {"active": "a_middle"}
    assert assign_roles(group(("other",)), [far, MIDDLE], {}, set()) == {"other": "c_old"}
    assert assign_roles(group(), [far], {}, set()) == {"active": "c_old"}, "better than none"
    quiet = replace(MIDDLE, silent="its agent is silent")
    assert assign_roles(group(), [far, quiet], {}, set()) == {"active": "c_old"}
    beside = replace(MIDDLE, host="h")
    gone = replace(NEW, host="h")
    assert assign_roles(group(), [far, beside, gone], {}, {"b_new"}) == {"active": "c_old"}
