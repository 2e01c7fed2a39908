# SPDX-License-Identifier: Apache-2.0
"""The view of a journal: what happened, the latest first, by traversal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from mistral_failover.cli.base import lasted, when


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
