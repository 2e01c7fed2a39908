# SPDX-License-Identifier: Apache-2.0
"""Waiting for the cloud: look, pause a little longer each time, stop as soon as it is there."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from mistral_failover.cloud.errors import CloudError, translated
from mistral_failover.cloud.guard import Guard
from mistral_failover.settings import Settings

SEVERAL = 2.5  # longest pauses: so long several looks take


@dataclass(frozen=True, slots=True)
class Look:
    """What one look saw.

    ``state``: in words, for the error when time runs out. ``done``: the wait is over, and
    ``result`` is what it returns. ``error``: what the wait ends with when time runs out now,
    instead of a TIMEOUT.
    """

    state: str
    done: bool = False
    result: Any = None
    error: CloudError | None = None


def wait_until(
    probe: Callable[[], Look],
    *,
    what: str,
    limit: float,
    first: float = 0.05,
    growth: float = 1.12,
    ceiling: float = 2.0,
    patience: int = 5,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
    guard: Guard | None = None,
    refused: Callable[[], CloudError | None] = lambda: None,
) -> Any:
    """Call ``probe`` until a look is done, and return that look's result.

    ``what`` completes "waiting for ...". ``limit``: seconds over all, with a last look at the end;
    ``first``, ``growth`` and ``ceiling`` shape the pauses. A probe may also act (send the request
    that is missing) as long as it looks first: it is then called until reality is as wanted. What
    it sends it sends by way of `Repeats`.

    An error of the probe that is transient is a look that saw nothing, however often it comes: the
    service may be back before the time is over. But services also answer 503 to a token of which
    Keystone tells them nothing any more. So every ``patience`` such errors in a row ``refused``
    says what Keystone has against the request, if anything, and that ends the wait. Of other
    retryable errors ``patience`` in a row end it. ``guard`` is asked before each pause, which it
    also bounds.

    Raises `CloudError` TIMEOUT that tells the last state seen, or, where the last look saw nothing,
    what kept it from seeing; `LeaseLost`; or whatever the probe raises.
    """
    deadline = clock() + limit
    pause = first
    errors = 0
    state = "nothing yet"
    while True:
        last = clock() >= deadline
        kept_from: CloudError | None = None
        try:
            look = probe()
        except CloudError as error:
            errors += 1
            if error.transient:
                kept_from = error
                if errors % patience == 0 and (why := refused()) is not None:
                    raise why from None
            elif not error.retryable or errors > patience:
                raise
            elif errors == 1:
                state = f"{state}, then {error.message}"
        else:
            errors = 0
            state, kept_from = look.state, look.error
            if look.done:
                return look.result
        if last:
            raise kept_from or CloudError(
                "TIMEOUT", f"Gave up after {limit:g} s waiting for {what}: {state}"
            )
        step = min(pause, max(0.0, deadline - clock()))
        if guard is not None:
            step = min(step, guard.permit("GET"))
        sleep(step)
        pause = min(pause * growth, ceiling)


class Repeats:
    """Says when a request that changes something may be sent.

    A request that nobody answered may be queued in the service, and take effect later. Sent again
    and again it takes effect as often. So after one only looks are made, until nothing was to be
    seen of it for so long that it has been lost: a service that broke the connection or failed
    tells so soon; one that was silent may have it in a queue, and gives it up only after its own
    timeout.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        unknown: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``unknown``: an earlier attempt, of which only its end is known, may have sent one."""
        self.soon = settings.poll_ceiling * SEVERAL
        self._silent = max(settings.repeat_after, self.soon)
        self._clock = clock
        self._closed_until = clock() + self.soon if unknown else 0.0
        self.unanswered: CloudError | None = None
        """The error of the last request, while it may take effect yet."""
        self.open = not unknown
        """Whether nothing that was sent may take effect yet."""

    def allow(self) -> bool:
        """Whether a request may be sent. To be asked by a look that saw nothing of an earlier one:
        what did not show by now will not."""
        if not self.open and self._clock() >= self._closed_until:
            self.open, self.unanswered = True, None
        return self.open

    @contextmanager
    def sending(self, doing: str, service: str = "") -> Iterator[None]:
        """The block sends the request. Raises `CloudError` as `translated` does; one whose outcome
        is unknown is noted, and raised for the wait to go on with looking."""
        try:
            with translated(doing, service, changes=True):
                yield
        except CloudError as error:
            if error.unknown:
                self.open, self.unanswered = False, error
                quiet = self._silent if error.code == "TIMEOUT" else self.soon
                self._closed_until = self._clock() + quiet
            raise
        self.answered()

    def answered(self) -> None:
        """Note that the service has taken a request, by its answer or by what a look saw."""
        self.open, self.unanswered = True, None

    def look(self, state: str) -> Look:
        """A look that saw nothing of a request that nobody answered."""
        if self.unanswered is None:
            return Look(f"{state}, and an earlier attempt may have asked for it already")
        return Look(f"{state}; {self.unanswered.message}", error=self.unanswered)
