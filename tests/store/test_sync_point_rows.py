# SPDX-License-Identifier: Apache-2.0
"""Sync points: each statement changes the row that it is about, completely, and none beside it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import networkx as nx
import pytest

from mistral_failover.convergence.graph import Plan
from mistral_failover.convergence.records import END, Node, NodeState, Traversal, Wanted
from mistral_failover.store import views
from mistral_failover.store.database import Database
from mistral_failover.store.tables import edges, nodes
from support.rows import only_these_change, rows

FIRST, SECOND, OLD = Node("update", "r"), Node("update", "s"), Node("cleanup", "o")


@pytest.fixture
def twins(database: Database) -> Plan:
    """Two traversals of one plan, ``t`` and ``u``: the same nodes, which must not be mixed up.

    The cleanup of ``o`` and the update of ``r`` come before the update of ``s``.
    """
    graph: nx.DiGraph[str] = nx.DiGraph([(FIRST.key, SECOND.key), (OLD.key, SECOND.key)])
    wanted = {
        "r": Wanted("r", "shared", {"value": 1}, ()),
        "s": Wanted("s", "shared", {}, ("r",)),
        "o": Wanted("o", "shared", {}, ()),
    }
    plan = Plan(graph, wanted, (), (), {}, ())
    for identity in ("t", "u"):
        traversal = Traversal(identity, "g", "v", "IN_PROGRESS")
        database.atomically(lambda tx: tx.open_traversal(traversal, plan))  # noqa: B023
    return plan


def data(name: str) -> dict[str, Any]:
    return {"name": name, "id": f"id-{name}", "attributes": {"of": name}}


def state(database: Database, node: Node, traversal: str = "t") -> NodeState | None:
    return database.reading(lambda tx: tx.node(traversal, node))


def test_a_traversal_opens_with_a_sync_point_per_node_and_one_for_its_end(
    database: Database, twins: Plan
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
    assert state(database, FIRST) == NodeState(FIRST, "WAITING", 0, twins.wanted["r"])
    assert state(database, OLD) == NodeState(OLD, "WAITING", 0, None)
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
        lambda tx: tx.fail_node("t", FIRST, blocked=False, reason="x"),
        lambda tx: tx.fail_node("t", FIRST, blocked=True, reason="x"),
        lambda tx: tx.defer("t", FIRST, "o"),
        lambda tx: tx.drop_sync_points("t"),
    ],
    ids=["report", "report of a root", "fail", "block", "defer", "drop"],
)
def test_no_other_traversal_is_touched(
    database: Database, twins: Plan, step: Callable[[Any], Any]
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
    database: Database, twins: Plan
) -> None:
    database.atomically(lambda tx: tx.drop_sync_points("t"))

    assert {key[0] for key in rows(database, nodes, "traversal_id", "node")} == {"u"}
    assert {key[0] for key in rows(database, edges, "traversal_id", "node", "predecessor")} == {"u"}


def test_a_report_counts_down_its_dependents_and_nobody_else(
    database: Database, twins: Plan
) -> None:
    with only_these_change(
        database, nodes, ("traversal_id", "node"), ("t", FIRST.key), ("t", SECOND.key)
    ):
        assert database.atomically(lambda tx: tx.report("t", FIRST, data("r"))) == []

    assert state(database, SECOND) == NodeState(SECOND, "WAITING", 1, twins.wanted["s"])
    done = rows(database, nodes, "traversal_id", "node")["t", FIRST.key]
    assert (done["status"], done["output"], done["reason"]) == ("DONE", data("r"), None)


def test_what_is_ready_waits_for_nothing_and_is_not_done(database: Database, twins: Plan) -> None:
    def ready(traversal: str) -> list[Node]:
        return sorted(database.reading(lambda tx: tx.ready_nodes(traversal)))

    assert ready("t") == [OLD, FIRST]
    database.atomically(lambda tx: tx.report("t", FIRST, data("r")))
    assert ready("t") == [OLD]
    assert database.atomically(lambda tx: tx.report("t", OLD, data("o"))) == [SECOND]
    assert ready("t") == [SECOND]
    assert database.atomically(lambda tx: tx.report("t", SECOND, data("s"))) == []
    assert ready("t") == []
    assert ready("u") == [OLD, FIRST]
    assert database.reading(lambda tx: tx.finished("t"))
    assert not database.reading(lambda tx: tx.finished("u"))


def test_a_node_hears_of_what_it_waited_for_and_not_of_what_was_cleaned_up(
    database: Database, twins: Plan
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
    database: Database, twins: Plan, blocked: bool, status: str
) -> None:
    def facts() -> tuple[str, str | None]:
        row = rows(database, nodes, "traversal_id", "node")["t", FIRST.key]
        return row["status"], row["reason"]

    def fail(reason: str) -> None:
        database.atomically(lambda tx: tx.fail_node("t", FIRST, blocked=blocked, reason=reason))

    with only_these_change(database, nodes, ("traversal_id", "node"), ("t", FIRST.key)):
        fail("it broke")
        assert facts() == (status, "it broke")
        fail("once more")
        assert facts() == (status, "it broke"), "only what waits can fail"
    database.atomically(lambda tx: tx.report("t", FIRST, data("r")))
    assert facts() == ("DONE", None)
    fail("too late")
    assert facts() == ("DONE", None)


def test_only_what_is_blocked_is_opened_again(database: Database, twins: Plan) -> None:
    def reopen(node: Node) -> bool:
        return database.atomically(lambda tx: tx.reopen_node("t", node))

    for traversal in ("t", "u"):
        database.atomically(
            lambda tx: tx.fail_node(traversal, FIRST, blocked=True, reason="x")  # noqa: B023
        )
    database.atomically(lambda tx: tx.fail_node("t", OLD, blocked=False, reason="x"))
    assert database.reading(lambda tx: tx.stopped_nodes("t")) == [FIRST]

    with only_these_change(database, nodes, ("traversal_id", "node"), ("t", FIRST.key)):
        assert not reopen(OLD)
        assert not reopen(SECOND)
        assert reopen(FIRST)
        assert not reopen(FIRST)

    row = rows(database, nodes, "traversal_id", "node")["t", FIRST.key]
    assert (row["status"], row["reason"]) == ("WAITING", None)
    assert database.reading(lambda tx: tx.stopped_nodes("t")) == []
    assert database.reading(lambda tx: tx.stopped_nodes("u")) == [FIRST]


def test_a_deferral_says_who_holds_the_lock_and_since_when(database: Database, twins: Plan) -> None:
    begun = database.reading(lambda tx: tx.now())

    with only_these_change(database, nodes, ("traversal_id", "node"), ("t", FIRST.key)):
        database.atomically(lambda tx: tx.defer("t", FIRST, "slow"))

    (deferred,) = database.reading(lambda tx: views.deferred(tx, "t"))
    assert (deferred["node"], deferred["deferred_to"]) == (FIRST.key, "slow")
    assert begun <= deferred["deferred_at"] < begun + 30
