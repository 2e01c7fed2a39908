# SPDX-License-Identifier: Apache-2.0
"""Sync points in SQL: a row per node of a traversal, a row per edge.

A node counts down the predecessors that have not reported. The database's row lock makes two
simultaneous reports count one after the other, so exactly one of them sees zero.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from mistral_failover.convergence.graph import TraversalPlan
from mistral_failover.convergence.records import (
    END,
    Node,
    NodeProgress,
    NodeState,
    NodeStatus,
    Reported,
    StoppedNode,
    Wanted,
)
from mistral_failover.model.stages import rank
from mistral_failover.store.session import Session
from mistral_failover.store.tables import edges, nodes, resources, traversals

# Building a statement takes longer than running it, so the statements of every check are built
# once.
_HERE = (
    nodes.c.traversal_id == sa.bindparam("this_traversal"),
    nodes.c.node == sa.bindparam("this_node"),
)
STATE_COLUMNS = [nodes.c[each.name] for each in dataclasses.fields(NodeState)[1:]]
"""Those of a sync point, as :func:`read_state` reads them."""
_STATE = sa.select(*STATE_COLUMNS).where(*_HERE)
_READY = sa.select(nodes.c.node).where(
    nodes.c.traversal_id == sa.bindparam("this_traversal"),
    nodes.c.status == NodeStatus.WAITING,
    nodes.c.remaining == 0,
    nodes.c.node != END,
)
_PROGRESS = (
    sa.select(
        nodes.c.node,
        nodes.c.stage,
        nodes.c.status,
        nodes.c.remaining,
        nodes.c.next_try,
        resources.c.owner,
        resources.c.lease_until,
    )
    .join(resources, resources.c.id == nodes.c.resource_id, isouter=True)
    .where(nodes.c.traversal_id == sa.bindparam("this_traversal"), nodes.c.node != END)
    .order_by(nodes.c.stage, nodes.c.node)
)
_WAITS_NO_MORE = {
    "waiting_for": None,
    "waiting_since": None,
    "next_try": None,
    "tries": 0,
    "own_since": None,
}
_DROPS = [
    table.delete().where(table.c.traversal_id == sa.bindparam("this_traversal"))
    for table in (edges, nodes)
]
_STOPPED = (NodeStatus.FAILED, NodeStatus.BLOCKED)
_WAITING_FOR = sa.select(edges.c.node).where(
    edges.c.traversal_id == sa.bindparam("this_traversal"),
    edges.c.predecessor == sa.bindparam("this_node"),
)
_READY_AFTER = sa.select(nodes.c.node).where(
    nodes.c.traversal_id == sa.bindparam("this_traversal"),
    nodes.c.status == NodeStatus.WAITING,
    nodes.c.remaining == 0,
    nodes.c.node.in_(_WAITING_FOR),
)
_DONE = (
    nodes.update()
    .where(*_HERE, nodes.c.status != NodeStatus.DONE)
    .values(status=NodeStatus.DONE, reason=None, stopped_since=None, again_at=None)
)
_COUNT_DOWN = (
    nodes.update()
    .where(nodes.c.traversal_id == sa.bindparam("this_traversal"), nodes.c.node.in_(_WAITING_FOR))
    .values(remaining=nodes.c.remaining - 1)
)
# A cleaned up resource has no output, and must not hide its successor's output.
_INPUTS = (
    sa.select(nodes.c.output)
    .join(
        edges,
        sa.and_(edges.c.traversal_id == nodes.c.traversal_id, edges.c.predecessor == nodes.c.node),
    )
    .where(
        edges.c.traversal_id == sa.bindparam("this_traversal"),
        edges.c.node == sa.bindparam("this_node"),
        nodes.c.node.like("update:%"),
    )
)


@functools.lru_cache(64)
def _progress(now: sa.ColumnElement[float]) -> sa.Select[Any]:
    return _PROGRESS.add_columns(now.label("at"))


class SyncPoints(Session):
    """This part of ``convergence.ports.Transaction``."""

    def insert_sync_points(self, traversal_id: str, plan: TraversalPlan) -> None:
        """Insert one sync point per node, and one for the traversal itself."""

        def row(key: str, remaining: int, **more: Any) -> dict[str, Any]:
            here = {"traversal_id": traversal_id, "node": key, "remaining": remaining}
            unknown = {"resource_id": None, "wanted": None, "stage": 0}
            return {**here, "status": NodeStatus.WAITING, **unknown, **more}

        roots = [node.key for node in plan.roots()]
        rows = [row(END, len(roots))]
        for key, degree in plan.graph.in_degree():
            node = Node.parse(key)
            wanted = plan.wanted.get(node.resource_id) if node.kind == "update" else None
            rows.append(
                row(
                    key,
                    degree,
                    resource_id=node.resource_id,
                    wanted=None if wanted is None else vars(wanted),
                    stage=rank(plan.stages[key]),
                )
            )
        self.connection.execute(nodes.insert(), rows)
        pairs = [*plan.graph.edges(), *((root, END) for root in roots)]
        if pairs:
            self.connection.execute(
                edges.insert(),
                [
                    {"traversal_id": traversal_id, "node": after, "predecessor": before}
                    for before, after in pairs
                ],
            )

    def drop_sync_points(self, traversal_id: str) -> None:
        """Delete the sync points of a traversal."""
        for drop in _DROPS:
            self.connection.execute(drop, {"this_traversal": traversal_id})

    def node(self, traversal_id: str, node: Node) -> NodeState | None:
        row = self.connection.execute(_STATE, _at(traversal_id, node.key)).one_or_none()
        return read_state(node, row) if row else None

    def inputs(self, traversal_id: str, node: Node) -> Mapping[str, Mapping[str, Any]]:
        rows = self.connection.execute(_INPUTS, _at(traversal_id, node.key))
        outputs = [row.output for row in rows if row.output]
        return {
            output["name"]: {"id": output["id"], "attributes": output["attributes"]}
            for output in outputs
        }

    def report(self, traversal_id: str, node: Node, data: Mapping[str, Any]) -> Reported:
        here = _at(traversal_id, node.key)
        if self.change(_DONE, here, output=data, **_WAITS_NO_MORE):
            self.connection.execute(_COUNT_DOWN, here)
        keys = set(self.connection.execute(_READY_AFTER, here).scalars())
        ready = tuple(Node.parse(key) for key in sorted(keys - {END}))
        return Reported(ready, finished=END in keys)

    def stop_node(
        self,
        traversal_id: str,
        node: Node,
        *,
        blocked: bool,
        reason: str,
        since: float,
        again: float,
    ) -> None:
        self.execute(
            nodes.update()
            .where(*_node_is(traversal_id, node.key), nodes.c.status == NodeStatus.WAITING)
            .values(
                status=NodeStatus.BLOCKED if blocked else NodeStatus.FAILED,
                reason=reason,
                stopped_since=since,
                again_at=again,
                **_WAITS_NO_MORE,
            )
        )

    def put_off(self, traversal_id: str, node: Node, again: float) -> None:
        self.execute(
            nodes.update()
            .where(*_node_is(traversal_id, node.key), nodes.c.status.in_(_STOPPED))
            .values(again_at=again)
        )

    def retry_now(self, traversal_id: str) -> None:
        self.execute(
            nodes.update()
            .where(nodes.c.traversal_id == traversal_id, nodes.c.next_try > self.clock())
            .values(next_try=self.clock())
        )

    def reopen_node(self, traversal_id: str, node: Node, *, once: bool = False) -> bool:
        return self.changed(
            nodes.update()
            .where(*_node_is(traversal_id, node.key), nodes.c.status.in_(_STOPPED))
            .values(
                status=NodeStatus.WAITING,
                reason=None,
                again_at=None,
                own_since=0.0 if once else None,
            )
        )

    def defer(self, traversal_id: str, node: Node, holder: str) -> None:
        self.execute(
            nodes.update()
            .where(*_node_is(traversal_id, node.key))
            .values(deferred_to=holder, deferred_at=self.clock())
        )
        of = sa.select(traversals.c.group_id).where(traversals.c.id == traversal_id)
        if (group_id := self.connection.execute(of).scalar_one_or_none()) is not None:
            self.count(group_id, "deferrals")

    def ready_nodes(self, traversal_id: str) -> list[Node]:
        return _parsed(self.connection.execute(_READY, {"this_traversal": traversal_id}))

    def stopped_nodes(self, traversal_id: str) -> list[StoppedNode]:
        query = (
            sa.select(nodes.c.node, nodes.c.status, nodes.c.reason, nodes.c.stopped_since)
            .where(nodes.c.traversal_id == traversal_id, nodes.c.status.in_(_STOPPED))
            .order_by(nodes.c.stopped_since, nodes.c.node)
        )
        return [
            StoppedNode(Node.parse(key), status, reason or "", since or 0.0)
            for key, status, reason, since in self.connection.execute(query)
        ]

    def schedule_retry(
        self,
        traversal_id: str,
        node: Node,
        *,
        waiting_for: str,
        since: float,
        own_since: float | None = None,
        next_try: float,
    ) -> None:
        self.execute(
            nodes.update()
            .where(*_node_is(traversal_id, node.key), nodes.c.status == NodeStatus.WAITING)
            .values(
                waiting_for=waiting_for,
                waiting_since=since,
                own_since=own_since,
                next_try=next_try,
                tries=nodes.c.tries + 1,
            )
        )

    def postpone(
        self, traversal_id: str, node: Node, *, waiting_for: str, since: float, next_try: float
    ) -> None:
        self.execute(
            nodes.update()
            .where(*_node_is(traversal_id, node.key), nodes.c.status == NodeStatus.WAITING)
            .values(waiting_for=waiting_for, waiting_since=since, next_try=next_try)
        )

    def progress(self, traversal_id: str) -> list[NodeProgress]:
        query = _progress(self.clock())
        rows = self.connection.execute(query, {"this_traversal": traversal_id})
        return [
            NodeProgress(Node.parse(key), stage, status, *rest)
            for key, stage, status, *rest in rows
        ]


def read_state(node: Node, row: Sequence[Any]) -> NodeState:
    """Return the sync point whose :data:`STATE_COLUMNS` a row has."""
    status, remaining, wanted, *rest = row
    return NodeState(node, status, remaining, wanted_of(wanted), *rest)


def wanted_of(document: Mapping[str, Any] | None) -> Wanted | None:
    """Return what a node makes of its resource, as its row has it."""
    if document is None:
        return None
    return Wanted(**{**document, "requires": tuple(document["requires"])})


def _parsed(rows: Iterable[sa.Row[Any]]) -> list[Node]:
    return [Node.parse(row[0]) for row in rows]


def _at(traversal_id: str, key: str) -> dict[str, str]:
    """Return the parameters of the statements above."""
    return {"this_traversal": traversal_id, "this_node": key}


def _node_is(traversal_id: str, key: str) -> tuple[sa.ColumnElement[bool], ...]:
    return (nodes.c.traversal_id == traversal_id, nodes.c.node == key)
