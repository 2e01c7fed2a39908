# SPDX-License-Identifier: Apache-2.0
"""Turn an alarm into an incident, and an admitted incident into a traversal."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Sequence
from dataclasses import replace
from shlex import quote
from typing import Any

from sqlalchemy.exc import DBAPIError

from mistral_failover.alarms import held_alarms, host_events, recording
from mistral_failover.alarms.admission import Verdict
from mistral_failover.alarms.alarm import Alarm
from mistral_failover.alarms.held_alarms import Selection
from mistral_failover.alarms.recording import Recorded
from mistral_failover.fault_points import reach
from mistral_failover.groups.snapshot import GroupSnapshot, locked
from mistral_failover.model.goal import Goal
from mistral_failover.model.ids import derived_id
from mistral_failover.orders import failover
from mistral_failover.orders.failover import FailoverRequest
from mistral_failover.runtime.caller import caller_name
from mistral_failover.runtime.errors import ActionError, describe
from mistral_failover.runtime.process import Request
from mistral_failover.runtime.remedies import start_command
from mistral_failover.runtime.short_ids import identified, unknown
from mistral_failover.store import groups, incidents
from mistral_failover.store.incidents import OPERATOR, Incident
from mistral_failover.store.tables import Decision
from mistral_failover.store.transaction import SqlTransaction

LOG = logging.getLogger(__name__)


class NothingToDo(Exception):  # noqa: N818 - no error
    """The requested state is already reached; the text says why."""


def on_alarm(
    request: Request, alarm: Alarm, group: str | None, member: str | None
) -> dict[str, Any]:
    """Decide on an alarm and, once, start the failover that it requests.

    ``group`` and ``member`` name the subject of the alarm. Without them the alarm names it; if it
    does not, the active member is meant. Return the result of :func:`failover.begin` and decision,
    sentence and incident; ``workflow`` is None if there is nothing to start.
    """
    reach("admit.before")
    recorded = recording.record(request, alarm, group, member)
    reach("admit.after")
    return _begun(request, recorded)


def on_event(
    request: Request, alarms: Sequence[Alarm], group: str | None, member: str | None
) -> dict[str, Any]:
    """Decide on every alarm of one body, and then start the failovers that they request.

    All alarms are recorded before the first failover starts, so if the process dies after that, a
    sweep finds all of them. The failure of a host has one decision for the host and one for each
    group with members there. Groups with a higher priority start first.

    Return ``admissions``, for each decision the result of :func:`on_alarm`; ``started``, the ones
    with a traversal to carry out; and ``refused``, the ones that were admitted but have an
    ``error`` and no traversal. One that cannot start does not stop the others.
    """
    reach("admit.before")
    recorded: list[Recorded] = []
    for alarm in alarms:
        if alarm.host is not None and not (member or alarm.member):
            recorded += host_events.record(request, alarm, group or alarm.group)
        else:
            recorded.append(recording.record(request, alarm, group, member))
        reach("admit.next")
    reach("admit.after")
    order = _by_priority(request, recorded)
    answers: dict[int, dict[str, Any]] = {}
    begun: set[str] = set()
    for number in order:
        each = recorded[number]
        if each.begin is not None and each.begin.id in begun:
            each = replace(each, begin=None)  # two alarms report the same fact
        elif each.begin is not None:
            begun.add(each.begin.id)
        answers[number] = _begun_or_refused(request, each)
    return {
        "admissions": [answers[number] for number in sorted(answers)],
        "started": [answers[number] for number in order if answers[number]["workflow"]],
        "refused": [answers[number] for number in order if "error" in answers[number]],
    }


def start_admitted(request: Request, identities: Sequence[str]) -> dict[str, Any]:
    """Start the traversals of alarms that were admitted elsewhere, those of groups with a higher
    priority first.

    Return ``started`` and ``refused`` as :func:`on_event` does. An incident is in neither if
    another execution has started it, or if it is not admitted any more.
    """

    def read(tx: SqlTransaction) -> list[Incident]:
        found = (incidents.get(tx, request.project_id, each) for each in identities)
        return [each for each in found if each is not None and _is_to_start(request, each)]

    recorded = [
        Recorded(Verdict(each.decision, each.sentence, each.rule), each.id, begin=each)
        for each in request.runtime.database.reading(read)
    ]
    order = _by_priority(request, recorded)
    answers = [_begun_or_refused(request, recorded[number]) for number in order]
    return {
        "started": [answer for answer in answers if answer["workflow"]],
        "refused": [answer for answer in answers if "error" in answer],
    }


def _is_to_start(request: Request, incident: Incident) -> bool:
    """Return whether this execution starts an incident. If it did so before and its executor died,
    it does so again, and continues the same traversal."""
    if incident.decision != Decision.ADMITTED or incident.source == OPERATOR:
        return False
    if incident.group_id is None:
        return False
    return incident.traversal_id is None or incident.execution == request.execution is not None


def _by_priority(request: Request, recorded: Sequence[Recorded]) -> Sequence[int]:
    """Return the indexes of these decisions in the order in which their failovers start."""
    if sum(each.begin is not None for each in recorded) < 2:
        return range(len(recorded))
    of = request.runtime.database.reading(lambda tx: groups.priorities(tx, request.project_id))

    def priority(number: int) -> int:
        begin = recorded[number].begin
        return of.get(begin.group_id or "", 0) if begin is not None else 0

    return sorted(range(len(recorded)), key=lambda number: -priority(number))


def _begun(request: Request, recorded: Recorded) -> dict[str, Any]:
    verdict = recorded.verdict
    answer: dict[str, Any] = {
        "decision": verdict.decision,
        "sentence": verdict.sentence,
        "incident": recorded.incident,
    }
    if recorded.begin is None:
        return answer | {"traversal": recorded.traversal, "workflow": None}
    return start(request, recorded.begin) | answer


def _begun_or_refused(request: Request, recorded: Recorded) -> dict[str, Any]:
    try:
        return _begun(request, recorded)
    except Exception as error:  # noqa: BLE001 - one group's error must not stop the others
        return _begun(request, replace(recorded, begin=None)) | {"error": describe(error)}


def start(request: Request, incident: Incident) -> dict[str, Any]:
    """Start the traversal of an admitted incident, unless it was started before.

    Raises what :func:`failover.begin` raises; ActionError NOT_IN_SERVICE if the group was taken out
    of service after the alarm was admitted.
    """
    derive = failover.moving(request, _facts_in(incident))
    if "asked_for" not in incident.fact:  # only an operator may activate the group
        derive = _in_service(derive)
    return failover.begin(
        request, incident.fact["group"], derive, incident_id=incident.id, cause=incident.sentence
    )


def _in_service(derive: failover.Derive) -> failover.Derive:
    """Derive only if the group has a goal that assigns roles. Admission checked this, but some time
    ago, and the goal is derived again whenever another one was given in between."""

    def checked(snapshot: GroupSnapshot) -> Goal:
        if not snapshot.roles:
            raise ActionError(
                "NOT_IN_SERVICE",
                f"{snapshot.group.name} was taken out of service",
                "To activate it again: failover group activate",
            )
        return derive(snapshot)

    return checked


def by_hand(
    request: Request, group: str, facts: FailoverRequest, *, incident_id: str | None, cause: str
) -> dict[str, Any]:
    """Start the failover that an operator requests, or one that was held. No rule of admission
    applies: the operator decides.

    The first digits of the incident's id are enough. Raises ActionError UNKNOWN_ID if it is not an
    incident of the group, AMBIGUOUS_ID, NOT_AN_ALARM for an order, and what :func:`failover.begin`
    raises.
    """
    if incident_id is None:
        asked_for = {"to": facts.to, "lost": facts.lost}
        return ordered(request, group, failover.moving(request, facts), asked_for, cause)

    def admitted(tx: SqlTransaction) -> Incident:
        state = locked(request, tx, group)
        identity = identified(request, tx, incident_id, kind="incident").id
        known = incidents.get(tx, request.project_id, identity)
        if known is not None and known.group_id is None:
            # Its group was unknown, and now an operator names it.
            known = replace(known, group_id=state.id, fact={**known.fact, "group": group})
            if not incidents.adopt(tx, identity, state.id):
                known = incidents.get(tx, request.project_id, identity)
        if known is None or known.group_id != state.id:
            raise unknown(incident_id, group, "incident")
        if known.source == OPERATOR:
            # An order does not say which member is lost: the members that hold roles may be
            # healthy.
            raise ActionError(
                "NOT_AN_ALARM",
                f"incident {identity} is not an alarm but an operator's order",
                f"To see its result: failover status {quote(group)}. To declare a member lost: "
                f"{start_command(group)} --lost MEMBER",
            )
        if known.decision != "ADMITTED":
            said = _completed(known, facts)  # what cannot be started is not admitted
            # Record the whole request, because a sweep may have to start it.
            asked_for = {"to": said.to, "lost": said.lost, "recovered": said.recovered}
            fact = {**known.fact, "asked_for": asked_for}
            sentence = f"{known.sentence}; nevertheless admitted by {caller_name(request)}: {cause}"
            incidents.decide(tx, known.id, Decision.ADMITTED, sentence, fact)
            tx.journal(state.id, f"ADMITTED: {sentence}", kind="admitted", incident_id=known.id)
        return known

    incident = request.runtime.database.atomically(admitted)
    reach("held.after")
    derive = failover.moving(request, _completed(incident, facts))
    answer = failover.begin(request, group, derive, incident_id=incident.id, cause=cause)
    return answer | {"incident": incident.id}


def admit_held(
    request: Request, selection: Selection, because: str, limit: int
) -> dict[str, list[Any] | int]:
    """Admit held alarms, by an operator's decision, and start their failovers: at most ``limit``,
    those of groups with a higher priority first.

    An alarm that names no group or no member is left out: an operator has to say whom it means.
    Return ``admitted``, for each the result of :func:`failover.begin` and its ``incident``;
    ``refused``, for each ``incident``, ``group`` and ``error``; and ``left``, the number of alarms
    that another call would admit. Raises what :func:`held_alarms.selected` raises.
    """
    database = request.runtime.database
    waiting = database.reading(lambda tx: held_alarms.selected(request, tx, selection))
    waiting = [each for each in waiting if incidents.reported_lost(each.incident)]
    admitted: list[Any] = []
    refused: list[Any] = []
    for each in waiting[:limit]:
        try:
            answer = by_hand(
                request,
                each.group,
                FailoverRequest(),
                incident_id=each.incident.id,
                cause=because,
            )
            admitted.append(answer)
        except Exception as error:  # noqa: BLE001 - one group's error must not stop the others
            row = {"incident": each.incident.id, "group": each.group}
            refused.append(row | {"error": describe(error)})
    return {"admitted": admitted, "refused": refused, "left": max(0, len(waiting) - limit)}


def ordered(
    request: Request,
    group: str,
    derive: failover.Derive,
    asked_for: dict[str, Any],
    cause: str,
    occasion: str | None = None,
) -> dict[str, Any]:
    """Start the traversal that an operator orders, as an incident of its own.

    The Mistral execution identifies the order, unless another ``occasion`` is given: if it runs
    again, nothing is started twice. ``asked_for`` is stored with the incident. Raises what
    :func:`failover.begin` raises.
    """
    occasion = occasion or _occasion(request)

    fact = {"group": group, **asked_for}

    def record(tx: SqlTransaction) -> str:
        state = locked(request, tx, group)
        identity = order_id(request.project_id, state.id, occasion)
        known = incidents.get(tx, request.project_id, identity)
        if known is not None and known.decision in ("REFUSED", "IGNORED"):
            incidents.decide(tx, identity, Decision.ADMITTED, cause, fact)  # it is tried again
        if known is None:
            order = Incident(
                identity, request.project_id, state.id, OPERATOR, fact, {}, Decision.ADMITTED, cause
            )
            incidents.add(tx, order)
        return identity

    incident_id = request.runtime.database.atomically(record)
    reach("order.after")
    try:
        answer = failover.begin(request, group, derive, incident_id=incident_id, cause=cause)
    except Exception as error:
        _refused(request, incident_id, cause, error)
        raise
    return answer | {"incident": incident_id}


def _refused(request: Request, incident_id: str, cause: str, error: Exception) -> None:
    """Record that an order did not start, so that it does not look as if it still waits. If the
    same execution repeats it, it may still start."""
    if isinstance(error, NothingToDo):
        decision, why = Decision.IGNORED, str(error)
    else:
        facts = describe(error)
        if facts["code"] == "UNEXPECTED":  # not a refusal: an unexpected error, at an unknown point
            return
        decision, why = Decision.REFUSED, f"refused: {facts['message']} [{facts['code']}]"

    def refuse(tx: SqlTransaction) -> None:
        known = incidents.get(tx, request.project_id, incident_id)
        if known is None or known.decision != "ADMITTED" or known.traversal_id is not None:
            return
        assert known.group_id is not None  # every admitted incident has a group
        # Another delivery of it may have begun it without recording that yet.
        state = tx.lock_group(known.group_id, shared=False)
        if state is None or tx.traversal(failover.traversal_of(state.id, incident_id)) is not None:
            return
        sentence = f"{cause}; {why}"
        incidents.decide(tx, incident_id, decision, sentence)
        tx.journal(known.group_id, f"{decision}: {sentence}", kind=decision.lower())

    try:
        request.runtime.database.atomically(refuse)
    except DBAPIError:
        LOG.warning("Could not record that order %s was refused", incident_id, exc_info=True)


def order_id(project_id: str, group_id: str, occasion: str) -> str:
    """Return the incident id of an order that was given on this occasion."""
    return derived_id("incident", project_id, group_id, occasion)


def _occasion(request: Request) -> str:
    execution = request.context.execution
    # An action that runs outside of an execution has no id, so its repeats cannot be recognised.
    return execution.workflow_execution_id or execution.action_execution_id or str(uuid.uuid4())


def _facts_in(incident: Incident) -> FailoverRequest:
    """Return the facts of an admitted alarm, or those of the operator who admitted it. Raises
    ActionError BAD_INPUT."""
    said = incident.fact.get("asked_for")
    if said is None:
        return FailoverRequest(lost=_lost_in(incident), heal=True)
    return FailoverRequest(said["to"], tuple(said["lost"]), tuple(said["recovered"]), heal=True)


def _completed(incident: Incident, facts: FailoverRequest) -> FailoverRequest:
    """Return an operator's facts about an alarm. If they do not name the lost members, the alarm's
    are used. Raises ActionError BAD_INPUT."""
    lost = facts.lost if facts.lost is not None else _lost_in(incident)
    return replace(facts, lost=lost, heal=True)


def _lost_in(incident: Incident) -> tuple[str, ...]:
    """Return the members of an alarm's incident. Raises ActionError BAD_INPUT."""
    lost = incidents.reported_lost(incident)
    if not lost:
        raise ActionError(
            "BAD_INPUT",
            f"lost: incident {incident.id} does not say which member is lost",
            "Give lost, the list of the lost members.",
        )
    return lost
