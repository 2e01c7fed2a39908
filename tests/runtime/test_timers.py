# SPDX-License-Identifier: Apache-2.0
"""What waits for its time costs no thread each."""

from __future__ import annotations

import threading
from queue import SimpleQueue

from mistral_failover.runtime.workers import Timers


def test_functions_are_called_in_the_order_of_their_times() -> None:
    timers, called = Timers(), SimpleQueue[str]()
    timers.after(0.2, lambda: called.put("later"))
    timers.after(0.0, lambda: called.put("at once"))
    timers.after(0.1, lambda: called.put("soon"))

    assert [called.get(timeout=10) for _ in range(3)] == ["at once", "soon", "later"]


def test_thousands_wait_in_one_thread() -> None:
    before, timers = threading.active_count(), Timers()

    for _ in range(5_000):
        timers.after(60.0, lambda: None)

    assert threading.active_count() <= before + 1


def test_one_that_fails_does_not_stop_the_others() -> None:
    timers, called = Timers(), SimpleQueue[str]()
    timers.after(0.0, lambda: [][0])
    timers.after(0.05, lambda: called.put("after it"))

    assert called.get(timeout=10) == "after it"


def test_a_thread_that_has_ended_is_replaced() -> None:
    timers, called = Timers(), SimpleQueue[threading.Thread]()
    timers.after(0.0, lambda: called.put(threading.current_thread()))
    called.get(timeout=10).join(10)

    timers.after(0.0, lambda: called.put(threading.current_thread()))

    assert called.get(timeout=10)
