# SPDX-License-Identifier: Apache-2.0
"""Incidents: what was reported about a group, the decision, and the number of repeats."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sa

from mistral_failover.convergence.records import TraversalStatus
from mistral_failover.model.alarm_fact import AlarmFact
from mistral_failover.model.decisions import AdmissionRule, Decision
from mistral_failover.model.order import Order
from mistral_failover.store import groups as known_groups
from mistral_failover.store.session import ProjectSession
from mistral_failover.store.tables import groups, incidents, traversals

OPERATOR = "operator"
"""The source of incidents that an operator started."""
LOOKS_FOR_MEMBERS = 3600.0
"""Seconds for which an open host event looks for members. Later the host may be up again, with
members that did not fail."""
ENDS = 20
"""Reports that a series has ended that a late alarm is compared with. It is late by minutes."""
PAGE = 500
"""Rows that one query of a long list reads at most."""


@dataclass(frozen=True)
class Incident:
    """One incident; times in seconds by the database's clock.

    ``group_id`` None: the group is not known yet. ``fact``: what an alarm says. ``order``: what an
    operator asks for, by an order or by the admission of an alarm; None while no operator does.
    ``rule`` names the rule of admission that decided, if any. ``firing`` and ``series`` are the
    alarm's. A DUPLICATE of a known fact is kept so that its repeat is recognised; it is counted on
    ``duplicate_of``.
    ``execution`` is the Mistral execution that began the traversal, None for an action that ran by
    itself. ``number`` grows with each incident. ``said`` grows with each report, also when an
    incident is reported again.

    ``parent`` is the host event that an incident is part of. A host event itself is ADMITTED, has
    no group and never a traversal; its fact names the ``host`` or the ``zone``. Each of its
    children concerns one group.
    """

    id: str
    project_id: str
    group_id: str | None
    source: str
    fact: AlarmFact
    payload: Mapping[str, Any]
    decision: Decision
    sentence: str
    duplicates: int = 0
    traversal_id: str | None = None
    decided_at: float = 0.0
    first_at: float = 0.0
    last_at: float = 0.0
    rule: AdmissionRule = AdmissionRule.NONE
    firing: bool = True
    series: str = ""
    duplicate_of: str | None = None
    execution: str | None = None
    number: int = 0
    said: int = 0
    parent: str | None = None
    order: Order | None = None

    @property
    def lost(self) -> tuple[str, ...]:
        """Return the members that are lost, according to the operator who admitted the alarm,
        otherwise according to the alarm. The operator may know better."""
        said = self.order.lost if self.order is not None else None
        return self.fact.lost if said is None else said

    @property
    def is_host_event(self) -> bool:
        """Return whether it is about a compute host or a zone, with a child for each group."""
        return self.decision == Decision.ADMITTED and self.group_id is None


_INCIDENT = sa.select(incidents).where(incidents.c.id == sa.bindparam("this_incident"))
_WITHOUT_PAYLOAD = [column for column in incidents.c if column.name != "payload"]
_DECIDED_FOR_GOOD = sa.or_(
    incidents.c.decision.in_((Decision.IGNORED, Decision.DISMISSED, Decision.DUPLICATE)),
    sa.and_(incidents.c.decision == Decision.ADMITTED, incidents.c.traversal_id.is_not(None)),
)
_HOST_EVENT = sa.and_(
    incidents.c.decision == Decision.ADMITTED,
    incidents.c.group_id.is_(None),
)
_ABOUT_TO_BEGIN = sa.and_(
    incidents.c.decision == Decision.ADMITTED,
    incidents.c.group_id.is_not(None),
    incidents.c.traversal_id.is_(None),
    incidents.c.source != OPERATOR,
)
WAITING = sa.or_(incidents.c.decision == Decision.HELD, _ABOUT_TO_BEGIN)
"""Holds for alarms that are held, or admitted and their failover has not begun."""
_other = incidents.alias()
_SUPERSEDED = (
    sa.exists()
    .where(
        incidents.c.series != "",
        _other.c.group_id == incidents.c.group_id,
        _other.c.series == incidents.c.series,
        _other.c.said > incidents.c.said,
    )
    .correlate(incidents)
    .label("superseded")
)
"""Whether a later report exists in an incident's series."""


_ANOTHER_GOAL_SINCE = (
    sa.exists()
    .where(
        groups.c.id == incidents.c.group_id,
        traversals.c.id == groups.c.current_traversal,
        traversals.c.started_at > incidents.c.decided_at,
        sa.or_(
            # The member may have come back within the same failover, with a new server.
            traversals.c.follows.is_not(None),
            traversals.c.status == TraversalStatus.COMPLETE,
            traversals.c.incident_id.is_(None),
            sa.and_(
                traversals.c.incident_id != incidents.c.id,
                traversals.c.incident_id != sa.func.coalesce(incidents.c.duplicate_of, ""),
            ),
        ),
    )
    .correlate(incidents)
)
"""Whether an incident's group got a goal after the decision on it, and not because of it."""


def get(tx: ProjectSession, incident_id: str) -> Incident | None:
    """Return an incident."""
    rows = tx.connection.execute(_INCIDENT, {"this_incident": incident_id})
    return next((Incident(**row._mapping) for row in rows), None)


def add(tx: ProjectSession, incident: Incident) -> None:
    """Record a new incident, with the current time."""
    now, number = tx.now(), tx.number()
    times = {"decided_at": now, "first_at": now, "last_at": now}
    _count(tx, incident.id, incident.decision, incident.rule, incident.source)
    tx.insert(incidents, **{**incident.__dict__, **times, "number": number, "said": number})


def _count(
    tx: ProjectSession, incident_id: str, decision: Decision, rule: AdmissionRule, source: str
) -> None:
    """Count a decision on an incident."""
    whose = "person" if source == OPERATOR else "alarm"
    tx.count(incident_id, "incidents", Decision(decision).value, AdmissionRule(rule).value, whose)


def report_again(tx: ProjectSession, incident_id: str) -> None:
    """Count a repeat of an incident. It becomes the latest report."""
    count_duplicate(tx, incident_id)
    _mark_latest_report(tx, incident_id)


def _mark_latest_report(tx: ProjectSession, incident_id: str) -> None:
    number = tx.number()
    tx.execute(incidents.update().where(incidents.c.id == incident_id).values(said=number))


def count_duplicate(tx: ProjectSession, incident_id: str, times: int = 1) -> None:
    """Count other incidents with the same fact. They are not a report in this series."""
    tx.count(incident_id, "repeats", value=times)
    tx.execute(
        incidents.update()
        .where(incidents.c.id == incident_id)
        .values(duplicates=incidents.c.duplicates + times, last_at=tx.clock())
    )


@dataclass(frozen=True)
class Counted:
    """The ``incident`` on which repeats were counted, its ``traversal``, and the Mistral
    ``execution`` that began that. ``begin``: the incident, if it is an admitted alarm whose
    traversal has not begun."""

    incident: str
    traversal: str | None = None
    execution: str | None = None
    begin: Incident | None = None


def count_repeat(
    tx: ProjectSession,
    incident_id: str,
    times: int = 1,
    *,
    final: bool = False,
    level: bool = False,
) -> Counted | None:
    """Count repeats of an incident that needs no judgement: its decision is final, or it is an
    admitted alarm whose traversal has not begun; only of the former kind if ``final``. If the alarm
    is a ``level``, only while its group has got no other goal since: later it may be about another
    failure. This locks only the incident's row. Return None and change nothing if there is no such
    incident."""
    counts = _DECIDED_FOR_GOOD if final else sa.or_(_DECIDED_FOR_GOOD, _ABOUT_TO_BEGIN)
    here = [incidents.c.id == incident_id, incidents.c.project_id == tx.project_id, counts]
    counted = tx.changed(
        incidents.update()
        .where(*here, *([sa.not_(_ANOTHER_GOAL_SINCE)] if level else []))
        .values(duplicates=incidents.c.duplicates + times, last_at=tx.clock())
    )
    if not counted:
        return None
    tx.count(incident_id, "repeats", value=times)
    which = sa.select(
        incidents.c.duplicate_of,
        incidents.c.traversal_id,
        incidents.c.execution,
        _DECIDED_FOR_GOOD.label("final"),
        _SUPERSEDED,
    )
    row = tx.connection.execute(which.where(incidents.c.id == incident_id)).one()
    if row.superseded or not row.final:
        _mark_latest_report(tx, incident_id)
    if not row.final:
        return Counted(incident_id, begin=get(tx, incident_id))
    if row.duplicate_of is None:
        return Counted(incident_id, row.traversal_id, row.execution)
    count_duplicate(tx, row.duplicate_of, times)
    first = tx.connection.execute(which.where(incidents.c.id == row.duplicate_of)).one()
    return Counted(row.duplicate_of, first.traversal_id, first.execution)


def decide(
    tx: ProjectSession,
    incident_id: str,
    decision: Decision,
    sentence: str,
    fact: AlarmFact | None = None,
    order: Order | None = None,
    *,
    rule: AdmissionRule = AdmissionRule.NONE,
    group_id: str | None = None,
    duplicate_of: str | None = None,
) -> None:
    """Replace the decision on an incident; with a ``fact`` also the fact and the order, and with a
    ``group_id`` also the group."""
    known_as = _decision_of(tx, incident_id)
    if (decision, rule) != (known_as.decision, known_as.rule):
        _count(tx, incident_id, decision, rule, known_as.source)
    known: dict[str, Any] = {} if fact is None else {"fact": fact, "order": order}
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


def replace_held_fact(tx: ProjectSession, incident_id: str, fact: AlarmFact, *, said: int) -> bool:
    """Replace the fact of a held incident. Return False if it is no longer held, or if it was
    reported again since ``said``."""
    return tx.changed(
        incidents.update()
        .where(
            incidents.c.id == incident_id,
            incidents.c.decision == Decision.HELD,
            incidents.c.said == said,
        )
        .values(fact=fact)
    )


def replace_waiting_fact(
    tx: ProjectSession, incident_id: str, fact: AlarmFact, *, said: int
) -> bool:
    """Replace the fact of an alarm that waits. Return False if it waits no longer, or if it was
    reported again since ``said``."""
    same = (incidents.c.id == incident_id, incidents.c.said == said)
    return tx.changed(incidents.update().where(WAITING, *same).values(fact=fact))


def replace_admitted(
    tx: ProjectSession, incident_id: str, fact: AlarmFact, order: Order | None
) -> None:
    """Replace the fact and the order of an admitted alarm that has not begun."""
    tx.execute(
        incidents.update()
        .where(
            incidents.c.id == incident_id,
            incidents.c.decision == Decision.ADMITTED,
            incidents.c.traversal_id.is_(None),
        )
        .values(fact=fact, order=order)
    )


def keep_refusal(tx: ProjectSession, incident_id: str, refusal: str) -> None:
    """Record why the failover of an admitted alarm could not be started, unless it is known."""
    found = get(tx, incident_id)
    if found is not None and found.fact.refusal != refusal:
        replace_admitted(tx, incident_id, replace(found.fact, refusal=refusal), found.order)


def replace_host_event_fact(tx: ProjectSession, incident_id: str, fact: AlarmFact) -> None:
    """Replace the fact of a host event; the decision remains."""
    tx.execute(
        incidents.update().where(incidents.c.id == incident_id, _HOST_EVENT).values(fact=fact)
    )


def host_events_since(
    tx: ProjectSession, rules: Collection[AdmissionRule], since: float
) -> Iterator[Incident]:
    """Yield the project's incidents without a group that these rules held or admitted and that
    arrived since a time, the oldest first, read in pages."""
    query = sa.select(incidents).where(
        incidents.c.project_id == tx.project_id,
        incidents.c.decision.in_((Decision.HELD, Decision.ADMITTED)),
        incidents.c.group_id.is_(None),
        incidents.c.rule.in_(rules),
        incidents.c.first_at >= since,
    )
    return (Incident(**row._mapping) for row in _in_pages(tx, query))


def adopt(tx: ProjectSession, incident_id: str, group_id: str) -> bool:
    """Assign an incident without a group to this group. Return False if another process was
    faster."""
    return tx.changed(
        incidents.update()
        .where(incidents.c.id == incident_id, incidents.c.group_id.is_(None))
        .values(group_id=group_id)
    )


def dismiss(
    tx: ProjectSession, incident_id: str, sentence: str, *, said: int | None = None
) -> bool:
    """Dismiss a held incident. Return False if it is not held or no longer held, or if it was
    reported again since ``said``."""
    of = [incidents.c.id == incident_id, incidents.c.decision == Decision.HELD]
    if said is not None:
        of.append(incidents.c.said == said)
    dismissed = tx.changed(
        incidents.update()
        .where(*of)
        .values(decision=Decision.DISMISSED, sentence=sentence, decided_at=tx.clock())
    )
    if dismissed:
        known_as = _decision_of(tx, incident_id)
        _count(tx, incident_id, Decision.DISMISSED, known_as.rule, known_as.source)
    return dismissed


def _decision_of(tx: ProjectSession, incident_id: str) -> Any:
    query = sa.select(incidents.c.decision, incidents.c.rule, incidents.c.source)
    return tx.connection.execute(query.where(incidents.c.id == incident_id)).one()


def link(
    tx: ProjectSession, incident_id: str, traversal_id: str, execution: str | None = None
) -> None:
    """Record the one traversal that an incident caused, and the Mistral execution that began it."""
    tx.execute(
        incidents.update()
        .where(incidents.c.id == incident_id, incidents.c.traversal_id.is_(None))
        .values(traversal_id=traversal_id, execution=execution)
    )


def admitted_alarms_since(tx: ProjectSession, group_id: str, since: float) -> list[float]:
    """Return when alarms of a group were admitted since a time, oldest first. Orders of operators
    do not count."""
    query = sa.select(incidents.c.decided_at).where(
        incidents.c.group_id == group_id,
        incidents.c.decision == Decision.ADMITTED,
        incidents.c.source != OPERATOR,
        incidents.c.decided_at >= since,
    )
    return list(tx.connection.execute(query.order_by(incidents.c.decided_at)).scalars())


def any_about(tx: ProjectSession, group_id: str) -> bool:
    """Return whether an alarm about a group was ever admitted, or is held. Orders of operators do
    not count."""
    admitted = sa.and_(incidents.c.decision == Decision.ADMITTED, incidents.c.source != OPERATOR)
    query = (
        sa.select(incidents.c.id)
        .where(
            incidents.c.project_id == tx.project_id,
            incidents.c.group_id == group_id,
            sa.or_(admitted, incidents.c.decision == Decision.HELD),
        )
        .limit(1)
    )
    return tx.connection.execute(query).first() is not None


def unstarted_of_group(tx: ProjectSession, group_id: str) -> list[Incident]:
    """Return the admitted alarms of a group that have no traversal yet, oldest first."""
    query = sa.select(incidents).where(incidents.c.group_id == group_id, _ABOUT_TO_BEGIN)
    return _found(tx, query.order_by(incidents.c.number))


def waiting(tx: ProjectSession, group_id: str) -> list[Incident]:
    """Return the undecided alarms of a group, oldest first: held, or admitted and not begun."""
    query = sa.select(incidents).where(incidents.c.group_id == group_id, WAITING)
    return _found(tx, query.order_by(incidents.c.number))


def is_pinned(tx: ProjectSession, incident_id: str | None) -> bool:
    """Return whether a traversal's incident is an order that says where the roles go. So it is
    without an incident: nothing says that another member may take them."""
    found = get(tx, incident_id) if incident_id is not None else None
    return found is None or (found.order is not None and found.order.pinned)


def latest_of_series(tx: ProjectSession, group_id: str, series: str) -> Incident | None:
    """Return the latest report in a series of a group: that it fired, or that it cleared."""
    query = (
        sa.select(incidents)
        .where(incidents.c.group_id == group_id, incidents.c.series == series)
        .order_by(incidents.c.said.desc())
        .limit(1)
    )
    return next(iter(_found(tx, query)), None)


def fires_since(tx: ProjectSession, group_id: str, series: str) -> float | None:
    """Return when a series of a group was first reported to fire since it was last reported to have
    ended; None if it was not."""
    of = [incidents.c.group_id == group_id, incidents.c.series == series]
    ended = (
        sa.select(sa.func.coalesce(sa.func.max(incidents.c.said), 0))
        .where(*of, sa.not_(incidents.c.firing))
        .scalar_subquery()
    )
    query = sa.select(sa.func.min(incidents.c.first_at))
    found = tx.connection.execute(query.where(*of, incidents.c.firing, incidents.c.number > ended))
    since = found.scalar()
    return None if since is None else float(since)


def ends_of_series(tx: ProjectSession, series: str) -> list[Incident]:
    """Return the latest reports of the project that a series has ended, at most `ENDS`."""
    query = (
        sa.select(incidents)
        .where(
            incidents.c.project_id == tx.project_id,
            incidents.c.series == series,
            sa.not_(incidents.c.firing),
        )
        .order_by(incidents.c.said.desc())
        .limit(ENDS)
    )
    return _found(tx, query)


def waiting_of_series(tx: ProjectSession, series: str) -> list[Incident]:
    """Return the project's waiting alarms of a series, and the waiting children of its host events,
    in the order of their groups' ids."""
    events = sa.select(_other.c.id).where(
        _other.c.project_id == tx.project_id, _other.c.series == series
    )
    query = sa.select(incidents).where(
        incidents.c.project_id == tx.project_id,
        WAITING,
        sa.or_(incidents.c.series == series, incidents.c.parent.in_(events)),
    )
    return _found(tx, query.order_by(incidents.c.group_id, incidents.c.number))


def failing_since(tx: ProjectSession, since: float, rules: Collection[AdmissionRule]) -> set[str]:
    """Return the ids of the project's groups with an alarm that was admitted since a time, or held
    by one of these rules. Orders of operators do not count."""
    held = sa.and_(incidents.c.decision == Decision.HELD, incidents.c.rule.in_(rules))
    query = (
        sa.select(incidents.c.group_id)
        .where(
            incidents.c.project_id == tx.project_id,
            incidents.c.decided_at >= since,
            incidents.c.group_id.is_not(None),
            incidents.c.source != OPERATOR,
            sa.or_(incidents.c.decision == Decision.ADMITTED, held),
        )
        .distinct()
    )
    return set(tx.connection.execute(query).scalars())


def of_group(tx: ProjectSession, group_id: str, limit: int) -> list[Incident]:
    """Return the latest incidents of a group, newest first, without duplicates."""
    query = (
        sa.select(incidents)
        .where(incidents.c.group_id == group_id, incidents.c.decision != Decision.DUPLICATE)
        .order_by(incidents.c.number.desc())
        .limit(limit)
    )
    return _found(tx, query)


def is_held_full(tx: ProjectSession, most: int, group_id: str | None = None) -> bool:
    """Return whether at least ``most`` alarms of the project, or of one group of it, are held."""
    mine = sa.true() if group_id is None else incidents.c.group_id == group_id
    return _are_held(tx, most, mine)


def is_unknown_full(tx: ProjectSession, most: int, rule: AdmissionRule) -> bool:
    """Return whether this rule holds at least ``most`` alarms of the project that have no group."""
    return _are_held(tx, most, incidents.c.group_id.is_(None), incidents.c.rule == rule)


def _are_held(tx: ProjectSession, most: int, *of: sa.ColumnElement[bool]) -> bool:
    """Read at most ``most`` rows: an alarm of a flood must not cost more, the longer it lasts."""
    held = incidents.c.decision == Decision.HELD
    some = (
        sa.select(sa.literal(1))
        .select_from(incidents)
        .where(incidents.c.project_id == tx.project_id, held, *of)
        .limit(most)
        .subquery()
    )
    query = sa.select(sa.func.count()).select_from(some)
    return int(tx.connection.execute(query).scalar_one()) >= most


@dataclass(frozen=True)
class HeldIncident:
    """A held alarm, or a host event with held children. ``group``: the group's name, None if it is
    unknown or a host event; ``children``: the number of held children."""

    incident: Incident
    group: str | None
    children: int = 0


def held_alarms(
    tx: ProjectSession, group_id: str | None, limit: int
) -> tuple[int, list[HeldIncident]]:
    """Return how many alarms of the project, or of one of its groups, are held, and the latest of
    them. The held children of a host event count as one alarm of the project."""
    children = (
        sa.select(sa.func.count())
        .where(_other.c.parent == incidents.c.id, _other.c.decision == Decision.HELD)
        .correlate(incidents)
        .scalar_subquery()
    )
    of = [incidents.c.project_id == tx.project_id]
    if group_id is not None:
        of += [incidents.c.group_id == group_id, incidents.c.decision == Decision.HELD]
    else:
        held = sa.and_(incidents.c.decision == Decision.HELD, incidents.c.parent.is_(None))
        of.append(sa.or_(held, sa.and_(_HOST_EVENT, children > 0)))
    total = tx.connection.execute(sa.select(sa.func.count()).select_from(incidents).where(*of))
    query = (
        sa.select(incidents, groups.c.name.label("group_name"), children.label("children"))
        .join(groups, groups.c.id == incidents.c.group_id, isouter=True)
        .where(*of)
        .order_by(incidents.c.said.desc())
        .limit(limit)
    )
    rows = [HeldIncident(*_apart(row, 2)) for row in tx.connection.execute(query)]
    return int(total.scalar_one()), rows


@dataclass(frozen=True)
class HeldOfGroup:
    """An alarm of a known group that is held, or that is admitted and waits for its start, with the
    group's name and priority."""

    incident: Incident
    group: str
    priority: int

    def waited(self, now: float) -> float:
        """Return the seconds since it first arrived."""
        return now - self.incident.first_at

    def without_payload(self) -> HeldOfGroup:
        """Return it without the alarm's body, so that a list of many stays small."""
        return replace(self, incident=replace(self.incident, payload={}))


def held_of_groups(
    tx: ProjectSession,
    *,
    group_id: str | None = None,
    parents: Collection[str] | None = None,
    rules: Collection[AdmissionRule] | None = None,
) -> Iterator[HeldOfGroup]:
    """Yield the held alarms of the project's groups, oldest first; only those of one group, only
    the children of these host events, or only those that were held by these rules.

    The rows are read in pages, so the caller decides how many are in memory.
    """
    of = [incidents.c.project_id == tx.project_id, incidents.c.decision == Decision.HELD]
    if group_id is not None:
        of.append(incidents.c.group_id == group_id)
    if parents is not None:
        of.append(incidents.c.parent.in_(parents))
    if rules is not None:
        of.append(incidents.c.rule.in_(rules))
    yield from _of_groups(tx, of)


def unstarted_of_groups(tx: ProjectSession) -> Iterator[HeldOfGroup]:
    """Yield the alarms of the project's groups that are admitted and have caused no traversal yet,
    oldest first, as :func:`held_of_groups` does. Orders of operators are not among them."""
    yield from _of_groups(tx, (incidents.c.project_id == tx.project_id, _ABOUT_TO_BEGIN))


def _of_groups(tx: ProjectSession, of: Iterable[sa.ColumnElement[bool]]) -> Iterator[HeldOfGroup]:
    query = (
        sa.select(incidents, groups.c.name.label("group_name"))
        .join(groups, groups.c.id == incidents.c.group_id)
        .where(*of)
    )
    priorities: dict[str, int] | None = None
    for row in _in_pages(tx, query):
        if priorities is None:
            priorities = known_groups.priorities(tx)
        incident, name = _apart(row, 1)
        yield HeldOfGroup(incident, name, priorities.get(str(row.group_id), 0))


def held_without_group(tx: ProjectSession, limit: int) -> list[Incident]:
    """Return held alarms that belong to no known group: at most ``limit``, the oldest first."""
    query = sa.select(incidents).where(
        incidents.c.project_id == tx.project_id,
        incidents.c.decision == Decision.HELD,
        incidents.c.group_id.is_(None),
    )
    return _found(tx, query.order_by(incidents.c.number).limit(limit))


def _in_pages(tx: ProjectSession, query: sa.Select[Any]) -> Iterator[sa.Row[Any]]:
    """Yield the rows of a query of incidents, oldest first."""
    after: int | None = None
    page = query.order_by(incidents.c.number).limit(PAGE)
    while True:
        some = page if after is None else page.where(incidents.c.number > after)
        rows = tx.connection.execute(some).all()
        yield from rows
        if len(rows) < PAGE:
            return
        after = int(rows[-1].number)


def children_of(tx: ProjectSession, parent: str) -> list[tuple[Incident, str]]:
    """Return the children of a host event with their groups' names, in the order of these."""
    query = (
        sa.select(incidents, groups.c.name.label("group_name"))
        .join(groups, groups.c.id == incidents.c.group_id)
        .where(incidents.c.project_id == tx.project_id, incidents.c.parent == parent)
        .order_by(groups.c.name, incidents.c.number)
    )
    found = (_apart(row, 1) for row in tx.connection.execute(query))
    return [(incident, name) for incident, name in found]


def events_of_host(tx: ProjectSession, host: str) -> list[str]:
    """Return the ids of the host events about this host that were passed on to groups."""
    query = sa.select(incidents.c.id, incidents.c.fact).where(
        incidents.c.project_id == tx.project_id, _HOST_EVENT
    )
    rows = tx.connection.execute(query)
    return [identity for identity, fact in rows if fact.host == host]


def held_by(tx: ProjectSession, rule: AdmissionRule) -> int:
    """Return how many alarms of the project this rule holds."""
    query = sa.select(sa.func.count()).where(
        incidents.c.project_id == tx.project_id,
        incidents.c.decision == Decision.HELD,
        incidents.c.rule == rule,
    )
    return int(tx.connection.execute(query).scalar_one())


def decided_since(tx: ProjectSession, rule: AdmissionRule, since: float) -> int:
    """Return how many of the project's incidents this rule decided since a time."""
    query = sa.select(sa.func.count()).where(
        incidents.c.project_id == tx.project_id,
        incidents.c.rule == rule,
        incidents.c.decided_at >= since,
    )
    return int(tx.connection.execute(query).scalar_one())


def unstarted(tx: ProjectSession) -> list[Incident]:
    """Return the admitted incidents of groups that have caused no traversal yet, oldest first,
    without their payloads: the process that admitted them died."""
    query = sa.select(*_WITHOUT_PAYLOAD).where(
        incidents.c.project_id == tx.project_id,
        incidents.c.decision == Decision.ADMITTED,
        incidents.c.group_id.is_not(None),
        incidents.c.traversal_id.is_(None),
    )
    rows = tx.connection.execute(query.order_by(incidents.c.number))
    return [Incident(**row._mapping, payload={}) for row in rows]


def _found(tx: ProjectSession, query: sa.Select[Any]) -> list[Incident]:
    """Return the incidents of a query."""
    return [Incident(**row._mapping) for row in tx.connection.execute(query)]


def _apart(row: sa.Row[Any], more: int) -> tuple[Any, ...]:
    """Return the incident of a row, and the last columns, so many, that are not its own."""
    own = len(row) - more
    return Incident(**dict(zip(row._fields[:own], row[:own], strict=True))), *row[own:]
