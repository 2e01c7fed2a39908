# SPDX-License-Identifier: Apache-2.0
"""No table is wider than the terminal."""

from __future__ import annotations

import argparse
import io
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
from cliff.lister import Lister

from mistral_failover.cli.base import FittingTable, worded
from support.commands import failover

LISTS = {
    "agent_list": ("agent", "list", "payments"),
    "alarms": ("alarms",),
    "diff": ("diff", "payments"),
    "doctor": ("doctor", "payments"),
    "goals": ("goals", "payments"),
    "group_list": ("group", "list"),
    "history": ("history", "payments"),
    "locks": ("locks",),
    "member_list": ("member", "list", "payments"),
    "rehearsals": ("rehearsals", "payments"),
    "sweep": ("sweep",),
    "workflows_diff": ("workflows", "diff"),
}
OTHERS = {
    *("capacity", "group_validate", "server"),  # they need no server: see below
    *(
        "dismiss",
        "host-lost",
        "zone-lost",
        "workflows_install",
        "workflows_remove",
    ),  # they change something
}


def drawn(printed: str) -> list[str]:
    """The lines of tables."""
    return [line for line in printed.splitlines() if line[:1] in ("+", "|")]


def test_every_command_with_rows_is_known_here() -> None:
    commands = {
        point.name: point.load()
        for point in entry_points(group="failover.cli")
        if point.value.startswith("mistral_failover.")
    }
    lists = {name for name, each in commands.items() if issubclass(each, Lister)}

    assert lists == {*LISTS, *OTHERS}


def test_every_table_fits_into_the_terminal(
    deployment: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong, tables = [], set()
    for width in (60, 80, 100):
        monkeypatch.setenv("COLUMNS", str(width))
        for name, words in LISTS.items():
            lines = drawn(deployment.failover(*words).stdout)
            tables |= {name} if lines else set()
            wrong += [(name, width, len(line)) for line in lines if len(line) > width]

    assert wrong == []
    assert {"group_list", "history", "member_list", "workflows_diff"} <= tables


@pytest.mark.parametrize("width", [60, 80, 100])
@pytest.mark.parametrize("command", ["group validate", "capacity --groups 9", "server --check"])
def test_the_tables_of_commands_that_need_no_server_fit_as_well(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, width: int, command: str
) -> None:
    file = tmp_path / "a-file-in-a-folder-with-a-long-name.yaml"
    file.write_text("version: 2\nstack: payments\n", encoding="utf-8")
    more = {"group validate": [str(file)], "server --check": ["--state-dir", str(tmp_path)]}
    monkeypatch.setenv("COLUMNS", str(width))

    printed = failover(*command.split(), *more.get(command, [])).stdout

    assert drawn(printed)
    assert max(map(len, drawn(printed))) <= width


@pytest.mark.parametrize("width", [60, 80, 100])
@pytest.mark.parametrize(
    "rows",
    [
        [["db_a", "the host of " * 20, 7]],
        [["x" * 70, "y" * 70, 7], ["", None, 12345]],
        [["several\nlines", "words " * 3, 7]],
        [],
    ],
)
def test_no_row_is_lost_in_a_narrow_table(width: int, rows: list[list[Any]]) -> None:
    stream = io.StringIO()
    options = argparse.Namespace(max_width=width, fit_width=False, print_empty=True)

    FittingTable().emit_list(["member", "what is said of it", "epoch"], rows, stream, options)

    lines = stream.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    shown = "".join("".join(lines).split()).replace("|", "")
    for cell in (each for row in rows for each in row if isinstance(each, int)):
        assert str(cell) in shown


def test_rows_of_many_columns_are_shown_one_by_one_on_a_narrow_terminal() -> None:
    stream = io.StringIO()
    options = argparse.Namespace(max_width=60, fit_width=False, print_empty=True)
    names = [f"a column, number {n}" for n in range(6)]

    FittingTable().emit_list(names, [["a"] * 6, ["b"] * 6], stream, options)

    lines = drawn(stream.getvalue())
    assert max(map(len, lines)) <= 60
    assert [line.split("|")[2].strip() for line in lines if "number 5" in line] == ["a", "b"]


@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_a_long_text_is_broken_once_and_keeps_its_own_lines(width: int) -> None:
    stream = io.StringIO()
    options = argparse.Namespace(max_width=width, fit_width=False, print_empty=True)
    facts = worded({"message": "word " * 90 + "\nfailover confirm-fenced payments"})

    FittingTable().emit_one(list(facts), list(facts.values()), stream, options)

    lines = drawn(stream.getvalue())
    assert max(map(len, lines)) <= width
    _, _, _, *full, last, command, _ = [line.strip("|+").split("|")[-1].strip() for line in lines]
    assert len({len(line) for line in full}) == 1, "every line but the last one is full"
    assert len(last) <= len(full[0]) <= 90
    assert command == "failover confirm-fenced payments"
