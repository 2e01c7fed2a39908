# SPDX-License-Identifier: Apache-2.0
"""Judge the alarms of a project that wait, by what Nova and the agents say now: the held ones, and
the admitted ones that could not be started.

The evidence is gathered once for all of them: one listing of the project's servers, one pass over
the agents' heartbeats. `alarms.storm` judges it. Any number of sweeps may do this at once.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain

from mistral_failover.alarms import intake, storm
from mistral_failover.alarms.alarm import is_of_server
from mistral_failover.alarms.evidence import gather
from mistral_failover.alarms.storm import (
    RELEASABLE,
    SETTLED,
    HeldAlarm,
    HeldAlarmStep,
    Judgement,
    Queued,
    allowance,
    in_order,
    judge,
)
from mistral_failover.convergence.records import JournalKind
from mistral_failover.model.decisions import AdmissionRule, Decision
from mistral_failover.orders.failover import traversal_of
from mistral_failover.recovery.documents import JudgedAlarms, JudgedIncident
from mistral_failover.runtime.errors import STORE
from mistral_failover.runtime.request import Request
from mistral_failover.store import groups, incidents
from mistral_failover.store.incidents import HeldOfGroup, Incident
from mistral_failover.store.transaction import ProjectTransaction

MINUTE = 60.0
DECIDED = 500
"""Held alarms that one sweep dismisses, or whose evidence it records, at most. The next one
continues."""
DISMISSIBLE = (
    *RELEASABLE,
    AdmissionRule.PER_HOUR,
    AdmissionRule.PAUSED,
    AdmissionRule.MAINTENANCE,
)
"""The rules whose held alarms are dismissed when their cause has cleared. The others hold an alarm
because it is not clear what it is about."""

FRESH = 60.0
"""Seconds for which a sweep acts on the evidence that it gathered."""


@dataclass(frozen=True)
class _Candidate:
    """An alarm that waits, and what is judged of it."""

    row: HeldOfGroup
    alarm: HeldAlarm


def retry_held(request: Request, group_id: str | None, end: float) -> JudgedAlarms:
    """Judge the waiting alarms of the project by the present evidence; act on those of one group,
    or on all of them.

    ``end``: when to ask about no further host event, on the monotonic clock.
    """
    found: JudgedAlarms = {"released": [], "dismissed": [], "unable": []}
    if group_id is None:
        found["unable"] += _host_events(request, end)
    candidates = request.store.reading(partial(_candidates, request))
    held = [each.item for each in candidates]
    if not any(group_id in (None, each.alarm.group_id) for each in held):
        return found
    wanted = {key for each in held for key in each.alarm.keys}
    judged = judge([each.alarm for each in held], gather(request, wanted))
    rate = request.runtime.settings.storm_release or _rate(request)
    room, left, end = True, DECIDED, time.monotonic() + FRESH
    for each in in_order(candidates):
        judgement = judged[each.alarm.id]
        if group_id not in (None, each.alarm.group_id):
            continue
        if not left or time.monotonic() > end:
            break
        try:
            if judgement.step is HeldAlarmStep.DISMISS:
                left -= 1
                found["dismissed"] += _dismiss(request, each.row, judgement.why)
            elif judgement.step is HeldAlarmStep.RELEASE and room:
                rows = _release(request, each.row, judgement.why, rate)
                room = rows is not None
                found["released"] += rows or []
            elif judgement.step is HeldAlarmStep.HOLD and each.alarm.rule == AdmissionRule.STORM:
                left -= _note(request, each.row, judgement)
        except Exception as error:  # one alarm must not stop the others
            facts = request.caught(error, "judging a held alarm")
            if facts.get("service") == STORE:  # it is away, for the other alarms, too
                raise
            found["unable"].append(f"{each.row.group}: {facts['message']}")
    return found


def _host_events(request: Request, end: float) -> list[str]:
    """Pass on the host events for which members were not known; return what went wrong."""
    database = request.store
    unable: list[str] = []
    for event in database.reading(intake.unsettled):
        if time.monotonic() > end:
            break
        try:
            intake.look_again(request, event)
        except Exception as error:  # one event must not stop the others
            facts = request.caught(error, "looking for the members of a host event")
            host, zone = event.fact.host, event.fact.zone
            where = f"host {host}" if host is not None else f"zone {zone}"
            unable.append(f"{where}: {facts['message']}")
    return unable


def _candidates(request: Request, tx: ProjectTransaction) -> list[Queued[_Candidate]]:
    """Return the waiting alarms of the project of which evidence can decide anything. An admitted
    one can only be dismissed, and not if an operator admitted it."""
    now = tx.now()
    held = incidents.held_of_groups(tx, rules=DISMISSIBLE)
    found = []
    for row in chain(held, incidents.unstarted_of_groups(tx)):
        alarm = _judged_form(row.incident, now)
        admitted = row.incident.decision == Decision.ADMITTED
        if admitted and (alarm.age <= SETTLED or row.incident.order is not None):
            continue
        if alarm.lost and (alarm.rule in RELEASABLE or alarm.of_server):
            candidate = _Candidate(row.without_payload(), alarm)
            found.append(Queued(candidate, row.priority, row.waited(now)))
    return found


def _judged_form(incident: Incident, now: float) -> HeldAlarm:
    return HeldAlarm(
        incident.id,
        str(incident.group_id),
        incident.fact.lost,
        incident.rule,
        now - incident.last_at,
        incident.parent is not None or is_of_server(incident.source, incident.payload),
        bool(incident.fact.because),
        now - incident.first_at,
    )


# -- the decisions


def _dismiss(request: Request, row: HeldOfGroup, why: str) -> list[JudgedIncident]:
    sentence = f"{row.incident.fact.reported}; dismissed by a sweep: {why}"

    def dismiss(tx: ProjectTransaction) -> bool:
        if row.incident.decision == Decision.ADMITTED:
            done = _withdraw(request, tx, row.incident, sentence)
        else:
            done = incidents.dismiss(tx, row.incident.id, sentence, said=row.incident.said)
        if done:
            tx.journal(
                str(row.incident.group_id),
                f"DISMISSED: {sentence}",
                kind=JournalKind.DISMISSED,
                incident_id=row.incident.id,
            )
        return done

    done = request.store.atomically(dismiss)
    return [_row(row, sentence)] if done else []


def _withdraw(request: Request, tx: ProjectTransaction, incident: Incident, sentence: str) -> bool:
    """Dismiss an admitted alarm. Return False if it was started, decided or reported again in the
    meantime."""
    group_id = str(incident.group_id)
    tx.lock_group(group_id, shared=False)
    found = incidents.get(tx, incident.id)
    if found is None or (found.decision, found.said) != (Decision.ADMITTED, incident.said):
        return False
    if found.order is not None or found.fact.because:
        return False
    if tx.traversal(traversal_of(group_id, incident.id)) is not None:
        return False
    incidents.decide(tx, incident.id, Decision.DISMISSED, sentence, rule=found.rule)
    return True


def _rate(request: Request) -> int:
    """Return how many alarms may be let go within a minute. It stays the same until all are."""

    def rate(tx: ProjectTransaction) -> int:
        released = incidents.decided_since(tx, AdmissionRule.RELEASED, tx.now() - storm.WITHIN)
        return storm.per_minute(incidents.held_by(tx, AdmissionRule.STORM) + released)

    return request.store.reading(rate)


def _release(
    request: Request, row: HeldOfGroup, why: str, rate: int
) -> list[JudgedIncident] | None:
    """Judge an alarm again, without the storm guard; None if no more may be let go now."""

    def release(tx: ProjectTransaction) -> list[JudgedIncident] | None:
        # In this order admission takes the locks too. The second one makes the count exact.
        tx.lock_group(str(row.incident.group_id), shared=False)
        first = groups.first_of(tx)
        if first is not None:
            tx.lock_group(first, shared=False)
        since = tx.now() - MINUTE
        released = incidents.decided_since(tx, AdmissionRule.RELEASED, since)
        if not allowance(released, rate):
            return None
        verdict = intake.release(request, tx, row.incident, f"let go, because {why}")
        if verdict is None or verdict.decision != Decision.ADMITTED:
            return []
        return [_row(row, verdict.sentence)]

    return request.store.atomically(release)


def _note(request: Request, row: HeldOfGroup, judgement: Judgement) -> bool:
    """Record why the storm guard still holds an alarm. Return whether that has changed."""
    if row.incident.fact.evidence == judgement.why:
        return False

    def note(tx: ProjectTransaction) -> None:
        fact = replace(row.incident.fact, evidence=judgement.why)
        if incidents.replace_held_fact(tx, row.incident.id, fact, said=row.incident.said):
            tx.journal(
                str(row.incident.group_id),
                f"the storm guard still holds {row.incident.id[:8]}: {judgement.why}",
                kind=JournalKind.GUARDED,
                incident_id=row.incident.id,
            )

    request.store.atomically(note)
    return True


def _row(row: HeldOfGroup, sentence: str) -> JudgedIncident:
    return {"incident": row.incident.id, "group": row.group, "sentence": sentence}
