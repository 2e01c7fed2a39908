# SPDX-License-Identifier: Apache-2.0
"""Forgetting a group that is out of service: the end of its life."""

from __future__ import annotations

from typing import Any

from mistral_failover.alarms import held_alarms
from mistral_failover.groups.snapshot import locked
from mistral_failover.mistral import event_hooks
from mistral_failover.model.group import INTERNAL_TYPES
from mistral_failover.runtime.caller import caller_name
from mistral_failover.runtime.errors import ActionError
from mistral_failover.runtime.process import Request
from mistral_failover.store import group_removal, groups, incidents
from mistral_failover.store.transaction import SqlTransaction

_SHOWN = 5


def undefine(request: Request, group: str) -> dict[str, Any]:
    """Forget a group of which nothing is left anywhere: its definition, goals and history.

    Its workflow is told first what it was not told yet; what it can not be told then it never is.
    Alarms of it that wait for a person are not lost: they are held from then on as alarms of a
    group that nobody knows. Its members' epochs are kept, for a group that is defined again under
    this name. Returns ``group``, ``sentence``, and ``held``: of each such alarm ``incident``,
    ``lost`` and ``sentence``. Raises UnknownGroup, ActionError IN_SERVICE.
    """

    def forget(tx: SqlTransaction) -> list[dict[str, Any]]:
        state = locked(request, tx, group)
        _refuse_in_service(tx, state, group)
        told = []
        for alarm in incidents.waiting(tx, state.id):
            sentence = f"{alarm.sentence}; its group {group} was deleted by {caller_name(request)}"
            group_removal.orphan(tx, alarm.id, sentence)
            told.append(
                {"incident": alarm.id, "lost": held_alarms.lost(alarm), "sentence": sentence}
            )
        group_removal.forget(tx, state.id)
        return told

    found = request.runtime.database.reading(lambda tx: groups.find(tx, request.project_id, group))
    if found is not None:
        event_hooks.send_last(request, found.id)
    held = request.runtime.database.atomically(forget)
    sentence = f"{group} is forgotten"
    if held:
        sentence += f"; {len(held)} of its alarms stay held: failover alarms lists them"
    return {"group": group, "sentence": sentence, "held": held}


def _refuse_in_service(tx: SqlTransaction, state: Any, group: str) -> None:
    """What is left somewhere needs the group's records to be found and taken away."""
    remedy = f"Take it out of service first: failover.remove (failover group delete {group} does)."
    traversal = tx.traversal(state.current_traversal) if state.current_traversal else None
    if traversal is not None and traversal.status == "IN_PROGRESS":
        raise ActionError("IN_SERVICE", f"{group} is on its way to a goal", remedy)
    # Fences and the like are the engine's own notes: nothing of the group's hangs on them.
    left = [each.name for each in tx.records(state.id) if each.type not in INTERNAL_TYPES]
    if left:
        more = ", ..." if len(left) > _SHOWN else ""
        raise ActionError(
            "IN_SERVICE", f"there is left of {group}: {', '.join(left[:_SHOWN])}{more}", remedy
        )
    goal = tx.goal(state.id, traversal.goal_version) if traversal is not None else None
    if goal is not None and goal.document["roles"]:
        raise ActionError("IN_SERVICE", f"{group} has a goal that gives roles", remedy)
