# SPDX-License-Identifier: Apache-2.0
"""Find the object that an id, or the beginning of one, means within a project."""

from __future__ import annotations

import re
from dataclasses import dataclass

import sqlalchemy as sa

from mistral_failover.store.session import ProjectSession
from mistral_failover.store.tables import (
    goals,
    groups,
    incidents,
    operations,
    plans,
    resources,
    traversals,
)

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
