# SPDX-License-Identifier: Apache-2.0
"""What many threads ask for at the same time is done together, and each gets its own answer."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from mistral_failover.server.batches import Batches
from support.waiting import until


def test_a_single_request_is_a_batch_of_its_own() -> None:
    seen: list[Sequence[int]] = []

    def work(items: Sequence[int]) -> list[int | Exception]:
        seen.append(items)
        return [item * 2 for item in items]

    assert Batches(work, 10).do(21) == 42
    assert seen == [[21]]


def test_what_waits_while_a_batch_is_under_way_becomes_the_next_ones() -> None:
    first, seen = threading.Event(), []
    under_way = threading.Event()

    def work(items: Sequence[int]) -> list[int | Exception]:
        under_way.set()
        first.wait(60)
        seen.append(len(items))
        return [-item for item in items]

    batches = Batches(work, 4)
    with ThreadPoolExecutor(11) as pool:
        asked = [pool.submit(batches.do, 0)]
        under_way.wait(60)
        asked += [pool.submit(batches.do, number) for number in range(1, 11)]
        until(lambda: len(batches._waiting) == 10)
        first.set()
        assert [each.result(60) for each in asked] == [-number for number in range(11)]

    assert seen == [1, 4, 4, 2]


def test_an_error_of_one_item_is_raised_for_it_alone() -> None:
    def work(items: Sequence[int]) -> list[int | Exception]:
        return [ValueError(item) if item < 0 else item for item in items]

    batches = Batches(work, 10)
    with pytest.raises(ValueError, match="-1"):
        batches.do(-1)
    assert batches.do(1) == 1


def test_an_error_of_a_batch_is_raised_for_each_and_the_next_batch_is_done() -> None:
    def work(items: Sequence[int]) -> list[int | Exception]:
        if 0 in items:
            raise OSError("no store")
        return list(items)

    batches = Batches(work, 10)
    with pytest.raises(OSError, match="no store"):
        batches.do(0)
    assert batches.do(1) == 1


def test_a_slow_batch_does_not_stop_those_that_come_later() -> None:
    under_way, slow = threading.Event(), threading.Event()

    def work(items: Sequence[int]) -> list[int | Exception]:
        if 0 in items:
            under_way.set()
            slow.wait(60)
        return [-item for item in items]

    batches = Batches(work, 10)
    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(batches.do, 0)
        under_way.wait(60)
        later = [pool.submit(batches.do, number) for number in range(1, 4)]
        assert [each.result(30) for each in later] == [-1, -2, -3]
        assert not first.done()
        slow.set()
        assert first.result(60) == 0
