# SPDX-License-Identifier: Apache-2.0
"""What the agent is to the system around it: a service that says how it is, and logs."""

from __future__ import annotations

import ctypes
import logging
import os
import socket
import sys
import time

_PRIORITIES = ((logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6))
_TIME_ERROR = 5  # of adjtimex(2): nobody synchronises the clock
_TIMEX = 512  # bytes; more than struct timex has anywhere


class Notifier:
    """Tells systemd, where it is asked to (``NOTIFY_SOCKET``, ``WATCHDOG_USEC``)."""

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
        """The agent still works; may be called at any rate."""
        now = time.monotonic()
        if self._every is not None and now - self._said >= self._every:
            self._said = now
            self._tell("WATCHDOG=1")

    def stopping(self) -> None:
        """The agent ends."""
        self._tell("STOPPING=1")

    def _tell(self, state: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as one:
                one.settimeout(1.0)
                one.sendto(state.encode(), self._address)
        except OSError as error:
            logging.getLogger(__name__).warning("systemd can not be told %s: %s", state, error)


class _Lines(logging.Formatter):
    """One line a record; its priority in front where journald reads it."""

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        if "JOURNAL_STREAM" not in os.environ:
            return text
        priority = next((p for level, p in _PRIORITIES if record.levelno >= level), 7)
        return "\n".join(f"<{priority}>{line}" for line in text.splitlines())


def log_to_stderr() -> None:
    """Have this process log to stderr: its own steps, and warnings of libraries."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Lines("%(levelname)s %(message)s"))
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    logging.getLogger("mistral_failover").setLevel(logging.INFO)


def clock_is_set() -> bool:
    """Whether somebody synchronises the node's clock, as far as its kernel knows."""
    try:
        state = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(_TIMEX))
    except (OSError, AttributeError):
        return True
    return bool(state != _TIME_ERROR)
