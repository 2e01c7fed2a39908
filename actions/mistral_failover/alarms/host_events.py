# SPDX-License-Identifier: Apache-2.0
"""The failure of a compute host: one incident for the host, and one child incident for each group
with a member on it.

Each child is judged by admission as any other alarm. Its id is derived from the host event's, so a
repeat of the event finds its children, and completes them if a process died among them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from mistral_failover.alarms import recording
from mistral_failover.alarms.admission import Verdict, without_group
from mistral_failover.alarms.alarm import Alarm, digest
from mistral_failover.alarms.recording import Recorded
from mistral_failover.fault_points import reach
from mistral_failover.groups.hosts import MembersOnHost, OnHost, members_on
from mistral_failover.model.text import plain
from mistral_failover.runtime.errors import masked
from mistral_failover.runtime.process import Request
from mistral_failover.store import groups, incidents
from mistral_failover.store.incidents import Incident
from mistral_failover.store.tables import Decision
from mistral_failover.store.transaction import SqlTransaction

BATCH = 50
"""Groups that one transaction judges at most."""
RULE = "host"
"""The rule of a host event that was passed on to groups."""
RETRIED = 3600.0
"""Seconds for which members are looked for again if Nova could not be asked for all of them."""
NOWHERE = "nowhere"
"""The rule of a host event that is held because no member is known to be on the host."""


def record(request: Request, alarm: Alarm, group: str | None = None) -> list[Recorded]:
    """Record the failure of a host and decide on the loss of each group's members there, once
    however often it is delivered; ``group``: only of this one.

    Return the host event's decision, then those of its children, in the order in which their
    failovers are to start.
    """
    host = alarm.host
    assert host is not None  # the caller has looked
    alarm = replace(alarm, sentence=masked(alarm.sentence))
    if not alarm.firing:
        return [Recorded(without_group(alarm, None))]
    identity = recording.incident_id(request, alarm, group)
    found = _of(group, members_on(request, host))
    return _spread(request, alarm, identity, group, found, repeated=True)


def retry(request: Request, event: Incident) -> list[Recorded]:
    """Look again for the members on the host of an event that `unsettled` names, and pass it on to
    the groups that have no child of it yet. Return as :func:`record`, empty if nothing changed."""
    host, group = str(event.fact["host"]), event.fact.get("group")
    found = _of(group, members_on(request, host))
    if event.is_host_event:
        if found.unsure:
            return []
        known = request.runtime.database.reading(
            lambda tx: incidents.children_of(tx, request.project_id, event.id)
        )
        have = {name for _, name in known}
        found = replace(found, groups=tuple(g for g in found.groups if g.group not in have))
    alarm = Alarm(
        source=event.source,
        key=event.id,
        firing=True,
        unique=True,
        sentence=str(event.fact["said"]),
        servers=(),
        payload=event.payload,
        at=event.fact.get("at"),
        host=host,
    )
    return _spread(request, alarm, event.id, group, found, repeated=False)


def unsettled(tx: SqlTransaction, project_id: str) -> list[Incident]:
    """Return the host events for which members have to be looked for again, oldest first: none was
    known to be on the host, or Nova could not be asked for all."""
    held = incidents.held_host_events(tx, project_id, NOWHERE)
    since = tx.now() - RETRIED
    passed_on = incidents.host_events_since(tx, project_id, since)
    return [*held, *(event for event in passed_on if event.fact.get("unsure"))]


def _of(group: str | None, found: OnHost) -> OnHost:
    if group is None:
        return found
    return replace(found, groups=tuple(each for each in found.groups if each.group == group))


def _spread(
    request: Request,
    alarm: Alarm,
    identity: str,
    group: str | None,
    found: OnHost,
    *,
    repeated: bool,
) -> list[Recorded]:
    database = request.runtime.database
    recorded = [
        database.atomically(
            partial(_parent, request, alarm, identity, group, found, repeated=repeated)
        )
    ]
    reach("admit.recorded")
    for begin in range(0, len(found.groups), BATCH):
        some = found.groups[begin : begin + BATCH]
        recorded += database.atomically(partial(_children, request, alarm, identity, some))
        reach("admit.next")
    return recorded


def _parent(
    request: Request,
    alarm: Alarm,
    identity: str,
    group: str | None,
    on_host: OnHost,
    tx: SqlTransaction,
    *,
    repeated: bool,
) -> Recorded:
    """Record the host event, or count its repeat."""
    known = incidents.get(tx, request.project_id, identity)
    if known is not None and repeated:
        incidents.say_again(tx, identity)
    if known is not None and known.decision != Decision.HELD:
        if not repeated:  # now all of its members are known
            fact = {**known.fact, "unsure": False}
            incidents.decide(tx, identity, known.decision, known.sentence, fact, rule=known.rule)
        sentence = f"{alarm.sentence}: a repeat of a known incident"
        return Recorded(Verdict(Decision.DUPLICATE, sentence, "heard_before"), identity)
    verdict = _verdict(alarm, on_host)
    if known is None:
        fact = {
            "group": group,
            "lost": None,
            "host": alarm.host,
            "at": alarm.at,
            "said": alarm.sentence,
            "unsure": bool(on_host.unsure),
        }
        incidents.add(tx, recording.incident_of(request, alarm, identity, None, fact, verdict))
    elif (verdict.decision, verdict.sentence) != (known.decision, known.sentence):
        incidents.decide(tx, identity, verdict.decision, verdict.sentence, rule=verdict.rule)
    return Recorded(verdict, identity)


def _verdict(alarm: Alarm, on_host: OnHost) -> Verdict:
    host, unsure = plain(alarm.host or ""), f"; {on_host.unsure}" if on_host.unsure else ""
    if not on_host.groups:
        why = f"no group of this project is known to have a member on {host}{unsure}"
        return Verdict(Decision.HELD, f"{alarm.sentence}: {why}", NOWHERE)
    count = len(on_host.groups)
    have = "1 group has" if count == 1 else f"{count} groups have"
    sentence = f"{alarm.sentence}: {have} members on {host}{unsure}"
    return Verdict(Decision.ADMITTED, sentence, RULE)


def _children(
    request: Request,
    alarm: Alarm,
    parent: str,
    batch: Sequence[MembersOnHost],
    tx: SqlTransaction,
) -> list[Recorded]:
    """Judge one batch of groups. Their locks are taken in the order of the ids, the first of the
    project included, so two batches never wait for each other in a circle."""
    first = groups.first_of(tx, request.project_id)
    needed = {each.group_id for each in batch}
    if first is not None and request.runtime.settings.storm_groups:
        needed.add(first)
    for group_id in sorted(needed):
        tx.lock_group(group_id, shared=False)
    recorded = []
    for each in batch:
        member, *also = each.members
        child = replace(
            alarm,
            key=digest(["host event", parent]),
            unique=True,
            still=False,
            series="",
            host=None,
            parent=parent,
            also=tuple(also),
            payload={},
        )
        recorded.append(recording.record_in(request, tx, child, each.group, member))
    return recorded
