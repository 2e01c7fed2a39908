# SPDX-License-Identifier: Apache-2.0
"""Incidents: what was said about a group, what was decided, how often it was said again."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from mistral_failover.store import totals
from mistral_failover.store.session import Session
from mistral_failover.store.tables import Decision, groups, incidents

OPERATOR = "operator"
"""The source of incidents that a person started."""


@dataclass(frozen=True)
class Incident:
    """One incident; times in seconds by the database's clock.

    ``group_id`` None: nobody knows yet which group it is about. ``fact`` is ``{"group", "lost":
    member}`` or what else was said. ``rule`` names the rule of admission that decided, if one
    spoke. ``firing`` and ``series`` are the alarm's. A DUPLICATE of a fact that was known is kept
    to be recognised when it comes again, and counts on ``duplicate_of``. ``execution`` is
    Mistral's that began the traversal, None for an action that was run by itself. ``number`` grows
    from one incident to the next, ``said`` from one word to the next, also where an incident is
    said again.
    """

    id: str
    project_id: str
    group_id: str | None
    source: str
    fact: Mapping[str, Any]
    payload: Mapping[str, Any]
    decision: Decision
    sentence: str
    duplicates: int = 0
    traversal_id: str | None = None
    decided_at: float = 0.0
    first_at: float = 0.0
    last_at: float = 0.0
    rule: str = ""
    firing: bool = True
    series: str = ""
    duplicate_of: str | None = None
    execution: str | None = None
    number: int = 0
    said: int = 0


_COUNT = {"duplicates": incidents.c.duplicates + 1}
_DECIDED_FOR_GOOD = sa.or_(
    incidents.c.decision.in_((Decision.IGNORED, Decision.DISMISSED, Decision.DUPLICATE)),
    sa.and_(incidents.c.decision == Decision.ADMITTED, incidents.c.traversal_id.is_not(None)),
)
_WAITING = sa.or_(
    incidents.c.decision == Decision.HELD,
    sa.and_(
        incidents.c.decision == Decision.ADMITTED,
        incidents.c.traversal_id.is_(None),
        incidents.c.source != OPERATOR,
    ),
)
_other = incidents.alias()
_OUTDONE = (
    sa.exists()
    .where(
        incidents.c.series != "",
        _other.c.group_id == incidents.c.group_id,
        _other.c.series == incidents.c.series,
        _other.c.said > incidents.c.said,
    )
    .correlate(incidents)
    .label("outdone")
)
"""Whether something else was said in an incident's series since."""
_IN_ORDER = (incidents.c.number, incidents.c.first_at, incidents.c.id)
# The times count among rows that a process of a version without numbers wrote.
_NEWEST_FIRST = (
    incidents.c.said.desc(),
    incidents.c.last_at.desc(),
    incidents.c.first_at.desc(),
    incidents.c.id.desc(),
)


def get(tx: Session, project_id: str, incident_id: str) -> Incident | None:
    """A project's incident."""
    row = tx.connection.execute(
        sa.select(incidents).where(
            incidents.c.id == incident_id, incidents.c.project_id == project_id
        )
    ).one_or_none()
    return _incident(row._mapping) if row else None


def add(tx: Session, incident: Incident) -> None:
    """Record a new incident, now."""
    now, number = tx.now(), tx.number()
    times = {"decided_at": now, "first_at": now, "last_at": now}
    tx.insert(incidents, **{**incident.__dict__, **times, "number": number, "said": number})


def say_again(tx: Session, incident_id: str) -> None:
    """The same was said again: it is the latest word."""
    count_duplicate(tx, incident_id)
    _is_the_latest_word(tx, incident_id)


def _is_the_latest_word(tx: Session, incident_id: str) -> None:
    number = tx.number()
    tx.execute(incidents.update().where(incidents.c.id == incident_id).values(said=number))


def count_duplicate(tx: Session, incident_id: str) -> None:
    """Another incident told of the same fact: it counts here, but is no word of this series."""
    tx.execute(
        incidents.update().where(incidents.c.id == incident_id).values(**_COUNT, last_at=tx.clock())
    )


def count_again(tx: Session, project_id: str, incident_id: str) -> tuple[str, str | None] | None:
    """Count a repeat of an incident that is decided for good, without any other lock than its
    row's; returns the (incident, traversal) that it counts on. None: there is no such incident, or
    it is yet to be judged or begun, and nothing was changed."""
    known = tx.changed(
        incidents.update()
        .where(
            incidents.c.id == incident_id,
            incidents.c.project_id == project_id,
            _DECIDED_FOR_GOOD,
        )
        .values(**_COUNT, last_at=tx.clock())
    )
    if not known:
        return None
    which = sa.select(incidents.c.duplicate_of, incidents.c.traversal_id, _OUTDONE)
    row = tx.connection.execute(which.where(incidents.c.id == incident_id)).one()
    if row.outdone:
        _is_the_latest_word(tx, incident_id)
    if row.duplicate_of is None:
        return incident_id, row.traversal_id
    count_duplicate(tx, row.duplicate_of)
    first = tx.connection.execute(which.where(incidents.c.id == row.duplicate_of)).one()
    return row.duplicate_of, first.traversal_id


def decide(
    tx: Session,
    incident_id: str,
    decision: Decision,
    sentence: str,
    fact: Mapping[str, Any] | None = None,
    *,
    rule: str = "",
    group_id: str | None = None,
    duplicate_of: str | None = None,
) -> None:
    """Replace the decision on an incident, and the fact and the group where they are known better
    by now."""
    totals.keep_decision(tx, incident_id, (decision, rule))
    known: dict[str, Any] = {} if fact is None else {"fact": fact}
    if group_id is not None:
        known["group_id"] = group_id
    tx.execute(
        incidents.update()
        .where(incidents.c.id == incident_id)
        .values(
            decision=decision,
            sentence=sentence,
            rule=rule,
            duplicate_of=duplicate_of,
            decided_at=tx.clock(),
            **known,
        )
    )


def adopt(tx: Session, incident_id: str, group_id: str) -> bool:
    """Give an incident that belongs to no group to one; False when another one was faster."""
    return tx.changed(
        incidents.update()
        .where(incidents.c.id == incident_id, incidents.c.group_id.is_(None))
        .values(group_id=group_id)
    )


def dismiss(tx: Session, incident_id: str, sentence: str) -> bool:
    """Take a held incident off the list; False when it is not held (any more)."""
    dismissed = tx.changed(
        incidents.update()
        .where(incidents.c.id == incident_id, incidents.c.decision == Decision.HELD)
        .values(decision=Decision.DISMISSED, sentence=sentence, decided_at=tx.clock())
    )
    if dismissed:
        totals.keep_dismissed(tx, incident_id)
    return dismissed


def link(tx: Session, incident_id: str, traversal_id: str, execution: str | None = None) -> None:
    """Remember the one traversal that an incident caused, and which of Mistral's executions began
    it."""
    tx.execute(
        incidents.update()
        .where(incidents.c.id == incident_id, incidents.c.traversal_id.is_(None))
        .values(traversal_id=traversal_id, execution=execution)
    )


def admitted_alarms_since(tx: Session, group_id: str, since: float) -> list[float]:
    """When alarms of a group were admitted since a time, oldest first; operators do not count."""
    query = sa.select(incidents.c.decided_at).where(
        incidents.c.group_id == group_id,
        incidents.c.decision == Decision.ADMITTED,
        incidents.c.source != OPERATOR,
        incidents.c.decided_at >= since,
    )
    return list(tx.connection.execute(query.order_by(incidents.c.decided_at)).scalars())


def yet_to_begin(tx: Session, group_id: str) -> list[Incident]:
    """The admitted alarms of a group that have no traversal yet, oldest first."""
    query = sa.select(incidents).where(
        incidents.c.group_id == group_id,
        incidents.c.decision == Decision.ADMITTED,
        incidents.c.source != OPERATOR,
        incidents.c.traversal_id.is_(None),
    )
    rows = tx.connection.execute(query.order_by(*_IN_ORDER))
    return [_incident(row._mapping) for row in rows]


def waiting(tx: Session, group_id: str) -> list[Incident]:
    """The alarms of a group that nobody has decided on, oldest first: held, or admitted and not
    begun."""
    query = sa.select(incidents).where(incidents.c.group_id == group_id, _WAITING)
    rows = tx.connection.execute(query.order_by(*_IN_ORDER))
    return [_incident(row._mapping) for row in rows]


def said_lost(incident: Incident) -> tuple[str, ...]:
    """The members that an alarm says are lost, or who admitted it: they may know better."""
    said = incident.fact.get("asked_for")
    if said is not None:
        return tuple(said["lost"])
    lost = incident.fact.get("lost")
    return (lost,) if lost else ()


def latest_of_series(tx: Session, group_id: str, series: str) -> Incident | None:
    """What was last said in a series of a group: that it went off, or that it cleared."""
    query = (
        sa.select(incidents)
        .where(incidents.c.group_id == group_id, incidents.c.series == series)
        .order_by(*_NEWEST_FIRST)
        .limit(1)
    )
    row = tx.connection.execute(query).one_or_none()
    return _incident(row._mapping) if row else None


def failing_since(tx: Session, project_id: str, since: float, rules: Collection[str]) -> set[str]:
    """The ids of the project's groups of which an alarm was admitted since a time, or held by one
    of these rules; what a person ordered does not count."""
    held = sa.and_(incidents.c.decision == Decision.HELD, incidents.c.rule.in_(rules))
    query = (
        sa.select(incidents.c.group_id)
        .where(
            incidents.c.project_id == project_id,
            incidents.c.decided_at >= since,
            incidents.c.group_id.is_not(None),
            incidents.c.source != OPERATOR,
            sa.or_(incidents.c.decision == Decision.ADMITTED, held),
        )
        .distinct()
    )
    return set(tx.connection.execute(query).scalars())


def of_group(tx: Session, group_id: str, limit: int) -> list[Incident]:
    """The latest incidents of a group, newest first, each occasion once."""
    query = (
        sa.select(incidents)
        .where(incidents.c.group_id == group_id, incidents.c.decision != Decision.DUPLICATE)
        .order_by(*(column.desc() for column in _IN_ORDER))
        .limit(limit)
    )
    return [_incident(row._mapping) for row in tx.connection.execute(query)]


def held_alarms(
    tx: Session, project_id: str, group_id: str | None, limit: int
) -> tuple[int, list[tuple[Incident, str | None]]]:
    """How many alarms of the project, or of a group of it, are held, and the latest of them with
    their groups' names."""
    of = [incidents.c.project_id == project_id, incidents.c.decision == Decision.HELD]
    if group_id is not None:
        of.append(incidents.c.group_id == group_id)
    total = tx.connection.execute(sa.select(sa.func.count()).select_from(incidents).where(*of))
    query = (
        sa.select(incidents, groups.c.name.label("group_name"))
        .join(groups, groups.c.id == incidents.c.group_id, isouter=True)
        .where(*of)
        .order_by(*_NEWEST_FIRST)
        .limit(limit)
    )
    rows = []
    for row in tx.connection.execute(query):
        fields = dict(row._mapping)
        name = fields.pop("group_name")
        rows.append((_incident(fields), name))
    return int(total.scalar_one()), rows


def unstarted(tx: Session, project_id: str) -> list[Incident]:
    """Admitted incidents that caused no traversal yet, oldest first: whoever admitted them
    died."""
    query = sa.select(incidents).where(
        incidents.c.project_id == project_id,
        incidents.c.decision == Decision.ADMITTED,
        incidents.c.traversal_id.is_(None),
    )
    rows = tx.connection.execute(query.order_by(*_IN_ORDER))
    return [_incident(row._mapping) for row in rows]


def _incident(fields: Mapping[Any, Any]) -> Incident:
    return Incident(**{**fields, "decision": Decision(fields["decision"])})
