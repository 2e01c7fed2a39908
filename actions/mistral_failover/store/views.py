# SPDX-License-Identifier: Apache-2.0
"""Reports for people, over several tables. Times are seconds since the epoch."""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, TypedDict, cast

import sqlalchemy as sa

from mistral_failover.convergence.records import (
    END,
    Action,
    GroupState,
    JournalKind,
    NodeStatus,
    OperationStatus,
    TraversalStatus,
)
from mistral_failover.model.decisions import Decision
from mistral_failover.model.goal import REPLACE_TYPE
from mistral_failover.model.restarts import ANOTHER_SERVER
from mistral_failover.model.types import Verb
from mistral_failover.store.groups import TO_MOVE
from mistral_failover.store.records import BIRTH
from mistral_failover.store.session import ProjectSession, fields
from mistral_failover.store.tables import (
    ALIVE,
    GROUP_STATE,
    OF_TRAVERSAL,
    OF_USERS,
    definitions,
    goals,
    groups,
    incidents,
    journal,
    nodes,
    operations,
    resources,
    traversals,
)

BLOCKED_SINCE = sa.case(
    (
        traversals.c.status == TraversalStatus.BLOCKED,
        sa.select(sa.func.max(journal.c.at))
        .where(
            journal.c.group_id == traversals.c.group_id,
            journal.c.kind == JournalKind.BLOCKED,
            journal.c.traversal_id == traversals.c.id,
        )
        .correlate(traversals)
        .scalar_subquery(),
    )
)
"""When a traversal last became BLOCKED, for queries of traversals; NULL if it is not."""
STATUS_SINCE = sa.func.coalesce(
    traversals.c.ended_at, BLOCKED_SINCE, traversals.c.started_at, type_=sa.Float
)
"""When a traversal came to its status, for queries of traversals; of one IN_PROGRESS, its start. It
is not the time of its latest failure: others may follow."""


class TraversalStep(TypedDict):
    """A traversal, in short."""

    id: str
    group_id: str
    goal_version: str
    status: str
    reason: str
    cause: str
    superseded_by: str | None
    started_at: float
    ended_at: float | None


class TraversalRow(TraversalStep):
    """A traversal. ``nodes``: how many it has, by status."""

    incident_id: str | None
    nodes: dict[str, int]


class RunningOperation(TypedDict):
    """An operation that was started and has not ended. ``waiting_for``: the service that does not
    answer it, since ``waiting_since``."""

    group_id: str
    key: str
    resource_id: str
    verb: Verb
    status: OperationStatus
    attempts: int
    owner: str
    started_at: float
    waiting_for: str | None
    waiting_since: float | None
    resource: str
    member: str | None
    type: str


class LedgerEntry(TypedDict):
    """The ledger's entry of an operation. ``intent``: what was recorded before its call."""

    resource_id: str
    traversal_id: str
    verb: Verb
    status: OperationStatus
    attempts: int
    token: int
    intent: Mapping[str, Any]


class DeferredRow(TypedDict):
    """A node that found its resource locked by the owner ``deferred_to``, the last one that it
    met."""

    traversal_id: str
    node: str
    resource_id: str
    resource: str
    deferred_to: str
    deferred_at: float


class WaitingRow(TypedDict):
    """A node that waits for a temporary failure to pass. ``verb``: what is tried again."""

    traversal_id: str
    resource: str
    type: str
    member: str | None
    verb: str
    waiting_for: str
    since: float
    next_try: float
    tries: int


class ReadyRow(TypedDict):
    """A node that may start now."""

    traversal_id: str
    node: str
    resource: str
    member: str | None
    type: str


class ChainRow(TypedDict):
    """The chain of a traversal: ``execution``, its last one (None: there was none yet),
    ``executions``, how many there were, and the rank of the ``stage`` that it has to open."""

    execution: str | None
    executions: int
    stage: int


class FailedOperation(TypedDict):
    """The latest operation of the node that failed, and its error."""

    resource_id: str
    verb: Verb
    error: Mapping[str, Any]
    since: float
    again_at: float


class JournalRow(TypedDict):
    """An entry of the journal."""

    id: int
    at: float
    kind: str
    sentence: str
    traversal_id: str | None
    resource_id: str | None


class ProjectJournalRow(JournalRow):
    """An entry of the journal, with the name of its group."""

    group: str


_TRAVERSAL = (
    fields(TraversalStep, traversals)
    .add_columns(traversals.c.incident_id)
    .where(traversals.c.id == sa.bindparam("this_traversal"))
)
_COUNTS = (
    sa.select(nodes.c.status, sa.func.count().label("count"))
    .where(nodes.c.traversal_id == sa.bindparam("this_traversal"), nodes.c.node != END)
    .group_by(nodes.c.status)
)
_FIRST = traversals.alias()
_SUCCESSORS = (
    fields(TraversalStep, traversals)
    .join(
        _FIRST,
        sa.and_(
            _FIRST.c.group_id == traversals.c.group_id,
            _FIRST.c.incident_id == traversals.c.incident_id,
            _FIRST.c.number <= traversals.c.number,
            _FIRST.c.id != traversals.c.id,
        ),
    )
    .where(_FIRST.c.id == sa.bindparam("this_traversal"))
    .order_by(traversals.c.number)
)
_ENDED_AT = sa.select(traversals.c.ended_at).where(
    traversals.c.id == sa.bindparam("this_traversal")
)
_LAST_ENTRY = sa.select(sa.func.coalesce(sa.func.max(journal.c.id), 0)).where(
    journal.c.group_id == sa.bindparam("this_group")
)
_OPERATION = fields(LedgerEntry, operations).where(operations.c.key == sa.bindparam("this_key"))


def traversal(tx: ProjectSession, traversal_id: str) -> TraversalRow | None:
    """Return one traversal, None if there is none."""
    here = {"this_traversal": traversal_id}
    row = tx.connection.execute(_TRAVERSAL, here).one_or_none()
    if row is None:
        return None
    counts = tx.connection.execute(_COUNTS, here)
    found = {**row._mapping, "nodes": {row.status: row.count for row in counts}}
    return cast(TraversalRow, found)


def status_since(tx: ProjectSession, traversal_id: str) -> float | None:
    """Return when a traversal came to its status, in seconds; None if there is no traversal."""
    query = sa.select(STATUS_SINCE).where(traversals.c.id == traversal_id)
    found: float | None = tx.connection.execute(query).scalar_one_or_none()
    return found


def running_operations(tx: ProjectSession, group_ids: Collection[str]) -> list[RunningOperation]:
    """Return the operations of these groups that were started and have not ended, oldest first.
    Operations on resources that are gone are left out."""
    query = (
        fields(RunningOperation, operations, resources, resource=resources.c.name)
        .join(resources, resources.c.id == operations.c.resource_id)
        .where(
            operations.c.group_id.in_(group_ids),
            operations.c.status.in_((OperationStatus.STARTED, OperationStatus.UNKNOWN)),
            ALIVE,
        )
        .order_by(operations.c.started_at, operations.c.token, operations.c.key)
    )
    return tx.rows(RunningOperation, query)


def count_journal_entries(
    tx: ProjectSession, traversal_id: str, resource_id: str, kind: JournalKind
) -> int:
    """Return the number of journal entries of this kind about a resource in a traversal."""
    query = sa.select(sa.func.count()).where(
        journal.c.traversal_id == traversal_id,
        journal.c.resource_id == resource_id,
        journal.c.kind == kind,
    )
    return int(tx.connection.execute(query).scalar_one())


def last_of_kind(tx: ProjectSession, traversal_id: str, kind: JournalKind) -> float | None:
    """Return when the journal got its last entry of this kind about a traversal; None: it has
    none."""
    query = sa.select(sa.func.max(journal.c.at)).where(
        journal.c.traversal_id == traversal_id, journal.c.kind == kind
    )
    return tx.connection.execute(query).scalar_one_or_none()


def last_in_group(tx: ProjectSession, group_id: str, kind: JournalKind) -> float | None:
    """Return when the journal got its last entry of this kind about a group; None: it has none."""
    query = sa.select(sa.func.max(journal.c.at)).where(
        journal.c.group_id == group_id, journal.c.kind == kind
    )
    return cast("float | None", tx.connection.execute(query).scalar_one())


def ended_at(tx: ProjectSession, traversal_id: str) -> float | None:
    """Return when a traversal ended; None: it has not."""
    found = tx.connection.execute(_ENDED_AT, {"this_traversal": traversal_id})
    return found.scalar_one_or_none()


def traversals_since(tx: ProjectSession, group_id: str, at: float) -> int:
    """Return how many traversals of a group have begun since then."""
    query = sa.select(sa.func.count()).where(
        traversals.c.group_id == group_id, traversals.c.started_at > at
    )
    return int(tx.connection.execute(query).scalar_one())


def last_ended(
    tx: ProjectSession, group_id: str, type_name: str, name: str | None = None
) -> float | None:
    """Return when the last operation on a resource of this type, or on the one of this ``name``,
    ended; None: never."""
    query = (
        sa.select(sa.func.max(operations.c.ended_at))
        .join(resources, resources.c.id == operations.c.resource_id)
        .where(operations.c.group_id == group_id, resources.c.type == type_name)
    )
    if name is not None:
        query = query.where(resources.c.name == name)
    ended: float | None = tx.connection.execute(query).scalar_one()
    return ended


class BroughtBack(TypedDict):
    """An attempt to bring a member back, which ended ``at``: ``found``, by what way it came back,
    or why it did not."""

    name: str
    at: float
    found: str


def brought_back(tx: ProjectSession, group_id: str, since: float) -> list[BroughtBack]:
    """Return the attempts to bring members of a group back that ended since then, oldest first;
    ``name``: of the resource. A repeat of a request that got no answer is the same attempt."""
    ended = (OperationStatus.DONE, OperationStatus.FAILED)
    query = (
        sa.select(resources.c.name, operations.c.ended_at, operations.c.result)
        .join(resources, resources.c.id == operations.c.resource_id)
        .where(
            operations.c.group_id == group_id,
            resources.c.type == REPLACE_TYPE,
            operations.c.verb == Verb.CREATE,
            operations.c.status.in_(ended),
            operations.c.ended_at > since,
        )
        .order_by(operations.c.ended_at, operations.c.token)
    )
    return [
        {"name": name, "at": at, "found": _how_it_came_back(result or {})}
        for name, at, result in tx.connection.execute(query)
    ]


def _how_it_came_back(result: Mapping[str, Any]) -> str:
    if error := result.get("error"):
        return str(error.get("message", ""))
    return str((result.get("attributes") or {}).get("by", ANOTHER_SERVER))


def operation(tx: ProjectSession, key: str) -> LedgerEntry | None:
    """Return the ledger's entry of one operation."""
    row = tx.connection.execute(_OPERATION, {"this_key": key}).one_or_none()
    return cast(LedgerEntry, dict(row._mapping)) if row else None


def deferred(
    tx: ProjectSession, traversal_ids: Collection[str], *, waiting: bool = True
) -> list[DeferredRow]:
    """Return the nodes of these traversals that found their resource locked when they were ready:
    those that still wait, or with ``waiting`` False all of them."""
    query = (
        fields(DeferredRow, nodes, resource=resources.c.name)
        .join(resources, resources.c.id == nodes.c.resource_id)
        .where(nodes.c.traversal_id.in_(traversal_ids), nodes.c.deferred_to.is_not(None))
        .order_by(nodes.c.deferred_at, nodes.c.node)
    )
    if waiting:
        query = query.where(nodes.c.status == NodeStatus.WAITING)
    return tx.rows(DeferredRow, query)


def _verb_of_wait() -> sa.ColumnElement[str]:
    """What is tried again is the record's last action; a node without a failure has another one
    before it."""
    action, is_cleanup = resources.c.action, nodes.c.node.like("cleanup:%")
    return sa.case(
        (nodes.c.tries > 0, sa.func.lower(action)),
        (is_cleanup, Verb.DELETE.value),
        (action == Action.UPDATE, Verb.UPDATE.value),
        else_=Verb.CREATE.value,
    )


def waiting(tx: ProjectSession, traversal_ids: Collection[str]) -> list[WaitingRow]:
    """Return the nodes of these traversals that wait for a temporary failure to pass, the longest
    wait first."""
    query = (
        fields(
            WaitingRow,
            nodes,
            resources,
            resource=resources.c.name,
            verb=_verb_of_wait(),
            since=nodes.c.waiting_since,
        )
        .join(resources, resources.c.id == nodes.c.resource_id)
        .where(nodes.c.traversal_id.in_(traversal_ids), nodes.c.waiting_since.is_not(None))
        .order_by(nodes.c.waiting_since, resources.c.name)
    )
    return tx.rows(WaitingRow, query)


def ready(tx: ProjectSession, traversal_ids: Collection[str]) -> list[ReadyRow]:
    """Return the nodes of these traversals that may start now, in the order of their stages: their
    stage is open, and they wait for nothing that the state store knows."""
    query = (
        fields(ReadyRow, nodes, resources, resource=resources.c.name)
        .join(traversals, traversals.c.id == nodes.c.traversal_id)
        .join(resources, resources.c.id == nodes.c.resource_id)
        .where(
            nodes.c.traversal_id.in_(traversal_ids),
            traversals.c.status.in_((TraversalStatus.IN_PROGRESS, TraversalStatus.BLOCKED)),
            sa.or_(traversals.c.through.is_(None), nodes.c.stage <= traversals.c.through),
            nodes.c.status == NodeStatus.WAITING,
            nodes.c.remaining == 0,
            nodes.c.waiting_since.is_(None),
            nodes.c.deferred_to.is_(None),
            resources.c.owner.is_(None),
        )
        .order_by(nodes.c.stage, resources.c.name)
    )
    return tx.rows(ReadyRow, query)


def chain(tx: ProjectSession, traversal_id: str) -> ChainRow | None:
    """Return the chain that a traversal waits for: it has to open the next stage. Return None if a
    node is ready, or nothing is left to do."""
    query = (
        fields(
            ChainRow,
            execution=traversals.c.chain,
            executions=traversals.c.chains,
            stage=sa.func.min(nodes.c.stage),
        )
        .add_columns(traversals.c.through)
        .join(nodes, nodes.c.traversal_id == traversals.c.id)
        .where(
            traversals.c.id == traversal_id,
            nodes.c.status == NodeStatus.WAITING,
            nodes.c.remaining == 0,
            nodes.c.node != END,
        )
        .group_by(traversals.c.chain, traversals.c.chains, traversals.c.through)
    )
    row = tx.connection.execute(query).one_or_none()
    if row is None or row.through is None or row.stage <= row.through:
        return None
    return {"execution": row.execution, "executions": row.executions, "stage": row.stage}


def failed_step(tx: ProjectSession, traversal_id: str) -> FailedOperation | None:
    """Return the operation whose failure is the reason of a traversal's status. None if no
    operation failed, or if the traversal was superseded."""
    query = (
        sa.select(
            operations.c.resource_id,
            operations.c.verb,
            operations.c.result,
            nodes.c.stopped_since.label("since"),
            nodes.c.again_at,
        )
        .join(traversals, traversals.c.id == operations.c.traversal_id)
        .join(
            nodes,
            sa.and_(
                nodes.c.traversal_id == traversals.c.id,
                nodes.c.node == traversals.c.failed_node,
                nodes.c.resource_id == operations.c.resource_id,
            ),
        )
        .where(
            traversals.c.id == traversal_id,
            nodes.c.status.in_((NodeStatus.FAILED, NodeStatus.BLOCKED)),
        )
        .order_by(operations.c.token.desc())
        .limit(1)
    )
    row = tx.connection.execute(query).one_or_none()
    error = (row.result or {}).get("error") if row else None
    if row is None or not error:
        return None
    return {
        "resource_id": row.resource_id,
        "verb": row.verb,
        "error": error,
        "since": row.since,
        "again_at": row.again_at,
    }


def graph(tx: ProjectSession, traversal_id: str) -> dict[str, Any] | None:
    """Return the graph of a traversal, as node-link JSON."""
    query = sa.select(traversals.c.graph).where(traversals.c.id == traversal_id)
    document: dict[str, Any] | None = tx.connection.execute(query).scalar_one_or_none()
    return document


def history(
    tx: ProjectSession,
    group_id: str,
    *,
    after: int = 0,
    limit: int = 100,
    traversal_id: str | None = None,
) -> list[JournalRow]:
    """Return journal entries in order: with ``after`` those behind that id, otherwise the
    latest."""
    query = _history(since=bool(after), of_one=traversal_id is not None)
    here = {"this_group": group_id, "after": after, "this_traversal": traversal_id, "most": limit}
    rows = tx.rows(JournalRow, query, here)
    return rows if after else rows[::-1]


@functools.cache
def _history(*, since: bool, of_one: bool) -> sa.Select[Any]:
    """Return the statement, built once: every call of ``failover.advance`` asks."""
    query = fields(JournalRow, journal).where(journal.c.group_id == sa.bindparam("this_group"))
    if of_one:
        query = query.where(journal.c.traversal_id == sa.bindparam("this_traversal"))
    if since:
        query = query.where(journal.c.id > sa.bindparam("after"))
    order = journal.c.id if since else journal.c.id.desc()
    return query.order_by(order).limit(sa.bindparam("most", type_=sa.Integer))


def last_entry(tx: ProjectSession, group_id: str) -> int:
    """Return the id of a group's last journal entry, 0 if there is none."""
    return int(tx.connection.execute(_LAST_ENTRY, {"this_group": group_id}).scalar_one())


def history_of_project(
    tx: ProjectSession, *, after: int = 0, limit: int = 100
) -> list[ProjectJournalRow]:
    """Return journal entries of all groups of the project, each with the name of its ``group``, in
    order: with ``after`` those behind that id, otherwise the latest."""
    query = (
        fields(ProjectJournalRow, journal, group=groups.c.name)
        .join(groups, groups.c.id == journal.c.group_id)
        .where(groups.c.project_id == tx.project_id, OF_USERS)
        .limit(limit)
    )
    if after:
        query = query.where(journal.c.id > after).order_by(journal.c.id)
        return tx.rows(ProjectJournalRow, query)
    query = query.order_by(journal.c.id.desc())
    return tx.rows(ProjectJournalRow, query)[::-1]


def with_successors(tx: ProjectSession, first: TraversalRow) -> list[TraversalStep]:
    """Return a traversal and the ones that the engine itself
    started after it, in order: everything that one incident caused."""
    if first["incident_id"] is None:
        return [first]
    return [first, *tx.rows(TraversalStep, _SUCCESSORS, {"this_traversal": first["id"]})]


def overview(
    tx: ProjectSession, limit: int, *, after: str | None = None
) -> tuple[int, list[dict[str, Any]]]:
    """Return the number of the project's groups, and the first ``limit`` by name, of those behind
    the name ``after`` if it is given: ``state`` (as `groups.get` returns it), name, definition
    (the group file), status (None: no goal was given yet), reason, cause, ``since`` (when it came
    to this status, in seconds), goal (the document, None if there is none), pause, maintenance,
    and ``held``, the number of its alarms that wait for an operator."""
    of = sa.and_(groups.c.project_id == tx.project_id, OF_USERS)
    total = tx.connection.execute(sa.select(sa.func.count()).select_from(groups).where(of))
    waiting = (
        sa.select(incidents.c.group_id, sa.func.count().label("held"))
        .where(incidents.c.project_id == tx.project_id, incidents.c.decision == Decision.HELD)
        .group_by(incidents.c.group_id)
        .subquery()
    )
    query = (
        sa.select(
            *GROUP_STATE,
            definitions.c.document.label("definition"),
            groups.c.pause,
            groups.c.maintenance,
            traversals.c.status,
            traversals.c.reason,
            traversals.c.cause,
            sa.func.coalesce(STATUS_SINCE, groups.c.created_at).label("since"),
            goals.c.document.label("goal"),
            sa.func.coalesce(waiting.c.held, 0).label("held"),
        )
        .select_from(groups)
        .join(
            definitions,
            sa.and_(definitions.c.group_id == groups.c.id, definitions.c.version == TO_MOVE),
        )
        .join(traversals, traversals.c.id == groups.c.current_traversal, isouter=True)
        .join(goals, OF_TRAVERSAL, isouter=True)
        .join(waiting, waiting.c.group_id == groups.c.id, isouter=True)
        .where(of)
        .order_by(groups.c.name)
        .limit(limit)
    )
    if after is not None:
        query = query.where(groups.c.name > after)
    rows = [dict(row._mapping) for row in tx.connection.execute(query)]
    found = [row | {"state": GroupState(*(row[each.name] for each in GROUP_STATE))} for row in rows]
    return int(total.scalar_one()), found


_VOLUMES = (
    sa.select(
        resources.c.name,
        resources.c.properties,
        resources.c.physical_id,
        (resources.c.number < sa.func.coalesce(groups.c.adopted, 0)).label("of_former_stack"),
    )
    .join(groups, groups.c.id == resources.c.group_id)
    .where(
        resources.c.group_id == sa.bindparam("this_group"),
        resources.c.type == sa.bindparam("this_type"),
        resources.c.physical_id.is_not(None),
    )
    .order_by(*BIRTH)
)
_VOLUMES_OF_ONE = _VOLUMES.where(resources.c.name == sa.bindparam("this_name"))


@dataclass(frozen=True)
class AttachedVolume:
    """A volume by its id, and its ``name`` in the group file. ``of_former_stack``: it was recorded
    before the group took the stack that it has now."""

    name: str
    volume_id: str
    of_former_stack: bool = False


def attached_volumes(
    tx: ProjectSession, group_id: str, attachment: str, name: str | None = None
) -> dict[str, AttachedVolume]:
    """Return, by resource, the volume of its latest record that has one, even if that record is
    gone. ``attachment`` is the type. So a volume is known while it is attached nowhere. ``name``:
    of the only resource that counts."""
    here = {"this_group": group_id, "this_type": attachment}
    rows = (
        tx.connection.execute(_VOLUMES, here)
        if name is None
        else tx.connection.execute(_VOLUMES_OF_ONE, {**here, "this_name": name})
    )
    return {
        row.name: AttachedVolume(
            str(row.properties["volume"]), row.physical_id, bool(row.of_former_stack)
        )
        for row in rows
        if row.properties
    }
