# SPDX-License-Identifier: Apache-2.0
"""Whose server is replaced next, in a pure function of the facts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mistral_failover.model.assignment import MemberFact
from mistral_failover.model.errors import InvalidDocument
from mistral_failover.model.group import Group, parse_group
from mistral_failover.model.replacement import Choice, choose_member, next_in_turn

OLD, MIDDLE, NEW = (
    MemberFact(name, age) for name, age in (("db_a", 1.0), ("db_b", 2.0), ("db_c", 3.0))
)
ALL = [MIDDLE, NEW, OLD]
NONE: frozenset[str] = frozenset()


def group(**members: Any) -> Group:
    return parse_group(
        {
            "failover_template_version": "2026-11-21",
            "stack": "payments",
            "members": {"servers": ["db_a", "db_b", "db_c"], **members},
            "resources": {},
        }
    )


def sick(fact: MemberFact, why: str = "its server is ERROR", **more: Any) -> MemberFact:
    return replace(fact, healthy=False, why_not=why, **more)


@pytest.mark.parametrize(
    ("members", "choose", "lost", "named", "expected"),
    [
        (ALL, "oldest", NONE, None, Choice("db_a", "it is the oldest")),
        (ALL, "newest", NONE, None, Choice("db_c", "it is the newest")),
        (ALL, "db_b", NONE, None, Choice("db_b", "the group's file names it")),
        (ALL, "oldest", NONE, "newest", Choice("db_c", "it is the newest")),
        (ALL, "db_b", NONE, "oldest", Choice("db_a", "it is the oldest")),
        (ALL, "oldest", NONE, "db_b", Choice("db_b", "it was named")),
        ([OLD, sick(NEW)], "oldest", NONE, None, Choice("db_c", "its server is ERROR")),
        ([OLD, sick(NEW)], "oldest", NONE, "oldest", Choice("db_c", "its server is ERROR")),
        ([OLD, sick(NEW)], "oldest", NONE, "db_a", Choice("db_a", "it was named")),
        ([OLD, sick(NEW)], "oldest", NONE, "db_c", Choice("db_c", "its server is ERROR")),
        ([sick(OLD), NEW], "oldest", {"db_c"}, None, Choice("db_c", "it is declared lost")),
        ([sick(OLD), sick(MIDDLE)], "newest", NONE, None, Choice("db_b", "its server is ERROR")),
        # A member that could not be looked at may be healthy.
        (
            [OLD, sick(NEW, "Nova is away", unseen=True)],
            "oldest",
            NONE,
            None,
            Choice("db_a", "it is the oldest"),
        ),
        (
            [replace(OLD, created_at=None), NEW],
            "oldest",
            NONE,
            None,
            Choice("db_c", "it is the oldest"),
        ),
        (
            [replace(NEW, created_at=1.0), OLD],
            "oldest",
            NONE,
            None,
            Choice("db_a", "it is the oldest"),
        ),
    ],
)
def test_who_is_chosen_and_why(
    members: list[MemberFact], choose: str, lost: Any, named: str | None, expected: Choice
) -> None:
    assert choose_member(group(choose=choose), members, lost, named) == expected


def test_a_name_that_no_member_has_any_more_leaves_it_to_age() -> None:
    chosen = choose_member(group(choose="db_b"), [NEW, OLD], NONE, None)

    assert chosen == Choice("db_a", "it is the oldest")


@pytest.mark.parametrize(
    ("roles", "waiting", "expected"),
    [
        ({"active": "db_a"}, {"db_a", "db_b", "db_c"}, "db_b"),
        ({"active": "db_b"}, {"db_a", "db_b", "db_c"}, "db_a"),
        ({"left": "db_a", "right": "db_b"}, {"db_a", "db_b", "db_c"}, "db_c"),
        ({"active": "db_a"}, {"db_a"}, "db_a"),
        ({"active": "db_a"}, {"db_a", "db_gone"}, "db_a"),
        ({"active": "db_a"}, set(), None),
        ({"active": "db_a"}, {"db_gone"}, None),
    ],
)
def test_in_turn_a_member_with_a_role_comes_last(
    roles: dict[str, str], waiting: set[str], expected: str | None
) -> None:
    choice = next_in_turn(group(), ALL, NONE, roles, waiting)

    assert (choice and choice.member) == expected


def test_in_turn_a_member_that_failed_in_a_role_comes_before_those_without_one() -> None:
    marked = [replace(ALL[0], healthy=False, why_not="it is marked"), *ALL[1:]]
    holder = marked[0].name

    choice = next_in_turn(group(), marked, NONE, {"active": holder}, {fact.name for fact in marked})

    assert choice == Choice(holder, "it is marked")


def test_an_alarm_replaces_no_member_unless_the_file_says_so() -> None:
    assert group().members.replace == "never"
    assert group(replace="lost").members.replace == "lost"
    with pytest.raises(InvalidDocument, match="members.replace"):
        group(replace="always")


@pytest.mark.parametrize("kind", ["group_member", "fence"])
def test_no_group_file_asks_for_what_only_the_engine_may(kind: str) -> None:
    document = group().definition | {"resources": {"x": {"type": kind, "properties": {}}}}

    with pytest.raises(InvalidDocument, match="unknown type"):
        parse_group(document)
