# SPDX-License-Identifier: Apache-2.0
"""The view of all groups: a row for each, filtered and sorted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mistral_failover.cli import status_screen
from mistral_failover.cli.base import lasted, when
from mistral_failover.convergence.records import TraversalStatus
from mistral_failover.model.text import counted
from mistral_failover.ui.levels import URGENCY, Level, of_group, serves

if TYPE_CHECKING:  # the page starts without the code of the actions
    from mistral_failover.reports.documents import GroupOverview


@dataclass(frozen=True)
class Query:
    """What the operator wants to see: ``text`` in a name, a stack, a member or a reason; only
    groups of a ``level``; in the ``sort`` order."""

    text: str = ""
    level: Level | None = None
    sort: str = "urgency"

    @staticmethod
    def read(given: Mapping[str, str]) -> Query:
        """Read the parameters of an address; values without a meaning count as not given."""
        level, sort = given.get("level", ""), given.get("sort", "")
        return Query(
            given.get("text", "")[:200],
            Level(level) if level in list(Level) else None,
            sort if sort in SORTS else "urgency",
        )


@dataclass(frozen=True)
class GroupRow:
    """A group, in words. ``serves`` and ``state`` since ``since``, for ``lasting``."""

    name: str
    stack: str
    level: Level
    serves: str
    state: str
    since: str
    lasting: str
    active: str
    under_way: str
    waits_for_you: tuple[str, ...]
    since_seconds: float


@dataclass(frozen=True)
class GroupsView:
    """The rows that match the query, of ``total`` groups; ``counts`` has those of each level."""

    rows: tuple[GroupRow, ...]
    total: int
    counts: Mapping[Level, int]
    query: Query


def groups_view(rows: Iterable[GroupOverview], now: float, query: Query) -> GroupsView:
    """Return the view of all groups; ``rows`` are those of ``overview`` in failover.status."""
    found = [_row(row, now) for row in rows]
    counts = {level: sum(row.level is level for row in found) for level in Level}
    shown = [row for row in found if _matches(row, query)]
    return GroupsView(tuple(sorted(shown, key=SORTS[query.sort])), len(found), counts, query)


def _row(row: GroupOverview, now: float) -> GroupRow:
    since = row["since"]
    return GroupRow(
        name=row["name"],
        stack=row["stack"],
        level=of_group(row, row["service"]),
        serves=serves(row, row["service"]),
        state=str(row["status"]).replace("_", " "),
        since=when(since),
        lasting=lasted(None if since is None else max(0.0, now - since)),
        active=status_screen.role_holders(row) or "out of service",
        under_way=row["cause"] if row["status"] == TraversalStatus.IN_PROGRESS else "",
        waits_for_you=tuple(_waits(row)),
        since_seconds=since or 0.0,
    )


def _waits(row: GroupOverview) -> Iterable[str]:
    if row["status"] in (TraversalStatus.BLOCKED, TraversalStatus.FAILED):
        yield row["reason"] or str(row["status"])
    if row["held"]:
        yield f"{counted(row['held'], 'alarm')} held"
    if row["lost"]:
        yield f"lost: {', '.join(row['lost'])}"
    yield from status_screen.suspended(row)


def _matches(row: GroupRow, query: Query) -> bool:
    if query.level is not None and row.level is not query.level:
        return False
    if not query.text:
        return True
    said = (row.name, row.stack, row.active, row.serves, row.state, row.under_way)
    wanted = query.text.casefold()
    return any(wanted in text.casefold() for text in (*said, *row.waits_for_you))


SORTS: Mapping[str, Callable[[GroupRow], Any]] = {
    "urgency": lambda row: (URGENCY[row.level], -row.since_seconds, row.name),
    "name": lambda row: row.name,
    "since": lambda row: (-row.since_seconds, row.name),
}
"""The orders of the rows, by the name in the address."""
