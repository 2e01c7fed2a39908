# SPDX-License-Identifier: Apache-2.0
"""Functions that are called after a while, all by one thread: thousands may wait at once."""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections.abc import Callable

from mistral_failover.runtime.errors import caught


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
