# SPDX-License-Identifier: Apache-2.0
"""Log lines about requests that are refused. Their number is the sender's choice, so it is limited:
otherwise a flood without any token would fill the disk. Errors of our own are logged elsewhere, and
all of them."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

EACH = 60.0
"""Seconds between two lines with the same reason."""
REASONS = 100
"""Different reasons at most; further ones count as one."""
_FURTHER = "another reason"


class RefusalLog:
    """Logs refused requests: for each reason one line in `EACH` seconds, which says how many there
    were since the one before. Thread-safe.

    :param log: where the lines go, as warnings. :param what: what refuses, the line's beginning.
    :param clock: in seconds.
    """

    def __init__(
        self, log: logging.Logger, what: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._log = log
        self._what = what
        self._clock = clock
        self._lock = threading.Lock()
        self._last: dict[str, tuple[float, int]] = {}  # when a line was logged, and how many since

    def refused(self, reason: str, peer: str = "") -> None:
        """Note that a request was refused. ``reason``: a code or a constant text, never a text of
        the sender. ``peer``: the sender's address, if known."""
        if (since := self.due(reason)) is not None:
            sender = f" from {peer}" if peer else ""
            more = f" ({since} more since the last such line)" if since else ""
            self._log.warning("%s refused a request%s: %s%s", self._what, sender, reason, more)

    def due(self, reason: str) -> int | None:
        """Note a refusal; return how many were left out since the last line with this reason if a
        line is due now, None if not."""
        now = self._clock()
        with self._lock:
            if reason not in self._last and len(self._last) >= REASONS:
                reason = _FURTHER
            at, since = self._last.get(reason, (now - EACH, 0))
            if now - at < EACH:
                self._last[reason] = (at, since + 1)
                return None
            self._last[reason] = (now, 0)
            return since
