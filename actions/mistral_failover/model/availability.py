# SPDX-License-Identifier: Apache-2.0
"""How long a group was in which state, from the changes of its word. Times and lengths in seconds.

What is stored is a row for each change of the word (``Change``); a word lasts until the next one.
Time in which nothing looked is UNKNOWN: a look counts only until the last one that came in time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from mistral_failover.model.observation import Service, ServiceState

SERVES = frozenset({Service.SERVING, Service.DEGRADED})
"""What must be seen again and again to stay so."""
_WORST = (
    Service.DOWN,
    Service.DEGRADED,
    Service.UNKNOWN,
    Service.SERVING,
    Service.OUT_OF_SERVICE,
)


@dataclass(frozen=True)
class Change:
    """From ``at`` on the word of a group was ``service``."""

    at: float
    service: Service


@dataclass(frozen=True)
class Stretch:
    """A group was so from ``begin`` to ``end``."""

    begin: float
    end: float
    service: Service

    @property
    def seconds(self) -> float:
        """Its length."""
        return self.end - self.begin


@dataclass(frozen=True)
class Interruption:
    """The engine stopped what serves at ``begin``, or knew then that it was lost, and had made all
    of it again at ``end``."""

    begin: float
    end: float


def further_changes(
    last: Change | None,
    looked_at: float,
    state: ServiceState,
    interruption: Interruption | None,
    now: float,
    fresh: float,
) -> tuple[Change, ...]:
    """Return the changes after ``last`` that lead to the present ``state``, the earliest first.

    ``looked_at``: the time of the last look whose word is stored, 0 if there is none.
    ``interruption``: by the latest traversal. ``fresh``: seconds for which a look counts. The first
    change may be as old as ``last``, and takes its place then.
    """
    floor = now - fresh if last is None else max(last.at, min(looked_at, now))
    word = last.service if last is not None else Service.UNKNOWN
    found: list[Change] = []
    if interruption is not None and (last is None or interruption.end > last.at):
        ended = min(interruption.end, now)
        if last is not None and ended <= floor:  # it was over at the look before
            begun = min(max(interruption.begin, last.at), ended)
        else:
            begun = min(max(interruption.begin, floor), ended)
            found += _since(word, floor, begun, fresh, last)
        found.append(Change(begun, Service.DOWN))
        word, floor = Service.DOWN, ended
    at = _begin(state, floor, now, after=bool(found))
    if state.service is Service.UNKNOWN and word in SERVES and now - floor > fresh:
        at = floor  # what was seen then counts no longer
    found += _since(word, floor, at, fresh, last)
    found.append(Change(at, state.service))
    return _without_repeats(found, last)


def _since(
    word: Service, floor: float, at: float, fresh: float, last: Change | None
) -> Iterator[Change]:
    """Yield that it was not known, where a word was not seen for too long before a change."""
    if last is not None and word in SERVES and at - floor > fresh:
        yield Change(floor, Service.UNKNOWN)


def _begin(state: ServiceState, floor: float, now: float, *, after: bool) -> float:
    """Return when the present state began. That a group serves is known from when it was found, or
    from when the engine had made it (``after`` an interruption); the beginning of anything else is
    what the state says."""
    if after and state.service in SERVES:
        return floor
    since = state.since
    if since is None or (state.service in SERVES and since <= floor):
        return now
    return min(max(since, floor), now)


def _without_repeats(found: Iterable[Change], last: Change | None) -> tuple[Change, ...]:
    """Return the changes without those that last no time or change nothing."""
    kept: list[Change] = []
    for change in found:
        while kept and kept[-1].at >= change.at:
            kept.pop()
        before = kept[-1] if kept else last
        if before is None or before.service is not change.service:
            kept.append(change)
    return tuple(kept)


def stretches(changes: Sequence[Change], begin: float, end: float) -> tuple[Stretch, ...]:
    """Return what a group was from ``begin`` to ``end``, without gaps and overlaps; UNKNOWN before
    the first of the ``changes``, which are in order."""
    marks = [Change(begin, Service.UNKNOWN)]
    for change in changes:
        if change.at < end:
            marks.append(Change(max(change.at, begin), change.service))
    found: list[Stretch] = []
    for mark, following in zip(marks, [*marks[1:], Change(end, Service.UNKNOWN)], strict=True):
        if following.at <= mark.at:
            continue
        if found and found[-1].service is mark.service:
            found[-1] = Stretch(found[-1].begin, following.at, mark.service)
        else:
            found.append(Stretch(mark.at, following.at, mark.service))
    return tuple(found)


def within(found: Iterable[Stretch], begin: float, end: float) -> tuple[Stretch, ...]:
    """Return the parts of stretches that lie between two times."""
    cut = (Stretch(max(one.begin, begin), min(one.end, end), one.service) for one in found)
    return tuple(each for each in cut if each.seconds > 0)


def seconds_by_service(found: Iterable[Stretch]) -> dict[Service, float]:
    """Return how long each word lasted in all, with 0 for those that did not occur."""
    total = dict.fromkeys(Service, 0.0)
    for each in found:
        total[each.service] += each.seconds
    return total


def availability(seconds: Mapping[Service, float]) -> float | None:
    """Return which part of the time was served or degraded, from 0 to 1, of the time for which it
    is known; None if it is known for no time. Time out of service does not count."""
    served = sum(seconds.get(each, 0.0) for each in SERVES)
    known = served + seconds.get(Service.DOWN, 0.0)
    return served / known if known > 0 else None


def worst(seconds: Mapping[Service, float]) -> Service:
    """Return the worst word that occurred; UNKNOWN if none did."""
    return next((each for each in _WORST if seconds.get(each, 0.0) > 0), Service.UNKNOWN)


def percent(part: float | None) -> str:
    """Return a part in percent, for people. It is rounded down: less than the whole is never
    100 %."""
    if part is None:
        return "not known"
    shown = f"{math.floor(part * 1e5 + 1e-6) / 1e3:.3f}".rstrip("0").rstrip(".")
    return f"{shown} %"
