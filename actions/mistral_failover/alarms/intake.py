# SPDX-License-Identifier: Apache-2.0
"""An alarm's way, in one pass: each step works on the result of the one before.

    alarm.read   the alarms of a body, with what the sender says beside it
    known        does it repeat an incident that needs no judgement?
    identify     which group and member is it about, and which incident is it?
    judge        what do the rules of admission say?
    record       write the decision down

A repeat of an incident with a final decision is the common case, by far so in a storm of
deliveries. It is recognized by an id that is computed before anything is read, and costs one UPDATE
of its row. Only an alarm that must be judged locks its group, so alarms of a group are judged one
after the other, each in one transaction.

The failure of a compute host, or of an availability zone, is one incident for it and one child
incident for each group with a member there. A child enters the pass as an alarm that names its
group and member. Its id is derived from the host event's, so a repeat of the event finds its
children, and completes them if a process died among them. An alarm that the storm guard releases
enters at `judge`.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from types import MappingProxyType
from typing import Any

from mistral_failover.alarms.admission import (
    COUNTED,
    HOUR,
    AdmissionContext,
    Suspension,
    Verdict,
    admit,
    of_host_event,
    without_group,
)
from mistral_failover.alarms.alarm import Alarm, digest, occasion_of
from mistral_failover.alarms.storm import Storm
from mistral_failover.convergence.records import GroupState, JournalKind
from mistral_failover.fault_points import reach
from mistral_failover.groups.hosts import AffectedGroup, AffectedGroups, members_on
from mistral_failover.groups.snapshot import group_snapshot_in
from mistral_failover.groups.zones import members_in
from mistral_failover.model.alarm_fact import AlarmFact
from mistral_failover.model.decisions import AdmissionRule, Decision
from mistral_failover.model.errors import InvalidDocument
from mistral_failover.model.ids import derived_id
from mistral_failover.model.order import Order
from mistral_failover.runtime.errors import masked_body
from mistral_failover.runtime.request import Request
from mistral_failover.store import counters, groups, incidents, suspensions
from mistral_failover.store.incidents import LOOKS_FOR_MEMBERS, OPERATOR, Incident
from mistral_failover.store.transaction import ProjectTransaction

LOG = logging.getLogger(__name__)
MOST_HELD = 1000
"""Alarms of one group that are listed for an operator at most. A further one is answered, counted
(`store.counters.UNLISTED`) and not recorded, so a repeat of it is judged again."""
MOST_OF_PROJECT = 20_000
"""The same, of all groups of a project together."""
ALWAYS = 10
"""Alarms of one group that are listed however many other groups of the project have."""
MOST_WITHOUT_GROUP = 1000
"""Alarms of a project that belong to no known group and that are listed at most, for each rule."""
LONGEST = 16 * 1024
"""Characters of an alarm's body, as JSON, that are kept."""
BATCH = 50
"""Groups that a host event has judged in one transaction at most."""
UNSETTLED = 1000
"""Open host events that one sweep looks at, at most."""


@dataclass(frozen=True)
class RecordedAlarm:
    """The decision; ``incident`` is the one that records or counts the alarm, None if it is not
    recorded. ``begin``: the admitted incident whose traversal has not begun, if any. ``execution``:
    that of Mistral that began its ``traversal``."""

    verdict: Verdict
    incident: str | None = None
    traversal: str | None = None
    begin: Incident | None = None
    execution: str | None = None


@dataclass(frozen=True)
class Subject:
    """What an alarm is about: a group (``state``, None if unknown) and its ``member`` (None if
    unknown). ``strangers``: names in the alarm that no member of the group has. ``incident``: the
    id of the incident that records it."""

    alarm: Alarm
    incident: str
    state: GroupState | None = None
    member: str | None = None
    strangers: tuple[str, ...] = ()


@dataclass(frozen=True)
class Judged:
    """The verdict on an alarm, and what is to be recorded with it.

    ``before``: the incident, if it is recorded already. ``first``: the incident that reported a
    known fact first. ``order``: what an operator asked for when the alarm was admitted. ``again``:
    no sender reports it now, it is only judged again.
    """

    subject: Subject
    before: Incident | None
    verdict: Verdict
    fact: AlarmFact
    first: str | None = None
    order: Order | None = None
    again: bool = False


# -- the pass


def take(request: Request, alarm: Alarm) -> list[RecordedAlarm]:
    """Decide on an alarm, once however often it is delivered, and record it.

    Return its decision. After that of a host event come those of its children, in the order in
    which their failovers are to start.
    """
    if alarm.routine or (alarm.is_host_event and not alarm.firing):
        if alarm.over:
            request.store.atomically(partial(_end, request, alarm))
        return [RecordedAlarm(without_group(alarm, None))]
    if alarm.is_host_event:
        alarm = request.store.reading(partial(_late, request, alarm))
        identity = incident_id(request, alarm)
        passed_on = request.store.reading(partial(_passed_on, identity))
        found = _members(request, alarm) if passed_on is None else passed_on
        return _spread(request, Subject(alarm, identity), found)
    return [request.store.atomically(lambda tx: take_in(request, tx, alarm))]


def take_in(request: Request, tx: ProjectTransaction, alarm: Alarm) -> RecordedAlarm:
    """As :func:`take`, within a transaction, of an alarm that is about one group. It locks the
    group, unless the alarm is a repeat."""
    repeats = known(request, tx, [alarm])
    if repeats:
        return repeats[0]
    alarm = _late(request, alarm, tx)
    subject = identify(request, tx, alarm)
    if (alarm.level or not alarm.unique) and (
        repeat := _repeat(tx, subject.alarm, subject.incident)
    ):
        return repeat
    if subject.state is not None:  # under the lock it may be about another member, or deleted
        state = tx.lock_group(subject.state.id, shared=False)
        subject = identify(request, tx, alarm, state)
    return record(request, tx, judge(request, tx, subject))


def known(
    request: Request, tx: ProjectTransaction, alarms: Sequence[Alarm]
) -> dict[int, RecordedAlarm]:
    """Count those of these alarms that repeat an incident that needs no judgement: it has a final
    decision, or was admitted and is about to begin. Return their decisions by index. It locks only
    the incidents' rows, in the order of their ids.

    Alarms without an id of their own are left out: :func:`take_in` recognizes their repeats.
    """
    same: dict[str, list[int]] = {}
    for index, alarm in enumerate(alarms):
        if alarm.unique and not (alarm.routine or alarm.is_host_event):
            same.setdefault(incident_id(request, alarm), []).append(index)
    found: dict[int, RecordedAlarm] = {}
    for identity, indexes in sorted(same.items()):
        alarm = alarms[indexes[0]]
        if repeat := _repeat(tx, alarm, identity, len(indexes), level=alarm.level):
            found |= dict.fromkeys(indexes, repeat)
    return found


def _repeat(
    tx: ProjectTransaction, alarm: Alarm, identity: str, times: int = 1, *, level: bool = False
) -> RecordedAlarm | None:
    """Count repeats of an incident, unless it has to be judged: it is held, an operator's reason
    has to be kept with it, or the alarm is a ``level`` and may be about another failure by now."""
    final = bool(alarm.because)
    counted = incidents.count_repeat(tx, identity, times, final=final, level=level)
    if counted is None:
        return None
    verdict, known = _repeated(alarm), counted.incident
    return RecordedAlarm(verdict, known, counted.traversal, counted.begin, counted.execution)


def _repeated(alarm: Alarm) -> Verdict:
    sentence = f"{alarm.sentence}: a repeat of a known incident"
    return Verdict(Decision.DUPLICATE, sentence, AdmissionRule.HEARD_BEFORE)


def incident_id(request: Request, alarm: Alarm, epoch: int = 0) -> str:
    """Return the incident's id. A body without an event id may also occur in the next life of a
    member, so its id includes the ``epoch``; an event happens once. The group is the one that was
    given, because looking for the server's group takes time."""
    return derived_id("incident", request.project_id, alarm.group or "", alarm.key, str(epoch))


def identify(
    request: Request, tx: ProjectTransaction, alarm: Alarm, locked: GroupState | None = None
) -> Subject:
    """Return what an alarm is about. A server that it names says the group and the member, unless
    it names them itself; without any name it is about the active member, the one that holds all
    roles. ``locked``: its group, under a lock."""
    group, member = alarm.group, alarm.member
    strangers = () if group and member else (*alarm.servers, *alarm.others)
    for server in alarm.servers if strangers else ():
        if behind := groups.member_of_server(tx, server, group):
            group, member, strangers = behind[0], member or behind[1], ()
            break
    state = locked or (groups.find(tx, group) if group else None)
    if state is None:
        if alarm.level and not alarm.unique:  # each has other words
            alarm = replace(alarm, key=alarm.series)
        return Subject(alarm, incident_id(request, alarm), member=member)
    epochs = tx.epochs(state.id)
    if member is not None:
        member, strangers = (member, ()) if member in epochs else (None, (member,))
    elif not strangers:
        member = _holder_of_all_roles(tx, state)
    epoch = 0 if alarm.unique else epochs.get(member or "", 0)
    identity = incident_id(request, alarm, epoch)
    subject = Subject(alarm, identity, state, member, strangers)
    return _of_level(request, tx, subject, state) if alarm.level else subject


def _of_level(
    request: Request, tx: ProjectTransaction, subject: Subject, state: GroupState
) -> Subject:
    """Return an alarm that may continue as the incident that began it, with the time since when it
    fires; or, for each time that the failure was dealt with though the alarm never ended, as the
    incident after that."""
    alarm = subject.alarm
    if alarm.unique:
        known = incidents.get(tx, subject.incident)
    else:
        known = incidents.latest_of_series(tx, state.id, alarm.series)
        if known is None or not known.firing:
            return subject  # nothing was heard since it last ended: the transition was missed
        since = incidents.fires_since(tx, state.id, alarm.series)
        subject = replace(subject, alarm=replace(alarm, at=since), incident=known.id)
    while known is not None and _dealt_with(request, tx, subject, state, known):
        following = incident_id(request, replace(alarm, key=known.id))
        subject, known = replace(subject, incident=following), incidents.get(tx, following)
    return subject


def _dealt_with(
    request: Request, tx: ProjectTransaction, subject: Subject, state: GroupState, known: Incident
) -> bool:
    """Return whether the failure that an incident reports is over, though its alarm fires on: the
    member was declared lost since then, and is in service again."""
    member = subject.member
    if member is None or known.decision not in (Decision.ADMITTED, Decision.DUPLICATE):
        return False
    if not groups.declared_lost_since(tx, state.id, member, known.first_at):
        return False
    snapshot = group_snapshot_in(request, tx, state)
    return member not in snapshot.lost | snapshot.replacing.keys()


def _holder_of_all_roles(tx: ProjectTransaction, state: GroupState) -> str | None:
    traversal = tx.traversal(state.current_traversal) if state.current_traversal else None
    goal = tx.goal(state.id, traversal.goal_version) if traversal else None
    holders = set(goal.document["roles"].values()) if goal else set()
    return holders.pop() if len(holders) == 1 else None


def judge(
    request: Request, tx: ProjectTransaction, subject: Subject, *, storms: bool = True
) -> Judged:
    """Return what the rules of admission say of an alarm. Its group is locked. Without ``storms``
    the storm guard does not hold it."""
    alarm, state, member = subject.alarm, subject.state, subject.member
    before = incidents.get(tx, subject.incident)
    if state is None:
        verdict = without_group(alarm, alarm.group)
        return Judged(subject, before, verdict, _fact(alarm, alarm.group, member))
    snapshot = group_snapshot_in(request, tx, state)
    under_way: dict[str, str] = {}  # lost members that no goal declares yet, with the incidents
    for incident in incidents.unstarted_of_group(tx, state.id):
        under_way |= {name: incident.id for name in incident.lost if name not in under_way}
    lost, replacing = frozenset({*snapshot.lost, *under_way}), frozenset(snapshot.replacing)
    if alarm.also:  # without the members whose loss is known, unless that is all of them
        reported = (each for each in (member, *alarm.also) if each is not None)
        if new := tuple(each for each in reported if each not in lost | replacing):
            member, alarm = new[0], replace(alarm, also=new[1:])
    now, suspended = tx.now(), suspensions.of_group(tx, state.id)
    pause, work = suspended.get("pause"), suspended.get("maintenance")
    situation = AdmissionContext(
        group=snapshot.group.name,
        member=member,
        in_service=snapshot.in_service,
        restored=state.restored,
        strangers=subject.strangers,
        known=before is not None and before.decision != Decision.HELD,
        lost=lost,
        admitted=incidents.admitted_alarms_since(tx, state.id, now - HOUR),
        limits=snapshot.group.limits,
        now=now,
        pause=Suspension(**pause) if pause else None,
        maintenance=Suspension(**work) if work else None,
        replacing=replacing,
        old_news=lambda: _old_news(tx, state, member, alarm),
        storm=lambda: _storm(request, tx, state, now) if storms else None,
    )
    verdict = admit(alarm, situation)
    first = None
    if verdict.rule == AdmissionRule.KNOWN_FACT:
        traversal = tx.traversal(state.current_traversal) if state.current_traversal else None
        first = under_way.get(member or "") or (traversal.incident_id if traversal else None)
    rows = groups.members_of(tx, state.id)
    fact = _fact(alarm, snapshot.group.name, member, rows)
    return Judged(replace(subject, alarm=alarm), before, verdict, fact, first)


def _fact(
    alarm: Alarm,
    group: str | None,
    member: str | None,
    rows: Mapping[str, groups.MemberRow] = MappingProxyType({}),
) -> AlarmFact:
    """Return what an alarm says about a group and its member, of which the group has these ``rows``
    now. No member is lost by an alarm about a server that no group has."""
    lost = () if member is None else (member, *alarm.also)
    return AlarmFact(
        group,
        lost,
        tuple((rows[name].server_id if name in rows else None) or "" for name in lost),
        reported=alarm.sentence,
        because=alarm.because,
        over=_ENDED if alarm.firing and alarm.over else "",
        ended=alarm.ended,
    ).shortened()


_ENDED = "the report that it has ended came before it"


LATE = 300.0
"""Seconds after the report of an end within which a report of the failure may have been delayed.
Alertmanager sends no state that is older than its ``group_interval``, five minutes by default."""


def _late(request: Request, alarm: Alarm, tx: ProjectTransaction) -> Alarm:
    """Return a firing alarm as one that is over if its source reported that before: by its own
    times this occasion ended no earlier than it happened, whatever arrived first. What an operator
    reports is not over by it.

    A source that lost sight of an alert calls it over, and when it sees it again it fires with the
    time at which it began: so a report that comes `LATE` after the end says that it fires now.
    """
    if not (alarm.firing and alarm.series) or alarm.at is None or alarm.because:
        return alarm
    occasion = occasion_of(alarm.source, alarm.payload)
    for each in incidents.ends_of_series(tx, alarm.series):
        of_this = occasion_of(each.source, each.payload) == occasion
        if not of_this or each.fact.ended is None or each.fact.ended < alarm.at:
            continue
        if tx.now() - each.last_at <= LATE:
            return replace(alarm, over=True)
    return alarm


def _end(request: Request, alarm: Alarm, tx: ProjectTransaction) -> None:
    """Record that the failure of a host or a zone is over: with the held alarms of its series, and
    by itself, because the report of the failure may come later."""
    _mark_over(alarm, tx)
    identity = incident_id(request, alarm)
    if alarm.ended is None or not alarm.series or incidents.get(tx, identity) is not None:
        return
    verdict, subject = without_group(alarm, None), Subject(alarm, identity)
    fact = replace(_fact(alarm, alarm.group, None), host=alarm.host, zone=alarm.zone).shortened()
    incidents.add(tx, _new(request, Judged(subject, None, verdict, fact)))


def _old_news(tx: ProjectTransaction, state: GroupState, member: str | None, alarm: Alarm) -> bool:
    """Return whether any of the alarm's members was declared lost since it happened."""
    at = alarm.at
    if member is None or at is None:
        return False
    return any(groups.declared_lost_since(tx, state.id, m, at) for m in (member, *alarm.also))


def _storm(request: Request, tx: ProjectTransaction, state: GroupState, now: float) -> Storm | None:
    """Count the project's failing groups. Only one process of a project at a time may count and
    admit, so that each sees the decisions of the others. The lock on one group serves for that; no
    transaction that holds it waits for another group's lock."""
    settings = request.runtime.settings
    if not settings.storm_groups:
        return None
    first = groups.first_of(tx)
    assert first is not None  # the project has at least the group of the alarm
    tx.lock_group(first, shared=False)
    since = now - settings.storm_window
    failing = incidents.failing_since(tx, since, COUNTED)
    return Storm(
        len(failing | {state.id}),
        groups.count_with_goal(tx),
        settings.storm_window,
        settings.storm_share,
        settings.storm_groups,
    )


def record(request: Request, tx: ProjectTransaction, judged: Judged) -> RecordedAlarm:
    """Record a decision: a new incident, or another decision on a held one. A final decision stays,
    and its repeat is counted. Another alarm about a known fact counts on the first one's."""
    before, verdict, fact = judged.before, judged.verdict, judged.fact
    if judged.subject.alarm.over and not judged.subject.alarm.firing:
        _mark_over(judged.subject.alarm, tx)
    if before is None:
        if verdict.decision == Decision.IGNORED and judged.subject.state is None:
            return RecordedAlarm(verdict)
        if full := _list_is_full(tx, judged):
            return full
        incident = _new(request, judged)
        incidents.add(tx, incident)
        reach("admit.recorded")
        if verdict.decision != Decision.DUPLICATE:
            _tell(tx, incident)
    else:
        incident = _again(tx, judged, before)
    counts_on = incidents.get(tx, judged.first) if judged.first else None
    if counts_on is not None and incident.decision == Decision.DUPLICATE:
        incidents.count_duplicate(tx, counts_on.id)
        incident = counts_on
    if fact.because and not incident.fact.because and _to_begin(incident) is not None:
        # An operator reports the same as an alarm that has not begun.
        said = replace(incident.fact, because=fact.because)
        incidents.replace_admitted(tx, incident.id, said, incident.order)
    begins = _to_begin(incident)
    return RecordedAlarm(verdict, incident.id, incident.traversal_id, begins, incident.execution)


def _mark_over(alarm: Alarm, tx: ProjectTransaction) -> None:
    """Record with the waiting alarms of this one's series that they are over by their source's
    word: who admits all of the held ones must not fence a member that is well, and an admitted one
    is judged again before it starts. They stay what they are, because a source may have lost sight
    of a host that died. If an alarm fires again, that counts. What an operator reported or admitted
    is not over by it, nor what a source says of an earlier occasion."""
    occasion = occasion_of(alarm.source, alarm.payload)
    for each in incidents.waiting_of_series(tx, alarm.series) if alarm.series else ():
        reported = incidents.get(tx, each.parent) if each.parent else each
        if reported is None or each.fact.because or each.fact.over or each.order is not None:
            continue
        if occasion_of(reported.source, reported.payload) != occasion:
            continue
        if each.group_id is not None:  # as everything does that changes the fact
            tx.lock_group(each.group_id, shared=False)
        found = incidents.get(tx, each.id)
        if found is None or (found.decision, found.said) != (each.decision, each.said):
            continue
        fact = replace(found.fact, over=alarm.sentence).shortened()
        if incidents.replace_waiting_fact(tx, each.id, fact, said=each.said) and each.group_id:
            state = "still held" if each.decision == Decision.HELD else "admitted, not started"
            tx.journal(
                each.group_id,
                f"{state}, but over: {alarm.sentence}",
                kind=JournalKind.HELD,
                incident_id=each.id,
            )


def _again(tx: ProjectTransaction, judged: Judged, before: Incident) -> Incident:
    """Record that an incident was reported or judged again, and return it as it is now."""
    verdict = judged.verdict
    if not judged.again:
        incidents.report_again(tx, before.id)
    if before.decision != Decision.HELD or verdict.decision == Decision.IGNORED:
        return before
    changed = (verdict.decision, verdict.rule) != (before.decision, before.rule)
    if judged.again and not changed and verdict.sentence == before.sentence:
        return before
    state = judged.subject.state
    incident = replace(
        before,
        decision=verdict.decision,
        sentence=verdict.sentence,
        rule=verdict.rule,
        fact=replace(judged.fact, because=judged.fact.because or before.fact.because),
        order=judged.order,
        group_id=state.id if state else before.group_id,
    )
    incidents.decide(
        tx,
        incident.id,
        incident.decision,
        incident.sentence,
        incident.fact,
        incident.order,
        rule=incident.rule,
        group_id=incident.group_id,
        duplicate_of=judged.first,
    )
    if changed:
        _tell(tx, incident)
    return incident


def _list_is_full(tx: ProjectTransaction, judged: Judged) -> RecordedAlarm | None:
    """Return the answer to a held alarm that is not recorded, because too many of its group (or of
    those without a group) wait for an operator already. Return None if there is room for it."""
    verdict, state = judged.verdict, judged.subject.state
    if verdict.decision != Decision.HELD:
        return None
    held = partial(incidents.is_held_full, tx)
    if state is None:
        full = incidents.is_unknown_full(tx, MOST_WITHOUT_GROUP, verdict.rule)
        several = f"{MOST_WITHOUT_GROUP} alarms that name no known group"
    else:
        full = held(MOST_HELD, state.id)
        several = f"{MOST_HELD} alarms of {state.name}"
        if not full and held(ALWAYS, state.id):
            full = held(MOST_OF_PROJECT)
            several = f"{MOST_OF_PROJECT} alarms of the project"
    if not full:
        return None
    tx.count(state.id if state else None, counters.UNLISTED, verdict.rule.value)
    why = (
        f"it is not listed, since {several} are held already: admit or dismiss some, then send it "
        "again"
    )
    return RecordedAlarm(replace(verdict, sentence=f"{verdict.sentence}; {why}"))


def _to_begin(incident: Incident) -> Incident | None:
    """Return the incident if its traversal has to begin, also for a repeat whose first delivery
    died before that. An operator's order is continued by its own execution."""
    waits = incident.decision == Decision.ADMITTED and incident.traversal_id is None
    of_group = incident.group_id is not None and incident.source != OPERATOR
    return incident if waits and of_group else None


def _tell(tx: ProjectTransaction, incident: Incident) -> None:
    if incident.group_id is not None:
        sentence = f"{incident.decision}: {incident.sentence}"
        kind = JournalKind(incident.decision.lower())
        tx.journal(incident.group_id, sentence, kind=kind, incident_id=incident.id)


def _new(request: Request, judged: Judged) -> Incident:
    """Return the incident that records an alarm with its decision."""
    alarm, verdict, state = judged.subject.alarm, judged.verdict, judged.subject.state
    return Incident(
        judged.subject.incident,
        request.project_id,
        state.id if state else None,
        alarm.source,
        judged.fact,
        _capped(masked_body(alarm.payload)),
        verdict.decision,
        verdict.sentence,
        rule=verdict.rule,
        firing=alarm.firing,
        series=alarm.series,
        duplicate_of=judged.first,
        parent=alarm.parent,
    )


def _capped(payload: dict[str, Any]) -> dict[str, Any]:
    """Return a body, or the beginning of its JSON if it is longer than `LONGEST`."""
    whole = json.dumps(payload, default=str)
    if len(whole) <= LONGEST:
        return payload
    return {"characters": len(whole), "beginning": whole[:LONGEST]}


# -- an alarm that is held


def release(request: Request, tx: ProjectTransaction, held: Incident, why: str) -> Verdict | None:
    """Judge an alarm that the storm guard holds once more, without this guard, and record the
    decision with the reason.

    Return the verdict. Return None and change nothing if the alarm is no longer held, if it was
    reported again since ``held`` was read, or if its group was taken out of service.
    """
    state = tx.lock_group(held.group_id, shared=False) if held.group_id else None
    found = incidents.get(tx, held.id)  # as it is under the lock
    if found is None or state is None or found.decision != Decision.HELD:
        return None
    if found.said != held.said:
        return None
    member, *also = found.fact.lost or (None,)
    alarm = Alarm(
        source=found.source,
        key=found.id,
        firing=True,
        unique=True,
        sentence=f"{found.fact.reported}; {why}",
        servers=(),
        payload={},
        also=tuple(name for name in also if name),
        at=found.first_at,
    )
    judged = judge(request, tx, Subject(alarm, found.id, state, member), storms=False)
    verdict = judged.verdict
    if verdict.decision == Decision.IGNORED:
        return None
    if verdict.decision == Decision.ADMITTED:
        verdict = replace(verdict, rule=AdmissionRule.RELEASED)
    said = judged.fact  # of the servers that they have now
    fact = replace(found.fact, lost=said.lost, servers=said.servers, refusal="")
    record(request, tx, replace(judged, verdict=verdict, fact=fact, order=found.order, again=True))
    return verdict


# -- the failure of a host or a zone


def unsettled(tx: ProjectTransaction) -> list[Incident]:
    """Return the open host events of the last hour, oldest first: Nova could not be asked for all
    members, or the process that recorded the event died before it recorded all children."""
    since = tx.now() - LOOKS_FOR_MEMBERS
    found = incidents.host_events_since(tx, (AdmissionRule.HOST, AdmissionRule.NOWHERE), since)
    return list(islice((event for event in found if event.fact.open), UNSETTLED))


def look_again(request: Request, event: Incident) -> None:
    """Look again for the members that an event hit that `unsettled` names, and pass it on to
    the groups that have no child of it yet."""
    fact = event.fact
    alarm = Alarm(
        source=event.source,
        key=event.id,
        firing=True,
        unique=True,
        sentence=fact.reported,
        servers=(),
        payload=event.payload,
        group=fact.group,
        at=event.first_at if fact.at is None else fact.at,
        host=fact.host,
        zone=fact.zone,
        doubt=fact.doubt,
        over=bool(fact.over),
        because=fact.because,
    )
    found = _members(request, alarm)
    if event.is_host_event:
        children = request.store.reading(lambda tx: incidents.children_of(tx, event.id))
        have = {name for _, name in children}
        found = replace(found, groups=tuple(g for g in found.groups if g.group not in have))
        if found.unsure and not found.groups:
            return
    _spread(request, Subject(alarm, event.id), found, again=True)


def _members(request: Request, alarm: Alarm) -> AffectedGroups:
    """Return the members on the host or in the zone; only those of the alarm's group, if it names
    one."""
    host, zone, group = alarm.host, alarm.zone, alarm.group
    found = members_on(request, host) if host is not None else members_in(request, str(zone))
    return replace(found, groups=tuple(g for g in found.groups if group in (None, "", g.group)))


def _passed_on(identity: str, tx: ProjectTransaction) -> AffectedGroups | None:
    """Return what a host event was passed on to; None if members have to be looked for. Its repeat
    concerns nothing else, because the host or zone may be up again, with other members."""
    event = incidents.get(tx, identity)
    if event is None or event.decision == Decision.HELD:
        return None
    if event.fact.open and event.first_at >= tx.now() - LOOKS_FOR_MEMBERS:
        return None
    priorities = groups.priorities(tx)
    children = (
        AffectedGroup(str(child.group_id), name, priorities.get(str(child.group_id), 0), members)
        for child, name in incidents.children_of(tx, identity)
        if (members := child.fact.lost)
    )
    return AffectedGroups.in_order(children)


def _spread(
    request: Request, event: Subject, found: AffectedGroups, *, again: bool = False
) -> list[RecordedAlarm]:
    """Record a host event, and take the loss of each group's members as an alarm about them."""
    database = request.store
    parent, decided_by_operator = database.atomically(
        partial(_parent, request, event, found, again)
    )
    recorded = [parent]
    if decided_by_operator:
        return recorded
    complete = not found.unsure
    for begin in range(0, len(found.groups), BATCH):
        some = found.groups[begin : begin + BATCH]
        judged, unread = database.atomically(partial(_children, request, event, some))
        recorded += judged
        for name in unread:
            sentence = event.alarm.sentence
            LOG.error("%s: group %s is not judged, since it cannot be read", sentence, name)
            complete = False  # a sweep tries again
        reach("admit.next")
    if complete:
        database.atomically(partial(_close, event.incident))
    return recorded


def _parent(
    request: Request, event: Subject, found: AffectedGroups, again: bool, tx: ProjectTransaction
) -> tuple[RecordedAlarm, bool]:
    """Record the host event, or count its repeat. Return also whether an operator dismissed it or
    said which group it is about: then it is not passed on."""
    alarm, before = event.alarm, incidents.get(tx, event.incident)
    fact = replace(
        _fact(alarm, alarm.group, None),
        host=alarm.host,
        zone=alarm.zone,
        at=alarm.at,
        doubt=alarm.doubt,
        open=bool(found.groups or found.unsure),
    ).shortened()
    decided = before is not None and before.decision != Decision.HELD
    verdict = _repeated(alarm) if decided else of_host_event(alarm, len(found.groups), found.unsure)
    parent = record(request, tx, Judged(event, before, verdict, fact, again=again))
    return parent, decided and before is not None and not before.is_host_event


def _close(identity: str, tx: ProjectTransaction) -> None:
    """Record that all members there are known and every child is recorded."""
    event = incidents.get(tx, identity)
    if event is not None and event.is_host_event and event.fact.open:
        incidents.replace_host_event_fact(tx, identity, replace(event.fact, open=False))


def _children(
    request: Request, event: Subject, batch: Sequence[AffectedGroup], tx: ProjectTransaction
) -> tuple[list[RecordedAlarm], list[str]]:
    """Take the alarms of one batch of groups. Return also the names of those that cannot be read,
    because they need a package that is gone: they do not stop the others.

    The groups' locks are taken in the order of their ids, except that of the project's first group:
    it comes last, as for a single alarm, so that no two transactions wait for each other."""
    needed = {each.group_id for each in batch}
    first = groups.first_of(tx)
    last = [first] if first in needed or request.runtime.settings.storm_groups else []
    order = [*sorted(needed - {first}), *filter(None, last)]
    there = {group_id for group_id in order if tx.lock_group(group_id, shared=False)}
    recorded: list[RecordedAlarm] = []
    unread: list[str] = []
    for each in batch:
        if each.group_id not in there:
            continue  # it was deleted a moment ago
        child = replace(
            event.alarm,
            key=digest(["host event", event.incident]),
            unique=True,
            series="",
            host=None,
            zone=None,
            group=each.group,
            member=each.members[0],
            also=each.members[1:],
            parent=event.incident,
            payload={},
        )
        try:
            recorded.append(take_in(request, tx, child))
        except InvalidDocument:  # nothing was written of it
            unread.append(each.group)
    return recorded, unread
