# SPDX-License-Identifier: Apache-2.0
"""A question that many operations of a process ask at the same time is sent once.

A failover of 32 volumes asks 32 times at once which volumes the stack has, and whether the standby
can take one. An answer is shared only with those who asked before its request was sent: no caller
gets an answer that is older than the question.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.guard import Guard, LeaseLost, NoLongerNeeded

T = TypeVar("T")
_SLICE = 1.0
"""Seconds after which a waiting caller asks its guard again."""


class _Request:
    """A request, for all who asked before it is sent. ``sent``: when that was, on the monotonic
    clock. ``instead``: the one that replaces it for the other callers, because its outcome is valid
    only for its sender. ``changed``: wakes them, and no caller of another request."""

    def __init__(self, lock: threading.Lock) -> None:
        self.changed = threading.Condition(lock)
        self.sent: float | None = None
        self.done = False
        self.answer: Any = None
        self.error: Exception | None = None
        self.instead: _Request | None = None


class _SharedQuestion:
    """A question that at least one caller asks. ``next``: the request that is sent once none is
    under way."""

    def __init__(self, lock: threading.Lock) -> None:
        self.asking = 0
        self.busy = False
        self.next = _Request(lock)


class RequestCoalescer:
    """The questions that are being asked. Safe for threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._questions: dict[Hashable, _SharedQuestion] = {}

    def ask(self, key: Hashable, send: Callable[[], T], guard: Guard, limit: float) -> T:
        """Return what ``send`` returns, or what it returned to another caller who sent the request
        after this call began. Callers must not change what they get.

        ``key``: the question, and with whose rights it is asked. ``limit``: seconds that a request
        may last. If another caller's takes longer, this sends one of its own. ``guard``: is asked
        while this waits.

        Raises what ``send`` or ``guard`` raises, or what ``send`` raised to that other caller; but
        `LeaseLost`, `NoLongerNeeded` and the timeout of a request that had less than ``limit``
        seconds are about its sender, so everybody else asks again.
        """
        with self._lock:
            question = self._questions.get(key)
            if question is None:
                question = self._questions[key] = _SharedQuestion(self._lock)
            question.asking += 1
        try:
            request = self._answered_or_ours(question, guard, limit)
            if request is None:
                return send()
            if not request.done:
                self._send(question, request, send, limit)
            if request.error is not None:
                raise request.error.with_traceback(None)
            answer: T = request.answer
            return answer
        finally:
            with self._lock:
                question.asking -= 1
                if not question.asking:
                    del self._questions[key]
                elif not question.busy:  # this may be the one that was woken to send
                    question.next.changed.notify()

    def asking(self, key: Hashable) -> int:
        """Return how many callers wait for an answer to the question."""
        with self._lock:
            question = self._questions.get(key)
            return question.asking if question else 0

    def _answered_or_ours(
        self, question: _SharedQuestion, guard: Guard, limit: float
    ) -> _Request | None:
        """Return a request that was sent after this call and has an answer, or one that this caller
        has to send; None if it has waited too long for others."""
        asked = time.monotonic()
        with self._lock:
            request = question.next
        while True:
            with self._lock:
                while request.instead is not None:
                    request = request.instead
                if request.done:
                    return request
                now = time.monotonic()
                if not question.busy:
                    question.busy, question.next = True, _Request(self._lock)
                    request.sent = now
                    return request
                # A slice longer than the request may last: its sender learns that first.
                end = (request.sent or asked) + limit + _SLICE
                if now >= end:
                    return None
                request.changed.wait(min(_SLICE, end - now))
            guard.permit("GET")

    def _send(
        self, question: _SharedQuestion, request: _Request, send: Callable[[], Any], limit: float
    ) -> None:
        answer, error, private = None, None, True
        try:
            answer = send()
            private = False
        except (LeaseLost, NoLongerNeeded):
            raise
        except Exception as failure:  # noqa: BLE001 - raised again, for each who asked
            error = failure
            lasted = time.monotonic() - (request.sent or 0.0)
            late = isinstance(failure, CloudError) and failure.code == "TIMEOUT"
            private = late and lasted < limit
        finally:
            with self._lock:
                request.done, request.answer, request.error = True, answer, error
                request.instead = question.next if private else None
                question.busy = False
                request.changed.notify_all()
                question.next.changed.notify()  # one of those who asked meanwhile sends it
