# SPDX-License-Identifier: Apache-2.0
"""From an alarm to an incident, and from an admitted one to a traversal."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import Any

from mistral_failover.actions import starting
from mistral_failover.actions.errors import ActionError
from mistral_failover.actions.runtime import Request
from mistral_failover.actions.starting import Facts
from mistral_failover.alarms.admission import HOUR, Situation, Verdict, admit
from mistral_failover.alarms.payloads import Alarm
from mistral_failover.convergence.errors import UnknownGroup
from mistral_failover.convergence.records import GroupState
from mistral_failover.convergence.traversals import derived_id
from mistral_failover.fault_points import reach
from mistral_failover.store import groups, incidents
from mistral_failover.store.incidents import OPERATOR, Incident


def on_alarm(
    request: Request, alarm: Alarm, group: str | None, member: str | None
) -> dict[str, Any]:
    """Decide on an alarm and, once, start the failover that it asks for.

    ``group`` and ``member`` say whom it is about; without them the server that the alarm names
    does, and without that the active member. Returns what :func:`starting.begin` does, plus
    decision, sentence and incident.
    """
    reach("admit.before")
    incident, verdict = request.runtime.database.atomically(
        lambda tx: _record(request, tx, alarm, group, member)
    )
    reach("admit.after")
    answer: dict[str, Any] = {"decision": verdict.decision, "sentence": verdict.sentence}
    if incident is None:
        return answer | {"incident": None, "traversal": None, "ready": []}
    answer["incident"] = incident.id
    # A repeat of an incident whose first delivery died before its traversal carries on for it.
    # What a person asked for is carried on by their own execution.
    if (
        incident.decision != "ADMITTED"
        or incident.source == OPERATOR
        or (verdict.decision != "ADMITTED" and incident.traversal_id is not None)
    ):
        return answer | {"traversal": incident.traversal_id, "ready": []}
    return start(request, incident) | answer


def start(request: Request, incident: Incident) -> dict[str, Any]:
    """Start the traversal of an admitted incident, unless it has been."""
    derive = starting.moving(request, _facts_in(incident))
    return starting.begin(
        request, incident.fact["group"], derive, incident_id=incident.id, cause=incident.sentence
    )


def by_hand(
    request: Request, group: str, facts: Facts, *, incident_id: str | None, cause: str
) -> dict[str, Any]:
    """Start the failover that a person asks for, or one that was held back.

    Raises ActionError UNKNOWN_INCIDENT for an id that is no incident of the group, and what
    :func:`starting.begin` raises.
    """
    if incident_id is None:
        asked_for = {"to": facts.to, "lost": facts.lost}
        return ordered(request, group, starting.moving(request, facts), asked_for, cause)

    def admitted(tx: Any) -> Incident:
        state = _locked(request, tx, group)
        known = incidents.get(tx, request.project_id, incident_id)
        if known is None or known.group_id != state.id:
            raise ActionError(
                "UNKNOWN_INCIDENT",
                f"{group} has no incident {incident_id}",
                "failover.status lists the group's incidents.",
            )
        if known.decision != "ADMITTED":
            said = _completed(known, facts)  # what can not be started is not admitted
            # With all that was said, since a sweep may have to start it.
            asked_for = {"to": said.to, "lost": said.lost, "recovered": said.recovered}
            fact = {**known.fact, "asked_for": asked_for}
            sentence = f"{known.sentence}; admitted: {cause}"
            incidents.decide(tx, known.id, "ADMITTED", sentence, fact)
        return known

    incident = request.runtime.database.atomically(admitted)
    reach("held.after")
    if incident.source != OPERATOR:
        facts = _completed(incident, facts)
    derive = starting.moving(request, facts)
    answer = starting.begin(request, group, derive, incident_id=incident.id, cause=cause)
    return answer | {"incident": incident.id}


def ordered(
    request: Request, group: str, derive: starting.Derive, asked_for: dict[str, Any], cause: str
) -> dict[str, Any]:
    """Start the traversal that a person orders, as an incident of its own.

    The Mistral execution is the occasion: run again, it starts nothing twice. ``asked_for`` is
    kept with the incident. Raises what :func:`starting.begin` raises.
    """
    execution = request.context.execution
    # An action that runs outside of an execution has no id, so no repeat of it is known as one.
    occasion = execution.workflow_execution_id or execution.action_execution_id or str(uuid.uuid4())

    def record(tx: Any) -> str:
        state = _locked(request, tx, group)
        identity = derived_id("incident", request.project_id, state.id, occasion)
        if incidents.get(tx, request.project_id, identity) is None:
            fact = {"group": group, **asked_for}
            order = Incident(
                identity, request.project_id, state.id, OPERATOR, fact, {}, "ADMITTED", cause
            )
            incidents.add(tx, order)
        return identity

    incident_id = request.runtime.database.atomically(record)
    reach("order.after")
    answer = starting.begin(request, group, derive, incident_id=incident_id, cause=cause)
    return answer | {"incident": incident_id}


def _locked(request: Request, tx: Any, group: str) -> GroupState:
    """The group, which nobody else gives a goal meanwhile. Raises UnknownGroup."""
    state = groups.find(tx, request.project_id, group)
    if state is None:
        raise UnknownGroup(group)
    tx.lock_group(state.id, shared=False)
    return state


def _facts_in(incident: Incident) -> Facts:
    """What an admitted alarm says, or the person who admitted it. Raises ActionError BAD_INPUT."""
    said = incident.fact.get("asked_for")
    if said is None:
        return Facts(lost=(_lost_in(incident),))
    return Facts(said["to"], tuple(said["lost"]), tuple(said["recovered"]))


def _completed(incident: Incident, facts: Facts) -> Facts:
    """What a person says of an alarm; who is lost says the alarm, unless they do. Raises
    ActionError BAD_INPUT."""
    return facts if facts.lost is not None else replace(facts, lost=(_lost_in(incident),))


def _lost_in(incident: Incident) -> str:
    """The member that an alarm's incident is about. Raises ActionError BAD_INPUT."""
    lost: str | None = incident.fact["lost"]
    if lost is None:
        raise ActionError(
            "BAD_INPUT",
            f"lost: incident {incident.id} does not say which member is lost",
            "Give lost, the list of the members that are.",
        )
    return lost


def _record(
    request: Request, tx: Any, alarm: Alarm, group: str | None, member: str | None
) -> tuple[Incident | None, Verdict]:
    """Decide and write it down, one alarm of a group after the other."""
    strangers = alarm.servers if group is None or member is None else ()
    for server in strangers:
        behind = groups.member_behind(tx, request.project_id, server)
        if behind is not None and group in (None, behind[0]):
            group, member, strangers = behind[0], member or behind[1], ()
            break
    state = groups.find(tx, request.project_id, group) if group else None
    if state is None:
        whom = f"there is no group {group} in this project" if group else "no group is concerned"
        return None, Verdict("IGNORED", f"{alarm.sentence}: {whom}")
    state = tx.lock_group(state.id, shared=False)
    stands = starting.standing_of(request, tx, state)
    member_named = member is not None
    member = member or next(iter(stands.roles.values()), None)
    # The same words may be said of the next life of a member; an event happens once.
    epoch = 0 if alarm.unique else tx.epochs(state.id).get(member or "", 0)
    identity = derived_id("incident", request.project_id, state.id, alarm.key, str(epoch))
    known = incidents.get(tx, request.project_id, identity)
    now = tx.now()
    situation = Situation(
        group=stands.group.name,
        member=member,
        in_service=bool(stands.roles),
        strangers=() if member_named else strangers,
        known=known is not None and known.decision != "HELD",
        lost=stands.lost,
        admitted=incidents.admitted_alarms_since(tx, state.id, now - HOUR),
        limits=stands.group.limits,
        now=now,
    )
    verdict = admit(alarm, situation)
    # Of a server that nobody knows it is not said whose loss it is.
    fact = {"group": stands.group.name, "lost": None if situation.strangers else member}
    if known is not None:
        incidents.count_duplicate(tx, known.id)
        if known.decision == "HELD" and verdict.decision == "ADMITTED":
            incidents.decide(tx, known.id, verdict.decision, verdict.sentence, fact)
            tx.journal(state.id, f"ADMITTED: {verdict.sentence}", kind="admitted")
            known = replace(known, decision=verdict.decision, sentence=verdict.sentence, fact=fact)
        return known, verdict
    if verdict.decision == "DUPLICATE":
        return _count_on_current(request, tx, state.current_traversal), verdict
    incident = Incident(
        identity,
        request.project_id,
        state.id,
        alarm.source,
        fact,
        alarm.payload,
        verdict.decision,
        verdict.sentence,
    )
    incidents.add(tx, incident)
    kind = verdict.decision.lower()
    tx.journal(state.id, f"{verdict.decision}: {verdict.sentence}", kind=kind)
    reach("admit.recorded")
    return incident, verdict


def _count_on_current(request: Request, tx: Any, current: str | None) -> Incident | None:
    """Another alarm about a known fact counts on the incident that the traversal is about."""
    traversal = tx.traversal(current) if current else None
    incident_id = traversal.incident_id if traversal else None
    if incident_id is None:
        return None
    incidents.count_duplicate(tx, incident_id)
    return incidents.get(tx, request.project_id, incident_id)
