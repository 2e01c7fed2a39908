# SPDX-License-Identifier: Apache-2.0
"""The guard of the calls of an operation: none starts after its lease has ended."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mistral_failover.cloud.guard import HandedBack, LeaseLost
from mistral_failover.model.ids import derived_id
from mistral_failover.store.leases import Lease


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
    the seconds that it asked to wait.
    """

    lease: Lease
    margin: float
    stopping: Callable[[], bool] = lambda: False
    on_overload: Callable[[str, float], None] = lambda _service, _pause: None

    @property
    def request_id(self) -> str:
        """See ``cloud.guard.Guard``."""
        return request_id(self.lease.lock.resource_id, self.lease.lock.token)

    def permit(self, method: str) -> float:
        """See ``cloud.guard.Guard``. Raises HandedBack as well."""
        if self.stopping():
            raise HandedBack
        changes = method not in ("GET", "HEAD")
        if changes or self.lease.remaining() < self.lease.lock.lease / 3:
            self.lease.renew()
        left = self.lease.remaining() - self.margin
        if left <= 0:
            raise LeaseLost(f"the lease on resource {self.lease.lock.resource_id} is lost")
        return left

    def overloaded(self, service: str, pause: float) -> None:
        """See ``cloud.guard.Listener``."""
        self.on_overload(service, pause)
