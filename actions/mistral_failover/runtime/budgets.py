# SPDX-License-Identifier: Apache-2.0
"""How many operations of a project may run and ask a service at once, and which of them comes
first. Pure.

Each process has a budget for each project and service. It is an additive increase and a
multiplicative decrease: a service that is overloaded halves it, operations that end let it grow.
An operation takes all that it needs at once, so it never waits while it holds a part.
"""

from __future__ import annotations

import heapq
import logging
import math
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

LOG = logging.getLogger(__name__)

BURST = 1.0
"""Seconds after a cut in which further answers of an overloaded service cut nothing: they are
about the same burst of requests."""
FLOOR = 8
"""A budget is never cut below its maximum divided by this, or below one operation."""
GROWTH = 4
"""Operations that must end, without an overloaded service in between, until one more may run."""
QUIET = 60.0
"""Seconds without an overloaded service after which a budget is whole again."""
LONGEST_PAUSE = 60.0
"""Longest pause in seconds that a service may ask for by Retry-After."""
SHARE = 3
"""A project gets a further thread only while it has fewer than this many times the threads that
stay free then. So one project alone gets three quarters of them, and the last free one is for a
project that has none. What runs is not stopped, so several projects with long operations can still
take all of them."""
LONGEST_WAIT = 300.0
"""Seconds after which an operation goes before those with a higher priority, so nothing starves."""


class Budget:
    """How many operations of one project may ask one service now."""

    def __init__(self, maximum: int, clock: Callable[[], float] = time.monotonic) -> None:
        """``maximum``: operations at once while the service is well. ``clock``: in seconds."""
        self._maximum = maximum
        self._clock = clock
        self._limit = maximum
        self._ended = 0
        self._cut_at: float | None = None
        self._closed_until: float | None = None
        self.running = 0

    @property
    def limit(self) -> int:
        """The number of operations that may run at once."""
        if self._cut_at is not None and self._clock() - self._cut_at >= QUIET:
            self._limit, self._cut_at = self._maximum, None
        return self._limit

    def room(self) -> bool:
        """Return whether one more operation may start."""
        if self._closed_until is not None and self._clock() < self._closed_until:
            return False
        return self.running < self.limit

    def take(self) -> None:
        """Record that an operation starts."""
        self.running += 1

    def give_back(self) -> None:
        """Record that an operation ended; after some of them, one more may run."""
        self.running -= 1
        self._ended += 1
        if self._ended >= GROWTH and self.limit < self._maximum:
            self._limit, self._ended = self._limit + 1, 0

    def overloaded(self, pause: float = 0.0) -> float | None:
        """Halve the budget, because the service is overloaded, and start nothing for ``pause``
        seconds. Return how long that is; None if the budget was cut a moment ago, and the service
        does not ask for a longer time."""
        now = self._clock()
        self._ended = 0
        pause = min(max(0.0, pause), LONGEST_PAUSE)
        longer = now + pause > max(now, self._closed_until or now)
        if longer:  # an answer without a time does not end the pause that another asked for
            self._closed_until = now + pause
        if self._cut_at is not None and now - self._cut_at < BURST:
            return pause if longer else None
        self._limit = max(1, self._maximum // FLOOR, self.limit // 2)
        self._cut_at = now
        return pause


@dataclass(frozen=True)
class Need:
    """What a node needs to start. ``services``: the names of those that its operation asks.
    ``priority``: of its group. ``age``: a number that grows from each failover to the next."""

    project_id: str = ""
    services: tuple[str, ...] = ()
    priority: int = 0
    age: int = 0


class Budgets:
    """The budgets of all projects. ``maxima``: by service; ``other`` is that of each further
    service."""

    def __init__(
        self,
        maxima: Mapping[str, int],
        other: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._maxima = maxima
        self._other = other
        self._clock = clock
        self._budgets: dict[tuple[str, str], Budget] = {}

    def room(self, need: Need) -> bool:
        """Return whether each service that is needed has room for one more operation."""
        return all(budget.room() for budget in self._of(need))

    def take(self, need: Need) -> None:
        """Take what an operation needs, all at once."""
        for budget in self._of(need):
            budget.take()

    def give_back(self, need: Need) -> None:
        """Give back what :meth:`take` took."""
        for budget in self._of(need):
            budget.give_back()

    def overloaded(self, project_id: str, service: str, pause: float) -> float | None:
        """Record that a service is overloaded; see :meth:`Budget.overloaded`. None as well if no
        operation of the project has asked the service."""
        budget = self._budgets.get((project_id, service))
        if budget is None:
            return None
        before = budget.limit
        closed = budget.overloaded(pause)
        if budget.limit != before:
            LOG.warning(
                "%s is overloaded: at most %d operations of project %s ask it at once, not %d",
                *(service, budget.limit, project_id, before),
            )
        return closed

    def _of(self, need: Need) -> Iterable[Budget]:
        for service in need.services:
            key = (need.project_id, service)
            if key not in self._budgets:
                maximum = self._maxima.get(service, self._other)
                self._budgets[key] = Budget(maximum, self._clock)
            yield self._budgets[key]


T = TypeVar("T")


@dataclass(eq=False)
class _Waiting(Generic[T]):
    """``need``: what it takes when it starts. One that continues has its budgets already."""

    item: T
    need: Need
    number: int
    since: float
    gone: bool = False

    @property
    def rank(self) -> tuple[int, int, int]:
        return (-self.need.priority, self.need.age, self.number)

    def __lt__(self, other: _Waiting[T]) -> bool:
        return self.rank < other.rank


@dataclass
class _Lane(Generic[T]):
    """What waits for the same budgets: by rank, and by the time of its arrival."""

    ranked: list[_Waiting[T]] = field(default_factory=list)
    arrived: deque[_Waiting[T]] = field(default_factory=deque)

    def first(self, overdue_since: float) -> _Waiting[T] | None:
        """Return what comes first, which stays; None if nothing waits."""
        while self.arrived and self.arrived[0].gone:
            self.arrived.popleft()
        while self.ranked and self.ranked[0].gone:
            heapq.heappop(self.ranked)
        if self.arrived and self.arrived[0].since <= overdue_since:
            return self.arrived[0]
        return self.ranked[0] if self.ranked else None


class Queue(Generic[T]):
    """What waits for a thread and for budgets.

    The project with the fewest threads comes first, so a priority counts only within a project; and
    none gets more than its `SHARE`. Then comes what has waited for `LONGEST_WAIT`, then the highest
    priority, then the oldest failover.
    """

    def __init__(
        self, budgets: Budgets, threads: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """``threads``: those of all projects together. ``clock``: in seconds."""
        self._budgets = budgets
        self._free = threads
        self._clock = clock
        self._lanes: dict[tuple[str, tuple[str, ...] | None], _Lane[T]] = {}
        self._running: Counter[str] = Counter()
        self._number = 0

    def put(self, item: T, need: Need) -> None:
        """Have something wait."""
        self._add((need.project_id, need.services), item, need, self._clock())

    def put_back(self, item: T, need: Need) -> None:
        """Have something wait that gave its thread back by :meth:`pause`. It goes first in its
        project: it mostly needs a thread for a moment, and holds a lock and its budgets."""
        self._add((need.project_id, None), item, replace(need, services=()), -math.inf)

    def _add(
        self, lane_of: tuple[str, tuple[str, ...] | None], item: T, need: Need, since: float
    ) -> None:
        self._number += 1
        waiting = _Waiting(item, need, self._number, since)
        lane = self._lanes.setdefault(lane_of, _Lane())
        heapq.heappush(lane.ranked, waiting)
        lane.arrived.append(waiting)

    def start(self) -> T | None:
        """Return what may start now, and take a thread and its budgets for it; None if nothing
        may."""
        overdue_since = self._clock() - LONGEST_WAIT
        best: _Waiting[T] | None = None
        best_rank: tuple[int, bool, tuple[int, int, int]] | None = None
        for key, lane in list(self._lanes.items()):
            waiting = lane.first(overdue_since)
            if waiting is None:
                del self._lanes[key]
                continue
            if not self._has_thread(waiting.need.project_id):
                continue
            if not self._budgets.room(waiting.need):
                continue
            fresh = waiting.since > overdue_since
            rank = (
                self._running[waiting.need.project_id],
                fresh,
                waiting.rank if fresh else (0, 0, waiting.number),
            )
            if best_rank is None or rank < best_rank:
                best, best_rank = waiting, rank
        if best is None:
            return None
        best.gone = True
        self._budgets.take(best.need)
        self._running[best.need.project_id] += 1
        self._free -= 1
        return best.item

    def _has_thread(self, project_id: str) -> bool:
        running = self._running[project_id]
        return self._free > 0 and (not running or running < SHARE * (self._free - 1))

    def ended(self, need: Need) -> None:
        """Give back the thread and the budgets of what was started."""
        self._budgets.give_back(need)
        self.pause(need)

    def pause(self, need: Need) -> None:
        """Give back the thread of what was started, and keep its budgets."""
        self._free += 1
        self._running[need.project_id] -= 1
        if not self._running[need.project_id]:
            del self._running[need.project_id]

    def clear(self) -> list[T]:
        """Remove and return everything that waits."""
        lanes = self._lanes.values()
        found = [each.item for lane in lanes for each in lane.ranked if not each.gone]
        self._lanes.clear()
        return found
