# SPDX-License-Identifier: Apache-2.0
"""The failure of a compute host, or of an availability zone: one incident for it, and one child
incident for each group with a member there.

Each child is judged by admission as any other alarm. Its id is derived from the host event's, so a
repeat of the event finds its children, and completes them if a process died among them.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import islice

from mistral_failover.alarms import recording
from mistral_failover.alarms.admission import Verdict, without_group
from mistral_failover.alarms.alarm import Alarm, digest
from mistral_failover.alarms.recording import RecordedAlarm
from mistral_failover.fault_points import reach
from mistral_failover.groups.hosts import AffectedGroup, AffectedGroups, members_on
from mistral_failover.groups.zones import members_in
from mistral_failover.model.alarm_fact import AlarmFact
from mistral_failover.model.decisions import AdmissionRule, Decision
from mistral_failover.model.errors import InvalidDocument
from mistral_failover.model.text import plain
from mistral_failover.runtime.errors import masked
from mistral_failover.runtime.request import Request
from mistral_failover.store import groups, incidents
from mistral_failover.store.incidents import LOOKS_FOR_MEMBERS, Incident
from mistral_failover.store.transaction import ProjectTransaction

LOG = logging.getLogger(__name__)
BATCH = 50
"""Groups that one transaction judges at most."""
UNSETTLED = 1000
"""Open host events that one sweep looks at, at most."""


def record_any(
    request: Request, alarm: Alarm, group: str | None, member: str | None
) -> list[RecordedAlarm]:
    """Record an alarm and decide on it: as :func:`record` if it is about a host or a zone,
    else as
    ``recording.record``."""
    if alarm.is_host_event and not (member or alarm.member):
        return record(request, alarm, group or alarm.group)
    return [recording.record(request, alarm, group, member)]


def record(request: Request, alarm: Alarm, group: str | None = None) -> list[RecordedAlarm]:
    """Record the failure of a host or a zone and decide on the loss of each group's members there,
    once however often it is delivered; ``group``: only of this one.

    A repeat concerns the groups of the first report only, because the host or zone may be up again,
    with other members. Return the host event's decision, then those of its children, in the order
    in which their failovers are to start.
    """
    alarm = replace(alarm, sentence=masked(alarm.sentence))
    if not alarm.firing:
        return [RecordedAlarm(without_group(alarm, None))]
    identity = recording.incident_id(request, alarm, group)
    passed_on = request.store.reading(partial(_passed_on, request, identity))
    found = _members(request, alarm.host, alarm.zone) if passed_on is None else passed_on
    return _spread(request, alarm, identity, group, _of(group, found), repeated=True)


def retry(request: Request, event: Incident) -> list[RecordedAlarm]:
    """Look again for the members that an event hit that `unsettled` names, and pass it on to
    the groups that have no child of it yet. Return as :func:`record`, empty if nothing changed."""
    fact = event.fact
    found = _of(fact.group, _members(request, fact.host, fact.zone))
    if event.is_host_event:
        known = request.store.reading(lambda tx: incidents.children_of(tx, event.id))
        have = {name for _, name in known}
        found = replace(found, groups=tuple(g for g in found.groups if g.group not in have))
        if found.unsure and not found.groups:
            return []
    alarm = Alarm(
        source=event.source,
        key=event.id,
        firing=True,
        unique=True,
        sentence=fact.reported,
        servers=(),
        payload=event.payload,
        at=event.first_at if fact.at is None else fact.at,
        host=fact.host,
        zone=fact.zone,
        because=fact.because,
    )
    return _spread(request, alarm, event.id, fact.group, found, repeated=False)


def unsettled(tx: ProjectTransaction) -> list[Incident]:
    """Return the open host events of the last hour, oldest first: Nova could not be asked for all
    members, or the process that recorded the event died before it recorded all children."""
    since = tx.now() - LOOKS_FOR_MEMBERS
    found = incidents.host_events_since(tx, (AdmissionRule.HOST, AdmissionRule.NOWHERE), since)
    return list(islice((event for event in found if event.fact.open), UNSETTLED))


def _passed_on(request: Request, identity: str, tx: ProjectTransaction) -> AffectedGroups | None:
    """Return what a host event was passed on to; None if members have to be looked for."""
    known = incidents.get(tx, identity)
    if known is None or known.decision == Decision.HELD:
        return None
    if known.fact.open and known.first_at >= tx.now() - LOOKS_FOR_MEMBERS:
        return None
    priorities = groups.priorities(tx)
    children = (
        AffectedGroup(str(child.group_id), name, priorities.get(str(child.group_id), 0), members)
        for child, name in incidents.children_of(tx, identity)
        if (members := child.fact.lost)
    )
    return AffectedGroups.in_order(children)


def _members(request: Request, host: str | None, zone: str | None) -> AffectedGroups:
    return members_on(request, host) if host is not None else members_in(request, str(zone))


def _of(group: str | None, found: AffectedGroups) -> AffectedGroups:
    if group is None:
        return found
    return replace(found, groups=tuple(each for each in found.groups if each.group == group))


def _spread(
    request: Request,
    alarm: Alarm,
    identity: str,
    group: str | None,
    found: AffectedGroups,
    *,
    repeated: bool,
) -> list[RecordedAlarm]:
    database = request.store
    parent, decided_by_operator = database.atomically(
        partial(_parent, request, alarm, identity, group, found, repeated=repeated)
    )
    recorded = [parent]
    reach("admit.recorded")
    if decided_by_operator:
        return recorded
    complete = not found.unsure
    for begin in range(0, len(found.groups), BATCH):
        some = found.groups[begin : begin + BATCH]
        judged, unread = database.atomically(partial(_children, request, alarm, identity, some))
        recorded += judged
        for name in unread:
            LOG.error("%s: group %s is not judged, since it cannot be read", alarm.sentence, name)
            complete = False  # a sweep tries again
        reach("admit.next")
    if complete:
        database.atomically(partial(_close, request, identity))
    return recorded


def _parent(
    request: Request,
    alarm: Alarm,
    identity: str,
    group: str | None,
    hit: AffectedGroups,
    tx: ProjectTransaction,
    *,
    repeated: bool,
) -> tuple[RecordedAlarm, bool]:
    """Record the host event, or count its repeat. Return also whether an operator dismissed it or
    said which group it is about: then it is not passed on."""
    known = incidents.get(tx, identity)
    if known is not None and repeated:
        incidents.report_again(tx, identity)
    if known is not None and known.decision != Decision.HELD:
        sentence = f"{alarm.sentence}: a repeat of a known incident"
        verdict = Verdict(Decision.DUPLICATE, sentence, AdmissionRule.HEARD_BEFORE)
        return RecordedAlarm(verdict, identity), not known.is_host_event
    verdict = _verdict(alarm, hit)
    fact = AlarmFact(
        group,
        reported=alarm.sentence,
        because=masked(alarm.because) if alarm.because else "",
        host=alarm.host,
        zone=alarm.zone,
        at=alarm.at,
        open=bool(hit.groups or hit.unsure),
    ).shortened()
    if known is None and (full := recording.list_is_full(request, tx, verdict)):
        return full, False
    if known is None:
        incidents.add(tx, recording.incident_of(request, alarm, identity, None, fact, verdict))
    elif (verdict.decision, verdict.sentence) != (known.decision, known.sentence):
        because = known.fact.because or fact.because
        fact = replace(known.fact, open=fact.open, because=because)
        incidents.decide(tx, identity, verdict.decision, verdict.sentence, fact, rule=verdict.rule)
    return RecordedAlarm(verdict, identity), False


def _close(request: Request, identity: str, tx: ProjectTransaction) -> None:
    """Record that all members there are known and every child is recorded."""
    known = incidents.get(tx, identity)
    if known is not None and known.is_host_event and known.fact.open:
        incidents.replace_host_event_fact(tx, identity, replace(known.fact, open=False))


def _verdict(alarm: Alarm, hit: AffectedGroups) -> Verdict:
    where = f"on {alarm.host}" if alarm.host else f"in zone {alarm.zone}"
    where, unsure = plain(where), f"; {hit.unsure}" if hit.unsure else ""
    if not hit.groups:
        why = f"no group of this project is known to have a member {where}{unsure}"
        return Verdict(Decision.HELD, f"{alarm.sentence}: {why}", AdmissionRule.NOWHERE)
    count = len(hit.groups)
    have = "1 group has" if count == 1 else f"{count} groups have"
    sentence = f"{alarm.sentence}: {have} members {where}{unsure}"
    return Verdict(Decision.ADMITTED, sentence, AdmissionRule.HOST)


def _children(
    request: Request,
    alarm: Alarm,
    parent: str,
    batch: Sequence[AffectedGroup],
    tx: ProjectTransaction,
) -> tuple[list[RecordedAlarm], list[str]]:
    """Judge one batch of groups. Return also the names of those that cannot be read, because they
    need a package that is gone: they do not stop the others.

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
        member, *also = each.members
        child = replace(
            alarm,
            key=digest(["host event", parent]),
            unique=True,
            still=False,
            series="",
            host=None,
            zone=None,
            parent=parent,
            also=tuple(also),
            payload={},
        )
        try:
            recorded.append(recording.record_in(request, tx, child, each.group, member))
        except InvalidDocument:  # nothing was written of it
            unread.append(each.group)
    return recorded, unread
