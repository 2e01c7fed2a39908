# SPDX-License-Identifier: Apache-2.0
"""Counting predecessors down, from many sides at once; waking the nodes that wait."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import networkx as nx
import pytest

from mistral_failover.convergence.conclude import conclude
from mistral_failover.convergence.definitions import Definitions
from mistral_failover.convergence.engine import Engine
from mistral_failover.convergence.graph import TraversalPlan
from mistral_failover.convergence.records import (
    Node,
    Operation,
    Outcome,
    Ready,
    Record,
    Reported,
    Step,
    Traversal,
    Wanted,
)
from mistral_failover.model.goal import Goal
from mistral_failover.model.stages import Stage
from mistral_failover.store import stalled_work
from mistral_failover.store.database import Database
from mistral_failover.store.transaction import SqlTransaction
from support.simulation import PROJECT
from support.together import together
from support.world import World

WIDTH = 16
JOIN = Node("update", "join")
BEFORE = [Node("update", f"p{n}") for n in range(WIDTH)]
NONE = Reported((), finished=False)
THE_JOIN = Reported((JOIN,), finished=False)

Define = Callable[..., tuple[str, Goal]]


@pytest.fixture
def joined(database: Database, traversal: Traversal) -> str:
    """A traversal in which one node waits for sixteen others; its id."""
    graph: nx.DiGraph[str] = nx.DiGraph((before.key, JOIN.key) for before in BEFORE)
    wanted = {"join": Wanted("join", "shared", {"large": "x" * 70_000}, ("p1", "p2"))}
    plan = TraversalPlan(graph, wanted, (), (), {}, (), dict.fromkeys(graph, Stage.FENCE))
    names = [node.resource_id for node in (JOIN, *BEFORE)]
    records = [Record(name, traversal.group_id, name, "shared") for name in names]
    database.atomically(lambda tx: tx.insert_records(records, tx.now()))
    database.atomically(lambda tx: tx.open_traversal(traversal, plan))
    return traversal.id


def data(name: str) -> dict[str, Any]:
    return {"name": name, "id": f"id-{name}", "attributes": {"of": name}}


def test_of_sixteen_predecessors_that_report_at_once_the_last_one_sees_the_node_ready(
    database: Database, joined: str
) -> None:
    answers = together(
        WIDTH,
        lambda n: database.atomically(lambda tx: tx.report(joined, BEFORE[n], data(f"p{n}"))),
    )

    assert answers.count(THE_JOIN) == 1
    assert answers.count(NONE) == WIDTH - 1
    state = database.reading(lambda tx: tx.node(joined, JOIN))
    assert state is not None
    assert (state.remaining, state.status) == (0, "WAITING")
    inputs = database.reading(lambda tx: tx.inputs(joined, JOIN))
    assert inputs == {
        f"p{n}": {"id": f"id-p{n}", "attributes": {"of": f"p{n}"}} for n in range(WIDTH)
    }


def test_a_report_that_comes_twice_counts_once_and_tells_again_what_is_ready(
    database: Database, joined: str
) -> None:
    def report(n: int) -> Reported | None:
        return database.atomically(lambda tx: tx.report(joined, BEFORE[n], data(f"p{n}")))

    assert [report(0), report(0)] == [NONE, NONE]
    for n in range(1, WIDTH - 1):
        report(n)
    state = database.reading(lambda tx: tx.node(joined, JOIN))
    assert state is not None
    assert state.remaining == 1
    assert [report(WIDTH - 1), report(0)] == [THE_JOIN, THE_JOIN]


def test_what_is_wanted_comes_back_whole(database: Database, joined: str) -> None:
    state = database.reading(lambda tx: tx.node(joined, JOIN))

    assert state is not None
    assert state.wanted == Wanted("join", "shared", {"large": "x" * 70_000}, ("p1", "p2"))


def test_the_traversal_has_finished_when_every_root_has_reported(
    database: Database, joined: str
) -> None:
    for before in BEFORE:
        reported = database.atomically(
            lambda tx: tx.report(joined, before, data("p"))  # noqa: B023 - run at once
        )
        assert not reported.finished

    last = database.atomically(lambda tx: tx.report(joined, JOIN, data("join")))
    again = database.atomically(lambda tx: tx.report(joined, JOIN, data("join")))

    assert last.finished
    assert again.finished


def test_a_report_to_deleted_sync_points_reaches_no_node(database: Database, joined: str) -> None:
    database.atomically(lambda tx: tx.drop_sync_points(joined))

    assert database.atomically(lambda tx: tx.report(joined, JOIN, data("join"))) == NONE
    assert database.reading(lambda tx: tx.node(joined, JOIN)) is None


def thing(*requires: str, value: Any = 1) -> dict[str, Any]:
    return {"type": "shared", "properties": {"value": value}, "depends_on": list(requires)}


@pytest.fixture
def engine(database: Database) -> Engine:
    return Engine(database, lease=60.0)


def test_many_threads_carry_one_traversal_to_its_end_without_a_sweep(
    database: Database, define: Define, engine: Engine
) -> None:
    before = {f"p{n}": thing() for n in range(WIDTH)}
    group, goal = define({**before, "join": thing(*before), "last": thing("join")})
    world = World()
    mutex = threading.Lock()

    def operate(operation: Operation) -> Outcome:
        with mutex:
            return world.operate(operation)

    def carry(ready: Ready) -> tuple[Ready, ...]:
        step = engine.check(ready, threading.current_thread().name)
        if step.operation is None:
            return step.ready
        return engine.conclude(step.operation.ticket, operate(step.operation)).ready

    wave = engine.start(group, goal, traversal_id="t", expected=None, cause="a test").ready
    with ThreadPoolExecutor(8) as pool:
        while wave:
            # Every message twice: one of two goes to work, the other finds it taken or done.
            answers = pool.map(carry, [ready for ready in wave for _ in range(2)])
            wave = tuple(dict.fromkeys(ready for answer in answers for ready in answer))

    traversal = database.reading(lambda tx: tx.traversal("t"))
    assert traversal is not None
    assert traversal.status == "COMPLETE"
    assert len(world.effects) == WIDTH + 2
    world.assert_nothing_happened_twice()


def test_of_many_that_start_a_traversal_at_once_one_wins(
    database: Database, define: Define, engine: Engine
) -> None:
    group, goal = define({"a": thing(), "b": thing("a")})

    started = together(
        8,
        lambda n: engine.start(group, goal, traversal_id=f"t{n}", expected=None, cause="a test"),
    )

    winners = [answer for answer in started if answer.won]
    assert len(winners) == 1
    assert {answer.traversal_id for answer in started} == {winners[0].traversal_id}
    assert len(database.reading(lambda tx: tx.records(group))) == 2


def test_the_same_traversal_started_by_many_at_once_is_created_once(
    database: Database, define: Define, engine: Engine
) -> None:
    group, goal = define({"a": thing(), "b": thing("a")})

    started = together(
        8, lambda n: engine.start(group, goal, traversal_id="t", expected=None, cause="a test")
    )

    assert all(answer.won for answer in started)
    assert [answer.created for answer in started].count(True) == 1
    assert len({answer.ready for answer in started}) == 1


def test_failures_at_once_of_which_each_would_replan_settle_on_one(
    database: Database, define: Define, engine: Engine
) -> None:
    things = {f"p{n}": thing() for n in range(8)}
    group, goal = define(things)
    ready = engine.start(group, goal, traversal_id="t", expected=None, cause="a test").ready
    works = [engine.check(one, "o").operation for one in ready]

    def fail(n: int) -> Step:
        work = works[n]
        assert work is not None
        return engine.conclude(work.ticket, Outcome(error={"code": "X"}))

    together(8, fail)

    traversal = database.reading(lambda tx: tx.traversal("t"))
    assert traversal is not None
    assert traversal.status == "FAILED"
    assert all(r.status == "FAILED" for r in database.reading(lambda tx: tx.records(group)))


def test_a_deferral_that_races_with_the_release_does_not_lose_the_wake_up(
    kind: str, database: Database, define: Define, engine: Engine
) -> None:
    """The conclusion looks at the newer node before it is ready; its predecessor reports; the
    node is checked; only then the conclusion commits."""
    if kind == "sqlite":
        pytest.skip("SQLite's writers come one after the other")
    group, goal = define({"b": thing()})
    old = engine.start(group, goal, traversal_id="t1", expected=None, cause="a test")
    slow = engine.check(old.ready[0], "slow").operation
    assert slow is not None
    _, goal = define({"a": thing(), "b": thing("a", value=2)})
    new = engine.start(group, goal, traversal_id="t2", expected="t1", cause="a test")
    assert [r.node.kind for r in new.ready] == ["update"]
    looked, commit = threading.Event(), threading.Event()

    def conclude_slowly() -> tuple[Ready, ...]:
        def conclude_and_wait(tx: SqlTransaction) -> tuple[Ready, ...]:
            step = conclude(tx, Definitions(), slow.ticket, Outcome(physical_id="b"))
            looked.set()
            assert commit.wait(30)
            return step.ready

        return database.atomically(conclude_and_wait)

    with ThreadPoolExecutor(2) as pool:
        concluding = pool.submit(conclude_slowly)
        assert looked.wait(30)
        first = engine.check(new.ready[0], "o").operation
        assert first is not None
        (ready,) = engine.conclude(first.ticket, Outcome(physical_id="a")).ready
        checking = pool.submit(engine.check, ready, "o")
        with pytest.raises(TimeoutError):
            checking.result(0.3)  # it waits for what is under way instead of bailing out
        commit.set()

        assert concluding.result(30) == ()
        assert checking.result(30).operation is not None
    assert (
        database.for_project(PROJECT).reading(lambda tx: stalled_work.stalled(tx, None, 0.0)) == []
    )
