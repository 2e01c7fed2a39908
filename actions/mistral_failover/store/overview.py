# SPDX-License-Identifier: Apache-2.0
"""An overview of all groups of a project: a row for each, in a fixed small number of queries."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import sqlalchemy as sa

from mistral_failover.convergence.records import GroupState
from mistral_failover.model.decisions import Decision
from mistral_failover.store.session import ProjectSession
from mistral_failover.store.tables import goals, groups, incidents, observations, traversals
from mistral_failover.store.views import STATUS_SINCE

_STATE = tuple(each.name for each in fields(GroupState))


def overview(
    tx: ProjectSession, limit: int, *, after: str | None = None
) -> tuple[int, list[dict[str, Any]]]:
    """Return the number of the project's groups, and the first ``limit`` by name, of those behind
    the name ``after`` if it is given: ``state`` (as `groups.get` returns it), name, definition
    (the group file), status (None: no goal was given yet), reason, cause, ``since`` (when it came
    to this status, in seconds), goal (the document, None if there is none), pause, maintenance,
    ``held``, the number of its alarms that wait for an operator, and ``service``, as last observed
    (None: not since its last traversal ended)."""
    of = groups.c.project_id == tx.project_id
    total = tx.connection.execute(sa.select(sa.func.count()).select_from(groups).where(of))
    waiting = (
        sa.select(incidents.c.group_id, sa.func.count().label("held"))
        .where(incidents.c.project_id == tx.project_id, incidents.c.decision == Decision.HELD)
        .group_by(incidents.c.group_id)
        .subquery()
    )
    given = sa.and_(goals.c.group_id == groups.c.id, goals.c.version == traversals.c.goal_version)
    query = (
        sa.select(
            *(groups.c[name] for name in _STATE),
            groups.c.definition,
            groups.c.pause,
            groups.c.maintenance,
            traversals.c.status,
            traversals.c.reason,
            traversals.c.cause,
            sa.func.coalesce(STATUS_SINCE, groups.c.created_at).label("since"),
            goals.c.document.label("goal"),
            sa.func.coalesce(waiting.c.held, 0).label("held"),
            sa.case(
                (observations.c.at >= traversals.c.ended_at, observations.c.service),
            ).label("service"),
        )
        .select_from(groups)
        .join(traversals, traversals.c.id == groups.c.current_traversal, isouter=True)
        .join(goals, given, isouter=True)
        .join(observations, observations.c.group_id == groups.c.id, isouter=True)
        .join(waiting, waiting.c.group_id == groups.c.id, isouter=True)
        .where(of)
        .order_by(groups.c.name)
        .limit(limit)
    )
    if after is not None:
        query = query.where(groups.c.name > after)
    rows = [dict(row._mapping) for row in tx.connection.execute(query)]
    found = [row | {"state": GroupState(*(row[name] for name in _STATE))} for row in rows]
    return int(total.scalar_one()), found
