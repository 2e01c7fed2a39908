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
NOWHERE = "nowhere"
"""The rule of a host event that is held because no member is known to be on the host."""


def record(request: Request, alarm: Alarm, group: str | None = None) -> list[Recorded]:
    """Record the failure of a host and decide on the loss of each group's members there, once
    however often it is delivered; ``group``: only of this one.

    Return the host event's decision, then those of its children, in the order in which their
    failovers are to start.
    """
    assert alarm.host is not None
    alarm = replace(alarm, sentence=masked(alarm.sentence))
    if not alarm.firing:
        return [Recorded(without_group(alarm, None))]
    identity = recording.incident_id(request, alarm, group)
    return _spread(request, alarm, identity, group, repeated=True)


def retry(request: Request, held: Incident) -> list[Recorded]:
    """Look again for the members on the host of an event that is held because none was known to be
    there. Return as :func:`record`."""
    alarm = Alarm(
        source=held.source,
        key=held.id,
        firing=True,
        unique=True,
        sentence=str(held.fact["said"]),
        servers=(),
        payload=held.payload,
        at=held.fact.get("at"),
        host=str(held.fact["host"]),
    )
    return _spread(request, alarm, held.id, held.fact.get("group"), repeated=False)


def _spread(
    request: Request, alarm: Alarm, identity: str, group: str | None, *, repeated: bool
) -> list[Recorded]:
    found = members_on(request, alarm.host or "")
    if group is not None:
        found = replace(found, groups=tuple(g for g in found.groups if g.group == group))
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
