# SPDX-License-Identifier: Apache-2.0
"""Rehearsals of the groups' failovers, and the groups in which they are carried out.

Each function runs in one transaction in which the rehearsed group is locked, unless it only reads.
Times are in seconds by the database's clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict

import sqlalchemy as sa

from mistral_failover.convergence.records import Action, GroupState, Status
from mistral_failover.model.canonical import version_of
from mistral_failover.model.ids import group_id
from mistral_failover.model.rehearsals import (
    COPY_ATTACHMENT,
    RehearsalOutcome,
    group_name,
)
from mistral_failover.store import groups, rehearsed_roles
from mistral_failover.store.session import ProjectSession, fields
from mistral_failover.store.tables import ALIVE, definitions, operations, rehearsals, resources
from mistral_failover.store.tables import groups as group_table
from mistral_failover.store.transaction import ProjectTransaction

KEPT = 50
"""Rehearsals of a group that are kept."""


class RehearsalRow(TypedDict):
    """A rehearsal. ``planned``: what it set out to do (`orders.rehearse.PlannedRehearsal`);
    ``report``: what it came to (`reports.rehearsals.RehearsalReport`), None while it runs.
    ``ended_at``: since then only its cleanup is left, until ``cleaned_at``."""

    id: str
    group_id: str
    outcome: RehearsalOutcome
    cause: str
    reason: str
    planned: Mapping[str, Any]
    report: Mapping[str, Any] | None
    began_at: float
    ended_at: float | None
    cleaned_at: float | None


_ROW = fields(RehearsalRow, rehearsals)
_UNFINISHED = _ROW.where(rehearsals.c.cleaned_at.is_(None)).order_by(rehearsals.c.number)
_UNFINISHED_OF = _UNFINISHED.where(rehearsals.c.group_id == sa.bindparam("this_group"))


def identity(project_id: str, group: str, occasion: str) -> tuple[str, str]:
    """Return the id of the rehearsal that is begun on this occasion, and the name of the group in
    which it is carried out."""
    name = group_name(group, group_id(project_id, f"{group}/{occasion}"))
    return group_id(project_id, name), name


def begin(
    tx: ProjectTransaction,
    group: GroupState,
    name: str,
    definition: Mapping[str, Any],
    planned: Mapping[str, Any],
    cause: str,
) -> GroupState:
    """Record a rehearsal of a group, and the group of this ``name`` in which it is carried out,
    which has no goal yet. Return that group."""
    rehearsal_id, version = group_id(tx.project_id, name), version_of(definition)
    tx.insert(
        group_table,
        id=rehearsal_id,
        project_id=tx.project_id,
        name=name,
        definition_version=version,
        defined=version,
        created_at=tx.clock(),
        told=0,
        rehearses=group.id,
    )
    tx.insert(
        definitions,
        group_id=rehearsal_id,
        version=version,
        document=definition,
        created_at=tx.clock(),
    )
    tx.insert(
        rehearsals,
        id=rehearsal_id,
        group_id=group.id,
        outcome=RehearsalOutcome.RUNNING,
        cause=cause,
        reason="",
        planned=planned,
        began_at=tx.clock(),
        number=tx.number(),
    )
    rehearsed_roles.begin(tx, group.id, planned["roles"])
    state = tx.lock_group(rehearsal_id, shared=False)
    assert state is not None  # it was made above
    return state


def get(tx: ProjectSession, rehearsal_id: str) -> RehearsalRow | None:
    """Return a rehearsal; None if there is none."""
    return next(iter(tx.rows(RehearsalRow, _ROW.where(rehearsals.c.id == rehearsal_id))), None)


def of_group(tx: ProjectSession, identity: str, limit: int = KEPT) -> list[RehearsalRow]:
    """Return the rehearsals of a group, the latest first."""
    mine = _ROW.where(rehearsals.c.group_id == identity)
    return tx.rows(RehearsalRow, mine.order_by(rehearsals.c.number.desc()).limit(limit))


def last_result(tx: ProjectSession, identity: str) -> RehearsalRow | None:
    """Return the last rehearsal of a group that passed or failed; None if there is none."""
    query = _ROW.where(
        rehearsals.c.group_id == identity,
        rehearsals.c.outcome.in_((RehearsalOutcome.PASSED, RehearsalOutcome.FAILED)),
    )
    return next(
        iter(tx.rows(RehearsalRow, query.order_by(rehearsals.c.number.desc()).limit(1))), None
    )


def unfinished(tx: ProjectSession, identity: str | None = None) -> list[RehearsalRow]:
    """Return the rehearsals of the project, or of one group, that still have something in the
    cloud, the oldest first."""
    if identity is None:
        return tx.rows(RehearsalRow, _UNFINISHED)
    return tx.rows(RehearsalRow, _UNFINISHED_OF, {"this_group": identity})


def end(
    tx: ProjectSession,
    rehearsal_id: str,
    outcome: RehearsalOutcome,
    reason: str,
    report: Mapping[str, Any] | None,
) -> bool:
    """Record what a rehearsal came to. Return False if that was recorded before."""
    return tx.changed(
        rehearsals.update()
        .where(
            rehearsals.c.id == rehearsal_id,
            rehearsals.c.outcome == RehearsalOutcome.RUNNING,
        )
        .values(outcome=outcome, reason=reason, report=report, ended_at=tx.clock())
    )


def cleaned(tx: ProjectTransaction, row: RehearsalRow) -> bool:
    """Record that nothing of a rehearsal is left in the cloud, and forget the group in which it was
    carried out, and the oldest rehearsals beyond `KEPT`. Return False if that was done before."""
    done = tx.changed(
        rehearsals.update()
        .where(rehearsals.c.id == row["id"], rehearsals.c.cleaned_at.is_(None))
        .values(cleaned_at=tx.clock())
    )
    if done:
        groups.forget(tx, row["id"])
        old = [each["id"] for each in of_group(tx, row["group_id"], 2 * KEPT)[KEPT:]]
        tx.execute(
            rehearsals.delete().where(
                rehearsals.c.id.in_(old), rehearsals.c.cleaned_at.is_not(None)
            )
        )
    return done


def copies_on(tx: ProjectSession, rehearsal_id: str, server_id: str) -> list[str]:
    """Return the names of the volumes of which a rehearsal has copies on a server: attached, on
    their way, or not certainly away."""
    return _copies(tx, rehearsal_id, server_id, resources.c.action != Action.INIT)


def attaching(tx: ProjectSession, rehearsal_id: str, server_id: str) -> list[str]:
    """Return the names of the volumes whose copies live workers are attaching to a server, in the
    order in which they began."""
    return _copies(
        tx,
        rehearsal_id,
        server_id,
        resources.c.action == Action.CREATE,
        resources.c.status == Status.IN_PROGRESS,
        resources.c.lease_until > tx.now(),
    )


_begun = (
    sa.select(sa.func.max(operations.c.started_at))
    .where(operations.c.resource_id == resources.c.id)
    .scalar_subquery()
)
"""When the last operation of a resource began."""


def _copies(
    tx: ProjectSession, rehearsal_id: str, server_id: str, *conditions: sa.ColumnElement[bool]
) -> list[str]:
    query = (
        sa.select(resources.c.name, resources.c.properties)
        .where(
            resources.c.group_id == rehearsal_id,
            resources.c.type == COPY_ATTACHMENT,
            *conditions,
            ALIVE,
        )
        .order_by(_begun, resources.c.name)
    )
    return [
        row.name
        for row in tx.connection.execute(query)
        if row.properties and row.properties["server_id"] == server_id
    ]
