# SPDX-License-Identifier: Apache-2.0
"""Judge the alarms of a project that wait, by what Nova and the agents say now: the held ones, and
the admitted ones that could not be started.

The evidence is gathered once for all of them: one listing of the project's servers, one pass over
the agents' heartbeats. `alarms.storm` judges it. Any number of sweeps may do this at once.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, zip_longest

from mistral_failover.agent.wire import Address
from mistral_failover.alarms import intake, storm
from mistral_failover.alarms.alarm import is_of_server
from mistral_failover.alarms.storm import (
    RELEASABLE,
    SETTLED,
    Evidence,
    HeldAlarm,
    HeldAlarmStep,
    Judgement,
    MemberEvidence,
    MemberKey,
    Queued,
    ServerCondition,
    allowance,
    in_order,
    judge,
)
from mistral_failover.cloud.errors import CloudError
from mistral_failover.convergence.records import JournalKind
from mistral_failover.groups.agent_health import sends_commands
from mistral_failover.groups.project_view import REMEMBERED, ProjectView
from mistral_failover.groups.snapshot import group_snapshot_in
from mistral_failover.model.decisions import AdmissionRule, Decision
from mistral_failover.model.errors import InvalidDocument
from mistral_failover.model.heartbeats import SILENT
from mistral_failover.model.observation import Presence
from mistral_failover.orders.failover import traversal_of
from mistral_failover.recovery.documents import JudgedAlarms, JudgedIncident
from mistral_failover.runtime.errors import STORE, ActionError
from mistral_failover.runtime.request import Request
from mistral_failover.store import groups, incidents, observations
from mistral_failover.store.incidents import HeldOfGroup, Incident
from mistral_failover.store.transaction import ProjectTransaction

MINUTE = 60.0
DECIDED = 500
"""Held alarms that one sweep dismisses, or whose evidence it records, at most. The next one
continues."""
DISMISSIBLE = (
    *RELEASABLE,
    AdmissionRule.COOLDOWN,
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
    judged = judge([each.alarm for each in held], _evidence(request, held))
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


# -- the evidence


@dataclass(frozen=True)
class _Known:
    """A member. ``address``: of its agent, None if agents start nothing in its group. ``heard``:
    seconds since an observation heard its agent, at least; None if it never did."""

    key: MemberKey
    server: str
    address: Address | None
    lost: bool
    heard: float | None


def _evidence(request: Request, candidates: Iterable[_Candidate]) -> Evidence:
    """Gather what Nova and the agents say about the members of the project."""
    wanted = {key for each in candidates for key in each.alarm.keys}
    known, hosts = request.store.reading(partial(_members, request))
    try:
        view = ProjectView(request)
    except (ActionError, CloudError) as error:
        why = f"the cloud cannot be asked [{error.code}]"
        return Evidence({}, (why,))
    unreachable: list[str] = []
    try:
        hosts |= {server: host.host_id for server, host in view.listing.hosts().items()}
    except CloudError as error:
        unreachable.append(f"Nova does not answer [{error.code}]")
    members: dict[MemberKey, MemberEvidence] = {}
    for each in _alternating(known, wanted, hosts):
        condition, why = ServerCondition.UNKNOWN, ""
        if each.key in wanted and not unreachable:
            condition, why = _condition(view, each.server)
        ago = _silence(view, each)
        members[each.key] = MemberEvidence(hosts.get(each.server), condition, why, ago, each.lost)
    if view.unheard:
        unreachable.append(f"the agents' channel does not answer: {view.unheard}")
    return Evidence(members, tuple(unreachable))


def _alternating(
    known: Iterable[_Known], wanted: Collection[MemberKey], hosts: Mapping[str, str]
) -> list[_Known]:
    """Return the members in the order in which to ask their agents: one with an alarm and one
    without in turn, and of each kind one of every host before the second one of any. The time is
    limited, and an agent without a heartbeat takes longer than one that is heard."""
    of_host: Counter[tuple[bool, str | None]] = Counter()
    kinds: tuple[list[tuple[int, _Known]], list[tuple[int, _Known]]] = ([], [])
    for each in known:
        kind = each.key in wanted, hosts.get(each.server)
        kinds[kind[0]].append((of_host[kind], each))
        of_host[kind] += 1
    turns = (sorted(kind, key=lambda turn: turn[0]) for kind in kinds)
    return [turn[1] for pair in zip_longest(*turns) for turn in pair if turn is not None]


def _silence(view: ProjectView, each: _Known) -> float | None:
    """Return the seconds since an agent's last heartbeat, None if that is not known. If the channel
    has none any more, what an observation remembers counts, but only as silence: the channel may
    have lost the heartbeat of an agent that is well."""
    if each.address is None:
        return None
    if beat := view.heartbeat(each.address):
        return beat.ago
    asked = each.address in view.heard
    return each.heard if asked and each.heard is not None and each.heard > SILENT else None


def _members(request: Request, tx: ProjectTransaction) -> tuple[list[_Known], dict[str, str]]:
    """Return the members of the project, and the host ids on which they were last observed."""
    found: list[_Known] = []
    about: dict[str, tuple[bool, frozenset[str]]] = {}
    now, heard = tx.now(), observations.heard(tx)
    for each in groups.members_in(tx):
        if each.group_id not in about:
            state = groups.get(tx, each.group_id)
            if state is None:
                continue
            try:
                snapshot = group_snapshot_in(request, tx, state)
                about[each.group_id] = (sends_commands(snapshot.group), snapshot.lost)
            except InvalidDocument:  # what Nova says of its members still counts for the others
                about[each.group_id] = (False, frozenset())
        commanded, lost = about[each.group_id]
        address = Address(each.group_id, each.group, each.name, each.server_id)
        found.append(
            _Known(
                (each.group_id, each.name),
                each.server_id,
                address if commanded else None,
                each.name in lost,
                now - at - REMEMBERED if (at := heard.get(each.server_id)) is not None else None,
            )
        )
    seen = observations.hosts(tx)
    return found, {server: fields[0] for server, fields in seen.items()}


def _condition(view: ProjectView, server_id: str) -> tuple[ServerCondition, str]:
    look = view.server(server_id)
    if look.presence is Presence.GONE:
        return ServerCondition.ENDED, look.why
    try:
        state = view.listing.server(server_id)
    except CloudError:
        return ServerCondition.UNKNOWN, look.why
    if state.host_status == "DOWN":
        return ServerCondition.HOST_DOWN, f"its server is {state}"
    if look.presence is Presence.PRESENT and state.status == "ACTIVE":
        return ServerCondition.RUNNING, ""
    return ServerCondition.UNKNOWN, look.why


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
