# SPDX-License-Identifier: Apache-2.0
"""Which events a group's own workflow has received: a cursor in its journal.

An event is a journal entry of certain kinds. The events of a group are written one after the other,
under the group's lock (the end of a traversal is written once). So no event ever appears behind the
cursor later. Each function runs in one transaction.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import sqlalchemy as sa

from mistral_failover.convergence.records import JournalKind
from mistral_failover.store.session import ProjectSession
from mistral_failover.store.tables import definitions, groups, journal, traversals

EVENTS: Mapping[JournalKind, str] = MappingProxyType(
    {
        JournalKind.ADMITTED: "admitted",
        JournalKind.HELD: "held",
        JournalKind.TRAVERSAL: "started",
        JournalKind.COMPLETE: "complete",
        JournalKind.NOT_REACHED: "failed",
        JournalKind.BLOCKED: "blocked",
        JournalKind.RETURNED: "returned",
        JournalKind.DEGRADED: "degraded",
        JournalKind.DOWN: "down",
        JournalKind.WELL: "well",
        JournalKind.REHEARSAL_PASSED: "rehearsal_passed",
        JournalKind.REHEARSAL_FAILED: "rehearsal_failed",
        JournalKind.REHEARSAL_ENDED: "rehearsal_ended",
    }
)
"""The kinds of journal entries that are events, and the names of the events."""


@dataclass(frozen=True)
class Event:
    """One journal entry; ``at`` in seconds by the database's clock."""

    id: int
    kind: JournalKind
    sentence: str
    traversal: str | None
    incident: str | None
    at: float


@dataclass(frozen=True)
class Pending:
    """The events that a group's workflow has not received yet, oldest first. ``goals``: by
    traversal, the version of its goal. ``stuck``: the event whose delivery failure was recorded."""

    definition: Mapping[str, Any]
    name: str
    current: str | None
    events: tuple[Event, ...]
    goals: Mapping[str, str]
    stuck: int | None
    now: float


class _Committed(threading.local):
    def __init__(self) -> None:
        self.groups: set[str] = set()


_committed = _Committed()


def committed(group_ids: Iterable[str]) -> None:
    """Remember, for this thread, the groups whose workflows must receive an event that was just
    committed."""
    _committed.groups.update(group_ids)


def take() -> frozenset[str]:
    """Return what this thread has remembered since its last call."""
    found = frozenset(_committed.groups)
    _committed.groups.clear()
    return found


def begin(tx: ProjectSession, group_id: str) -> None:
    """Record that the group has a workflow now. It receives only later events."""
    latest = sa.select(sa.func.coalesce(sa.func.max(journal.c.id), 0)).where(
        journal.c.group_id == group_id
    )
    last = tx.connection.execute(latest).scalar_one()
    tx.execute(groups.update().where(groups.c.id == group_id).values(told=last, stuck=None))


def pending(tx: ProjectSession, group_id: str, limit: int) -> Pending | None:
    """Return the events that a group's workflow has not received yet, ``limit`` at most. Return
    None if the group has no workflow or does not belong to the project. The workflow is that of
    what is defined: it moves nothing, and it is to hear why an update failed."""
    group = tx.connection.execute(
        sa.select(groups, definitions.c.document)
        .join(
            definitions,
            sa.and_(
                definitions.c.group_id == groups.c.id, definitions.c.version == groups.c.defined
            ),
        )
        .where(
            groups.c.id == group_id,
            groups.c.project_id == tx.project_id,
            groups.c.hook.is_not(None),
        )
    ).one_or_none()
    if group is None:
        return None
    query = (
        sa.select(
            journal.c.id,
            journal.c.kind,
            journal.c.sentence,
            journal.c.traversal_id,
            sa.func.coalesce(journal.c.incident_id, traversals.c.incident_id),
            journal.c.at,
        )
        .join(traversals, traversals.c.id == journal.c.traversal_id, isouter=True)
        .where(
            journal.c.group_id == group_id,
            journal.c.kind.in_(EVENTS),
            journal.c.id > (group.told or 0),
        )
        .order_by(journal.c.id)
        .limit(limit)
    )
    events = tuple(Event(*row) for row in tx.connection.execute(query))
    concerned = {event.traversal for event in events} | {group.current_traversal}
    versions = sa.select(traversals.c.id, traversals.c.goal_version).where(
        traversals.c.id.in_([each for each in concerned if each])
    )
    return Pending(
        definition=group.document["document"]["on_event"],
        name=group.name,
        current=group.current_traversal,
        events=events,
        goals={row.id: row.goal_version for row in tx.connection.execute(versions)},
        stuck=group.stuck,
        now=tx.now(),
    )


def mark_received(tx: ProjectSession, group_id: str, event_id: int) -> bool:
    """Move the cursor to an event. Return False if another process was faster.
    *Compare-and-swap*."""
    return _moved(tx, groups.c.told, group_id, event_id)


def mark_stuck(tx: ProjectSession, group_id: str, event_id: int) -> bool:
    """Record that an event could not be delivered. Return False if that was recorded before.
    *Compare-and-swap*."""
    return _moved(tx, groups.c.stuck, group_id, event_id)


def _moved(tx: ProjectSession, cursor: sa.Column[Any], group_id: str, event_id: int) -> bool:
    behind = sa.or_(cursor.is_(None), cursor < event_id)
    return tx.changed(
        groups.update().where(groups.c.id == group_id, behind).values({cursor: event_id})
    )


def waiting(tx: ProjectSession, *, quiet: float, stuck: bool = True) -> list[str]:
    """Return the ids of the project's groups with events that are older than ``quiet`` seconds and
    that their workflows have not received. ``stuck`` False: without groups whose delivery failure
    is recorded."""
    here = {"this_project": tx.project_id, "quiet": quiet}
    return list(tx.connection.execute(_waiting(tx.clock(), stuck), here).scalars())


@functools.lru_cache(16)
def _waiting(now: sa.ColumnElement[float], stuck: bool) -> sa.Select[Any]:
    """Return the statement, built once: an embedded Mistral asks every second."""
    untold = sa.exists().where(
        journal.c.group_id == groups.c.id,
        journal.c.kind.in_(EVENTS),
        journal.c.id > sa.func.coalesce(groups.c.told, 0),
        journal.c.at <= now - sa.bindparam("quiet", type_=sa.Double),
    )
    query = (
        sa.select(groups.c.id)
        .where(
            groups.c.project_id == sa.bindparam("this_project"),
            groups.c.hook.is_not(None),
            untold,
        )
        .order_by(groups.c.name)
    )
    going = sa.or_(groups.c.stuck.is_(None), groups.c.stuck <= groups.c.told)
    return query if stuck else query.where(going)
