# SPDX-License-Identifier: Apache-2.0
"""What the commands have in common that ask Mistral: mixed into cliff's own classes.

class Show(ActionCommand, ShowOne):
    def take_action(self, parsed_args):
        found = self.run_action("failover.status", group=parsed_args.group)
        return list(found), list(found.values())
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, TextIO

from cliff.formatters.table import TableFormatter
from cliff.lister import Lister

from mistral_failover.cli import connection
from mistral_failover.cli.arguments import GROUP, Arguments, Declared
from mistral_failover.model.text import clean, clean_value

COMPLETE, FAILED, USAGE, BLOCKED, UNDER_WAY = 0, 1, 2, 3, 4
"""Exit codes: done; failed, with a reason; wrong command line; waits for an operator; still running
when the command stopped waiting."""
DEGRADED, DOWN, NOT_KNOWN = 5, 6, 7
"""Exit codes for whether a group serves, where they are asked for."""

_TIMES = frozenset({"at", "now", "since", "until"})
"""Names of times; further ones end with _at. In JSON and YAML they are seconds since the epoch."""
_ESCAPING = ("json", "yaml")
_LEAST = 8  # characters of a cell that are not broken, if it has so many
_BORDER = 3  # characters between two cells
_LINE = 90  # characters of a line of text: a longer one is hard to read


class FittingTable(TableFormatter):
    """cliff's table, which exceeds the width rather than have a column below 8 characters: that is
    wider than a terminal of 60 or 80 columns. Here the widest columns get narrower first, and rows
    that do not fit even then are shown one by one, a field in each line."""

    def emit_list(
        self,
        column_names: Sequence[str],
        data: Iterable[Sequence[Any]],
        stdout: TextIO,
        parsed_args: argparse.Namespace,
    ) -> None:
        """Write the rows within ``parsed_args.max_width``."""
        rows = [list(row) for row in data]
        widths = _widths(column_names, rows, parsed_args.max_width)
        if widths is None:
            for row in rows:
                self.emit_one(column_names, row, stdout, parsed_args)
            return
        fitted = [list(map(_broken, row, widths)) for row in rows]
        super().emit_list(column_names, fitted, stdout, parsed_args)

    def emit_one(
        self,
        column_names: Sequence[str],
        data: Iterable[Any],
        stdout: TextIO,
        parsed_args: argparse.Namespace,
    ) -> None:
        """Write one row, a field in each line, within ``parsed_args.max_width``."""
        names = max(map(len, ("Field", *column_names)))
        room = min(parsed_args.max_width - 1 - 2 * _BORDER - names, _LINE)
        fitted = [_text(each, room) if isinstance(each, str) else each for each in data]
        super().emit_one(column_names, fitted, stdout, parsed_args)


class FittedOutput(Arguments):
    """A command whose tables fit the terminal."""

    formatter: Any  # cliff's, by the command line

    def produce_output(self, parsed_args: argparse.Namespace, column_names: Any, data: Any) -> int:
        """Write the answer; a table within the terminal's width."""
        if for_people(parsed_args):
            # cliff would let a table without a terminal be of any width.
            parsed_args.max_width = getattr(parsed_args, "max_width", 0) or width()
            self.formatter = FittingTable()
        return int(super().produce_output(parsed_args, column_names, data))  # type: ignore[misc]


class ActionCommand(FittedOutput):
    """A command that calls Mistral; see ``connection`` for its address."""

    app: Any
    exit_code = COMPLETE
    _escaping = False  # the output format escapes control characters by itself

    def run_action(self, action: str, *, save_result: bool = True, **inputs: Any) -> Any:
        """Run one of the project's actions, with the inputs that are not None; return its answer.

        ``save_result``: whether Mistral may store the answer. Raises CommandFailed with the problem
        and the remedy.
        """
        with connection.mistral(self.app) as client:
            answer = client.run_action(action, given(inputs), save_result=save_result)
        return answer if self._escaping else clean_value(answer)

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return a parser that accepts arguments in any order: members may follow an option too."""
        parser = super().get_parser(prog_name)
        parser.parse_args = parser.parse_intermixed_args  # type: ignore[method-assign]
        return parser

    def run(self, parsed_args: argparse.Namespace) -> int:
        """The exit code is what the command has set as ``exit_code``."""
        self.exit_code = COMPLETE
        self._escaping = getattr(parsed_args, "formatter", "") in _ESCAPING
        try:
            return int(super().run(parsed_args)) or self.exit_code  # type: ignore[misc]
        except connection.CommandLineWrong as error:
            # Raised through cliff's own error reporting the code would be 1.
            self.app.LOG.error(error)
            return USAGE

    def produce_output(self, parsed_args: argparse.Namespace, column_names: Any, data: Any) -> int:
        """Python's None is for machines: people read a dash. Nothing may act on a terminal."""
        shown = list(data)
        if for_people(parsed_args):
            shown = _dashed(shown)
        elif not self._escaping:
            rows = shown if isinstance(self, Lister) else [shown]
            rows = [[*map(_in_text, column_names, row)] for row in rows]
            shown = rows if isinstance(self, Lister) else rows[0]
        shown = shown if self._escaping else clean_value(shown)
        return super().produce_output(parsed_args, column_names, shown)


class GroupCommand(ActionCommand):
    """A command about one group, which is its first argument."""

    arguments: Declared = (GROUP,)


def width() -> int:
    """Return the characters of a line: of the terminal, or 100 without one."""
    return shutil.get_terminal_size((100, 24)).columns


def _dashed(value: Any) -> Any:
    """Return a cell, or a row of them."""
    if isinstance(value, list | tuple):
        return [_dashed(each) for each in value]
    return "-" if value is None else value


def given(inputs: dict[str, Any]) -> dict[str, Any]:
    """Return the inputs without those that are None."""
    return {name: value for name, value in inputs.items() if value is not None}


def confirm(question: str, *, yes: bool) -> None:
    """Ask a person whether to continue; ``yes`` on the command line skips the question.

    Raises CommandFailed if the answer is no, and if there is no terminal to ask on.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise connection.CommandFailed(
            f"{question}? There is no terminal to ask on: give --yes. [NOT_SURE]"
        )
    sys.stderr.write(f"{clean(question)}? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise connection.CommandFailed("Nothing was done. [NOT_SURE]")


def for_people(parsed_args: argparse.Namespace) -> bool:
    """Return whether the answer is formatted for people: then it may be shortened and put in
    words."""
    return str(getattr(parsed_args, "formatter", "table")) == "table"


def worded(facts: dict[str, Any]) -> dict[str, Any]:
    """Facts as people read them: mappings and lists in words, durations with their unit."""

    def word(name: str, value: Any) -> Any:
        if isinstance(value, dict):
            return ", ".join(f"{key}: {item}" for key, item in value.items()) or "-"
        if isinstance(value, list):
            return ", ".join(map(str, value)) or "-"
        return lasted(value) if name == "seconds" and value is not None else value

    return {name: word(name, value) for name, value in facts.items()}


def wrapped(text: str, width: int) -> str:
    """Break a text into lines of ``width`` characters."""
    return "\n".join(
        "\n".join(
            textwrap.wrap(line, width, break_long_words=False, break_on_hyphens=False)
            if len(line) > width
            else [line]
        )
        for line in text.split("\n")
    )


def _in_text(name: str, value: Any) -> Any:
    """Return a cell for formats whose cells are text: a time in ISO 8601, what has a structure as
    JSON, nothing for None."""
    if value is None:
        return ""
    if isinstance(value, dict | list | tuple):
        return json.dumps(value)
    if isinstance(value, float) and (name in _TIMES or name.endswith("_at")):
        return datetime.fromtimestamp(value, UTC).isoformat(timespec="milliseconds")
    return value


def when(seconds: float | None) -> str:
    """Return a time as people read it, in UTC; ``never`` for None."""
    if seconds is None:
        return "never"
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")


def clock(seconds: float) -> str:
    """Return the time of day as people read it, in UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%H:%M:%S")


def moment(at: float, now: float) -> str:
    """Return a time without its date if it is today's."""
    return clock(at) if when(at)[:10] == when(now)[:10] else when(at)


def lasted(seconds: float | None) -> str:
    """Return a duration as people read it; nothing for None."""
    if seconds is None:
        return ""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"


def _widths(
    names: Sequence[str], rows: Sequence[Sequence[Any]], width: int
) -> Sequence[int] | None:
    """Return the width of each column; None if no widths fit into the table's."""
    natural = [max(map(_wide, cells)) for cells in zip(*rows, strict=True)] or [0] * len(names)
    least = [max(len(name), min(_LEAST, n)) for name, n in zip(names, natural, strict=True)]
    widths = [max(len(name), n) for name, n in zip(names, natural, strict=True)]
    room = width - 1 - _BORDER * len(names)
    while sum(widths) > room:
        free = [i for i, each in enumerate(widths) if each > least[i]]
        if not free:
            return None
        widths[max(free, key=lambda i: widths[i])] -= 1
    return widths


def _wide(cell: object) -> int:
    return max(map(len, str(cell).splitlines()), default=0)


def _text(cell: str, width: int) -> str:
    """Return a text in lines that fit; a command is not broken within a word."""
    lines = cell.splitlines()
    broken = (textwrap.wrap(line, max(width, _LEAST), break_on_hyphens=False) for line in lines)
    return "\n".join(part for parts in broken for part in parts or [""])


def _broken(cell: Any, width: int) -> Any:
    """Return a cell in lines that fit; a number stays one, for its alignment."""
    if _wide(cell) <= width:
        return cell
    return "\n".join(
        part for line in str(cell).splitlines() for part in textwrap.wrap(line, width) or [""]
    )
