# SPDX-License-Identifier: Apache-2.0
"""The pool of workers keeps its threads, whatever the work on a node does."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from mistral_failover.convergence.records import Node, Ready
from mistral_failover.runtime.budgets import Budgets, Need
from mistral_failover.runtime.workers import Workers


@pytest.fixture
def workers() -> Iterator[Workers]:
    """A pool of one thread."""
    pool = Workers(1, Budgets({}, 8))
    yield pool
    pool.hand_back(5.0)


def node(name: str) -> Ready:
    return Ready("t", Node("update", name))


def test_a_node_that_became_ready_and_can_not_be_put_in_costs_no_thread(workers: Workers) -> None:
    ran = threading.Event()

    def needs(ready: Ready) -> Need:
        if ready == node("second"):
            raise ValueError("what it needs is not known")
        return Need()

    workers.submit("g", node("first"), lambda _: [node("second")], needs)
    workers.settle("g", 60)

    assert workers.busy("g") == 0
    assert workers.ended() == 1

    def work(_ready: Ready) -> list[Ready]:
        ran.set()
        return []

    assert workers.submit("g", node("third"), work, needs)
    assert ran.wait(60), "the only thread is free again"


def test_a_node_that_became_ready_again_by_its_own_work_is_put_in_again(workers: Workers) -> None:
    ran: list[Ready] = []

    def work(ready: Ready) -> list[Ready]:
        ran.append(ready)
        return [ready] if len(ran) < 3 else []

    workers.submit("g", node("first"), work, lambda _: Need())
    workers.settle("g", 60)

    assert ran == [node("first")] * 3


def test_where_no_thread_can_be_started_a_node_waits_for_one_that_there_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pool, ran, go = Workers(2, Budgets({}, 8)), threading.Event(), threading.Event()

    def blocks(_: Ready) -> list[Ready]:
        go.wait(60)
        return []

    def runs(_: Ready) -> list[Ready]:
        ran.set()
        return []

    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    pool.submit("g", node("first"), blocks, lambda _: Need())
    with monkeypatch.context() as limited:
        limited.setattr(threading.Thread, "start", refuse)
        pool.submit("g", node("second"), runs, lambda _: Need())
    go.set()

    assert ran.wait(60)
    pool.settle("g", 60)
    assert pool.busy("g") == 0
