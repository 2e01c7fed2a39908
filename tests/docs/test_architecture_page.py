# SPDX-License-Identifier: Apache-2.0
"""docs/architecture.md: what it lists is what there is, all of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bench.__main__ import PARTS
from mistral_failover.store.tables import metadata

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def below(title: str) -> str:
    """What stands below a heading, up to the next one."""
    return re.split(r"^##+ ", PAGE.split(f"\n## {title}\n")[1], flags=re.M)[0]


def test_every_table_of_the_state_store_is_listed_and_no_other() -> None:
    listed = re.findall(r"^\| ([a-z]+(?:, [a-z]+)*) \|", below("The state store"), re.M)
    names = {name for cell in listed for name in cell.split(", ")} - {"table"}

    assert names == {table.removeprefix("failover_") for table in metadata.tables}


def test_every_part_of_the_benchmark_is_told_and_counted() -> None:
    told = below("Speed")
    (counted,) = re.findall(r"`make bench` prints (\w+) parts", told)

    assert NUMBERS.index(counted) == len(PARTS)
    assert set(re.findall(r"^\*\*(\w+)\*\*[:,]", told, re.M)) == set(PARTS)


@pytest.mark.parametrize(
    "shown_by",
    [
        "tests/actions/test_every_action_and_a_stranger.py",
        "tests/workflows/test_every_workflow_and_a_stranger.py",
    ],
)
def test_what_the_audit_can_not_see_of_other_projects_is_shown_by_tests(shown_by: str) -> None:
    assert f"](../{shown_by})" in below("Invariants")


def test_who_loses_the_rights_is_not_told_to_start_again() -> None:
    (row,) = re.findall(r"^\| the token.*$", below("When something dies"), re.M)

    assert "`RIGHTS_ENDED`" in row
    assert "sweep" in row
    assert "start it again" not in row


def test_a_dead_host_is_provable_by_a_workflow_alone() -> None:
    (row,) = re.findall(r"^\| its host .*$", below("When something dies"), re.M)

    assert "no rung can prove" not in row
    assert "`workflow`" in row
