# SPDX-License-Identifier: Apache-2.0
"""Tables that are never wider than the terminal."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any, TextIO

from cliff.formatters.table import TableFormatter

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
