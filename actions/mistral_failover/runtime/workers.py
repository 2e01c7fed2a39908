# SPDX-License-Identifier: Apache-2.0
"""The worker threads of this process: they carry out operations in parallel.

An operation mostly waits for the cloud, so one process carries out many at once. A node that waits
for a free thread, or for the budget of a service, holds no lock yet, so that delays work and harms
nothing. An operation that may take hours, a workflow of the user, needs a thread only for each look
at it: it keeps its lock, whose lease this process renews, and its budgets.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from weakref import WeakValueDictionary

from mistral_failover.convergence.records import Ready
from mistral_failover.runtime.budgets import Budgets, Need, Queue
from mistral_failover.runtime.errors import caught

LOG = logging.getLogger(__name__)

REST = 1.0
"""Seconds before a node whose work raised may be put in again."""

Steps = Generator[float, None, Iterable[Ready]]
Work = Callable[[Ready], Steps]
"""Processes one node and returns the nodes that became ready by it. It yields the seconds for which
it needs no thread, and then continues in another one. If the process stops, it continues at once
and must end. It may raise: then the node stays as it is, until a loop or a sweep finds it again."""
Needs = Callable[[Ready], Need]
"""Says what a node needs to start. It must not raise."""


class Timers:
    """Calls functions later. Its thread lives while one waits, and does not keep the process."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._due: list[tuple[float, int, Callable[[], object]]] = []
        self._numbers = itertools.count()
        self._thread: threading.Thread | None = None

    def after(self, seconds: float, function: Callable[[], object]) -> None:
        """Call ``function`` after so many seconds, unless the process ends before. It must not
        wait; an exception of it is logged."""
        with self._changed:
            entry = (time.monotonic() + max(0.0, seconds), next(self._numbers), function)
            heapq.heappush(self._due, entry)
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="failover-timers", daemon=True)
                thread.start()
                self._thread = thread
            self._changed.notify()

    def _run(self) -> None:
        while (function := self._next()) is not None:
            try:
                function()
            except Exception as error:
                caught(error, "doing what was put off")

    def _next(self) -> Callable[[], object] | None:
        """Wait for the next function that is due; None if none waits."""
        with self._changed:
            while self._due:
                left = self._due[0][0] - time.monotonic()
                if left <= 0:
                    return heapq.heappop(self._due)[2]
                self._changed.wait(left)
            self._thread = None
            return None


@dataclass(eq=False)
class _Job:
    """A node in the pool. ``steps``: of its work, once that has begun."""

    group_id: str
    ready: Ready
    work: Work
    needs: Needs
    need: Need
    steps: Steps | None = None


class Workers:
    """A bounded pool of threads, each of which processes one node at a time.

    A node is in the pool at most once: a second trigger in the same process adds nothing. A node
    starts when a thread is free and the services that it needs have room for it, in the order of
    :class:`mistral_failover.runtime.budgets.Queue`. It needs no thread until then.
    """

    def __init__(self, limit: int, budgets: Budgets) -> None:
        """``limit``: the maximum number of threads."""
        self._limit = limit
        self._budgets = budgets
        self._queue: Queue[_Job] = Queue(budgets, limit)
        self._paused: set[_Job] = set()
        self._lock = threading.Lock()
        self._stopped = threading.Condition(self._lock)
        self._ended_of: WeakValueDictionary[str, threading.Condition] = WeakValueDictionary()
        self._nodes: set[Ready] = set()
        self._busy: Counter[str] = Counter()
        self._active: Counter[str] = Counter()
        self._count = 0
        self._last: dict[str, int] = {}
        self._loops = 0
        self._stopping = False
        self._pool: ThreadPoolExecutor | None = None
        self._timers = Timers()

    @property
    def stopping(self) -> bool:
        """Whether the process releases its work: no further call to the cloud may start."""
        return self._stopping

    def submit(self, group_id: str, ready: Ready, work: Work, needs: Needs) -> bool:
        """Have a node of a group processed, and the nodes that become ready by that. Return False
        if it is already in the pool, or if the process is stopping."""
        need = needs(ready)
        with self._lock:
            if self.stopping or ready in self._nodes:
                return False
            self._nodes.add(ready)
            self._busy[group_id] += 1
            self._queue.put(_Job(group_id, ready, work, needs, need), need)
            self._start()
        return True

    def submit_later(
        self, group_id: str, ready: Ready, work: Work, needs: Needs, seconds: float
    ) -> None:
        """Put a node into the pool after a while, unless the process stops or ends before."""
        self._timers.after(seconds, lambda: self.submit(group_id, ready, work, needs))

    def overloaded(self, project_id: str, service: str, pause: float) -> None:
        """Start fewer operations of a project that ask a service, because it is overloaded, and
        none for ``pause`` seconds, if it asked for that."""
        with self._lock:
            closed = self._budgets.overloaded(project_id, service, pause)
        if closed:
            self._timers.after(closed, self._go_on)

    def ended(self) -> int:
        """Return how many nodes this process has processed; only grows, see :meth:`wait`."""
        with self._lock:
            return self._count

    def busy(self, group_id: str) -> int:
        """Return how many nodes of a group are in the pool."""
        with self._lock:
            return self._busy[group_id]

    def active(self, group_id: str) -> bool:
        """Return whether a thread processes a node of a group, other than one that has needed none
        for a while and is only looked at."""
        with self._lock:
            return group_id in self._active

    def others(self, group_id: str) -> int:
        """Return how many other groups this process works on: nodes of them are in the pool, or a
        loop waits for them."""
        with self._lock:
            in_pool = len(self._busy) - (group_id in self._busy)
            return max(in_pool, self._loops)

    def wait(self, group_id: str, ended: int, seconds: float) -> None:
        """Wait until a node of a group was processed since :meth:`ended` returned ``ended``, the
        process stops, or the time is over."""
        with self._lock:
            self._end_of(group_id).wait_for(
                lambda: self._last.get(group_id, 0) > ended or self.stopping, timeout=seconds
            )

    def settle(self, group_id: str, seconds: float) -> None:
        """Wait until no node of a group is in the pool, the process stops, or the time is over."""
        with self._lock:
            self._end_of(group_id).wait_for(
                lambda: not self._busy[group_id] or self._stopping, timeout=seconds
            )

    def pause(self, seconds: float) -> None:
        """Wait, unless the process stops."""
        with self._lock:
            self._stopped.wait_for(lambda: self._stopping, timeout=seconds)

    @contextmanager
    def loop(self) -> Iterator[None]:
        """Wraps a loop that waits for the workers: releasing work waits for the loop's end."""
        with self._lock:
            self._loops += 1
        try:
            yield
        finally:
            with self._lock:
                self._loops -= 1
                self._notify_stop()

    def loops(self) -> int:
        """Return how many loops wait for the workers now; see :meth:`loop`."""
        with self._lock:
            return self._loops

    def hand_back(self, seconds: float) -> bool:
        """Release all work: start nothing more, and wait until work that has begun has noticed.

        Return whether there was any work. Work that still runs after ``seconds`` makes no further
        calls, because the guard refuses them, and its lease expires.
        """
        with self._lock:
            worked = bool(self._nodes or self._loops)
            self._stopping = True
            for job in self._queue.clear():
                if job.steps is not None:
                    self._paused.add(job)
                    continue
                self._nodes.discard(job.ready)
                self._end(job.group_id)
            for job in list(self._paused):
                self._put_back(job)
            self._notify_stop()
            for waiting in list(self._ended_of.values()):
                waiting.notify_all()
            self._stopped.wait_for(lambda: not self._nodes and not self._loops, seconds)
            return worked

    def reopen(self) -> None:
        """Accept work again, after :meth:`hand_back`."""
        with self._lock:
            self._stopping = False

    def _start(self) -> None:
        """Start what may start now. The caller has the lock."""
        while (job := self._queue.start()) is not None:
            if job.steps is None:
                self._active[job.group_id] += 1
            self._pool = self._pool or ThreadPoolExecutor(self._limit, "failover-worker")
            try:
                self._pool.submit(self._run, job)
            except RuntimeError:  # no thread can be started; it waits for one of those there are
                LOG.warning("No further worker thread can be started", exc_info=True)

    def _go_on(self) -> None:
        with self._lock:
            self._start()

    def _run(self, job: _Job) -> None:
        pause: float | None = None
        fresh = job.steps is None
        try:
            # Before the end is recorded: a loop that sees it must not find the pool empty. And
            # before the next one starts: these may come first.
            pause, nodes = self._worked(job)
            for node in nodes:
                self.submit(job.group_id, node, job.work, job.needs)
        except Exception as error:  # the thread and the budget must be released in any case
            facts = caught(error, "putting the nodes that became ready into the pool")
            LOG.warning("Nodes that became ready are left to the next loop: %s", facts["message"])
        finally:
            with self._lock:
                if fresh:
                    _less(self._active, job.group_id)
                if pause is None:
                    self._queue.ended(job.need)
                    self._end(job.group_id)
                else:
                    self._pause(job, pause)
                self._start()

    def _pause(self, job: _Job, seconds: float) -> None:
        """Put a node aside for a while, without its thread. The caller has the lock."""
        self._queue.pause(job.need)
        self._paused.add(job)
        if self._stopping:  # it did not see that yet
            self._put_back(job)
        else:
            self._timers.after(seconds, lambda: self._resume(job))

    def _resume(self, job: _Job) -> None:
        with self._lock:
            self._put_back(job)

    def _put_back(self, job: _Job) -> None:
        """Have a node that was put aside continue, once. The caller has the lock."""
        if job in self._paused:
            self._paused.discard(job)
            self._queue.put_back(job, job.need)
            self._start()

    def _worked(self, job: _Job) -> tuple[float | None, Iterable[Ready]]:
        """Process a node. Return the seconds for which it needs no thread, None at its end; and the
        nodes that became ready by it."""
        pause: float | None = None
        try:
            if job.steps is None:
                if self.stopping:
                    return None, ()
                job.steps = job.work(job.ready)
            pause = next(job.steps)
        except StopIteration as end:
            return None, end.value
        except Exception as error:  # the pool must survive whatever one node raises
            message = caught(error, "processing a node")["message"]
            LOG.warning("Node %s was left unchanged: %s", job.ready.node.key, message)
            with self._lock:  # a loop puts it in again at once, and it may raise for ever
                self._stopped.wait_for(lambda: self.stopping, REST)
            return None, ()
        else:
            return pause, ()
        finally:
            if pause is None:
                with self._lock:
                    self._nodes.discard(job.ready)
                    self._notify_stop()

    def _end(self, group_id: str) -> None:
        """Record that a node of a group left the pool, and wake the loops that wait for the group.
        The caller has the lock."""
        _less(self._busy, group_id)
        self._count += 1
        self._last[group_id] = self._count
        if (waiting := self._ended_of.get(group_id)) is not None:
            waiting.notify_all()

    def _end_of(self, group_id: str) -> threading.Condition:
        """Return what wakes the loops that wait for a group: those of other groups sleep on. The
        caller has the lock, and keeps it as long as it waits."""
        found = self._ended_of.get(group_id)
        if found is None:
            found = self._ended_of[group_id] = threading.Condition(self._lock)
        return found

    def _notify_stop(self) -> None:
        """Wake what waits for the stop, or for the end of work after it. The caller has the
        lock."""
        if self._stopping:
            self._stopped.notify_all()


def _less(counter: Counter[str], key: str) -> None:
    counter[key] -= 1
    if not counter[key]:
        del counter[key]
