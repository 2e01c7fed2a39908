# SPDX-License-Identifier: Apache-2.0
"""A question that many operations of a process ask at the same time is sent once.

A failover of 32 volumes asks 32 times at once which volumes the stack has, and whether the standby
can take one. An answer is shared only with those who asked before its request was sent: nobody gets
an answer that is older than the question.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.guard import Guard, NoLongerNeeded

T = TypeVar("T")


class _Question:
    """A question that is being asked: how many ask it, and the result of its latest request."""

    def __init__(self) -> None:
        self.turn = threading.Lock()
        self.asking = 0
        self.sent = 0
        self.answered = 0
        """The number of the request that had this result."""
        self.answer: Any = None
        self.error: Exception | None = None


class Coalescing:
    """The questions that are being asked. Safe for threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._questions: dict[Hashable, _Question] = {}

    def ask(self, key: Hashable, send: Callable[[], T], guard: Guard) -> T:
        """Return what ``send`` returns, or what it returned to another caller who sent the request
        after this call began. Callers must not change what they get.

        ``key``: the question, and with whose rights it is asked. ``guard``: bounds the wait for
        another caller's answer; after that this caller sends a request of its own.

        Raises what ``send`` raises, or what it raised to that other caller; but a `CloudError` or
        `NoLongerNeeded` is about the caller, so everybody else asks again.
        """
        with self._lock:
            question = self._questions.setdefault(key, _Question())
            question.asking += 1
            before = question.sent
        try:
            free = question.turn.acquire(blocking=False)
            if not free and not question.turn.acquire(timeout=guard.permit("GET")):
                return send()
            try:
                if question.answered <= before:
                    self._send(question, send)
                if question.error is not None:
                    raise question.error
                result: T = question.answer
                return result
            finally:
                question.turn.release()
        finally:
            with self._lock:
                question.asking -= 1
                if not question.asking:
                    del self._questions[key]

    def asking(self, key: Hashable) -> int:
        """Return how many callers wait for an answer to the question."""
        with self._lock:
            question = self._questions.get(key)
            return question.asking if question else 0

    def _send(self, question: _Question, send: Callable[[], T]) -> None:
        with self._lock:
            question.sent += 1
        answer, error = None, None
        try:
            answer = send()
        except (CloudError, NoLongerNeeded):
            raise
        except Exception as failure:  # noqa: BLE001 - raised again, for each who asked
            error = failure
        question.answered, question.answer, question.error = question.sent, answer, error
