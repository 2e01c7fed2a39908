# SPDX-License-Identifier: Apache-2.0
"""Work that is cheaper together: what many threads ask for at the same time is done as one batch.

A thread that finds no batch under way does one for itself and for all that wait. So a single
request waits for no other one, and batches grow with the load. A batch that takes long delays the
others for `PATIENCE`: then one of those that wait does the next batch beside it.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from typing import Generic, TypeVar

PATIENCE = 1.0
"""Seconds for which a thread waits for a batch of others that has not taken its item."""

T = TypeVar("T")
R = TypeVar("R")


@dataclass(eq=False)
class _Waiting(Generic[T, R]):
    item: T
    answer: Future[R] = field(default_factory=Future)


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
        while not mine.answer.done():
            turn = self._turn.acquire(timeout=PATIENCE)
            try:
                batch = self._batch_with(mine)
                if batch:
                    self._do(batch)
            finally:
                if turn:
                    self._turn.release()
            if not batch:  # another thread is doing it
                wait([mine.answer], PATIENCE)
        return mine.answer.result()

    def _batch_with(self, mine: _Waiting[T, R]) -> Sequence[_Waiting[T, R]]:
        """Take the first of those that wait; none if ``mine`` waits no more."""
        with self._lock:
            if mine not in self._waiting:
                return ()
            weights = itertools.accumulate(self._weight(each.item) for each in self._waiting)
            number = max(1, sum(weight <= self._most for weight in weights))
            batch, self._waiting = self._waiting[:number], self._waiting[number:]
        return batch

    def _do(self, batch: Sequence[_Waiting[T, R]]) -> None:
        try:
            answers = self._work([each.item for each in batch])
            pairs = list(zip(batch, answers, strict=True))
        except BaseException as error:
            for each in batch:
                each.answer.set_exception(error)
            return
        for each, answer in pairs:
            if isinstance(answer, Exception):
                each.answer.set_exception(answer)
            else:
                each.answer.set_result(answer)
