# SPDX-License-Identifier: Apache-2.0
"""A group's goals: list them and compare two."""

from __future__ import annotations

from typing import TypedDict

from mistral_failover.convergence.records import TraversalStatus
from mistral_failover.groups.snapshot import group_snapshot
from mistral_failover.model.differences import DifferenceDocument, differences
from mistral_failover.model.goal import Goal
from mistral_failover.orders.rollback import find
from mistral_failover.runtime.request import Request
from mistral_failover.store import goals
from mistral_failover.store.transaction import ProjectTransaction


class ListedGoal(TypedDict):
    """A goal of a group. ``status``: of the latest traversal to it. ``walked``: how many traversals
    led to it. ``reached_at``: None if it never was. ``last_complete``: whether a rollback after a
    failure returns to it. Times are seconds since the epoch."""

    version: str
    roles: dict[str, str]
    lost: list[str]
    status: TraversalStatus
    cause: str
    walked: int
    given_at: float
    reached_at: float | None
    current: bool
    last_complete: bool


GoalComparison = TypedDict(
    "GoalComparison",
    {"from": str, "to": str, "differences": list[DifferenceDocument], "lines": list[str]},
)
"""The differences between two goals, for machines, and as ``lines`` for people."""


def listed(request: Request, name: str) -> list[ListedGoal]:
    """Return a group's goals, the latest first."""
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


def compared(request: Request, name: str, before: str, after: str) -> GoalComparison:
    """Return the differences between two goals of a group; their versions may be shortened. Raises
    UnknownGroup, and what :func:`find` raises."""
    snapshot = group_snapshot(request, name)

    def read(tx: ProjectTransaction) -> list[Goal]:
        versions = (find(tx, snapshot.state.id, name, prefix) for prefix in (before, after))
        found = (tx.goal(snapshot.state.id, version) for version in versions)
        return [goal for goal in found if goal is not None]  # both were found just now

    old, new = request.store.reading(read)
    found = differences(old, new)
    return {
        "from": old.version,
        "to": new.version,
        "differences": [difference.as_dict() for difference in found],
        "lines": [str(difference) for difference in found],
    }
