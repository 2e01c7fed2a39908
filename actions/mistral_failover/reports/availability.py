# SPDX-License-Identifier: Apache-2.0
"""How much of a time groups served: of one group, and of all groups of the project."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TypedDict

from mistral_failover.convergence.records import TraversalStatus
from mistral_failover.groups.service import judged_services
from mistral_failover.groups.service_changes import changes_after
from mistral_failover.groups.snapshot import group_snapshot
from mistral_failover.model.availability import (
    SERVES,
    Change,
    Stretch,
    availability,
    seconds_by_service,
    stretches,
    within,
    worst,
)
from mistral_failover.model.observation import Service
from mistral_failover.reports import moves
from mistral_failover.runtime.request import Request
from mistral_failover.store import service_changes
from mistral_failover.store.transaction import ProjectTransaction

DAY = 86400.0
SLOTS = 48
"""Maximum parts of a bar."""
MOST_GROUPS = 500
"""Maximum groups in one answer: the least available."""
MOST_MOVES = 500
"""Maximum traversals of which one answer may tell: the latest."""
MOST_STRETCHES = 100
"""Maximum stretches in which a group did not serve that one answer has: the latest."""
_SLOTS = (1800.0, 3600.0, 3 * 3600.0, 6 * 3600.0, DAY)  # seconds that people can read


class Slot(TypedDict):
    """A part of a bar, from ``since`` to ``until``: the ``worst`` word in it, and how long each
    lasted, summed over the groups."""

    since: float
    until: float
    worst: str
    seconds: dict[str, float]


class NotServed(TypedDict):
    """A time in which a group was DOWN, UNKNOWN or OUT_OF_SERVICE."""

    service: str
    since: float
    until: float


class MoveInTime(TypedDict):
    """A move of a group in this time that made again what serves, or was to: its first
    ``traversal``, when it began, and its outcome."""

    group: str
    traversal: str
    began_at: float
    outcome: str


class GroupAvailability(TypedDict):
    """``availability``: the part of the known time in which it served or was degraded, 0 to 1; None
    if it is known for no time. ``seconds``: how long it was in each state."""

    name: str
    availability: float | None
    seconds: dict[str, float]


class AvailabilityReport(TypedDict):
    """How much of the time from ``since`` to ``until`` was served: of a ``group``, or of all groups
    together (None), then with ``groups``, the least available first. ``not_served``: the latest
    times in which the group did not serve, in order; of all groups none. ``moves``: the latest, in
    order."""

    group: str | None
    since: float
    until: float
    availability: float | None
    seconds: dict[str, float]
    slots: list[Slot]
    not_served: list[NotServed]
    moves: list[MoveInTime]
    groups: list[GroupAvailability]


def report(request: Request, name: str | None, seconds: float) -> AvailabilityReport:
    """Return how much of the last ``seconds`` a group served, or all groups of the project. Raises
    UnknownGroup."""
    group_id = group_snapshot(request, name).state.id if name is not None else None

    def read(tx: ProjectTransaction) -> AvailabilityReport:
        now = tx.now()
        since = now - seconds
        edges = _edges(since, now)
        slots = [dict.fromkeys(Service, 0.0) for _ in edges[1:]]
        rows: list[GroupAvailability] = []
        total = dict.fromkeys(Service, 0.0)
        not_served: list[NotServed] = []
        for group, changes in _changes(request, tx, since, group_id):
            found = stretches(changes, since, now)
            _add_slots(slots, found, edges)
            lasted = seconds_by_service(found)
            total = {each: total[each] + lasted[each] for each in Service}
            rows.append(_row(group, lasted))
            if group_id is not None:
                not_served = _not_served(found)
        rows.sort(key=lambda row: (_or_last(row["availability"]), row["name"]))
        return {
            "group": name,
            "since": since,
            "until": now,
            "availability": availability(total),
            "seconds": _words(total),
            "slots": [
                {
                    "since": begin,
                    "until": end,
                    "worst": str(worst(lasted)),
                    "seconds": _words(lasted),
                }
                for (begin, end), lasted in zip(pairwise(edges), slots, strict=True)
            ],
            "not_served": not_served,
            "moves": _moves(request, tx, since, group_id),
            "groups": [] if group_id is not None else rows[:MOST_GROUPS],
        }

    return request.store.snapshot(read)


def _changes(
    request: Request, tx: ProjectTransaction, since: float, group_id: str | None
) -> Iterator[tuple[str, list[Change]]]:
    """Yield the name of each group and its changes since then, those included that no round has
    stored yet."""
    stored: dict[str, list[Change]] = {}
    for identity, change in service_changes.since(tx, since, group_id):
        stored.setdefault(identity, []).append(change)
    ids = None if group_id is None else [group_id]
    for identity, judged in judged_services(request.runtime, tx, ids).items():
        changes = stored.get(identity, [])
        further = changes_after(request.runtime, tx, judged, changes[-1] if changes else None)
        if changes and further and further[0].at <= changes[-1].at:
            changes = changes[:-1]
        yield judged.name, [*changes, *further]


def _edges(since: float, until: float) -> list[float]:
    """Return where the slots of a bar begin, and the end: at whole hours or days of UTC."""
    size = next((each for each in _SLOTS if (until - since) / each <= SLOTS), _SLOTS[-1])
    first = (since // size + 1) * size
    between = [first + each * size for each in range(int(max(0.0, until - first) // size) + 1)]
    return [since, *(each for each in between if since < each < until), until]


def _add_slots(
    slots: Sequence[dict[Service, float]], found: Sequence[Stretch], edges: Sequence[float]
) -> None:
    for slot, (begin, end) in zip(slots, pairwise(edges), strict=True):
        for each in within(found, begin, end):
            slot[each.service] += each.seconds


def _not_served(found: Sequence[Stretch]) -> list[NotServed]:
    rows: list[NotServed] = [
        {"service": str(each.service), "since": each.begin, "until": each.end}
        for each in found
        if each.service not in SERVES
    ]
    return rows[-MOST_STRETCHES:]


def _moves(
    request: Request, tx: ProjectTransaction, since: float, group_id: str | None
) -> list[MoveInTime]:
    found: list[MoveInTime] = [
        {
            "group": move["group"],
            "traversal": move["traversal"],
            "began_at": move["began_at"],
            "outcome": move["outcome"],
        }
        for move in moves.since(request, tx, since, MOST_MOVES, group_id)
        if move["to_service"] is not None or move["outcome"] != TraversalStatus.COMPLETE
    ]
    return found[::-1]


def _row(name: str, seconds: Mapping[Service, float]) -> GroupAvailability:
    return {"name": name, "availability": availability(seconds), "seconds": _words(seconds)}


def _words(seconds: Mapping[Service, float]) -> dict[str, float]:
    return {str(each): round(lasted, 3) for each, lasted in seconds.items()}


def _or_last(part: float | None) -> float:
    return 2.0 if part is None else part
