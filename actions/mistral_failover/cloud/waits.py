# SPDX-License-Identifier: Apache-2.0
"""Waiting for the cloud: look, pause a little longer each time, stop as soon as it is there."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.guard import Guard


@dataclass(frozen=True, slots=True)
class Look:
    """What one look saw.

    ``state``: in words, for the error when time runs out. ``done``: the wait is over, and
    ``result`` is what it returns.
    """

    state: str
    done: bool = False
    result: Any = None


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
) -> Any:
    """Call ``probe`` until a look is done, and return that look's result.

    ``what`` completes "waiting for ...". ``limit``: seconds over all, with a last look at the end;
    ``first``, ``growth`` and ``ceiling`` shape the pauses. A probe may also act (send the request
    that is missing) as long as it looks first: it is then called until reality is as wanted.

    Retryable errors of the probe are looks that saw nothing; ``patience`` of them in a row end the
    wait with the last. ``guard`` is asked before each pause, which it also bounds.

    Raises `CloudError` TIMEOUT that tells the last state seen, `LeaseLost`, or whatever the probe
    raises.
    """
    deadline = clock() + limit
    pause = first
    errors = 0
    state = "nothing yet"
    while True:
        last = clock() >= deadline
        try:
            look = probe()
        except CloudError as error:
            errors += 1
            if not error.retryable or errors > patience:
                raise
            state = f"{state}, then {error.message}" if errors == 1 else state
        else:
            errors = 0
            state = look.state
            if look.done:
                return look.result
        if last:
            raise CloudError("TIMEOUT", f"Gave up after {limit:g} s waiting for {what}: {state}")
        step = min(pause, max(0.0, deadline - clock()))
        if guard is not None:
            step = min(step, guard.permit("GET"))
        sleep(step)
        pause = min(pause * growth, ceiling)
