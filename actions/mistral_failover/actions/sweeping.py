# SPDX-License-Identifier: Apache-2.0
"""Going on after a stop: what a crash left lying, and what waited for a person.

Nothing is carried out here: nodes are found and handed to the workflow that works them off.
"""

from __future__ import annotations

from typing import Any

from mistral_failover.actions import admitting, starting
from mistral_failover.actions.documents import ready_document
from mistral_failover.actions.errors import ActionError, describe
from mistral_failover.actions.runtime import Request
from mistral_failover.store import groups, incidents

STALE = 600.0
"""Seconds after which an incident that could not be started waits for a person: what it said may
not be true any more."""


def sweep(request: Request, group: str | None) -> dict[str, Any]:
    """Find the ready nodes that nobody alive works on, and admitted incidents that caused no
    traversal; returns ``{"ready": [{traversal, node}], "started": [...], "refused": [...]}``.

    Safe to run any number of times at once: each node's lock lets one through.
    """
    started, refused = [], []
    unstarted = request.runtime.database.reading(
        lambda tx: incidents.unstarted(tx, request.project_id)
    )
    for incident in unstarted:
        if group is not None and incident.fact.get("group") != group:
            continue
        if incident.source == incidents.OPERATOR:
            continue  # whoever asked sees that the execution failed, and may have gone elsewhere
        try:
            if _too_old(request, incident):
                continue
            answer = admitting.start(request, incident)
            started.append({"incident": incident.id, "traversal": answer["traversal"]})
        except Exception as error:  # noqa: BLE001 - one group's trouble must not stop the others
            refused.append({"incident": incident.id, "error": describe(error)})
    group_id = starting.standing(request, group).state.id if group else None
    ready = request.runtime.engine.loose(request.project_id, group_id)
    return {
        "ready": [ready_document(node) for node in ready],
        "started": started,
        "refused": refused,
    }


def _too_old(request: Request, incident: incidents.Incident) -> bool:
    """Hold an admitted incident back that could not be started for too long."""

    def hold(tx: Any) -> bool:
        if tx.now() - incident.last_at <= STALE:
            return False
        sentence = f"{incident.sentence}; it could not be started for {STALE / 60:.0f} minutes"
        incidents.decide(tx, incident.id, "HELD", sentence)
        tx.journal(incident.group_id, f"HELD: {sentence}", kind="held")
        return True

    return request.runtime.database.atomically(hold)


def confirm_fenced(request: Request, group: str, member: str, because: str) -> dict[str, Any]:
    """Record a person's word that a member writes no more, and reopen what waited for it."""
    stands = starting.standing(request, group)

    def record(tx: Any) -> bool:
        known = groups.confirm_fenced(tx, stands.state.id, member, because)
        sentence = f"{member} was confirmed as fenced by a person: {because}"
        if known:
            tx.journal(
                stands.state.id,
                sentence,
                kind="confirmed",
                traversal_id=stands.state.current_traversal,
            )
        return known

    if member not in stands.lost:
        raise ActionError(
            "NOT_LOST",
            f"{member} is not declared lost in {group}",
            "Start a failover that declares it lost first.",
        )
    if not request.runtime.database.atomically(record):
        raise ActionError(
            "UNKNOWN_MEMBER", f"{member} is not a member of {group}", "See failover.status."
        )
    ready = request.runtime.engine.resume(stands.state.id)
    return {
        "group": group,
        "traversal": stands.state.current_traversal,
        "ready": [ready_document(node) for node in ready],
    }
