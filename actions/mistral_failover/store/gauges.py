# SPDX-License-Identifier: Apache-2.0
"""The current state of groups, for the metrics. Each function runs in one transaction: of one
project, or of every project for the metrics of all of them (``metrics.numbers``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa

from mistral_failover.model.decisions import Decision
from mistral_failover.model.rehearsals import RehearsalOutcome
from mistral_failover.store.counters import SWEEPS
from mistral_failover.store.session import Session, chunks
from mistral_failover.store.tables import (
    OF_USERS,
    groups,
    incidents,
    members,
    rehearsed_roles,
    totals,
    traversals,
)
from mistral_failover.store.views import BLOCKED_SINCE

HOUR = 3600.0


@dataclass(frozen=True)
class GroupGauges:
    """A group. ``status``: of its current traversal, DEFINED if there is none. ``since`` and
    ``blocked_since``: when that began, and when it last became BLOCKED, in seconds. ``lately``: the
    number of traversals that began within the last hour. ``rehearsed``: of each member that was
    rehearsed on the server that it has now, when the last rehearsal that passed or failed began,
    and whether the last one of each role passed."""

    id: str
    project: str
    name: str
    status: str
    since: float | None
    blocked_since: float | None
    lately: int
    rehearsed: Mapping[str, tuple[float, bool]] = field(default_factory=dict)


def group_gauges(tx: Session, now: float) -> list[GroupGauges]:
    """Return every group of users, the oldest first."""
    query = (
        sa.select(
            groups.c.id,
            groups.c.project_id,
            groups.c.name,
            traversals.c.status,
            traversals.c.started_at,
            BLOCKED_SINCE.label("blocked_since"),
        )
        .join(traversals, traversals.c.id == groups.c.current_traversal, isouter=True)
        .where(OF_USERS)
        .order_by(groups.c.created_at, groups.c.id)
    )
    rows = tx.connection.execute(query).all()
    lately = _counts(
        tx,
        sa.select(traversals.c.group_id, sa.func.count())
        .join(groups, groups.c.id == traversals.c.group_id)
        .where(traversals.c.started_at > now - HOUR)
        .group_by(traversals.c.group_id),
    )
    rehearsed = _rehearsed(tx)
    return [
        GroupGauges(
            id=row.id,
            project=row.project_id,
            name=row.name,
            status=row.status or "DEFINED",
            since=row.started_at,
            blocked_since=row.blocked_since,
            lately=lately.get(row.id, 0),
            rehearsed=rehearsed.get(row.id, {}),
        )
        for row in rows
    ]


def _rehearsed(tx: Session) -> dict[str, dict[str, tuple[float, bool]]]:
    """Return by group and member what its gauges say of its last rehearsals."""
    failed = rehearsed_roles.c.outcome == RehearsalOutcome.FAILED
    query = (
        sa.select(
            members.c.group_id,
            members.c.name,
            sa.func.max(rehearsed_roles.c.at).label("at"),
            sa.func.sum(sa.case((failed, 1), else_=0)).label("failed"),
        )
        .join(
            rehearsed_roles,
            sa.and_(
                rehearsed_roles.c.group_id == members.c.group_id,
                rehearsed_roles.c.member == members.c.name,
                rehearsed_roles.c.server_id == members.c.server_id,
            ),
        )
        .group_by(members.c.group_id, members.c.name)
    )
    found: dict[str, dict[str, tuple[float, bool]]] = {}
    for row in tx.connection.execute(query):
        found.setdefault(row.group_id, {})[row.name] = row.at, not row.failed
    return found


def held_alarms(tx: Session) -> dict[tuple[str, str | None], int]:
    """Return the number of alarms that wait for an operator, by project and group (None:
    unknown)."""
    query = (
        sa.select(incidents.c.project_id, incidents.c.group_id, sa.func.count())
        .where(incidents.c.decision == Decision.HELD)
        .group_by(incidents.c.project_id, incidents.c.group_id)
    )
    return {(row[0], row[1]): row[2] for row in tx.connection.execute(query)}


def last_sweeps(tx: Session) -> dict[str, float]:
    """Return the time of each project's last sweep, in seconds."""
    query = (
        sa.select(totals.c.project_id, sa.func.max(totals.c.last_at))
        .where(totals.c.name == SWEEPS)
        .group_by(totals.c.project_id)
    )
    return {row[0]: row[1] for row in tx.connection.execute(query)}


def with_servers(tx: Session, group_ids: Sequence[str]) -> list[tuple[str, str, str]]:
    """Return (group id, member, server id) for each member of these groups that has a server."""
    found: list[tuple[str, str, str]] = []
    for some in chunks(group_ids):
        query = sa.select(members.c.group_id, members.c.name, members.c.server_id).where(
            members.c.group_id.in_(some), members.c.server_id.is_not(None)
        )
        rows = tx.connection.execute(query.order_by(members.c.group_id, members.c.name))
        found += [(row[0], row[1], row[2]) for row in rows]
    return found


def _counts(tx: Session, query: sa.Select[Any]) -> dict[str, int]:
    return {row[0]: row[1] for row in tx.connection.execute(query)}
