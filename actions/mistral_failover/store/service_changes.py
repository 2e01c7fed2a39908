# SPDX-License-Identifier: Apache-2.0
"""The changes of the groups' words (``model.availability``). Functions over one transaction; times
in seconds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import sqlalchemy as sa

from mistral_failover.model.availability import Change
from mistral_failover.store.incidents import OPERATOR
from mistral_failover.store.session import ProjectSession, chunks
from mistral_failover.store.tables import groups, incidents, service_changes, traversals

_older = service_changes.alias()


def last(tx: ProjectSession, group_ids: Sequence[str]) -> dict[str, Change]:
    """Return the last change of each of these groups that has one."""
    latest = sa.select(sa.func.max(_older.c.at)).where(
        _older.c.group_id == service_changes.c.group_id
    )
    found: dict[str, Change] = {}
    for some in chunks(group_ids):
        of_these = service_changes.c.group_id.in_(some)
        query = _CHANGES.where(of_these, service_changes.c.at == latest.scalar_subquery())
        for row in tx.connection.execute(query):
            found[row.group_id] = Change(row.at, row.service)
    return found


def since(
    tx: ProjectSession, begin: float, group_id: str | None = None
) -> Iterator[tuple[str, Change]]:
    """Yield the changes since then, and the one before, by group: of one, or of all groups of the
    project; each group's in order."""
    before = sa.select(sa.func.max(_older.c.at)).where(
        _older.c.group_id == service_changes.c.group_id, _older.c.at <= begin
    )
    query = (
        _CHANGES.join(groups, groups.c.id == service_changes.c.group_id)
        .where(
            groups.c.project_id == tx.project_id,
            sa.or_(service_changes.c.at > begin, service_changes.c.at == before.scalar_subquery()),
        )
        .order_by(service_changes.c.group_id, service_changes.c.at)
    )
    if group_id is not None:
        query = query.where(service_changes.c.group_id == group_id)
    for row in tx.connection.execute(query):
        yield row.group_id, Change(row.at, row.service)


def record(tx: ProjectSession, group_id: str, changes: Sequence[Change]) -> None:
    """Write changes after the last one; the first may take its place. The caller has locked the
    group."""
    if not changes:
        return
    replaced = sa.and_(
        service_changes.c.group_id == group_id, service_changes.c.at >= changes[0].at
    )
    tx.execute(service_changes.delete().where(replaced))
    for each in changes:
        tx.insert(service_changes, group_id=group_id, at=each.at, service=each.service)


def interrupted_from(tx: ProjectSession, traversal_id: str) -> float | None:
    """Return since when what serves is lost, or is being stopped, for a traversal that makes it
    again: since the alarm was admitted that it is for, or since the first traversal for its order
    began. None if there is no such traversal."""
    query = sa.select(
        traversals.c.group_id, traversals.c.incident_id, traversals.c.started_at
    ).where(traversals.c.id == traversal_id)
    this = tx.connection.execute(query).one_or_none()
    if this is None or this.incident_id is None:
        return this and float(this.started_at)
    first = sa.select(sa.func.min(traversals.c.started_at)).where(
        traversals.c.group_id == this.group_id, traversals.c.incident_id == this.incident_id
    )
    admitted = sa.select(incidents.c.decided_at).where(
        incidents.c.id == this.incident_id, incidents.c.source != OPERATOR
    )
    begun: float = tx.connection.execute(first).scalar_one()
    at: float | None = tx.connection.execute(admitted).scalar_one_or_none()
    return begun if at is None else min(at, begun)


_CHANGES: sa.Select[Any] = sa.select(
    service_changes.c.group_id, service_changes.c.at, service_changes.c.service
)
