# SPDX-License-Identifier: Apache-2.0
"""The view of all groups: a row for each, filtered and sorted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from mistral_failover.cli import status_screen
from mistral_failover.cli.base import lasted, when
from mistral_failover.convergence.records import TraversalStatus
from mistral_failover.model.observation import Service
from mistral_failover.model.text import counted
from mistral_failover.ui.levels import Level, of_group, serves

if TYPE_CHECKING:  # the page starts without the code of the actions
    from mistral_failover.reports.documents import GroupOverview


class State(StrEnum):
    """What a group needs, from what needs a person most. A group that is DOWN while its failover
    runs needs none. RESTRICTED: it serves, and is paused, in maintenance, or a member is lost."""

    DOWN = "down"
    WAITS = "waits for a person"
    DEGRADED = "degraded"
    UNKNOWN = "not known"
    IN_PROGRESS = "in progress"
    RESTRICTED = "restricted"
    SERVING = "serving"
    OUT_OF_SERVICE = "out of service"


_PLACE = {state: place for place, state in enumerate(State)}
_STOPPED = (TraversalStatus.BLOCKED, TraversalStatus.FAILED)


def state_of(row: GroupOverview) -> State:
    """Return what a group needs."""
    service = Service(row["service"])
    runs = row["status"] == TraversalStatus.IN_PROGRESS
    if service is Service.DOWN and not runs:
        return State.DOWN
    if row["status"] == TraversalStatus.BLOCKED or row["held"]:
        return State.WAITS
    if runs:
        return State.IN_PROGRESS
    if service is Service.SERVING and (row["lost"] or row["pause"] or row["maintenance"]):
        return State.RESTRICTED
    return State[service.name]


@dataclass(frozen=True)
class Query:
    """What the operator wants to see: ``text`` in a name, a stack, a member or a reason; only
    groups in a ``state``; in the ``sort`` order."""

    text: str = ""
    state: State | None = None
    sort: str = "urgency"

    @staticmethod
    def read(given: Mapping[str, str]) -> Query:
        """Read the parameters of an address; values without a meaning count as not given."""
        state, sort = given.get("state", ""), given.get("sort", "")
        return Query(
            given.get("text", "")[:200],
            State(state) if state in list(State) else None,
            sort if sort in SORTS else "urgency",
        )


@dataclass(frozen=True)
class GroupRow:
    """A group, in words. It ``serves`` so since ``since``, for ``lasting``."""

    name: str
    stack: str | None
    level: Level
    state: State
    serves: str
    status: str
    since: str
    lasting: str
    active: str
    under_way: str
    waits_for_you: tuple[str, ...]
    since_seconds: float


@dataclass(frozen=True)
class GroupsView:
    """The rows that match the query, of ``total`` groups; ``counts`` has those in each
    state."""

    rows: tuple[GroupRow, ...]
    total: int
    counts: Mapping[State, int]
    query: Query


def groups_view(rows: Iterable[GroupOverview], now: float, query: Query) -> GroupsView:
    """Return the view of all groups; ``rows`` are those of ``overview`` in failover.status."""
    found = [_row(row, now) for row in rows]
    counts = {state: sum(row.state is state for row in found) for state in State}
    shown = [row for row in found if _matches(row, query)]
    return GroupsView(tuple(sorted(shown, key=SORTS[query.sort])), len(found), counts, query)


def _row(row: GroupOverview, now: float) -> GroupRow:
    since = row["service_since"] or row["since"]
    return GroupRow(
        name=row["name"],
        stack=row["stack"],
        level=of_group(row, row["service"]),
        state=state_of(row),
        serves=serves(row, row["service"]),
        status=str(row["status"]).replace("_", " "),
        since=when(since),
        lasting=lasted(None if since is None else max(0.0, now - since)),
        active=status_screen.role_holders(row) or "out of service",
        under_way=row["cause"] if row["status"] == TraversalStatus.IN_PROGRESS else "",
        waits_for_you=tuple(_waits(row)),
        since_seconds=since or 0.0,
    )


def _waits(row: GroupOverview) -> Iterable[str]:
    if row["status"] in _STOPPED:
        yield row["reason"] or str(row["status"])
    if row["held"]:
        yield f"{counted(row['held'], 'alarm')} held"
    if row["lost"]:
        yield f"lost: {', '.join(row['lost'])}"
    yield from status_screen.suspended(row)


def _matches(row: GroupRow, query: Query) -> bool:
    if query.state is not None and row.state is not query.state:
        return False
    if not query.text:
        return True
    said = (row.name, row.stack or "", row.active, row.serves, row.status, row.under_way)
    wanted = query.text.casefold()
    return any(wanted in text.casefold() for text in (*said, *row.waits_for_you))


SORTS: Mapping[str, Callable[[GroupRow], Any]] = {
    "urgency": lambda row: (_PLACE[row.state], -row.since_seconds, row.name),
    "name": lambda row: row.name,
    "since": lambda row: (-row.since_seconds, row.name),
}
"""The orders of the rows, by the name in the address."""
