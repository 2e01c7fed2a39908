# SPDX-License-Identifier: Apache-2.0
"""Keep leases alive, and notice at once when one is lost.

A process renews the leases of its operations from one thread. It decides by its own clock how long
it may continue. It reads that clock *before* it asks the database, so for the process a lease
always ends earlier than for the database. A process that was frozen finds its time used up and
stops by itself.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from mistral_failover.convergence.ports import Store, Transaction
from mistral_failover.convergence.records import Lock
from mistral_failover.defects import defect
from mistral_failover.fault_points import reach
from mistral_failover.store.database import is_away

LOG = logging.getLogger(__name__)


def elapsed() -> float:
    """Return the seconds on a clock that also counts while the machine is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class OpenRequests:
    """The requests of one operation that may still take effect. In its block one thread at a time
    changes them and their record in the store, so that the last change is also recorded last."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._until: dict[int, tuple[float, str]] = {}
        self._count = 0
        self._earlier_until = 0.0

    def inherit(self, seconds: float) -> None:
        """Add those of an earlier attempt, which may take effect for so many seconds, once."""
        with self:
            if seconds > 0 and not self._count:
                self._earlier_until = elapsed() + seconds
                self.add("a request of an earlier attempt", seconds)

    def unsettled(self) -> float:
        """Return for how many seconds a request of an earlier attempt may still take effect."""
        return max(0.0, self._earlier_until - elapsed())

    def __enter__(self) -> OpenRequests:
        self._mutex.acquire()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._mutex.release()

    def add(self, asked: str, seconds: float) -> int:
        """Add a request that may take effect for so many seconds; return its number."""
        self._count += 1
        self._until[self._count] = (elapsed() + seconds, asked)
        return self._count

    def remove(self, number: int) -> str:
        """Forget a request; return what was asked."""
        return self._until.pop(number)[1]

    def last(self) -> tuple[str | None, float]:
        """Return the one that may take effect for longest, and for how many seconds; None if there
        is none."""
        until, asked = max(self._until.values(), default=(0.0, ""))
        left = until - elapsed()
        return (asked, left) if left > 0 else (None, 0.0)


class Lease:
    """One lease from its holder's point of view."""

    def __init__(
        self, store: Store, lock: Lock, since: float, clock: Callable[[], float] = elapsed
    ) -> None:
        """``since``: when the lock was requested or last renewed, by ``clock``."""
        self._store = store
        self.lock = lock
        self._clock = clock
        self._until = since + lock.lease
        self.lost = False
        self.requests = OpenRequests()
        """Those under the lock, of all actions of its operation that run in this process."""

    def due_in(self) -> float:
        """Return the seconds until it should be renewed, which is after a third of its length."""
        return self._until - self._clock() - self.lock.lease * 2 / 3

    def remaining(self) -> float:
        """Return the seconds that are certainly left; 0 if the lease is lost or has expired."""
        return 0.0 if self.lost else max(0.0, self._until - self._clock())

    def renew(self) -> bool:
        """Extend the lease. Return False if it is lost for good."""
        return self._renew(lambda tx: tx.renew(self.lock))

    def ask(self, asked: str | None, seconds: float) -> bool:
        """Extend the lease before a request is sent, and record what may take effect and for how
        many seconds; None: nothing. Return as :meth:`renew`."""
        if asked is None:
            return self.renew()
        return self._renew(lambda tx: tx.ask(self.lock, asked, seconds))

    def settle(self, asked: str | None, seconds: float) -> None:
        """Record what may still take effect; None: nothing."""
        self._store.atomically(lambda tx: tx.settle(self.lock, asked, seconds))

    def _renew(self, renew: Callable[[Transaction], bool]) -> bool:
        if self.lost or self.remaining() <= 0:
            self.lost = True
            return False
        asked = self._clock()
        reach("renew.before")
        if self._store.atomically(renew):
            reach("renew.after")
            self._until = asked + self.lock.lease
        else:
            self.lost = True
        return not self.lost


class LeaseKeeper:
    """Renews the leases that this process holds, each after a third of its length."""

    def __init__(self, store: Store, clock: Callable[[], float] = elapsed) -> None:
        self._store = store
        self._clock = clock
        self._held: dict[tuple[str, int], tuple[Lease, int]] = {}
        self._changed = threading.Condition()
        self._asleep_until = math.inf
        self._thread: threading.Thread | None = None

    @contextmanager
    def hold(self, lock: Lock, since: float | None = None) -> Iterator[Lease]:
        """Keep a lease alive while the block runs. Nested blocks may hold the same lock.

        If ``since`` is None (the lock was taken elsewhere at an unknown time), the outermost block
        renews the lease at once.
        """
        lease, outermost = self._enter(lock, since)
        try:
            if outermost and since is None:
                lease.renew()
            yield lease
        finally:
            self._leave(lock)

    def _enter(self, lock: Lock, since: float | None) -> tuple[Lease, bool]:
        key = (lock.resource_id, lock.token)
        with self._changed:
            fresh = Lease(self._store, lock, self._clock() if since is None else since, self._clock)
            lease, count = self._held.get(key, (fresh, 0))
            self._held[key] = (lease, count + 1)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="leases", daemon=True)
                self._thread.start()
            if count == 0 and self._clock() + lease.due_in() < self._asleep_until:
                self._changed.notify()  # mostly others are due before it: it wakes for them
            return lease, count == 0

    def _leave(self, lock: Lock) -> None:
        key = (lock.resource_id, lock.token)
        with self._changed:
            lease, count = self._held.pop(key)
            if count > 1:
                self._held[key] = (lease, count - 1)

    def _run(self) -> None:
        """Run until the process ends. It is a daemon thread, because a dead process's leases must
        end."""
        while True:
            with self._changed:
                leases = [lease for lease, _ in self._held.values() if not lease.lost]
                wait = min((lease.due_in() for lease in leases), default=None)
                if wait is None or wait > 0:
                    self._asleep_until = math.inf if wait is None else self._clock() + wait
                    self._changed.wait(wait)
                    continue
            for lease in leases:
                if lease.due_in() <= 0:
                    _renew(lease)


def _renew(lease: Lease) -> None:
    try:
        if not lease.renew():
            LOG.warning("The lease on %s is lost.", lease.lock.resource_id)
    except Exception as error:  # the thread renews the leases of all operations
        if is_away(error):  # it may come back before the lease ends
            LOG.warning("A lease could not be renewed; trying again: %s", type(error).__name__)
        else:
            defect(error, "renewing a lease")
        time.sleep(min(1.0, lease.lock.lease / 10))
