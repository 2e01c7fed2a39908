# SPDX-License-Identifier: Apache-2.0
"""Incidents: what was said about a group, what was decided, how often it was said again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from mistral_failover.store.session import Session
from mistral_failover.store.tables import incidents

OPERATOR = "operator"
"""The source of incidents that a person started."""


@dataclass(frozen=True)
class Incident:
    """One incident; ``fact`` is ``{"lost": member}`` or what else was said, times in seconds."""

    id: str
    project_id: str
    group_id: str
    source: str
    fact: Mapping[str, Any]
    payload: Mapping[str, Any]
    decision: str
    sentence: str
    duplicates: int = 0
    traversal_id: str | None = None
    decided_at: float = 0.0
    first_at: float = 0.0
    last_at: float = 0.0


def get(tx: Session, project_id: str, incident_id: str) -> Incident | None:
    """A project's incident."""
    row = tx.connection.execute(
        sa.select(incidents).where(
            incidents.c.id == incident_id, incidents.c.project_id == project_id
        )
    ).one_or_none()
    return Incident(**row._mapping) if row else None


def add(tx: Session, incident: Incident) -> None:
    """Record a new incident, now."""
    now = tx.now()
    tx.insert(
        incidents, **{**incident.__dict__, "decided_at": now, "first_at": now, "last_at": now}
    )


def count_duplicate(tx: Session, incident_id: str) -> None:
    """The same was said again."""
    tx.execute(
        incidents.update()
        .where(incidents.c.id == incident_id)
        .values(duplicates=incidents.c.duplicates + 1, last_at=tx.clock())
    )


def decide(
    tx: Session,
    incident_id: str,
    decision: str,
    sentence: str,
    fact: Mapping[str, Any] | None = None,
) -> None:
    """Replace the decision on an incident, and the fact where it is known better by now."""
    known = {} if fact is None else {"fact": fact}
    tx.execute(
        incidents.update()
        .where(incidents.c.id == incident_id)
        .values(decision=decision, sentence=sentence, decided_at=tx.clock(), **known)
    )


def link(tx: Session, incident_id: str, traversal_id: str) -> None:
    """Remember the one traversal that an incident caused."""
    tx.execute(
        incidents.update()
        .where(incidents.c.id == incident_id, incidents.c.traversal_id.is_(None))
        .values(traversal_id=traversal_id)
    )


def admitted_alarms_since(tx: Session, group_id: str, since: float) -> list[float]:
    """When alarms of a group were admitted since a time, oldest first; operators do not count."""
    query = sa.select(incidents.c.decided_at).where(
        incidents.c.group_id == group_id,
        incidents.c.decision == "ADMITTED",
        incidents.c.source != OPERATOR,
        incidents.c.decided_at >= since,
    )
    return list(tx.connection.execute(query.order_by(incidents.c.decided_at)).scalars())


def of_group(tx: Session, group_id: str, limit: int) -> list[Incident]:
    """The latest incidents of a group, newest first."""
    query = (
        sa.select(incidents)
        .where(incidents.c.group_id == group_id)
        .order_by(incidents.c.first_at.desc())
        .limit(limit)
    )
    return [Incident(**row._mapping) for row in tx.connection.execute(query)]


def unstarted(tx: Session, project_id: str) -> list[Incident]:
    """Admitted incidents that caused no traversal yet: whoever admitted them died."""
    query = sa.select(incidents).where(
        incidents.c.project_id == project_id,
        incidents.c.decision == "ADMITTED",
        incidents.c.traversal_id.is_(None),
    )
    return [Incident(**row._mapping) for row in tx.connection.execute(query)]
