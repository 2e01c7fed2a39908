# SPDX-License-Identifier: Apache-2.0
"""Sync points: each statement changes the row that it is about, completely, and none beside it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import networkx as nx
import pytest

from mistral_failover.convergence.graph import TraversalPlan
from mistral_failover.convergence.records import (
    END,
    Node,
    NodeProgress,
    NodeState,
    NodeStatus,
    Record,
    Reported,
    StoppedNode,
    Traversal,
    TraversalStatus,
    Wanted,
)
from mistral_failover.model.stages import Stage
from mistral_failover.store import views
from mistral_failover.store.database import Database
from mistral_failover.store.tables import edges, nodes
from mistral_failover.store.transaction import SqlTransaction
from support.rows import only_these_change, rows

FIRST, SECOND, OLD = Node("update", "r"), Node("update", "s"), Node("cleanup", "o")
NONE = Reported((), finished=False)
WHEN = {"since": 5.0, "again": 65.0}


@pytest.fixture
def twins(database: Database, group: str) -> TraversalPlan:
    """Two traversals of one plan, ``t`` and ``u``: the same nodes, which must not be mixed up.

    The cleanup of ``o`` and the update of ``r`` come before the update of ``s``.
    """
    graph: nx.DiGraph[str] = nx.DiGraph([(FIRST.key, SECOND.key), (OLD.key, SECOND.key)])
    wanted = {
        "r": Wanted("r", "shared", {"value": 1}, ()),
        "s": Wanted("s", "shared", {}, ("r",)),
        "o": Wanted("o", "shared", {}, ()),
    }
    stages = {FIRST.key: Stage.FENCE, SECOND.key: Stage.ACTIVATE, OLD.key: Stage.QUIESCE}
    plan = TraversalPlan(graph, wanted, (), (), {}, (), stages)
    records = [Record(name, group, name, "shared") for name in wanted]
    database.atomically(lambda tx: tx.insert_records(records, tx.now()))
    for identity in ("t", "u"):
        traversal = Traversal(identity, group, "v", TraversalStatus.IN_PROGRESS)
        database.atomically(lambda tx: tx.open_traversal(traversal, plan))  # noqa: B023
    return plan


def data(name: str) -> dict[str, Any]:
    return {"name": name, "id": f"id-{name}", "attributes": {"of": name}}


def state(database: Database, node: Node, traversal: str = "t") -> NodeState | None:
    return database.reading(lambda tx: tx.node(traversal, node))


def test_a_traversal_opens_with_a_sync_point_per_node_and_one_for_its_end(
    database: Database, twins: TraversalPlan
) -> None:
    found = rows(database, nodes, "traversal_id", "node")
    facts = {
        node: (row["resource_id"], row["status"], row["remaining"])
        for (traversal, node), row in found.items()
        if traversal == "t"
    }
    assert facts == {
        FIRST.key: ("r", "WAITING", 0),
        OLD.key: ("o", "WAITING", 0),
        SECOND.key: ("s", "WAITING", 2),
        END: (None, "WAITING", 1),
    }
    assert state(database, FIRST) == NodeState(FIRST, NodeStatus.WAITING, 0, twins.wanted["r"])
    assert state(database, OLD) == NodeState(OLD, NodeStatus.WAITING, 0, None, stage=1)
    pairs = {
        (row["predecessor"], row["node"])
        for row in rows(database, edges, "traversal_id", "node", "predecessor").values()
        if row["traversal_id"] == "t"
    }
    assert pairs == {(FIRST.key, SECOND.key), (OLD.key, SECOND.key), (SECOND.key, END)}


@pytest.mark.parametrize(
    "step",
    [
        lambda tx: tx.report("t", FIRST, data("r")),
        lambda tx: tx.report("t", SECOND, data("s")),
        lambda tx: tx.stop_node("t", FIRST, blocked=False, reason="x", **WHEN),
        lambda tx: tx.stop_node("t", FIRST, blocked=True, reason="x", **WHEN),
        lambda tx: tx.defer("t", FIRST, "o"),
        lambda tx: tx.drop_sync_points("t"),
        lambda tx: tx.schedule_retry("t", FIRST, waiting_for="Cinder", since=1.0, next_try=2.0),
    ],
    ids=["report", "report of a root", "fail", "block", "defer", "drop", "wait"],
)
def test_no_other_traversal_is_touched(
    database: Database, twins: TraversalPlan, step: Callable[[SqlTransaction], object]
) -> None:
    names = (FIRST.key, SECOND.key, OLD.key, END)
    with (
        only_these_change(
            database, nodes, ("traversal_id", "node"), *(("t", name) for name in names)
        ),
        only_these_change(
            database,
            edges,
            ("traversal_id", "node", "predecessor"),
            *(("t", node, before) for node in names for before in names),
        ),
    ):
        database.atomically(step)


def test_dropping_the_sync_points_leaves_none_of_the_traversal(
    database: Database, twins: TraversalPlan
) -> None:
    database.atomically(lambda tx: tx.drop_sync_points("t"))

    assert {key[0] for key in rows(database, nodes, "traversal_id", "node")} == {"u"}
    assert {key[0] for key in rows(database, edges, "traversal_id", "node", "predecessor")} == {"u"}


def test_a_report_counts_down_only_its_dependents(database: Database, twins: TraversalPlan) -> None:
    with only_these_change(
        database, nodes, ("traversal_id", "node"), ("t", FIRST.key), ("t", SECOND.key)
    ):
        assert database.atomically(lambda tx: tx.report("t", FIRST, data("r"))) == NONE

    assert state(database, SECOND) == NodeState(
        SECOND, NodeStatus.WAITING, 1, twins.wanted["s"], stage=3
    )
    done = rows(database, nodes, "traversal_id", "node")["t", FIRST.key]
    assert (done["status"], done["output"], done["reason"]) == ("DONE", data("r"), None)


def test_what_is_ready_waits_for_nothing_and_is_not_done(
    database: Database, twins: TraversalPlan
) -> None:
    def ready(traversal: str) -> list[Node]:
        return sorted(database.reading(lambda tx: tx.ready_nodes(traversal)))

    assert ready("t") == [OLD, FIRST]
    database.atomically(lambda tx: tx.report("t", FIRST, data("r")))
    assert ready("t") == [OLD]
    next_one = database.atomically(lambda tx: tx.report("t", OLD, data("o")))
    assert next_one == Reported((SECOND,), finished=False)
    assert ready("t") == [SECOND]
    last = database.atomically(lambda tx: tx.report("t", SECOND, data("s")))
    assert last == Reported((), finished=True)
    assert ready("t") == []
    assert ready("u") == [OLD, FIRST]


def test_a_node_hears_of_what_it_waited_for_and_not_of_what_was_cleaned_up(
    database: Database, twins: TraversalPlan
) -> None:
    database.atomically(lambda tx: tx.report("t", OLD, data("o")))
    database.atomically(lambda tx: tx.report("u", FIRST, {**data("r"), "id": "of another"}))
    assert database.reading(lambda tx: tx.inputs("t", SECOND)) == {}
    database.atomically(lambda tx: tx.report("t", FIRST, data("r")))

    heard = database.reading(lambda tx: tx.inputs("t", SECOND))

    assert heard == {"r": {"id": "id-r", "attributes": {"of": "r"}}}
    assert database.reading(lambda tx: tx.inputs("t", FIRST)) == {}


@pytest.mark.parametrize(("blocked", "status"), [(True, "BLOCKED"), (False, "FAILED")])
def test_a_node_that_fails_keeps_the_reason_until_it_is_done(
    database: Database, twins: TraversalPlan, blocked: bool, status: str
) -> None:
    def facts() -> tuple[str, str | None]:
        row = rows(database, nodes, "traversal_id", "node")["t", FIRST.key]
        return row["status"], row["reason"]

    def fail(reason: str) -> None:
        database.atomically(
            lambda tx: tx.stop_node("t", FIRST, blocked=blocked, reason=reason, **WHEN)
        )

    with only_these_change(database, nodes, ("traversal_id", "node"), ("t", FIRST.key)):
        fail("it broke")
        assert facts() == (status, "it broke")
        fail("once more")
        assert facts() == (status, "it broke"), "only what waits can fail"
    database.atomically(lambda tx: tx.report("t", FIRST, data("r")))
    assert facts() == ("DONE", None)
    fail("too late")
    assert facts() == ("DONE", None)


def test_only_what_has_stopped_is_opened_again(database: Database, twins: TraversalPlan) -> None:
    def reopen(node: Node) -> bool:
        return database.atomically(lambda tx: tx.reopen_node("t", node))

    def stopped(traversal: str) -> dict[Node, StoppedNode]:
        found = database.reading(lambda tx: tx.stopped_nodes(traversal))
        return {each.node: each for each in found}

    for traversal in ("t", "u"):
        database.atomically(
            lambda tx: tx.stop_node(traversal, FIRST, blocked=True, reason="x", **WHEN)  # noqa: B023
        )
    database.atomically(lambda tx: tx.stop_node("t", OLD, blocked=False, reason="x", **WHEN))
    blocked = StoppedNode(FIRST, NodeStatus.BLOCKED, "x", 5.0)
    failed = StoppedNode(OLD, NodeStatus.FAILED, "x", 5.0)
    assert stopped("t") == {FIRST: blocked, OLD: failed}

    changed = [("t", FIRST.key), ("t", OLD.key)]
    with only_these_change(database, nodes, ("traversal_id", "node"), *changed):
        assert not reopen(SECOND)
        for node in (OLD, FIRST):
            assert reopen(node)
            assert not reopen(node)

    row = rows(database, nodes, "traversal_id", "node")["t", FIRST.key]
    assert (row["status"], row["reason"], row["again_at"]) == ("WAITING", None, None)
    assert row["stopped_since"] == 5.0, "kept until it is done"
    assert stopped("t") == {}
    assert stopped("u") == {FIRST: blocked}


def test_what_is_put_off_is_tried_again_later(database: Database, twins: TraversalPlan) -> None:
    database.atomically(lambda tx: tx.stop_node("t", FIRST, blocked=False, reason="x", **WHEN))

    with only_these_change(database, nodes, ("traversal_id", "node"), ("t", FIRST.key)):
        for node in (FIRST, SECOND):
            database.atomically(lambda tx: tx.put_off("t", node, 100.0))  # noqa: B023

    assert rows(database, nodes, "traversal_id", "node")["t", FIRST.key]["again_at"] == 100.0


def test_a_deferral_says_who_holds_the_lock_and_since_when(
    database: Database, twins: TraversalPlan
) -> None:
    begun = database.reading(lambda tx: tx.now())

    with only_these_change(database, nodes, ("traversal_id", "node"), ("t", FIRST.key)):
        database.atomically(lambda tx: tx.defer("t", FIRST, "slow"))

    (deferred,) = database.for_project("elsewhere").reading(lambda tx: views.deferred(tx, ["t"]))
    assert (deferred["node"], deferred["deferred_to"]) == (FIRST.key, "slow")
    assert begun <= deferred["deferred_at"] < begun + 30


def wait(database: Database, *, since: float, next_try: float) -> None:
    database.atomically(
        lambda tx: tx.schedule_retry(
            "t", FIRST, waiting_for="Cinder", since=since, next_try=next_try
        )
    )


def test_a_wait_keeps_its_beginning_and_counts_its_tries(
    database: Database, twins: TraversalPlan
) -> None:
    with only_these_change(database, nodes, ("traversal_id", "node"), ("t", FIRST.key)):
        wait(database, since=10.5, next_try=11.5)
        wait(database, since=10.5, next_try=14.25)

    assert state(database, FIRST) == NodeState(
        FIRST,
        NodeStatus.WAITING,
        0,
        twins.wanted["r"],
        waiting_for="Cinder",
        waiting_since=10.5,
        next_try=14.25,
        tries=2,
    )


@pytest.mark.parametrize(
    "end",
    [
        lambda tx: tx.report("t", FIRST, data("r")),
        lambda tx: tx.stop_node("t", FIRST, blocked=False, reason="x", **WHEN),
        lambda tx: tx.stop_node("t", FIRST, blocked=True, reason="x", **WHEN),
    ],
    ids=["report", "fail", "block"],
)
def test_what_came_to_an_end_waits_no_more(
    database: Database, twins: TraversalPlan, end: Callable[[SqlTransaction], object]
) -> None:
    wait(database, since=10.5, next_try=11.5)

    database.atomically(end)
    wait(database, since=20.5, next_try=21.5)

    found = state(database, FIRST)
    assert found is not None
    assert (found.waiting_for, found.waiting_since, found.next_try, found.tries) == (
        None,
        None,
        None,
        0,
    )


def test_the_progress_lists_every_node_with_its_stage_and_who_works_on_its_record(
    database: Database, twins: TraversalPlan
) -> None:
    fresh = database.reading(lambda tx: tx.record("r"))
    assert fresh is not None
    lock = database.atomically(lambda tx: tx.acquire(fresh, "worker", 60.0))
    held = database.reading(lambda tx: tx.record("r"))
    assert lock is not None
    assert held is not None
    wait(database, since=10.5, next_try=11.5)
    database.atomically(lambda tx: tx.report("t", OLD, data("o")))

    before, progress, after = database.reading(lambda tx: (tx.now(), tx.progress("t"), tx.now()))

    (at,) = {row.at for row in progress}
    assert before <= at <= after
    assert progress == [
        NodeProgress(FIRST, 0, NodeStatus.WAITING, 0, 11.5, "worker", held.lease_until, at),
        NodeProgress(OLD, 1, NodeStatus.DONE, 0, None, None, None, at),
        NodeProgress(SECOND, 3, NodeStatus.WAITING, 1, None, None, None, at),
    ]
    assert database.reading(lambda tx: tx.progress("never")) == []


@pytest.mark.parametrize(
    ("before", "opened", "after"),
    [(1, 3, 3), (3, 1, 3), (3, 3, 3), (1, None, None), (None, 3, None), (None, None, None)],
)
def test_a_stage_that_is_open_is_never_closed_again(
    database: Database,
    before: int | None,
    opened: int | None,
    after: int | None,
    twins: TraversalPlan,
) -> None:
    for identity in ("v", "w"):
        traversal = Traversal(identity, "g", "v", TraversalStatus.IN_PROGRESS, through=before)
        database.atomically(lambda tx: tx.open_traversal(traversal, twins))  # noqa: B023

    database.atomically(lambda tx: tx.open_through("v", opened))

    def through(identity: str) -> int | None:
        found = database.reading(lambda tx: tx.traversal(identity))
        assert found is not None
        return found.through

    assert (through("v"), through("w")) == (after, before)


def test_a_traversal_is_succeeded_by_the_one_that_follows_it(
    database: Database, twins: TraversalPlan
) -> None:
    following = Traversal("v", "g", "v", TraversalStatus.IN_PROGRESS, follows="t")
    database.atomically(lambda tx: tx.open_traversal(following, twins))

    for store in (database, database.for_project("elsewhere")):
        followed = store.reading(lambda tx: tx.followed("t"))
        assert followed is not None
        assert (followed[0].id, followed[1]) == ("t", "v")
        assert store.reading(lambda tx: tx.followed("v")) == (following, None)
        assert store.reading(lambda tx: tx.followed("never")) is None
