# SPDX-License-Identifier: Apache-2.0
"""The agent as a service: notifications to systemd, and logging."""

from __future__ import annotations

import ctypes
import logging
import os
import socket
import sys
import time

_PRIORITIES = ((logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6))
_TIME_ERROR = 5  # of adjtimex(2): the clock is not synchronised
_TIMEX = 512  # bytes; no version of struct timex is larger


class Notifier:
    """Notifies systemd if it asks for that (``NOTIFY_SOCKET``, ``WATCHDOG_USEC``)."""

    def __init__(self) -> None:
        path = os.environ.get("NOTIFY_SOCKET", "")
        self._address = "\0" + path[1:] if path.startswith("@") else path
        watchdog = os.environ.get("WATCHDOG_USEC", "")
        self._every = int(watchdog) / 3e6 if watchdog.isdigit() else None
        self._said = float("-inf")

    def ready(self) -> None:
        """The agent works."""
        self._tell("READY=1")

    def alive(self) -> None:
        """The agent still works; may be called at any frequency."""
        now = time.monotonic()
        if self._every is not None and now - self._said >= self._every:
            self._said = now
            self._tell("WATCHDOG=1")

    def stopping(self) -> None:
        """The agent stops."""
        self._tell("STOPPING=1")

    def _tell(self, state: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as one:
                one.settimeout(1.0)
                one.sendto(state.encode(), self._address)
        except OSError as error:
            logging.getLogger(__name__).warning(
                "systemd cannot be notified of %s: %s", state, error
            )


class _Lines(logging.Formatter):
    """One line per record, with its priority in front if journald reads it."""

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        if "JOURNAL_STREAM" not in os.environ:
            return text
        priority = next((p for level, p in _PRIORITIES if record.levelno >= level), 7)
        return "\n".join(f"<{priority}>{line}" for line in text.splitlines())


def log_to_stderr() -> None:
    """Log to stderr: the agent's own steps, and warnings of libraries."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Lines("%(levelname)s %(message)s"))
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    logging.getLogger("mistral_failover").setLevel(logging.INFO)


def clock_is_set() -> bool:
    """Return whether the server's clock is synchronised, as far as its kernel knows."""
    try:
        state = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(_TIMEX))
    except (OSError, AttributeError):
        return True
    return bool(state != _TIME_ERROR)
