# SPDX-License-Identifier: Apache-2.0
"""The end of a group's life: delete it once it is out of service, or release what it protects."""

from __future__ import annotations

from shlex import quote

from mistral_failover.convergence.records import GroupState, TraversalStatus
from mistral_failover.groups.snapshot import locked
from mistral_failover.mistral import event_hooks
from mistral_failover.model.decisions import Decision
from mistral_failover.model.goal import vacant_roles
from mistral_failover.model.group import INTERNAL_TYPES
from mistral_failover.model.text import counted
from mistral_failover.orders import held_alarms
from mistral_failover.orders.answers import DeletedGroup, EndedAlarm
from mistral_failover.runtime.errors import ActionError
from mistral_failover.runtime.request import Request
from mistral_failover.store import groups, incidents, rehearsals
from mistral_failover.store.transaction import ProjectTransaction

_SHOWN = 5


def undefine(request: Request, group: str, *, release: bool = False) -> DeletedGroup:
    """Delete a group: its definition, goals and history. Nothing in the cloud is changed.

    Without ``release`` the group must have nothing left in the cloud. With it, what the group has
    there stays as it is, and its application keeps running. So it must be at rest, and no member
    may be lost: the fence would stay, too, and no group would be there to lift it.

    First its workflow receives its pending events; an event that cannot be sent then is never sent.
    Its alarms that wait are dismissed: there is nothing that they could start any more. One that is
    delivered again is judged anew, as one of an unknown group. Its members' epochs are kept, for a
    group that is defined again under this name.
    Raises UnknownGroup, ActionError IN_SERVICE; with ``release`` NOT_AT_REST instead.
    """
    refuse = _refuse_at_work if release else _refuse_in_service

    ended = f"{group} was {'released' if release else 'deleted'} by {request.caller}"

    def forget(tx: ProjectTransaction) -> list[EndedAlarm]:
        state = locked(request, tx, group)
        refuse(tx, state, group)
        _refuse_rehearsed(tx, state, group)
        told: list[EndedAlarm] = []
        for alarm in incidents.waiting(tx, state.id):
            sentence = f"{alarm.sentence}; dismissed, since {ended}"
            incidents.decide(tx, alarm.id, Decision.DISMISSED, sentence)
            told.append(
                {"incident": alarm.id, "lost": held_alarms.lost_fact(alarm), "sentence": sentence}
            )
        groups.forget(tx, state.id)
        return told

    found = request.store.reading(lambda tx: groups.find(tx, group))
    if found is not None:
        event_hooks.send_last(request, found.id)
    dismissed = request.store.atomically(forget)
    sentence = f"{group} was deleted"
    if release:
        sentence = f"{group} is no longer protected; everything stays as it is"
    if dismissed:
        sentence += f"; {counted(len(dismissed), 'alarm')} about it dismissed"
    return {"group": group, "sentence": sentence, "dismissed": dismissed}


def _refuse_at_work(tx: ProjectTransaction, state: GroupState, group: str) -> None:
    """Refuse while something is being changed in the cloud, or a member is fenced."""
    name = quote(group)
    traversal = tx.traversal(state.current_traversal) if state.current_traversal else None
    busy = [each.name for each in tx.records(state.id) if each.held_at(tx.now())]
    if busy or (traversal is not None and traversal.status == TraversalStatus.IN_PROGRESS):
        raise ActionError(
            "NOT_AT_REST",
            f"{group} is being changed" + (f": {', '.join(busy[:_SHOWN])}" if busy else ""),
            f"Wait for the end: failover watch {name}",
        )
    goal = tx.goal(state.id, traversal.goal_version) if traversal is not None else None
    if goal is not None and goal.document["lost"]:
        lost = goal.document["lost"]
        raise ActionError(
            "NOT_AT_REST",
            f"{', '.join(lost)} of {group} is declared lost, and its fence would stay",
            f"Once it is healthy: failover recover {name} {' '.join(map(quote, lost))}",
        )


def _refuse_rehearsed(tx: ProjectTransaction, state: GroupState, group: str) -> None:
    """Refuse while a rehearsal has something in the cloud, which is found by its records only."""
    if rehearsals.unfinished(tx, state.id):
        raise ActionError(
            "NOT_AT_REST",
            f"a rehearsal of {group} has not been cleaned up yet",
            f"Wait for its end: failover rehearsals {quote(group)}",
        )


def _refuse_in_service(tx: ProjectTransaction, state: GroupState, group: str) -> None:
    """Refuse while something is left in the cloud: without the group's records it cannot be found
    and removed."""
    remedy = (
        f"Take it out of service first: run failover.remove (failover group delete {group} does "
        "so)."
    )
    traversal = tx.traversal(state.current_traversal) if state.current_traversal else None
    if traversal is not None and traversal.status == TraversalStatus.IN_PROGRESS:
        raise ActionError("IN_SERVICE", f"a failover of {group} is in progress", remedy)
    # Fences and the like are the engine's own records; they leave nothing of the group in the
    # cloud.
    left = [each.name for each in tx.records(state.id) if each.type not in INTERNAL_TYPES]
    if left:
        more = ", ..." if len(left) > _SHOWN else ""
        raise ActionError(
            "IN_SERVICE", f"{group} still has resources: {', '.join(left[:_SHOWN])}{more}", remedy
        )
    goal = tx.goal(state.id, traversal.goal_version) if traversal is not None else None
    if goal is not None and (goal.document["roles"] or vacant_roles(goal)):
        raise ActionError("IN_SERVICE", f"{group} has a goal that assigns roles", remedy)
