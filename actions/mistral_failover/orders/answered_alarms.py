# SPDX-License-Identifier: Apache-2.0
"""The open alarms that a new goal answers: their members are declared lost in it, get another
server, or are declared healthy. Each is closed with who did so and why, as a new alarm about the
same would be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from mistral_failover.convergence.records import JournalKind
from mistral_failover.model.decisions import AdmissionRule, Decision
from mistral_failover.model.goal import REPLACE_TYPE, Goal, goal_resources
from mistral_failover.runtime.request import Request
from mistral_failover.store import incidents
from mistral_failover.store.incidents import OPERATOR, Incident
from mistral_failover.store.transaction import ProjectTransaction


def close(
    request: Request, tx: ProjectTransaction, group_id: str, goal: Goal, cause: Incident
) -> None:
    """Close the waiting alarms of a group that ``goal`` answers; ``cause``: the incident from which
    the goal follows. The group is locked. An alarm that names no member stays: what it is about is
    not known."""
    now = _said(goal, cause)
    for alarm in incidents.waiting(tx, group_id):
        if alarm.id == cause.id or not alarm.lost or not now.keys() >= set(alarm.lost):
            continue
        told = {member: now[member] for member in alarm.lost}
        said = ", ".join(f"{member} {words}" for member, words in told.items())
        by = (
            f"by {request.caller}: {cause.sentence}" if cause.source == OPERATOR else cause.sentence
        )
        sentence = f"{alarm.fact.reported or alarm.sentence}; answered, since {said}, {by}"
        # What it reports is in force; a member that was declared healthy is not lost.
        known = any(words != _HEALTHY for words in told.values())
        decision = Decision.DUPLICATE if known else Decision.DISMISSED
        incidents.decide(
            tx,
            alarm.id,
            decision,
            sentence,
            replace(alarm.fact, refusal=""),
            alarm.order,
            rule=AdmissionRule.KNOWN_FACT if known else AdmissionRule.NONE,
            duplicate_of=cause.id if known else None,
        )
        tx.journal(
            group_id,
            f"{decision}: {sentence}",
            kind=JournalKind(decision.lower()),
            incident_id=alarm.id,
        )


_HEALTHY = "was declared healthy"


def _said(goal: Goal, cause: Incident) -> Mapping[str, str]:
    """Return in words what became of each member that the goal or its order says something of."""
    recovered = cause.order.recovered if cause.order is not None else ()
    going = [str(r.properties["member"]) for r in goal_resources(goal, REPLACE_TYPE)]
    return {
        **dict.fromkeys(recovered, _HEALTHY),
        **dict.fromkeys(goal.document["lost"], "is declared lost"),
        **dict.fromkeys(going, "gets another server"),
    }
