# SPDX-License-Identifier: Apache-2.0
"""Messages of an agent that the broker has not confirmed yet."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from dataclasses import dataclass, field

LONGEST = 1000
"""Messages that wait at most; a dropped one is requested again."""
OLDEST = 3600.0
"""Seconds after which no receiver waits for a message any more."""


@dataclass(frozen=True, slots=True)
class Message:
    """One sealed message. ``final``: it ends a conversation, so it is worth repeating."""

    exchange: str
    routing_key: str
    sealed: tuple[bytes, dict[str, object]] = field(repr=False)
    final: bool
    since: float = field(default_factory=time.monotonic)


class Outbox:
    """Messages by key, in order of arrival; a later one of the same key replaces the earlier one.
    Safe to use from several threads."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: OrderedDict[tuple[str, str], Message] = OrderedDict()
        self._woken = self._news = False

    def put(self, key: tuple[str, str], message: Message) -> None:
        """Add a message."""
        with self._changed:
            self._waiting.pop(key, None)
            self._waiting[key] = message
            self._news = True
            while len(self._waiting) > LONGEST:
                self._waiting.popitem(last=False)
            self._changed.notify_all()

    def drop(self, key: tuple[str, str]) -> None:
        """Remove a message."""
        with self._changed:
            self._waiting.pop(key, None)

    def first(self, seconds: float) -> tuple[tuple[str, str], Message] | None:
        """Return the oldest message without removing it; None if none comes in time, or after
        :meth:`wake`."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._woken, max(0.0, seconds))
            self._woken = self._news = False
            late = time.monotonic() - OLDEST
            for key in [k for k, m in self._waiting.items() if m.since < late]:
                del self._waiting[key]
            return next(iter(self._waiting.items()), None)

    def sent(self, key: tuple[str, str], message: Message) -> None:
        """Remove a message that is sent or undeliverable; a later one of the same key stays."""
        with self._changed:
            if self._waiting.get(key) is message:
                del self._waiting[key]
            self._changed.notify_all()

    def failed(self, key: tuple[str, str], message: Message) -> None:
        """The broker may not have it. A message that ends a conversation moves behind the others;
        one that is repeated regularly is dropped."""
        with self._changed:
            if self._waiting.get(key) is message:
                del self._waiting[key]
                if message.final:
                    self._waiting[key] = message

    def wake(self) -> None:
        """Wake the thread that waits for a message."""
        with self._changed:
            self._woken = True
            self._changed.notify_all()

    def rest(self, seconds: float) -> None:
        """Wait until there is something new since :meth:`first`, or for this many seconds."""
        with self._changed:
            self._changed.wait_for(lambda: self._news or self._woken, max(0.0, seconds))

    def empty(self, seconds: float) -> bool:
        """Wait until everything is sent; return False if that takes more than ``seconds``."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._waiting, seconds)
