# SPDX-License-Identifier: Apache-2.0
"""A group's goals: list them and compare two."""

from __future__ import annotations

from typing import Any

from mistral_failover.groups.snapshot import group_snapshot
from mistral_failover.model.differences import differences
from mistral_failover.orders.rollback import find
from mistral_failover.runtime.request import Request
from mistral_failover.store import goals
from mistral_failover.store.transaction import ProjectTransaction


def listed(request: Request, name: str) -> list[dict[str, Any]]:
    """Return a group's goals, the latest first. Times are seconds since the epoch.

    Each has version, roles, lost, status (of the latest traversal to it), cause, walked (how many
    traversals), given_at, reached_at (None: never), current, and last_complete (the goal to which a
    rollback after a failure returns).
    """
    snapshot = group_snapshot(request, name)

    def read(tx: ProjectTransaction) -> tuple[list[goals.StoredGoal], str | None]:
        current = snapshot.state.current_traversal
        traversal = tx.traversal(current) if current else None
        return goals.listed(tx, snapshot.state.id), traversal.goal_version if traversal else None

    kept, current = request.store.reading(read)
    return [
        {
            "version": entry.goal.version,
            "roles": dict(entry.goal.document["roles"]),
            "lost": list(entry.goal.document["lost"]),
            "status": entry.status,
            "cause": entry.cause,
            "walked": entry.traversals,
            "given_at": entry.given_at,
            "reached_at": entry.reached_at,
            "current": entry.goal.version == current,
            "last_complete": entry.goal.version == snapshot.state.last_complete_goal,
        }
        for entry in kept
    ]


def compared(request: Request, name: str, before: str, after: str) -> dict[str, Any]:
    """Return the differences between two goals of a group: ``{"from", "to", "differences": [{path,
    before, after}], "lines": [for people]}``; their versions may be shortened.

    Raises UnknownGroup, and what :func:`find` raises.
    """
    snapshot = group_snapshot(request, name)

    def read(tx: ProjectTransaction) -> list[Any]:
        versions = (find(tx, snapshot.state.id, name, prefix) for prefix in (before, after))
        return [tx.goal(snapshot.state.id, version) for version in versions]

    old, new = request.store.reading(read)
    found = differences(old, new)
    return {
        "from": old.version,
        "to": new.version,
        "differences": [difference.as_dict() for difference in found],
        "lines": [str(difference) for difference in found],
    }
