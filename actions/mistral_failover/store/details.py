# SPDX-License-Identifier: Apache-2.0
"""One object for people: found by its id or the beginning of one, with its operations, deferrals,
traversals, locks. Each function runs in one transaction. Times are seconds since the epoch."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypedDict, cast

import sqlalchemy as sa

from mistral_failover.convergence.records import (
    JournalKind,
    NodeStatus,
    OperationStatus,
    TraversalStatus,
    Wanted,
)
from mistral_failover.model.types import Verb
from mistral_failover.store.session import ProjectSession, fields
from mistral_failover.store.sync_points import wanted_of
from mistral_failover.store.tables import (
    OF_TRAVERSAL,
    goals,
    groups,
    incidents,
    journal,
    nodes,
    operations,
    plans,
    resources,
    traversals,
)

TRAVERSALS = 20
"""Maximum traversals of an incident or a goal; the latest are shown."""
LOCKS_BROKEN = (JournalKind.STEAL, JournalKind.BROKEN)
"""The kinds of journal entries about a lock that was taken from its owner."""


class LedgerRow(TypedDict):
    """An operation, and who carries it out for what. ``result``: None while there is none.
    ``resource``, ``type``, ``member``: of its resource."""

    key: str
    resource_id: str
    verb: Verb
    status: OperationStatus
    attempts: int
    result: Mapping[str, Any] | None
    started_at: float
    ended_at: float | None
    traversal_id: str
    goal_version: str
    owner: str
    token: int
    resource: str
    type: str
    member: str | None


class TraversalBrief(TypedDict):
    """A traversal in the list of an incident or a goal. ``goal``: the version of its goal."""

    id: str
    goal: str
    status: str
    reason: str
    cause: str
    started_at: float
    ended_at: float | None


class NodeRow(TypedDict):
    """A node of a traversal. ``wanted``: what it makes of its resource, None for a cleanup.
    ``waiting_for``: a service that did not answer; ``deferred_to``: the owner of a lock."""

    node: str
    status: NodeStatus
    wanted: Wanted | None
    waiting_for: str | None
    deferred_to: str | None


class LockRow(TypedDict):
    """A lock that is held, as the state store has it. ``lease_left``: seconds, negative if the
    lease is over. ``operation`` (its key) and ``traversal`` are None if the ledger has none under
    this token."""

    group_id: str
    group: str
    resource: str
    resource_id: str
    type: str
    owner: str
    token: int
    lease_left: float | None
    since: float | None
    operation: str | None
    traversal: str | None


class BrokenLock(TypedDict):
    """A lock that was broken."""

    at: float
    resource_id: str | None
    sentence: str


def operations_of(
    tx: ProjectSession,
    *,
    traversal_id: str | None = None,
    resource_id: str | None = None,
    key: str | None = None,
    limit: int = 1000,
) -> list[LedgerRow]:
    """Return the operations of a traversal, on a resource, or with a key, in the order of their
    start."""
    query = (
        fields(LedgerRow, operations, resources, resource=resources.c.name)
        .join(resources, resources.c.id == operations.c.resource_id)
        .order_by(operations.c.started_at, operations.c.token, operations.c.key)
        .limit(limit)
    )
    if traversal_id is not None:
        query = query.where(operations.c.traversal_id == traversal_id)
    if resource_id is not None:
        query = query.where(operations.c.resource_id == resource_id)
    if key is not None:
        query = query.where(operations.c.key == key)
    return tx.rows(LedgerRow, query)


def errors_of_making(tx: ProjectSession, resource_id: str) -> list[Mapping[str, Any] | None]:
    """Return the error of each create and update of a record. It is None for one that may
    have had an effect: it has not failed, or not at its only attempt."""
    rows = tx.connection.execute(
        sa.select(operations.c.status, operations.c.attempts, operations.c.result).where(
            operations.c.resource_id == resource_id,
            operations.c.verb.in_((Verb.CREATE, Verb.UPDATE)),
        )
    )
    return [
        (row.result or {}).get("error")
        if row.status == OperationStatus.FAILED and row.attempts == 1
        else None
        for row in rows
    ]


def traversals_of(
    tx: ProjectSession,
    group_id: str,
    *,
    incident_id: str | None = None,
    goal_version: str | None = None,
    traversal_id: str | None = None,
) -> list[TraversalBrief]:
    """Return the latest traversals of a group that an incident caused, or to a goal, or the one
    with an id, the oldest first."""
    query = fields(TraversalBrief, traversals, goal=traversals.c.goal_version).where(
        traversals.c.group_id == group_id
    )
    if incident_id is not None:
        query = query.where(traversals.c.incident_id == incident_id)
    if goal_version is not None:
        query = query.where(traversals.c.goal_version == goal_version)
    if traversal_id is not None:
        query = query.where(traversals.c.id == traversal_id)
    query = query.order_by(traversals.c.number.desc()).limit(TRAVERSALS)
    return tx.rows(TraversalBrief, query)[::-1]


def nodes_of(tx: ProjectSession, traversal_id: str) -> dict[str, NodeRow]:
    """Return the nodes of a traversal whose resources are known, by their keys."""
    query = fields(NodeRow, nodes).where(
        nodes.c.traversal_id == traversal_id, nodes.c.resource_id.is_not(None)
    )
    rows = tx.connection.execute(query).mappings()
    found = [cast(NodeRow, {**row, "wanted": wanted_of(row["wanted"])}) for row in rows]
    return {row["node"]: row for row in found}


def last_failover(tx: ProjectSession, traversal_id: str) -> float | None:
    """Return how long the failover before this one took, in seconds. A failover is a traversal to
    a goal with a lost member that the goal before did not have. None if this is none, or if none of
    the latest ones before it was."""
    this = sa.select(traversals.c.group_id, traversals.c.number).where(
        traversals.c.id == traversal_id
    )
    group_id, number = tx.connection.execute(this).one()
    query = (
        sa.select(
            traversals.c.status,
            traversals.c.started_at,
            traversals.c.ended_at,
            goals.c.document,
        )
        .join(goals, OF_TRAVERSAL)
        .where(traversals.c.group_id == group_id, traversals.c.number <= number)
        .order_by(traversals.c.number.desc())
        .limit(TRAVERSALS)
    )
    rows = list(tx.connection.execute(query))
    lost = [frozenset(row.document["lost"]) for row in rows]
    before: list[frozenset[str]] = [*lost[1:], frozenset()]
    failovers = [row for row, now, then in zip(rows, lost, before, strict=True) if now - then]
    if not rows or not failovers or failovers[0] is not rows[0]:
        return None
    ended = (row for row in failovers[1:] if row.status == TraversalStatus.COMPLETE)
    return next((float(row.ended_at - row.started_at) for row in ended), None)


def locks(
    tx: ProjectSession,
    group_id: str | None = None,
    resource_id: str | None = None,
) -> list[LockRow]:
    """Return the locks that are held in the project, in one of its groups, or on one
    resource."""
    begun = (
        sa.select(sa.func.max(journal.c.at))
        .where(
            journal.c.group_id == resources.c.group_id,
            journal.c.resource_id == resources.c.id,
            journal.c.kind == JournalKind.STARTED,
        )
        .correlate(resources)
        .scalar_subquery()
    )
    query = (
        fields(
            LockRow,
            resources,
            group=groups.c.name,
            resource=resources.c.name,
            resource_id=resources.c.id,
            lease_left=resources.c.lease_until - tx.clock(),
            since=begun,
            operation=operations.c.key,
            traversal=operations.c.traversal_id,
        )
        .join(groups, groups.c.id == resources.c.group_id)
        .join(
            operations,
            sa.and_(
                operations.c.resource_id == resources.c.id,
                operations.c.token == resources.c.token,
                operations.c.status == OperationStatus.STARTED,
            ),
            isouter=True,
        )
        .where(groups.c.project_id == tx.project_id, resources.c.owner.is_not(None))
        .order_by(groups.c.name, resources.c.name)
    )
    if group_id is not None:
        query = query.where(groups.c.id == group_id)
    if resource_id is not None:
        query = query.where(resources.c.id == resource_id)
    return tx.rows(LockRow, query)


def broken_locks(tx: ProjectSession, traversal_id: str) -> list[BrokenLock]:
    """Return the locks that were broken in a traversal."""
    query = (
        fields(BrokenLock, journal)
        .where(journal.c.traversal_id == traversal_id, journal.c.kind.in_(LOCKS_BROKEN))
        .order_by(journal.c.id)
    )
    return tx.rows(BrokenLock, query)


def broken_by_hand(tx: ProjectSession, group_id: str, resource_id: str, owner: str) -> str | None:
    """Return the last journal entry about an operator who broke this owner's lock on a resource;
    None if there is none."""
    query = (
        sa.select(journal.c.sentence)
        .where(
            journal.c.group_id == group_id,
            journal.c.resource_id == resource_id,
            journal.c.kind == JournalKind.BROKEN,
            journal.c.owner == owner,
        )
        .order_by(journal.c.id.desc())
        .limit(1)
    )
    sentence: str | None = tx.connection.execute(query).scalar_one_or_none()
    return sentence


def made_at(tx: ProjectSession, group_id: str) -> dict[str, float]:
    """Return when each resource of a group was made: the end of its last successful create."""
    query = (
        sa.select(operations.c.resource_id, sa.func.max(operations.c.ended_at))
        .where(
            operations.c.group_id == group_id,
            operations.c.verb == Verb.CREATE,
            operations.c.status == OperationStatus.DONE,
        )
        .group_by(operations.c.resource_id)
    )
    return {row[0]: row[1] for row in tx.connection.execute(query)}


SHORTEST = 8
"""The minimum number of digits of an id."""
CANDIDATES = 6
"""The maximum number of matches of one kind."""
_BEGINNING = re.compile(rf"[0-9a-f-]{{{SHORTEST},}}")


@dataclass(frozen=True)
class Match:
    """An object with the id. ``kind``: incident, traversal, goal, operation, resource or plan.
    ``group_id`` and ``group`` are None for an incident of an unknown group."""

    kind: str
    id: str
    group_id: str | None
    group: str | None


def matches(
    tx: ProjectSession, said: str, group: str | None = None, kind: str | None = None
) -> list[Match]:
    """Return the project's objects with this id. Also accept the beginning of an id with at least
    :data:`SHORTEST` digits. If an id matches completely, matches by beginning are left out.
    ``group`` and ``kind`` restrict the search."""
    tables = {
        "incident": incidents.c.id,
        "traversal": traversals.c.id,
        "goal": goals.c.version,
        "operation": operations.c.key,
        "resource": resources.c.id,
        "plan": plans.c.id,
    }
    whole: list[Match] = []
    begun: list[Match] = []
    for name, column in tables.items():
        if kind in (None, name):
            whole += _found(tx, name, column, column == said, group)
            if _BEGINNING.fullmatch(said):
                like = column.like(f"{said}%")
                begun += _found(tx, name, column, like, group)
    return whole or begun


def _found(
    tx: ProjectSession,
    kind: str,
    column: sa.Column[str],
    fits: sa.ColumnElement[bool],
    group: str | None,
) -> list[Match]:
    table = column.table
    project = table.c.project_id if kind == "incident" else groups.c.project_id
    query = (
        sa.select(column, groups.c.id, groups.c.name)
        .select_from(
            table.join(groups, groups.c.id == table.c.group_id, isouter=kind == "incident")
        )
        .where(fits, project == tx.project_id)
        .order_by(column, groups.c.name)
        .limit(CANDIDATES)
    )
    if group is not None:
        query = query.where(groups.c.name == group)
    return [Match(kind, *row) for row in tx.connection.execute(query)]
