# SPDX-License-Identifier: Apache-2.0
"""Calls that end in time, whatever happens."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import TypeVar

from mistral_failover.cloud.errors import CloudError

T = TypeVar("T")


class DeadlineGuard:
    """A guard that ends every call at one moment."""

    def __init__(self, deadline: float, limit: float) -> None:
        """``deadline``: on the monotonic clock. ``limit``: seconds that any one call may last."""
        self._deadline = deadline
        self._limit = limit

    @property
    def request_id(self) -> str | None:
        """None: it belongs to no operation."""
        return None

    def permit(self, method: str) -> float:  # noqa: ARG002 - the protocol's parameter
        """See ``cloud.transport.Guard``. Raises CloudError TIMEOUT when the time is over."""
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise CloudError("TIMEOUT", "The time for this look is over.")
        return min(left, self._limit)


def within(seconds: float, function: Callable[[], T]) -> T | None:
    """Return the result of ``function``, or None if it takes longer; then it continues in a thread
    that no process waits for. Raises what it raises."""
    answer: Future[T] = Future()

    def run() -> None:
        try:
            answer.set_result(function())
        except BaseException as error:
            answer.set_exception(error)

    threading.Thread(target=run, daemon=True, name="bounded").start()
    wait([answer], max(0.0, seconds))
    return answer.result() if answer.done() else None
