# SPDX-License-Identifier: Apache-2.0
"""What differs between two goals, as a person reads it."""

from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mistral_failover.model.differences import differences, in_documents
from mistral_failover.model.goal import Goal, render_goal
from mistral_failover.model.group import Group, parse_group

EXAMPLE = Path(__file__).parents[2] / "examples" / "postgresql.yaml"


@pytest.fixture
def payments() -> Group:
    return parse_group(EXAMPLE.read_text())


def test_a_failover_differs_in_who_holds_the_role_first_of_all(payments: Group) -> None:
    home = render_goal(payments, {"active": "db_a"}, [])
    away = render_goal(payments, {"active": "db_b"}, ["db_a"])

    lines = [str(difference) for difference in differences(home, away)]

    assert lines[:2] == ["~ roles.active: db_a -> db_b", '~ lost: [] -> ["db_a"]']
    assert "~ resources.data.properties.server: db_a -> db_b" in lines
    assert any(line.startswith("+ resources.fence:db_a: {") for line in lines)


def test_the_way_back_reads_the_other_way_round(payments: Group) -> None:
    home = render_goal(payments, {"active": "db_a"}, [])
    away = render_goal(payments, {"active": "db_b"}, ["db_a"])

    there = {d.path: (d.before, d.after) for d in differences(home, away)}
    back = {d.path: (d.after, d.before) for d in differences(away, home)}

    assert there == back


def test_a_resource_that_only_one_has_is_one_difference() -> None:
    resource = {"type": "shared", "properties": {"a": 1, "b": 2}, "requires": []}
    with_it = Goal({"roles": {}, "resources": {"x": resource}})
    without = Goal({"roles": {}, "resources": {}})

    (removed,) = differences(with_it, without)

    assert removed.as_dict() == {"path": "resources.x", "before": resource}
    assert str(removed).startswith("- resources.x: {")


def test_nothing_and_null_are_told_apart() -> None:
    (added,) = differences(Goal({"x": {}}), Goal({"x": {"key": None}}))

    assert added.as_dict() == {"path": "x.key", "after": None}
    assert str(added) == "+ x.key: null"


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=6,
)
_documents = st.dictionaries(st.text(max_size=2), _json, max_size=3)


@given(before=_documents, after=_documents)
def test_no_difference_is_missed_and_none_invented(
    before: dict[str, Any], after: dict[str, Any]
) -> None:
    found = differences(Goal(before), Goal(after))

    assert bool(found) == (before != after)
    assert len({difference.path for difference in found}) == len(found)


def test_a_long_text_is_named_by_its_length_and_fingerprint() -> None:
    """A template of a stack would fill pages."""
    lines, long, short = "a\nb", "x" * 5000, "x" * 50

    changed, added = in_documents({"db_a": lines}, {"db_a": long, "db_b": {"t": lines, "s": short}})

    assert str(changed) == f"~ db_a: {shown(lines)} -> {shown(long)}"
    assert str(added) == f'+ db_b: {{"s": "{short}", "t": "{shown(lines)}"}}'
    assert changed.as_dict()["after"] == long, "machines get all of it"


def shown(text: str) -> str:
    return f"{len(text)} characters, SHA-256 {sha256(text.encode()).hexdigest()[:8]}"
