# SPDX-License-Identifier: Apache-2.0
"""The guard of the calls of an operation: none starts after its lease has ended."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from sqlalchemy.exc import SQLAlchemyError

from mistral_failover.cloud.errors import CloudError, Fate
from mistral_failover.cloud.transport import HandedBack, LeaseLost
from mistral_failover.convergence.records import Lock
from mistral_failover.convergence.waiting import named
from mistral_failover.model.ids import derived_id
from mistral_failover.runtime.errors import caught, describe
from mistral_failover.store.database import Database
from mistral_failover.store.leases import Lease

LOG = logging.getLogger(__name__)

EVERY = 5.0
"""Seconds at least between two records of what an operation waits for; an answer is recorded at
once."""


def request_id(resource_id: str, token: int) -> str:
    """Return the global request id of the calls made under one lock."""
    return f"req-{derived_id(resource_id, str(token))}"


@dataclass(frozen=True)
class LeaseGuard:
    """Permits a call while enough of the lease certainly remains; renews the lease when it gets
    short.

    Before a call that changes something, the lease is renewed in the database, so a lost lock is
    noticed before the call. ``stopping`` says whether the process releases its work: then no
    further call starts. ``on_overload`` is called with the name of a service that is overloaded and
    the seconds that it asked to wait. ``on_wait`` is called as ``waits_for`` is. ``outlives``
    returns for how many seconds a request may still take effect, by what was asked and what became
    of the call.
    """

    lease: Lease
    margin: float
    stopping: Callable[[], bool] = lambda: False
    on_overload: Callable[[str, float], None] = lambda _service, _pause: None
    on_wait: Callable[[CloudError | None], None] = lambda _error: None
    outlives: Callable[[str, Fate], float] = lambda _asked, _fate: 0.0

    @cached_property
    def request_id(self) -> str:
        """See ``cloud.transport.Guard``."""
        return request_id(self.lease.lock.resource_id, self.lease.lock.token)

    def permit(self, method: str) -> float:
        """See ``cloud.transport.Guard``. Raises HandedBack as well."""
        self._refuse_while_stopping()
        changes = method not in ("GET", "HEAD")
        if changes or self.lease.remaining() < self.lease.lock.lease / 3:
            self.lease.renew()
        return self._left()

    def unsettled(self) -> float:
        """See ``cloud.transport.RequestLog``."""
        return self.lease.requests.unsettled()

    def ask(self, asked: str) -> tuple[float, int]:
        """See ``cloud.transport.RequestLog``. Raises HandedBack as well."""
        self._refuse_while_stopping()
        with self.lease.requests as requests:
            number = requests.add(asked, self.outlives(asked, Fate.SILENT))
            try:
                self.lease.ask(*requests.last())
                return self._left(), number
            except BaseException:
                requests.remove(number)  # it is not sent
                raise

    def ended(self, number: int, fate: Fate) -> None:
        """See ``cloud.transport.RequestLog``. Without the store the record stays: then the next
        owner waits, though it need not."""
        if fate is Fate.SILENT:
            return  # as it was recorded
        with self.lease.requests as requests:
            asked = requests.remove(number)
            if fate is Fate.FAILED:
                requests.add(asked, self.outlives(asked, fate))
            try:
                self.lease.settle(*requests.last())
            except SQLAlchemyError as error:
                said = caught(error, "recording the answer to a request")["message"]
                LOG.warning("The answer to a request was not recorded: %s", said)

    def _refuse_while_stopping(self) -> None:
        if self.stopping():
            raise HandedBack

    def _left(self) -> float:
        left = self.lease.remaining() - self.margin
        if left <= 0:
            raise LeaseLost(f"the lease on resource {self.lease.lock.resource_id} is lost")
        return left

    def overloaded(self, service: str, pause: float) -> None:
        """See ``cloud.transport.Listener``."""
        self.on_overload(service, pause)

    def waits_for(self, error: CloudError | None) -> None:
        """See ``cloud.transport.Listener``."""
        self.on_wait(error)


class WaitRecord:
    """Records in the ledger what the operation under a lock waits for, for operators to see."""

    def __init__(
        self, database: Database, lock: Lock, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._database = database
        self._lock = lock
        self._clock = clock
        self._mutex = threading.Lock()
        self._said: str | None = None
        self._next = 0.0

    def __call__(self, error: CloudError | None) -> None:
        """See ``cloud.transport.Listener.waits_for``. Nothing fails by it: without the store, the
        next look tries again."""
        what = None if error is None else named(describe(error))
        with self._mutex:
            now = self._clock()
            if what == self._said or (what is not None and now < self._next):
                return
            self._next = now + EVERY
            try:
                self._database.atomically(lambda tx: tx.waits_for(self._lock, what))
            except SQLAlchemyError as error:
                caught(error, "recording what an operation waits for")
            else:
                self._said = what
