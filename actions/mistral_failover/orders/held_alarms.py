# SPDX-License-Identifier: Apache-2.0
"""Held alarms: list, admit and dismiss them."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypedDict

from mistral_failover.alarms.intake import MOST_WITHOUT_GROUP
from mistral_failover.alarms.storm import Queued, in_order
from mistral_failover.convergence.errors import UnknownGroup
from mistral_failover.convergence.records import JournalKind
from mistral_failover.fault_points import reach
from mistral_failover.groups.snapshot import group_snapshot, locked
from mistral_failover.groups.zones import MemberZones, member_zones
from mistral_failover.model.decisions import Decision
from mistral_failover.model.order import Order
from mistral_failover.model.text import plain
from mistral_failover.orders import failover
from mistral_failover.orders.alarm_failovers import BY_ALARM, begin, with_lost
from mistral_failover.orders.answers import (
    AdmittedAlarms,
    PassedOver,
    RefusedAlarm,
    SelectionFacts,
    StartedOrder,
)
from mistral_failover.runtime.errors import ActionError, start_command
from mistral_failover.runtime.request import Request
from mistral_failover.runtime.short_ids import find_by_short_id, unknown
from mistral_failover.store import counters, groups, incidents
from mistral_failover.store.incidents import OPERATOR, HeldOfGroup, Incident
from mistral_failover.store.transaction import ProjectTransaction


class HeldAlarmRow(TypedDict):
    """A held alarm. ``group``: None if unknown; ``lost``: None if the member is unknown too;
    ``heard``: how often it was delivered; ``host``, ``zone`` and ``children``: of a host event, the
    host or the zone that failed, and the number of its groups whose alarms are held; ``evidence``:
    why the storm guard still holds it, None if it was not judged; ``admit`` and ``dismiss``: the
    commands."""

    incident: str
    group: str | None
    lost: list[str] | None
    sentence: str
    rule: str | None
    source: str
    heard: int
    first_at: float
    last_at: float
    host: str | None
    zone: str | None
    children: int
    evidence: str | None
    admit: str
    dismiss: str


class HeldAlarms(TypedDict):
    """The alarms that wait for an operator. ``total``: how many there are; ``unlisted``: how many
    of the project were ever left out because the list was full, and ``unlisted_at``, when the last
    one arrived (None: never)."""

    total: int
    unlisted: int
    unlisted_at: float | None
    held: list[HeldAlarmRow]


def list_held_alarms(request: Request, group: str | None, limit: int) -> HeldAlarms:
    """Return at most ``limit`` of the alarms that are held in the project, or in one group of it,
    the latest first. The project's list has a host event instead of its children. Raises
    UnknownGroup.
    """
    group_id = group_snapshot(request, group).state.id if group else None

    def read(tx: ProjectTransaction) -> HeldAlarms:
        total, found = incidents.held_alarms(tx, group_id, limit)
        unlisted, at = counters.unlisted_of(tx)
        rows = [_row(each) for each in found]
        return {"total": total, "unlisted": unlisted, "unlisted_at": at, "held": rows}

    return request.store.reading(read)


@dataclass(frozen=True)
class Selection:
    """Some of a project's held alarms: of one ``group``, of the events of one ``host``, of lost
    members in one availability ``zone``, or one ``incident`` (of a host event its children). All
    fields None: every one."""

    group: str | None = None
    host: str | None = None
    incident: str | None = None
    zone: str | None = None


class DismissedAlarm(TypedDict):
    """A held alarm that was dismissed; ``incident``: its whole id."""

    incident: str
    sentence: str


class DismissedAlarms(TypedDict):
    """Held alarms that were dismissed by their ids."""

    dismissed: list[DismissedAlarm]


class DismissedSelection(SelectionFacts, DismissedAlarms):
    """Held alarms that were dismissed by a selection. ``left``: the number of alarms that another
    call would dismiss."""

    left: int


@dataclass(frozen=True)
class Selected:
    """The ``alarms`` that a selection means, in the order in which they are to start, without their
    payloads; their groups are known. For the other fields see :class:`SelectionFacts`."""

    alarms: Sequence[HeldOfGroup]
    passed_over: Sequence[PassedOver] = ()
    unsure: str = ""

    def answer(self) -> SelectionFacts:
        """Return the other fields as part of an action's answer."""
        return {"passed_over": list(self.passed_over), "unsure": self.unsure}


def selected(request: Request, selection: Selection) -> Selected:
    """Return the held alarms that a selection means. For a zone Nova is asked in which ones the
    members are. Raises UnknownGroup; ActionError UNKNOWN_HOST, UNKNOWN_ZONE, UNKNOWN_ID,
    AMBIGUOUS_ID."""
    where = None if selection.zone is None else member_zones(request)
    found = request.store.reading(lambda tx: _found(request, tx, selection))
    if selection.zone is None or where is None:
        return Selected(found)
    return _in_zone(selection.zone, where, found)


def _in_zone(zone: str, where: MemberZones, found: Iterable[HeldOfGroup]) -> Selected:
    """Return the alarms that report members in a zone, and in no other one."""
    known = where.known()
    if zone not in known:
        unsure = f" ({where.unsure})" if where.unsure else ""
        raise ActionError(
            "UNKNOWN_ZONE",
            f"no member of this project's groups is known to be in zone {plain(zone)}{unsure}",
            f"Give a zone that has members: {', '.join(known)}."
            if known
            else "To list the held alarms: failover alarms.",
        )
    alarms: list[HeldOfGroup] = []
    passed_over: list[PassedOver] = []
    for each in found:
        incident, members = each.incident, where.zones.get(str(each.incident.group_id), {})
        lost = incident.fact.lost
        zones = {name: members.get(name) for name in lost or members}
        if lost and set(zones.values()) == {zone}:
            alarms.append(each)
        elif {zone, None} & set(zones.values()):
            why = _why_not(zone, lost, zones)
            passed_over.append({"incident": incident.id, "group": each.group, "why": why})
    return Selected(alarms, passed_over, where.unsure)


def _why_not(zone: str, lost: Collection[str], zones: Mapping[str, str | None]) -> str:
    """Return why an alarm that may be about a zone is passed over."""
    if not lost:
        return "it does not say which member is lost"
    unknown = [name for name, of in zones.items() if of is None]
    if unknown:
        return f"the zone of {' and '.join(unknown)} is not known"
    other = [f"{name} in zone {of}" for name, of in zones.items() if of != zone]
    return f"it also reports {' and '.join(other)}"


def _found(request: Request, tx: ProjectTransaction, selection: Selection) -> list[HeldOfGroup]:
    """Return the held alarms of a selection, of any zone."""
    parents, group_id, only = None, None, None
    if selection.group is not None:
        state = groups.find(tx, selection.group)
        if state is None:
            raise UnknownGroup(selection.group, groups.names(tx))
        group_id = state.id
    if selection.host is not None:
        parents = incidents.events_of_host(tx, selection.host)
        if not parents:
            raise ActionError(
                "UNKNOWN_HOST",
                f"no failure of host {plain(selection.host)} was reported",
                "To list the held alarms and their hosts: failover alarms.",
            )
    if selection.incident is not None:
        only = find_by_short_id(request, tx, selection.incident, kind="incident").id
    found = incidents.held_of_groups(tx, group_id=group_id, parents=parents)
    return _in_turn(
        tx,
        (
            each
            for each in found
            if only is None or only in (each.incident.id, each.incident.parent)
        ),
    )


def admit(
    request: Request,
    group: str,
    incident_id: str,
    order: Order,
    because: str,
    *,
    only_held: bool = False,
) -> StartedOrder:
    """Admit an alarm by an operator's ``order``, and start its failover. No rule of admission
    applies. An alarm whose group was unknown becomes one of ``group``. If the order names no lost
    members, those that the alarm reports are lost. With ``only_held`` an alarm whose hold ended in
    another way is not admitted (NOT_ADMITTED).

    The first digits of the incident's id are enough. Raises UnknownGroup; ActionError UNKNOWN_ID if
    it is not an incident of the group, AMBIGUOUS_ID, NOT_AN_ALARM for an order, BAD_INPUT if it is
    not known which member is lost, NOT_ADMITTED; and what :func:`failover.begin` raises.
    """
    order = replace(order, from_alarm=True)

    def admitted(tx: ProjectTransaction) -> tuple[Incident, Order]:
        state = locked(request, tx, group)
        identity = find_by_short_id(request, tx, incident_id, kind="incident").id
        known = incidents.get(tx, identity)
        if known is not None and known.group_id is None:
            # Its group was unknown, and now an operator names it.
            known = replace(known, group_id=state.id, fact=replace(known.fact, group=group))
            if not incidents.adopt(tx, identity, state.id):
                known = incidents.get(tx, identity)
        if known is None or known.group_id != state.id:
            raise unknown(incident_id, group, "incident")
        if known.source == OPERATOR:
            # An order does not say which member is lost: the members that hold roles may be
            # healthy.
            raise ActionError(
                "NOT_AN_ALARM",
                f"incident {identity} is not an alarm but an operator's order",
                f"To see its result: failover status {shlex.quote(group)}. To declare a member "
                f"lost: {start_command(group)} --lost MEMBER",
            )
        whole = with_lost(order, known)  # what cannot be started is not admitted
        if only_held and known.decision not in (Decision.HELD, Decision.ADMITTED):
            raise ActionError(
                "NOT_ADMITTED",
                f"alarm {identity} was not admitted: it is now {known.decision}",
                f"To see the reason: failover show {identity}",
            )
        # Record the whole order, because a sweep may have to start it.
        fact = replace(known.fact, refusal="")
        if known.decision == Decision.ADMITTED:
            incidents.replace_admitted(tx, identity, fact, whole)
            sentence = f"ADMITTED again by {request.caller}: {because}"
            tx.journal(state.id, sentence, kind=JournalKind.ADMITTED, incident_id=identity)
            return known, whole
        sentence = f"{known.sentence}; nevertheless admitted by {request.caller}: {because}"
        incidents.decide(tx, identity, Decision.ADMITTED, sentence, fact, whole)
        tx.journal(
            state.id, f"ADMITTED: {sentence}", kind=JournalKind.ADMITTED, incident_id=identity
        )
        return known, whole

    incident, whole = request.store.atomically(admitted)
    reach("held.after")
    derive = failover.goal_function(request, whole)
    return {**begin(request, group, derive, incident.id, because), "incident": incident.id}


def admit_held(request: Request, selection: Selection, because: str, limit: int) -> AdmittedAlarms:
    """Admit held alarms, by an operator's decision, and start their failovers: at most ``limit``,
    those of groups with a higher priority first.

    An alarm that names no group or no member is left out: an operator has to say which one it
    means. Raises what :func:`selected` raises.
    """
    found = selected(request, selection)
    waiting = [each for each in found.alarms if each.incident.fact.lost]
    admitted: list[StartedOrder] = []
    refused: list[RefusedAlarm] = []
    for each in waiting[:limit]:
        try:
            started = admit(
                request, each.group, each.incident.id, BY_ALARM, because, only_held=True
            )
            admitted.append(started)
        except Exception as error:  # one group's error must not stop the others
            # Also an alarm that was over, or dismissed, after it was selected.
            facts = request.caught(error, "admitting a held alarm")
            refused.append({"incident": each.incident.id, "group": each.group, "error": facts})
    left = max(0, len(waiting) - limit)
    return {"admitted": admitted, "refused": refused, "left": left, **found.answer()}


def held_children(tx: ProjectTransaction, host_event: str) -> list[HeldOfGroup]:
    """Return the held children of a host event, in the order in which they are to start."""
    return _in_turn(tx, incidents.held_of_groups(tx, parents=[host_event]))


def _in_turn(tx: ProjectTransaction, found: Iterable[HeldOfGroup]) -> list[HeldOfGroup]:
    now = tx.now()
    return in_order(
        Queued(each.without_payload(), each.priority, each.waited(now)) for each in found
    )


def dismiss_held(
    request: Request, selection: Selection, because: str, limit: int
) -> DismissedSelection:
    """Dismiss at most ``limit`` held alarms: those that are selected, and if nothing is, also those
    of no known group. Raises what :func:`selected` raises."""
    found = selected(request, selection)
    held = [each.incident for each in found.alarms]
    if selection == Selection():
        held += request.store.reading(
            lambda tx: incidents.held_without_group(tx, MOST_WITHOUT_GROUP * 2)
        )
    dismissed: list[DismissedAlarm] = []
    for each in held[:limit]:
        step = partial(_dismissed_one, request, each.id, because)
        dismissed += request.store.atomically(step)
    return {"dismissed": dismissed, "left": max(0, len(held) - limit), **found.answer()}


def _dismissed_one(
    request: Request, identity: str, because: str, tx: ProjectTransaction
) -> list[DismissedAlarm]:
    """Dismiss an alarm, unless another decision was faster."""
    known = incidents.get(tx, identity)
    sentence = _dismiss(request, tx, known, because) if known is not None else None
    return [] if sentence is None else [{"incident": identity, "sentence": sentence}]


def _dismiss(request: Request, tx: ProjectTransaction, known: Incident, because: str) -> str | None:
    """Return the sentence about it; None if the alarm is not held."""
    sentence = f"{known.sentence}; dismissed by {request.caller}: {plain(because)}"
    if known.decision != Decision.HELD or not incidents.dismiss(tx, known.id, sentence):
        return None
    if known.group_id is not None:
        tx.journal(known.group_id, f"DISMISSED: {sentence}", kind=JournalKind.DISMISSED)
    return sentence


def dismiss(request: Request, identities: tuple[str, ...], because: str) -> DismissedAlarms:
    """Dismiss held alarms, one after the other; the user and the reason are recorded.

    The first digits of an id are enough. Of a host event its held children are dismissed. Raises
    ActionError UNKNOWN_ID, AMBIGUOUS_ID, NOT_HELD.
    """
    if not identities:
        raise ActionError(
            "BAD_INPUT",
            "incident: at least one id is needed",
            "To list the held alarms: failover alarms.",
        )
    dismissed = []
    for identity in identities:
        for each in request.store.reading(partial(_meant, request, identity)):
            step = partial(_dismissed, request, each, because)
            dismissed.append(request.store.atomically(step))
    return {"dismissed": dismissed}


def _meant(request: Request, said: str, tx: ProjectTransaction) -> list[str]:
    """Return the id itself, or of a host event the ids of its held children."""
    identity = find_by_short_id(request, tx, said, kind="incident").id
    known = incidents.get(tx, identity)
    if known is None or not known.is_host_event:
        return [identity]
    held = [
        child.id
        for child, _ in incidents.children_of(tx, identity)
        if child.decision == Decision.HELD
    ]
    return held or [identity]


def _dismissed(request: Request, said: str, because: str, tx: ProjectTransaction) -> DismissedAlarm:
    identity = find_by_short_id(request, tx, said, kind="incident").id
    known = incidents.get(tx, identity)
    if known is None:  # its group was forgotten at this moment
        raise unknown(said, kind="incident")
    if known.decision == Decision.DISMISSED:
        return {"incident": identity, "sentence": known.sentence}
    sentence = _dismiss(request, tx, known, because)
    if sentence is None:
        raise _not_held(known)
    return {"incident": identity, "sentence": sentence}


def _not_held(known: Incident) -> ActionError:
    return ActionError(
        "NOT_HELD",
        f"incident {known.id} is {known.decision} and not held: {known.sentence}",
        "To list the held alarms: failover alarms.",
    )


def lost_fact(incident: Incident) -> list[str] | None:
    """Return the members that an alarm reports as lost, in the form that orders take; None if it
    names none."""
    return list(incident.fact.lost) or None


def _row(held: incidents.HeldIncident) -> HeldAlarmRow:
    incident, group = held.incident, held.group
    words = commands(incident, group)
    return {
        "incident": incident.id,
        "group": group,
        "lost": lost_fact(incident),
        "sentence": incident.sentence,
        "rule": incident.rule,
        "source": incident.source,
        "heard": incident.duplicates + 1,
        "first_at": incident.first_at,
        "last_at": incident.last_at,
        "host": incident.fact.host,
        "zone": incident.fact.zone,
        "children": held.children,
        "evidence": incident.fact.evidence or None,
        "admit": words["admit"],
        "dismiss": words["dismiss"],
    }


def commands(incident: Incident, group: str | None) -> dict[str, str]:
    """Return the commands that ``admit`` and ``dismiss`` a held alarm; words in capitals are for
    the operator to fill in. ``group``: its name, None if it is not known."""
    more = []
    if group is None and not incident.is_host_event:
        more += ["--group", "GROUP"]
    lost = incident.fact.lost
    if (not lost or group is None) and not incident.is_host_event:
        more += [word for member in lost or ("MEMBER",) for word in ("--lost", member)]
    because = ["--because", "WHY"]
    return {
        "admit": shlex.join(["failover", "admit", incident.id, *more, *because]),
        "dismiss": shlex.join(["failover", "dismiss", incident.id, *because]),
    }
