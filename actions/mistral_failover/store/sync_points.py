# SPDX-License-Identifier: Apache-2.0
"""Sync points in SQL: a row per node of a traversal, a row per edge.

A node counts down the predecessors that have not reported; the row's lock in the database makes
two that report at once count one after the other, so one of them sees zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from mistral_failover.convergence.graph import Plan
from mistral_failover.convergence.records import END, Node, NodeState, Ready, Wanted
from mistral_failover.store.session import Session
from mistral_failover.store.tables import edges, groups, nodes, resources


class SyncPoints(Session):
    """This part of ``convergence.ports.Transaction``."""

    def insert_sync_points(self, traversal_id: str, plan: Plan) -> None:
        """One sync point per node, and one for the traversal itself."""
        rows: list[dict[str, Any]] = []
        for key, degree in plan.graph.in_degree():
            node = Node.parse(key)
            wanted = plan.wanted.get(node.resource_id) if node.kind == "update" else None
            rows.append(
                {
                    "traversal_id": traversal_id,
                    "node": key,
                    "resource_id": node.resource_id,
                    "status": "WAITING",
                    "remaining": degree,
                    "wanted": None if wanted is None else _wanted_document(wanted),
                }
            )
        roots = [node.key for node in plan.roots()]
        rows.append(
            {
                "traversal_id": traversal_id,
                "node": END,
                "resource_id": None,
                "status": "WAITING",
                "remaining": len(roots),
                "wanted": None,
            }
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
        self.execute(edges.delete().where(edges.c.traversal_id == traversal_id))
        self.execute(nodes.delete().where(nodes.c.traversal_id == traversal_id))

    def node(self, traversal_id: str, node: Node) -> NodeState | None:
        query = sa.select(nodes.c.status, nodes.c.remaining, nodes.c.wanted).where(
            *_node_is(traversal_id, node.key)
        )
        row = self.connection.execute(query).one_or_none()
        if row is None:
            return None
        wanted = row.wanted and Wanted(**{**row.wanted, "requires": tuple(row.wanted["requires"])})
        return NodeState(node, row.status, row.remaining, wanted)

    def inputs(self, traversal_id: str, node: Node) -> Mapping[str, Mapping[str, Any]]:
        query = (
            sa.select(nodes.c.output)
            .join(
                edges,
                sa.and_(
                    edges.c.traversal_id == nodes.c.traversal_id,
                    edges.c.predecessor == nodes.c.node,
                ),
            )
            .where(edges.c.traversal_id == traversal_id, edges.c.node == node.key)
        )
        # What was cleaned up has nothing to tell, and must not hide its successor's data.
        query = query.where(nodes.c.node.like("update:%"))
        outputs = [row.output for row in self.connection.execute(query) if row.output]
        return {
            output["name"]: {"id": output["id"], "attributes": output["attributes"]}
            for output in outputs
        }

    def report(self, traversal_id: str, node: Node, data: Mapping[str, Any]) -> list[Node] | None:
        first = self.changed(
            nodes.update()
            .where(*_node_is(traversal_id, node.key), nodes.c.status != "DONE")
            .values(status="DONE", output=data, reason=None)
        )
        waiting = sa.select(edges.c.node).where(
            edges.c.traversal_id == traversal_id, edges.c.predecessor == node.key
        )
        if first:
            self.execute(
                nodes.update()
                .where(nodes.c.traversal_id == traversal_id, nodes.c.node.in_(waiting))
                .values(remaining=nodes.c.remaining - 1)
            )
        elif self.node(traversal_id, node) is None:
            return None
        return self._parsed(self._ready(traversal_id).where(nodes.c.node.in_(waiting)))

    def finished(self, traversal_id: str) -> bool:
        query = sa.select(nodes.c.remaining).where(*_node_is(traversal_id, END))
        return self.connection.execute(query).scalar_one_or_none() == 0

    def fail_node(self, traversal_id: str, node: Node, *, blocked: bool, reason: str) -> None:
        self.execute(
            nodes.update()
            .where(*_node_is(traversal_id, node.key), nodes.c.status == "WAITING")
            .values(status="BLOCKED" if blocked else "FAILED", reason=reason)
        )

    def reopen_node(self, traversal_id: str, node: Node) -> bool:
        return self.changed(
            nodes.update()
            .where(*_node_is(traversal_id, node.key), nodes.c.status == "BLOCKED")
            .values(status="WAITING", reason=None)
        )

    def defer(self, traversal_id: str, node: Node, holder: str) -> None:
        self.execute(
            nodes.update()
            .where(*_node_is(traversal_id, node.key))
            .values(deferred_to=holder, deferred_at=self.clock())
        )

    def ready_nodes(self, traversal_id: str) -> list[Node]:
        return self._parsed(self._ready(traversal_id))

    def stopped_nodes(self, traversal_id: str) -> list[Node]:
        return self._parsed(
            sa.select(nodes.c.node).where(
                nodes.c.traversal_id == traversal_id, nodes.c.status == "BLOCKED"
            )
        )

    def loose_nodes(self, project_id: str, group_id: str | None) -> list[Ready]:
        held = sa.and_(resources.c.owner.is_not(None), resources.c.lease_until > self.clock())
        query = (
            sa.select(nodes.c.traversal_id, nodes.c.node)
            .join(groups, groups.c.current_traversal == nodes.c.traversal_id)
            .join(resources, resources.c.id == nodes.c.resource_id)
            .where(
                groups.c.project_id == project_id,
                nodes.c.status == "WAITING",
                nodes.c.remaining == 0,
                sa.not_(held),
            )
        )
        if group_id is not None:
            query = query.where(groups.c.id == group_id)
        return [Ready(t, Node.parse(key)) for t, key in self.connection.execute(query)]

    @staticmethod
    def _ready(traversal_id: str) -> sa.Select[Any]:
        return sa.select(nodes.c.node).where(
            nodes.c.traversal_id == traversal_id,
            nodes.c.status == "WAITING",
            nodes.c.remaining == 0,
            nodes.c.node != END,
        )

    def _parsed(self, query: sa.Select[Any]) -> list[Node]:
        return [Node.parse(row[0]) for row in self.connection.execute(query)]


def _node_is(traversal_id: str, key: str) -> tuple[sa.ColumnElement[bool], ...]:
    return (nodes.c.traversal_id == traversal_id, nodes.c.node == key)


def _wanted_document(wanted: Wanted) -> dict[str, Any]:
    return {
        "name": wanted.name,
        "type": wanted.type,
        "properties": wanted.properties,
        "requires": wanted.requires,
    }
