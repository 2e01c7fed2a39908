# SPDX-License-Identifier: Apache-2.0
"""Decide on an alarm and record it, in one transaction.

A repeat of an incident with a final decision is the common case, by far so in a storm of
deliveries. It is recognized by an id that is computed before anything is read, and costs one UPDATE
of its row. Only an alarm that must be judged locks its group, so alarms of a group are judged one
after the other.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from mistral_failover.alarms.admission import (
    COUNTED,
    HOUR,
    AdmissionContext,
    Suspension,
    Verdict,
    admit,
    without_group,
)
from mistral_failover.alarms.alarm import Alarm
from mistral_failover.alarms.storm import Storm
from mistral_failover.convergence.records import GroupState, JournalKind
from mistral_failover.fault_points import reach
from mistral_failover.groups.snapshot import GroupSnapshot, group_snapshot_in
from mistral_failover.model.decisions import AdmissionRule, Decision
from mistral_failover.model.ids import derived_id
from mistral_failover.runtime.errors import masked, masked_body
from mistral_failover.runtime.request import Request
from mistral_failover.store import counters, groups, incidents, suspensions
from mistral_failover.store.incidents import LONGEST_REPORT, OPERATOR, Incident
from mistral_failover.store.transaction import ProjectTransaction

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
_NAME = 255  # characters of a name; no group or member has a longer one


@dataclass(frozen=True)
class RecordedAlarm:
    """The decision; ``incident`` is the one that records or counts the alarm, None if it is not
    recorded. ``begin``: the admitted incident whose traversal has not begun, if any."""

    verdict: Verdict
    incident: str | None = None
    traversal: str | None = None
    begin: Incident | None = None


@dataclass(frozen=True)
class AlarmTarget:
    """What an alarm is about: ``member`` is None if unknown. ``strangers``: names in the alarm that
    no member of the group has."""

    group: str | None
    member: str | None
    strangers: tuple[str, ...]
    state: GroupState | None


def record(request: Request, alarm: Alarm, group: str | None, member: str | None) -> RecordedAlarm:
    """Decide on an alarm, once however often it is delivered, and record it.

    ``group`` and ``member`` say what it is about. Without them the server in the alarm's body does;
    without that it is about the active member, the one that holds all roles.
    """
    alarm = replace(alarm, sentence=masked(alarm.sentence))
    if alarm.routine:
        return RecordedAlarm(without_group(alarm, None))
    group, member = group or alarm.group, member or alarm.member
    return request.store.atomically(lambda tx: record_in(request, tx, alarm, group, member))


@dataclass(frozen=True)
class AlarmReport:
    """An alarm, with the group and the member that its sender names beside it."""

    alarm: Alarm
    group: str | None = None
    member: str | None = None


def count_repeats(
    request: Request, tx: ProjectTransaction, reports: Sequence[AlarmReport]
) -> dict[int, RecordedAlarm]:
    """Count those of these alarms that repeat an incident that needs no judgement: it has a final
    decision, or was admitted and is about to begin. Return their decisions by index. It locks only
    the incidents' rows, in the order of their ids.

    Alarms without an id of their own are left out: :func:`record` recognizes their repeats.
    """
    same: dict[str, list[int]] = {}
    for index, report in enumerate(reports):
        alarm = report.alarm
        if alarm.unique and not alarm.routine and not alarm.is_host_event:
            group = report.group or alarm.group
            same.setdefault(incident_id(request, alarm, group), []).append(index)
    found: dict[int, RecordedAlarm] = {}
    for identity, indexes in sorted(same.items()):
        alarm = reports[indexes[0]].alarm
        known = count_final_repeats(request, tx, alarm, identity, len(indexes))
        if known is None:
            known = _waits(request, tx, alarm, identity, len(indexes))
        if known is not None:
            found |= dict.fromkeys(indexes, known)
    return found


def _waits(
    request: Request, tx: ProjectTransaction, alarm: Alarm, identity: str, times: int
) -> RecordedAlarm | None:
    """As :func:`count_final_repeats`, of an admitted alarm that has not begun. In a flood many
    repeats arrive before it has."""
    found = incidents.count_waiting(tx, identity, times)
    return None if found is None else RecordedAlarm(_repeated(alarm), identity, None, found)


def _repeated(alarm: Alarm) -> Verdict:
    sentence = f"{masked(alarm.sentence)}: a repeat of a known incident"
    return Verdict(Decision.DUPLICATE, sentence, AdmissionRule.HEARD_BEFORE)


def record_in(
    request: Request, tx: ProjectTransaction, alarm: Alarm, group: str | None, member: str | None
) -> RecordedAlarm:
    """As :func:`record`, within a transaction. It locks the group of the alarm."""
    if alarm.unique and (
        known := count_final_repeats(request, tx, alarm, incident_id(request, alarm, group))
    ):
        return known
    target = _target(request, tx, alarm, group, member)
    if target.state is None:
        return _about_no_member(request, tx, alarm, group, target.member)
    if not alarm.unique and (known := _said_again(request, tx, alarm, group, target, target.state)):
        return known
    state = tx.lock_group(target.state.id, shared=False)
    if state is None:  # it was deleted a moment ago
        return _about_no_member(request, tx, alarm, group, target.member)
    return _judged(request, tx, alarm, group, target, group_snapshot_in(request, tx, state))


def incident_id(request: Request, alarm: Alarm, group: str | None, epoch: int = 0) -> str:
    """Return the incident's id. A body without an event id may also occur in the next life of a
    member, so its id includes the ``epoch``; an event happens once. The group is the one that was
    given, because looking for the server's group takes time."""
    return derived_id("incident", request.project_id, group or "", alarm.key, str(epoch))


def count_final_repeats(
    request: Request, tx: ProjectTransaction, alarm: Alarm, identity: str, times: int = 1
) -> RecordedAlarm | None:
    """Count repeats of an incident with a final decision."""
    found = incidents.count_again(tx, identity, times)
    return None if found is None else RecordedAlarm(_repeated(alarm), *found)


def _said_again(
    request: Request,
    tx: ProjectTransaction,
    alarm: Alarm,
    group: str | None,
    target: AlarmTarget,
    state: GroupState,
) -> RecordedAlarm | None:
    """As :func:`count_final_repeats`, for an alarm without an id of its own."""
    if alarm.still:
        latest = incidents.latest_of_series(tx, state.id, alarm.series)
        told = latest.id if latest is not None and latest.firing else None
    else:
        member = target.member or (None if target.strangers else _active(tx, state))
        told = incident_id(request, alarm, group, tx.epochs(state.id).get(member or "", 0))
    return count_final_repeats(request, tx, alarm, told) if told else None


def _active(tx: ProjectTransaction, state: GroupState) -> str | None:
    """As :func:`_holder`, from the group's goal."""
    traversal = tx.traversal(state.current_traversal) if state.current_traversal else None
    goal = tx.goal(state.id, traversal.goal_version) if traversal else None
    return _holder(goal.document["roles"]) if goal else None


def _holder(roles: Mapping[str, str]) -> str | None:
    """Return the member that an alarm without a name is about: the holder of all roles. None if
    there is none."""
    holders = set(roles.values())
    return holders.pop() if len(holders) == 1 else None


def _target(
    request: Request, tx: ProjectTransaction, alarm: Alarm, group: str | None, member: str | None
) -> AlarmTarget:
    strangers = () if group and member else (*alarm.servers, *alarm.others)
    for server in alarm.servers if strangers else ():
        behind = groups.member_of_server(tx, server, group)
        if behind is not None:
            group, member, strangers = behind[0], member or behind[1], ()
            break
    state = groups.find(tx, group) if group else None
    return AlarmTarget(group, member, () if member else strangers, state)


def _about_no_member(
    request: Request, tx: ProjectTransaction, alarm: Alarm, group: str | None, member: str | None
) -> RecordedAlarm:
    """Keep an alarm that belongs to no group, for operators of the project to see."""
    if alarm.still:  # each has other words; the series is the occasion
        alarm = replace(alarm, firing=True, key=alarm.series)
    verdict = without_group(alarm, group)
    if verdict.decision != Decision.HELD:
        return RecordedAlarm(verdict)
    identity = incident_id(request, alarm, group)
    if known := count_final_repeats(request, tx, alarm, identity):
        return known
    if incidents.get(tx, identity) is not None:
        incidents.report_again(tx, identity)
        return RecordedAlarm(verdict, identity)
    if full := list_is_full(request, tx, verdict):
        return full
    fact = {"group": group, "lost": member}
    incidents.add(tx, incident_of(request, alarm, identity, None, fact, verdict))
    return RecordedAlarm(verdict, identity)


def list_is_full(
    request: Request, tx: ProjectTransaction, verdict: Verdict, state: GroupState | None = None
) -> RecordedAlarm | None:
    """Return the answer to a held alarm that is not recorded, because too many of its group (or of
    those without a group) wait for an operator already. Return None if there is room for it."""
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


def _judged(
    request: Request,
    tx: ProjectTransaction,
    alarm: Alarm,
    group: str | None,
    target: AlarmTarget,
    snapshot: GroupSnapshot,
) -> RecordedAlarm:
    state, epochs = snapshot.state, tx.epochs(snapshot.state.id)
    member, strangers = target.member, target.strangers
    if member is None and not strangers:
        member = _holder(snapshot.roles)
    elif member is not None and member not in epochs:
        strangers, member = (member,), None
    epoch = 0 if alarm.unique else epochs.get(member or "", 0)
    identity = incident_id(request, alarm, group, epoch)
    known = incidents.get(tx, identity)
    if alarm.still:
        latest = incidents.latest_of_series(tx, state.id, alarm.series)
        if latest is not None and latest.firing:
            known = latest
        # Nothing was heard of it since it last cleared: the transition itself was missed.
        alarm = replace(alarm, firing=True)
    under_way = _under_way(tx, state)
    member, alarm = _news(snapshot, alarm, member, under_way)
    now = tx.now()
    situation = replace(
        _situation(tx, snapshot, alarm, member, under_way, now),
        strangers=strangers,
        known=known is not None and known.decision != Decision.HELD,
        storm=lambda: _storm(request, tx, state, now),
    )
    verdict = admit(alarm, situation)
    # No member is lost by an alarm about a server that no group has.
    lost = _lost_fact(alarm, member)
    fact = {"group": snapshot.group.name, **lost, "reported": alarm.sentence[:LONGEST_REPORT]}
    first = _first(tx, state, verdict, member, under_way)
    if known is not None:
        return _known(request, tx, state, known, verdict, fact, first)
    return _new(request, tx, state, alarm, identity, verdict, fact, first)


def _situation(
    tx: ProjectTransaction,
    snapshot: GroupSnapshot,
    alarm: Alarm,
    member: str | None,
    under_way: Mapping[str, str],
    now: float,
) -> AdmissionContext:
    """Return the situation of a group, as if no storm could hold the alarm."""
    state = snapshot.state
    suspended = suspensions.of_group(tx, state.id)
    pause, work = suspended.get("pause"), suspended.get("maintenance")
    return AdmissionContext(
        group=snapshot.group.name,
        member=member,
        in_service=bool(snapshot.roles),
        strangers=(),
        known=False,
        lost=snapshot.lost | under_way.keys(),
        admitted=incidents.admitted_alarms_since(tx, state.id, now - HOUR),
        limits=snapshot.group.limits,
        now=now,
        pause=Suspension(**pause) if pause else None,
        maintenance=Suspension(**work) if work else None,
        replacing=frozenset(snapshot.replacing),
        old_news=lambda: _old_news(tx, state, member, alarm),
    )


def _news(
    snapshot: GroupSnapshot, alarm: Alarm, member: str | None, under_way: Mapping[str, str]
) -> tuple[str | None, Alarm]:
    """Return the member and the alarm without the members whose loss is known already, unless that
    is all of them."""
    known = {*snapshot.lost, *under_way, *snapshot.replacing}
    new = [each for each in (member, *alarm.also) if each is not None and each not in known]
    if not alarm.also or not new:
        return member, alarm
    return new[0], replace(alarm, also=tuple(new[1:]))


def _lost_fact(alarm: Alarm, member: str | None) -> dict[str, Any]:
    """Return which members are lost, and the reason of the operator who says so, if one does, as an
    incident's fact says it."""
    also = {"also_lost": list(alarm.also)} if alarm.also else {}
    said = {"because": masked(alarm.because)} if alarm.because else {}
    return {"lost": member, **also, **said}


def _first(
    tx: ProjectTransaction,
    state: GroupState,
    verdict: Verdict,
    member: str | None,
    under_way: Mapping[str, str],
) -> str | None:
    """Return the incident that reported a known fact first."""
    if verdict.rule != AdmissionRule.KNOWN_FACT:
        return None
    return under_way.get(member or "") or _current(tx, state)


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
    member, *also = incidents.reported_lost(found) or (None,)
    alarm = Alarm(
        source=found.source,
        key=found.id,
        firing=True,
        unique=True,
        sentence=f"{found.reported}; {why}",
        servers=(),
        payload={},
        member=member,
        also=tuple(name for name in also if name),
        at=found.first_at,
    )
    snapshot, under_way = group_snapshot_in(request, tx, state), _under_way(tx, state)
    member, alarm = _news(snapshot, alarm, member, under_way)
    verdict = admit(alarm, _situation(tx, snapshot, alarm, member, under_way, tx.now()))
    if verdict.decision == Decision.IGNORED:
        return None
    if verdict.decision == Decision.ADMITTED:
        verdict = replace(verdict, rule=AdmissionRule.RELEASED)
    first = _first(tx, state, verdict, member, under_way)
    incidents.decide(
        tx,
        found.id,
        verdict.decision,
        verdict.sentence,
        {**found.fact, **_lost_fact(alarm, member), "refusal": ""},
        rule=verdict.rule,
        duplicate_of=first,
    )
    if first:
        incidents.count_duplicate(tx, first)
    _tell(tx, state, verdict, found.id)
    return verdict


def _under_way(tx: ProjectTransaction, state: GroupState) -> dict[str, str]:
    """Return the members whose loss is already admitted although no goal declares it yet, each with
    the incident."""
    found: dict[str, str] = {}
    for incident in incidents.unstarted_of_group(tx, state.id):
        for member in incidents.lost_members(incident):
            found.setdefault(member, incident.id)
    return found


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


def _known(
    request: Request,
    tx: ProjectTransaction,
    state: GroupState,
    known: Incident,
    verdict: Verdict,
    fact: dict[str, Any],
    first: str | None,
) -> RecordedAlarm:
    """Count a repeat, and judge a held alarm again. ``first`` is the incident of a known fact."""
    incidents.report_again(tx, known.id)
    fact = {**({"because": known.fact["because"]} if "because" in known.fact else {}), **fact}
    if known.decision == Decision.HELD and verdict.decision != Decision.IGNORED:
        incidents.decide(
            tx,
            known.id,
            verdict.decision,
            verdict.sentence,
            fact,
            rule=verdict.rule,
            group_id=state.id,
            duplicate_of=first,
        )
        if (verdict.decision, verdict.rule) != (known.decision, known.rule):
            _tell(tx, state, verdict, known.id)
        known = replace(
            known,
            decision=verdict.decision,
            sentence=verdict.sentence,
            fact=fact,
            group_id=state.id,
        )
        if found := _counted_on(request, tx, verdict, first, fact):
            return found
    else:
        _keep_reason(tx, known, fact)
    return RecordedAlarm(verdict, known.id, known.traversal_id, _to_begin(known))


def _new(
    request: Request,
    tx: ProjectTransaction,
    state: GroupState,
    alarm: Alarm,
    identity: str,
    verdict: Verdict,
    fact: dict[str, Any],
    first: str | None,
) -> RecordedAlarm:
    """Record an incident; another alarm about a known fact counts on the first one's."""
    if full := list_is_full(request, tx, verdict, state):
        return full
    incident = replace(
        incident_of(request, alarm, identity, state.id, fact, verdict), duplicate_of=first
    )
    incidents.add(tx, incident)
    reach("admit.recorded")
    if found := _counted_on(request, tx, verdict, first, fact):
        return found
    if verdict.decision != Decision.DUPLICATE:
        _tell(tx, state, verdict, identity)
    return RecordedAlarm(verdict, identity, None, _to_begin(incident))


def _to_begin(incident: Incident) -> Incident | None:
    """Return the incident if its traversal has to begin, also for a repeat whose first delivery
    died before that. An operator's order is continued by its own execution."""
    waits = incident.decision == Decision.ADMITTED and incident.traversal_id is None
    return incident if waits and incident.source != OPERATOR else None


def _current(tx: ProjectTransaction, state: GroupState) -> str | None:
    """Return the incident that caused the current traversal."""
    traversal = tx.traversal(state.current_traversal) if state.current_traversal else None
    return traversal.incident_id if traversal else None


def _counted_on(
    request: Request,
    tx: ProjectTransaction,
    verdict: Verdict,
    first: str | None,
    fact: Mapping[str, Any],
) -> RecordedAlarm | None:
    """Count a known fact on the incident that reported it first, if there is one."""
    known = incidents.get(tx, first) if first else None
    if known is None:
        return None
    incidents.count_duplicate(tx, known.id)
    _keep_reason(tx, known, fact)
    return RecordedAlarm(verdict, known.id, known.traversal_id, _to_begin(known))


def _keep_reason(tx: ProjectTransaction, known: Incident, fact: Mapping[str, Any]) -> None:
    """Keep with an incident that has not begun that an operator reports the same."""
    if "because" in fact and "because" not in known.fact and _to_begin(known) is not None:
        incidents.replace_admitted_fact(tx, known.id, {**known.fact, "because": fact["because"]})


def _tell(tx: ProjectTransaction, state: GroupState, verdict: Verdict, incident_id: str) -> None:
    decision = verdict.decision
    sentence = f"{decision}: {verdict.sentence}"
    tx.journal(state.id, sentence, kind=JournalKind(decision.lower()), incident_id=incident_id)


def incident_of(
    request: Request,
    alarm: Alarm,
    identity: str,
    group_id: str | None,
    fact: dict[str, Any],
    verdict: Verdict,
) -> Incident:
    """Return the incident that records an alarm with its decision."""
    return Incident(
        identity,
        request.project_id,
        group_id,
        alarm.source,
        {
            key: value[:_NAME] if isinstance(value, str) and key != "reported" else value
            for key, value in fact.items()
        },
        _capped(masked_body(alarm.payload)),
        verdict.decision,
        verdict.sentence,
        rule=verdict.rule,
        firing=alarm.firing,
        series=alarm.series,
        parent=alarm.parent,
    )


def _capped(payload: dict[str, Any]) -> dict[str, Any]:
    """Return a body, or the beginning of its JSON if it is longer than `LONGEST`."""
    whole = json.dumps(payload, default=str)
    if len(whole) <= LONGEST:
        return payload
    return {"characters": len(whole), "beginning": whole[:LONGEST]}
