# SPDX-License-Identifier: Apache-2.0
"""Work that is cheaper together: what many threads ask for at the same time is done as one batch.

A thread that finds no batch under way does one for itself and for all that wait. So a single
request waits for no other one, and batches grow with the load.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")


class _Waiting(Generic[T, R]):
    def __init__(self, item: T) -> None:
        self.item = item
        self.answer: R | None = None
        self.error: Exception | None = None
        self.done = False


class Batches(Generic[T, R]):
    """Does ``work``, which returns an answer for each item, or an exception that its caller gets;
    of items that weigh at most ``most`` together, or of one item. Safe to use from many threads."""

    def __init__(
        self,
        work: Callable[[Sequence[T]], Sequence[R | Exception]],
        most: int,
        weight: Callable[[T], int] = lambda _item: 1,
    ) -> None:
        self._work = work
        self._most = most
        self._weight = weight
        self._waiting: list[_Waiting[T, R]] = []
        self._lock = threading.Lock()  # of the list
        self._turn = threading.Lock()  # of the thread that does a batch

    def do(self, item: T) -> R:
        """Return the answer for an item. Raises the item's exception, or that of its batch."""
        mine: _Waiting[T, R] = _Waiting(item)
        with self._lock:
            self._waiting.append(mine)
        while not mine.done:
            with self._turn:
                if not mine.done:
                    self._one_batch()
        if mine.error is not None:
            raise mine.error
        return mine.answer  # type: ignore[return-value]  # it is done, without an error

    def _one_batch(self) -> None:
        with self._lock:
            weights = itertools.accumulate(self._weight(each.item) for each in self._waiting)
            number = max(1, sum(weight <= self._most for weight in weights))
            batch, self._waiting = self._waiting[:number], self._waiting[number:]
        try:
            answers = self._work([each.item for each in batch])
            for each, answer in zip(batch, answers, strict=True):
                if isinstance(answer, Exception):
                    each.error = answer
                else:
                    each.answer = answer
        except Exception as error:  # noqa: BLE001 - each waiting thread gets it
            for each in batch:
                each.error = error
        finally:
            for each in batch:
                each.done = True
