# SPDX-License-Identifier: Apache-2.0
"""The view of a history: each alarm and order in a row, and the journal by traversal; the latest
first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mistral_failover.cli.base import lasted, when
from mistral_failover.cli.status import waits
from mistral_failover.ui.levels import Level, of_status

if TYPE_CHECKING:  # the page starts without the code of the actions
    from mistral_failover.reports.moves import Move


@dataclass(frozen=True)
class Line:
    """An entry of the journal."""

    time: str
    kind: str
    sentence: str


@dataclass(frozen=True)
class Episode:
    """Entries that belong to one traversal, oldest first, or a single one that belongs to none.
    ``key`` tells it from the others; ``traversal`` is empty for a single one, ``group`` if it is
    the page's."""

    key: str
    traversal: str
    group: str
    title: str
    began: str
    lasted: str
    lines: tuple[Line, ...]


@dataclass(frozen=True)
class MoveShown:
    """What an alarm or an order led to. ``service``: after what time it served again, empty if it
    does not; ``whole``: how long it took in all; ``waited``: for what it waited, and how long."""

    group: str
    traversal: str
    began: str
    by: str
    cause: str
    level: Level
    outcome: str
    service: str
    whole: str
    waited: tuple[str, ...]


def move_rows(moves: Iterable[Move]) -> tuple[MoveShown, ...]:
    """Return the rows of an answer of failover.moves."""
    return tuple(
        MoveShown(
            move["group"],
            move["traversal"],
            when(move["began_at"]),
            move["by"],
            move["cause"],
            of_status(move["outcome"]),
            move["outcome"].replace("_", " "),
            lasted(move["to_service"]),
            lasted(move["seconds"]),
            tuple(waits(move["waited"])),
        )
        for move in moves
    )


def episodes(rows: Iterable[Mapping[str, Any]]) -> tuple[Episode, ...]:
    """Return the rows of failover.history by traversal, the latest first."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        alone = f"entry-{row['id']}"
        found.setdefault(row["traversal_id"] or alone, []).append(row)
    shown = [_episode(key, group) for key, group in found.items()]
    return tuple(reversed(shown))


def _episode(key: str, rows: list[Mapping[str, Any]]) -> Episode:
    first, last = rows[0], rows[-1]
    traversal = first["traversal_id"] or ""
    return Episode(
        key=key,
        traversal=traversal,
        group=first.get("group", ""),
        title=first["sentence"],
        began=when(first["at"]),
        lasted=lasted(last["at"] - first["at"]) if traversal else "",
        lines=tuple(Line(when(row["at"]), row["kind"], row["sentence"]) for row in rows),
    )
