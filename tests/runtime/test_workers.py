# SPDX-License-Identifier: Apache-2.0
"""The pool of workers keeps its threads, whatever the work on a node does."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from mistral_failover.convergence.records import Node, Ready
from mistral_failover.runtime.budgets import Budgets, Need
from mistral_failover.runtime.workers import Steps, Work, Workers


@pytest.fixture
def workers() -> Iterator[Workers]:
    """A pool of one thread."""
    pool = Workers(1, Budgets({}, 8))
    yield pool
    pool.hand_back(5.0)


def at_once(function: Callable[[Ready], list[Ready]]) -> Work:
    """Work that needs its thread to the end."""

    def steps(ready: Ready) -> Steps:
        yield from ()
        return function(ready)

    return steps


def node(name: str) -> Ready:
    return Ready("t", Node("update", name))


def test_a_node_that_became_ready_and_can_not_be_put_in_costs_no_thread(workers: Workers) -> None:
    ran = threading.Event()

    def needs(ready: Ready) -> Need:
        if ready == node("second"):
            raise ValueError("what it needs is not known")
        return Need()

    workers.submit("g", node("first"), at_once(lambda _: [node("second")]), needs)
    workers.settle("g", 60)

    assert workers.busy("g") == 0
    assert workers.ended() == 1

    def work(_ready: Ready) -> list[Ready]:
        ran.set()
        return []

    assert workers.submit("g", node("third"), at_once(work), needs)
    assert ran.wait(60), "the only thread is free again"


def test_a_node_that_became_ready_again_by_its_own_work_is_put_in_again(workers: Workers) -> None:
    ran: list[Ready] = []

    def work(ready: Ready) -> list[Ready]:
        ran.append(ready)
        return [ready] if len(ran) < 3 else []

    workers.submit("g", node("first"), at_once(work), lambda _: Need())
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

    pool.submit("g", node("first"), at_once(blocks), lambda _: Need())
    with monkeypatch.context() as limited:
        limited.setattr(threading.Thread, "start", refuse)
        pool.submit("g", node("second"), at_once(runs), lambda _: Need())
    go.set()

    assert ran.wait(60)
    pool.settle("g", 60)
    assert pool.busy("g") == 0


def test_groups_in_the_pool_and_loops_count_as_others(workers: Workers) -> None:
    go = threading.Event()

    def waits(_: Ready) -> list[Ready]:
        go.wait(60)
        return []

    for group in ("a", "b", "c"):
        workers.submit(group, node(group), at_once(waits), lambda _: Need())

    assert (workers.others("a"), workers.others("d")) == (2, 3)
    with workers.loop(), workers.loop(), workers.loop():
        assert workers.others("a") == 3, "a loop may be of a group without a node in the pool"
    go.set()
    for group in ("a", "b", "c"):
        workers.settle(group, 60)
    assert workers.others("a") == 0


def test_work_that_waits_has_no_thread_keeps_its_budget_and_goes_on(workers: Workers) -> None:
    done: list[Ready] = []
    looked, over, other = threading.Event(), threading.Event(), threading.Event()

    def waits(ready: Ready) -> Steps:
        while not over.is_set():
            looked.set()
            yield 0.01
        done.append(ready)
        return [node("next")] if ready == node("long") else []

    need = Need("p", ("Mistral",))
    workers = Workers(1, Budgets({"Mistral": 1}, 8))
    workers.submit("g", node("long"), waits, lambda _: need)
    assert looked.wait(60)
    workers.submit("g", node("second"), waits, lambda _: need)
    workers.submit("h", node("short"), at_once(lambda _: other.set() or []), lambda _: Need("q"))

    assert other.wait(60), "the only thread is free"
    workers.settle("h", 60)
    assert done == []
    assert not workers.submit("g", node("long"), waits, lambda _: need), "it is in the pool"
    assert workers.busy("g") == 2
    over.set()
    workers.settle("g", 60)
    assert sorted(ready.node.resource_id for ready in done) == ["long", "next", "second"]
    workers.hand_back(5.0)


def test_work_that_waits_ends_at_once_when_the_process_stops(workers: Workers) -> None:
    looked, ended = threading.Event(), threading.Event()

    def waits(_: Ready) -> Steps:
        looked.set()
        yield 3600.0
        assert workers.stopping
        ended.set()
        return []

    workers.submit("g", node("long"), waits, lambda _: Need())
    assert looked.wait(60)

    assert workers.hand_back(60)
    assert ended.is_set()
    assert workers.busy("g") == 0


@pytest.mark.parametrize(("threads", "share"), [(1, 1), (2, 1), (3, 2), (4, 3), (8, 6), (64, 48)])
def test_one_project_leaves_threads_to_others(threads: int, share: int) -> None:
    pool = Workers(threads, Budgets({}, 100))
    go, began, ran = threading.Event(), threading.Semaphore(0), threading.Event()

    def blocks(_: Ready) -> list[Ready]:
        began.release()
        assert go.wait(60)
        return []

    for number in range(threads + 1):
        pool.submit("greedy", node(str(number)), at_once(blocks), lambda _: Need("p"))
    for _ in range(share):
        assert began.acquire(timeout=60)
    pool.submit("modest", node("other"), at_once(lambda _: ran.set() or []), lambda _: Need("q"))

    if share < threads:
        assert ran.wait(60)
        pool.settle("modest", 60)
        assert not began.acquire(blocking=False), "it has its share already"
    go.set()
    pool.settle("greedy", 60)
    assert ran.wait(60)
    pool.hand_back(5.0)
