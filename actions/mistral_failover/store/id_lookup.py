# SPDX-License-Identifier: Apache-2.0
"""What an id, or the beginning of one, stands for within a project."""

from __future__ import annotations

import re
from dataclasses import dataclass

import sqlalchemy as sa

from mistral_failover.store.session import Session
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
"""Digits of an id that must be given at least."""
CANDIDATES = 6
"""Matches of one kind that are looked for at most."""
_BEGINNING = re.compile(rf"[0-9a-f-]{{{SHORTEST},}}")


@dataclass(frozen=True)
class Match:
    """Something that has the id. ``kind``: incident, traversal, goal, operation, resource or plan.
    ``group_id`` and ``group`` are None for an incident of which nobody knows whose it is."""

    kind: str
    id: str
    group_id: str | None
    group: str | None


def matches(
    tx: Session, project_id: str, said: str, group: str | None = None, kind: str | None = None
) -> list[Match]:
    """What of the project has this id, or one that begins so, where at least :data:`SHORTEST`
    digits are given; an id that fits as a whole hides those that only begin so. ``group`` and
    ``kind`` narrow it down."""
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
            whole += _found(tx, name, column, column == said, project_id, group)
            if _BEGINNING.fullmatch(said):
                like = column.like(f"{said}%")
                begun += _found(tx, name, column, like, project_id, group)
    return whole or begun


def _found(
    tx: Session,
    kind: str,
    column: sa.Column[str],
    fits: sa.ColumnElement[bool],
    project_id: str,
    group: str | None,
) -> list[Match]:
    table = column.table
    project = table.c.project_id if kind == "incident" else groups.c.project_id
    query = (
        sa.select(column, groups.c.id, groups.c.name)
        .select_from(
            table.join(groups, groups.c.id == table.c.group_id, isouter=kind == "incident")
        )
        .where(fits, project == project_id)
        .order_by(column, groups.c.name)
        .limit(CANDIDATES)
    )
    if group is not None:
        query = query.where(groups.c.name == group)
    return [Match(kind, *row) for row in tx.connection.execute(query)]
