# SPDX-License-Identifier: Apache-2.0
"""A guard that ends a wait once something else has decided: an operator who confirms a fence, or a
failover that ends a rehearsal."""

from __future__ import annotations

import time
from collections.abc import Callable

from sqlalchemy.exc import SQLAlchemyError

from mistral_failover.cloud.errors import CloudError, Fate
from mistral_failover.cloud.transport import Guard, Listener, NoLongerNeeded, RequestLog
from mistral_failover.runtime.errors import caught

LOOK = 1.0
"""Seconds at least between two looks into the state store."""


def going(guard: Guard) -> Callable[[], None]:
    """Return what raises LeaseLost as soon as the process stops or has lost its lease. Neither an
    operator's confirmation nor a state store that is away ends a program."""

    def check() -> None:
        try:
            guard.permit("GET")
        except NoLongerNeeded:
            pass
        except SQLAlchemyError as error:
            caught(error, "renewing the lease of a fence")

    return check


class WatchfulGuard:
    """Permits what another guard permits, until it is decided elsewhere what is waited for.

    Only reads and waits end by that. A request that changes something is sent: a rung must not stop
    between two requests that belong together.
    """

    def __init__(
        self,
        guard: Guard,
        decided: Callable[[], str | None],
        why: str = "an operator confirmed the fence",
    ) -> None:
        """``decided``: reads the decision; None if there is none. ``why``: what it is, in words."""
        self._guard = guard
        self._decided = decided
        self._why = why
        self._looked = time.monotonic()  # the caller itself has looked right before

    @property
    def request_id(self) -> str | None:
        """See ``cloud.transport.Guard``."""
        return self._guard.request_id

    def permit(self, method: str) -> float:
        """See ``cloud.transport.Guard``. Raises NoLongerNeeded."""
        if method == "GET" and time.monotonic() - self._looked >= LOOK:
            self._looked = time.monotonic()
            # Without the store no more is known than a second ago; the next look may succeed.
            try:
                decided = self._decided()
            except SQLAlchemyError as error:
                caught(error, f"looking whether {self._why}")
                decided = None
            if decided is not None:
                raise NoLongerNeeded(self._why)
        return self._guard.permit(method)

    def unsettled(self) -> float:
        """See ``cloud.transport.RequestLog``."""
        return self._guard.unsettled() if isinstance(self._guard, RequestLog) else 0.0

    def ask(self, asked: str) -> tuple[float, int]:
        """See ``cloud.transport.RequestLog``."""
        if isinstance(self._guard, RequestLog):
            return self._guard.ask(asked)
        return self._guard.permit(asked.partition(" ")[0]), 0

    def ended(self, number: int, fate: Fate) -> None:
        """See ``cloud.transport.RequestLog``."""
        if isinstance(self._guard, RequestLog):
            self._guard.ended(number, fate)

    def overloaded(self, service: str, pause: float) -> None:
        """See ``cloud.transport.Listener``."""
        if isinstance(self._guard, Listener):
            self._guard.overloaded(service, pause)

    def waits_for(self, error: CloudError | None) -> None:
        """See ``cloud.transport.Listener``."""
        if isinstance(self._guard, Listener):
            self._guard.waits_for(error)
