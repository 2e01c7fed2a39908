# SPDX-License-Identifier: Apache-2.0
"""The traversals of groups, for their history. Functions over one transaction; times in seconds."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, TypedDict, TypeVar

import sqlalchemy as sa

from mistral_failover.convergence.records import JournalKind, OperationStatus
from mistral_failover.model.types import Verb
from mistral_failover.store.session import ProjectSession, chunks, fields
from mistral_failover.store.tables import (
    OF_TRAVERSAL,
    OF_USERS,
    goals,
    groups,
    incidents,
    journal,
    nodes,
    operations,
    resources,
    traversals,
)

Row = TypeVar("Row")


class MoveRow(TypedDict):
    """A traversal, its goal, and the incident that it is for (None: none is kept)."""

    id: str
    group_id: str
    group: str
    status: str
    reason: str
    cause: str
    started_at: float
    ended_at: float | None
    goal: Mapping[str, Any]
    incident: str | None
    source: str | None
    heard_at: float | None


class MadeRow(TypedDict):
    """When the last resource of a type was made or changed by a traversal."""

    traversal_id: str
    type: str
    at: float


class WorkRow(TypedDict):
    """An operation of a traversal on a resource of this name and type."""

    traversal_id: str
    name: str
    type: str
    verb: str
    status: str


class Blocking(TypedDict):
    """An entry of the journal of the kind BLOCKED or CONFIRMED."""

    traversal_id: str
    kind: str
    at: float


class LockWait(TypedDict):
    """How long a node of a current traversal waited for a lock."""

    traversal_id: str
    since: float
    until: float | None


def moves(
    tx: ProjectSession, begin: float, limit: int, group_id: str | None = None
) -> list[MoveRow]:
    """Return the traversals that began since then, at most ``limit``, of one or of all groups of
    the project, the latest first."""
    query = (
        fields(
            MoveRow,
            traversals,
            incidents,
            group=groups.c.name,
            goal=goals.c.document,
            incident=traversals.c.incident_id,
            heard_at=incidents.c.first_at,
        )
        .join(groups, groups.c.id == traversals.c.group_id)
        .join(goals, OF_TRAVERSAL)
        .join(incidents, incidents.c.id == traversals.c.incident_id, isouter=True)
        .where(groups.c.project_id == tx.project_id, OF_USERS, traversals.c.started_at >= begin)
        .order_by(traversals.c.number.desc())
        .limit(limit)
    )
    if group_id is not None:
        query = query.where(traversals.c.group_id == group_id)
    return tx.rows(MoveRow, query)


def made(tx: ProjectSession, traversal_ids: Collection[str]) -> list[MadeRow]:
    """Return when these traversals had made what, by type."""
    query = (
        fields(MadeRow, operations, resources, at=sa.func.max(operations.c.ended_at))
        .join(resources, resources.c.id == operations.c.resource_id)
        .where(
            operations.c.verb.in_((Verb.CREATE, Verb.UPDATE)),
            operations.c.status == OperationStatus.DONE,
        )
        .group_by(operations.c.traversal_id, resources.c.type)
    )
    return _of(tx, MadeRow, query, operations.c.traversal_id, traversal_ids)


def work(tx: ProjectSession, traversal_ids: Collection[str]) -> list[WorkRow]:
    """Return the operations of these traversals, in the order in which they began."""
    query = (
        fields(WorkRow, operations, resources)
        .join(resources, resources.c.id == operations.c.resource_id)
        .order_by(operations.c.started_at)
    )
    return _of(tx, WorkRow, query, operations.c.traversal_id, traversal_ids)


def blockings(tx: ProjectSession, traversal_ids: Collection[str]) -> list[Blocking]:
    """Return when these traversals began to wait for an operator, and when one confirmed what they
    waited for, in order."""
    query = (
        fields(Blocking, journal)
        .where(journal.c.kind.in_((JournalKind.BLOCKED, JournalKind.CONFIRMED)))
        .order_by(journal.c.id)
    )
    return _of(tx, Blocking, query, journal.c.traversal_id, traversal_ids)


def lock_waits(tx: ProjectSession, traversal_ids: Collection[str]) -> list[LockWait]:
    """Return how long nodes of these traversals waited for a lock; ``until`` None: they still do.
    Of a traversal that is not its group's current one nothing is kept."""
    begun = sa.select(sa.func.min(operations.c.started_at)).where(
        operations.c.traversal_id == nodes.c.traversal_id,
        operations.c.resource_id == nodes.c.resource_id,
        operations.c.started_at >= nodes.c.deferred_at,
    )
    query = fields(LockWait, nodes, since=nodes.c.deferred_at, until=begun.scalar_subquery()).where(
        nodes.c.deferred_at.is_not(None)
    )
    return _of(tx, LockWait, query, nodes.c.traversal_id, traversal_ids)


def _of(
    tx: ProjectSession,
    kind: type[Row],
    query: sa.Select[Any],
    column: sa.ColumnElement[Any],
    ids: Collection[str],
) -> list[Row]:
    found: list[Row] = []
    for some in chunks(list(ids)):
        found += tx.rows(kind, query.where(column.in_(some)))
    return found
