# SPDX-License-Identifier: Apache-2.0
"""How ``failover goals`` and ``failover diff`` stand on a terminal, from answers of the actions."""

from __future__ import annotations

import argparse
import io
from typing import Any

import pytest
from cliff.formatters.table import TableFormatter

from mistral_failover.cli import goals
from mistral_failover.cli.main import FailoverApp

NARROW = 80


def goal(**more: Any) -> dict[str, Any]:
    """One of the answer's goals."""
    return {
        "version": "0123456789abcdef" * 4,
        "roles": {"active": "db_a"},
        "lost": [],
        "status": "COMPLETE",
        "cause": "by hand",
        "walked": 1,
        "given_at": 1_800_000_000.0,
        "reached_at": 1_800_000_009.0,
        "current": False,
        "last_complete": False,
        **more,
    }


def table(columns: list[str], rows: list[list[Any]], width: int = 0) -> list[str]:
    """The lines as they are printed; ``width`` 0: into a file."""
    stream = io.StringIO()
    options = argparse.Namespace(max_width=width, fit_width=False, print_empty=True)
    TableFormatter().emit_list(columns, rows, stream, options)
    return stream.getvalue().splitlines()


def test_a_version_stands_whole_on_80_columns_whatever_else_there_is_to_say() -> None:
    kept = [
        goal(cause="rolling back to the last reached goal: " + "it did not work " * 30),
        goal(status="SUPERSEDED", lost=["db_b", "db_c"], roles={"primary": "db_a", "reader": "d"}),
        goal(status="BLOCKED", reached_at=None, current=True),
    ]

    lines = table(*goals.rows(kept, people=True), NARROW)

    assert max(map(len, lines)) <= NARROW
    assert sum("| 0123456789ab |" in line for line in lines) == 3
    assert max(map(len, table(*goals.rows(kept, people=True)))) < 120


def test_what_came_of_a_goal_is_told_beside_its_status() -> None:
    kept = [
        goal(status="BLOCKED", reached_at=None, current=True, lost=["db_a"]),
        goal(status="FAILED", last_complete=True),
        goal(),
    ]

    columns, rows = goals.rows(kept, people=True)

    assert columns == ["version", "roles", "status", "given", "cause"]
    assert [row[2].splitlines() for row in rows] == [
        ["BLOCKED", "not reached", "current"],
        ["FAILED", "reached before", "last complete"],
        ["COMPLETE"],
    ]
    assert rows[0][1].splitlines() == ["active: db_a", "lost: db_a"]
    assert rows[0][3] == "2027-01-15 08:00"


def test_machines_get_the_keys_and_types_of_the_action() -> None:
    columns, (row,) = goals.rows([goal()], people=False)

    assert dict(zip(columns, row, strict=True)) == goal()


def test_a_long_difference_stands_on_80_columns_also_in_a_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    line = "- resources.fence:db_a: " + '{"kind": "quiesce", "limit": 3.0} ' * 9
    command = goals.Diff(FailoverApp(), None)
    monkeypatch.setattr(command, "run_action", lambda *_, **__: {"lines": [line]})
    words = command.get_parser("failover diff").parse_args(["g", "a" * 8, "b" * 8])

    lines = table(*command.take_action(words))

    assert max(map(len, lines)) <= NARROW
