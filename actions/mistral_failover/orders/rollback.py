# SPDX-License-Identifier: Apache-2.0
"""Return to an earlier goal of the group, and remove the group.

Both are just further goals. A goal is stored with everything that it requests, so a rollback needs
no copy of the stack: the same resources converge to their earlier state.
"""

from __future__ import annotations

from shlex import quote

from mistral_failover.convergence.traversals import present_goal, rollback_goal
from mistral_failover.groups.snapshot import GroupSnapshot
from mistral_failover.model.assignment import require_eligible
from mistral_failover.model.goal import Goal, empty_goal, vacant_roles
from mistral_failover.model.order import Order
from mistral_failover.model.validation import did_you_mean
from mistral_failover.orders import failover
from mistral_failover.orders.failover import Derive
from mistral_failover.runtime.errors import ActionError
from mistral_failover.runtime.request import Request
from mistral_failover.store import goals
from mistral_failover.store.transaction import ProjectTransaction

SHORTEST_PREFIX = 7
"""The shortest prefix of a goal's version, in hexadecimal digits."""


def removal_goal_function(lost: tuple[str, ...]) -> Derive:
    """Return the function that derives the empty goal: applications are quiesced, volumes are
    detached, and the ``lost`` members are fenced. Raises ActionError UNKNOWN_MEMBER."""

    def nothing(snapshot: GroupSnapshot) -> Goal:
        for member in lost:
            if member not in snapshot.occupied and member not in snapshot.roles.values():
                raise ActionError(
                    "UNKNOWN_MEMBER",
                    f"lost: {member} holds nothing of {snapshot.group.name}",
                    did_you_mean(member, snapshot.occupied)
                    if snapshot.occupied
                    else "No member holds anything of it.",
                )
        # A lost member stays fenced until nothing of the group is left on it.
        return empty_goal(snapshot.group, (snapshot.lost | set(lost)) & snapshot.occupied)

    return nothing


def goal_function(request: Request, order: Order, *, remember: bool) -> Derive:
    """Return the function that derives the goal of a rollback: the goal that the group reached
    before, or ``order.goal`` (the first digits of its version are enough). Lost members stay lost,
    except the ``recovered`` ones. ``remember``: record members that were replaced.

    Raises CloudError, NoEligibleMember, InvalidDocument if a lost member held a role, ActionError
    UNKNOWN_GOAL, BAD_INPUT, NOTHING_TO_RETURN_TO.
    """
    version, recovered = order.goal, order.recovered

    def derive(snapshot: GroupSnapshot) -> Goal:
        goal = request.store.reading(lambda tx: _goal(tx, snapshot, version, recovered))
        members = failover.read_members(request, snapshot, recovered=recovered, remember=remember)
        taken = {
            role: member
            for role, member in goal.document["roles"].items()
            if snapshot.roles.get(role) != member
        }
        require_eligible(members, taken, frozenset(goal.document["lost"]))
        return goal

    return derive


def _goal(
    tx: ProjectTransaction, snapshot: GroupSnapshot, prefix: str | None, recovered: tuple[str, ...]
) -> Goal:
    """Return the goal to go back to. A lost member that has another server now counts as
    recovered."""
    state = snapshot.state
    present = present_goal(tx, state)
    if present is not None:
        version = None if prefix is None else find(tx, state.id, snapshot.group.name, prefix)
        _refuse_room(tx, state.id, version)
        well = {*recovered, *frozenset(present.document["lost"]).difference(snapshot.lost)}
        goal = rollback_goal(tx, state, version=version, recovered=sorted(well))
        if goal is not None:
            return goal
    raise ActionError(
        "NOTHING_TO_RETURN_TO",
        f"{snapshot.group.name} has reached no goal other than its present one",
        f"To list its goals: failover goals {quote(snapshot.group.name)}.",
    )


def _refuse_room(tx: ProjectTransaction, group_id: str, version: str | None) -> None:
    """Refuse a goal in which no member serves. Raises ActionError BAD_INPUT."""
    goal = tx.goal(group_id, version) if version is not None else None
    if goal is not None and vacant_roles(goal):
        raise ActionError(
            "BAD_INPUT",
            f"goal: {goal.version[:SHORTEST_PREFIX]} only made room for a new server; nothing "
            "serves in it",
            "To list the goals: failover goals.",
        )


def find(tx: ProjectTransaction, group_id: str, name: str, prefix: str) -> str:
    """Return the full version of a group's goal from its first digits. Raises ActionError
    UNKNOWN_GOAL, BAD_INPUT if it is too short or ambiguous."""
    if len(prefix) < SHORTEST_PREFIX:
        raise ActionError(
            "BAD_INPUT",
            f"goal: {prefix!r} is too short",
            f"Give at least the first {SHORTEST_PREFIX} digits of the goal's version.",
        )
    found = goals.beginning_with(tx, group_id, prefix.lower())
    if len(found) > 1:
        raise ActionError(
            "BAD_INPUT", f"goal: several goals of {name} begin with {prefix}", "Give more digits."
        )
    if not found:
        raise ActionError(
            "UNKNOWN_GOAL",
            f"{name} has no goal {prefix}",
            "To list the goals that are kept: failover goals.",
        )
    return found[0]
