# SPDX-License-Identifier: Apache-2.0
"""Starting traversals for any reason, and ending them.

Each function runs in one transaction, in which the group is locked (``Transaction.lock_group``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from mistral_failover.convergence.definitions import Definitions
from mistral_failover.convergence.graph import plan_traversal
from mistral_failover.convergence.ports import Transaction
from mistral_failover.convergence.records import (
    GroupState,
    JournalKind,
    NodeStatus,
    Ready,
    Started,
    Traversal,
    TraversalStatus,
)
from mistral_failover.convergence.sentences import reached, room_made
from mistral_failover.fault_points import reach
from mistral_failover.model.errors import InvalidDocument
from mistral_failover.model.goal import Goal, goal_members, restored_goal, returns, vacant_roles
from mistral_failover.model.ids import derived_id


def begin(
    tx: Transaction,
    definitions: Definitions,
    group: GroupState,
    goal: Goal,
    traversal: Traversal,
    expected: str | None,
) -> Started:
    """Make ``traversal`` the current one in place of ``expected``; see ``Engine.start``."""
    if tx.traversal(traversal.id) is not None:
        won = group.current_traversal == traversal.id
        nodes = tx.ready_nodes(traversal.id) if won else []
        ready = tuple(Ready(traversal.id, node) for node in nodes)
        return Started(traversal.id, won, False, ready)
    if group.current_traversal != expected:
        return Started(group.current_traversal or "", False, False)
    traversal = replace(traversal, definition_version=goal.definition or group.definition_version)
    epochs = tx.epochs(group.id)
    if left := goal_members(goal) - epochs.keys():
        tx.return_members(group.id, left)
        epochs = tx.epochs(group.id)
    plan = plan_traversal(
        goal,
        definitions.group(tx, group, traversal.definition_version).types,
        tx.records(group.id),
        epochs,
        group_id=group.id,
        new_id=lambda name: derived_id(traversal.id, name),
        present=present_goal(tx, group),
    )
    if not tx.swap_traversal(group.id, expected, traversal.id, traversal.definition_version):
        return Started(group.current_traversal or "", False, False)
    reach("start.swapped")
    tx.save_goal(group.id, goal)
    tx.open_traversal(traversal, plan)
    if expected is not None:
        tx.supersede(expected, traversal.id)
    tx.raise_epochs(group.id, plan.fenced)
    tx.journal(group.id, traversal.cause, kind=JournalKind.TRAVERSAL, traversal_id=traversal.id)
    if not plan.graph:
        complete(tx, traversal)
    ready = tuple(Ready(traversal.id, node) for node in plan.ready())
    return Started(traversal.id, True, True, ready)


def begin_successor(
    tx: Transaction,
    definitions: Definitions,
    traversal: Traversal,
    goal: Goal,
    *,
    why: str,
    cause: str,
    back: bool = False,
) -> Started:
    """Start the traversal that follows from the result of ``traversal``, the current one, with the
    same stages open and driven by the same execution. ``back``: it undoes that one."""
    group = tx.lock_group(traversal.group_id, shared=False)
    before = tx.traversal(traversal.id)  # a stage may have been opened before the lock was taken
    if group is None or before is None:
        return Started("", False, False)
    successor = Traversal(
        id=derived_id(traversal.id, why),
        group_id=traversal.group_id,
        goal_version=goal.version,
        status=TraversalStatus.IN_PROGRESS,
        cause=cause,
        incident_id=traversal.incident_id,
        back=back or traversal.back,
        through=before.through,
        follows=traversal.id,
        chain=before.chain,
    )
    return begin(tx, definitions, group, goal, successor, traversal.id)


def complete(tx: Transaction, traversal: Traversal) -> None:
    """Record that the goal of a traversal is reached. One that makes room stays IN_PROGRESS: no
    member serves yet, and a traversal follows it as soon as one can take the vacant roles."""
    goal = tx.goal(traversal.group_id, traversal.goal_version)
    if goal is not None and (vacant := vacant_roles(goal)):
        kind, sentence = JournalKind.ROOM_MADE, room_made(vacant)
        tx.journal(traversal.group_id, sentence, kind=kind, traversal_id=traversal.id)
        return
    tx.mark_traversal(traversal.id, TraversalStatus.COMPLETE, "")
    serves = goal is not None and bool(goal.document["roles"])
    in_force = traversal.definition_version if serves else None
    tx.set_last_complete(traversal.group_id, traversal.goal_version, in_force)
    sentence = reached(goal, back=traversal.back)
    kind = JournalKind.RETURNED if traversal.back else JournalKind.COMPLETE
    tx.journal(traversal.group_id, sentence, kind=kind, traversal_id=traversal.id)


def restate(tx: Transaction, traversal_id: str) -> None:
    """Give a traversal the status and the reason that follow from its stopped nodes: FAILED if one
    of them failed, BLOCKED if one is blocked, else IN_PROGRESS. While a sweep tries a stopped node
    again, the status stays: only what the try comes to changes it."""
    stopped = tx.stopped_nodes(traversal_id)
    failed = [each for each in stopped if each.status == NodeStatus.FAILED]
    if not stopped:
        tx.mark_traversal(traversal_id, TraversalStatus.IN_PROGRESS, "")
        return
    first = (failed or stopped)[0]
    status = TraversalStatus.FAILED if failed else TraversalStatus.BLOCKED
    tx.mark_traversal(traversal_id, status, first.reason, first.node)


def present_goal(tx: Transaction, group: GroupState) -> Goal | None:
    """Return the goal of a group's current traversal; None if it never had one."""
    traversal = tx.traversal(group.current_traversal) if group.current_traversal else None
    return goal_of(tx, traversal) if traversal else None


def goal_of(tx: Transaction, traversal: Traversal) -> Goal | None:
    """Return the goal of a traversal, with the definition that the traversal has; None if it was
    deleted."""
    goal = tx.goal(traversal.group_id, traversal.goal_version)
    return goal and replace(goal, definition=traversal.definition_version)


def rollback_goal(
    tx: Transaction,
    group: GroupState,
    *,
    version: str | None = None,
    recovered: Iterable[str] = (),
) -> Goal | None:
    """Return the goal that a group goes back to, by itself or by order.

    It is the goal reached last. From a goal that was reached itself it is the last one before that
    which asks for something else; otherwise it may be the same again. ``version`` names another
    one. Members that are lost now are lost in it too, except the ``recovered``.

    None when there is no such goal. Raises InvalidDocument when a member that is lost would hold a
    role.
    """
    traversal = tx.traversal(group.current_traversal) if group.current_traversal else None
    present = present_goal(tx, group)
    if traversal is None or present is None:
        return None
    arrived = traversal.status == TraversalStatus.COMPLETE
    asked_for = restored_goal(present, present)
    for candidate in _reached(tx, group) if version is None else (version,):
        target = tx.goal(group.id, candidate)
        if target is None or (arrived and version is None and target == present):
            continue
        goal = restored_goal(target, present, recovered)
        if not arrived or goal.version != asked_for.version:
            return goal
    return None


def goes_back(tx: Transaction, group: GroupState) -> bool:
    """Return whether a rollback of a group whose goal was not reached would change something: which
    member holds a role, or what a group file asks for."""
    present = present_goal(tx, group)
    try:
        target = rollback_goal(tx, group)
    except InvalidDocument:  # a lost member would have to serve again
        return False
    return present is not None and target is not None and _asked(target) != _asked(present)


def _asked(goal: Goal) -> tuple[Any, Any]:
    """Return what a goal asks for without the engine's own resources, whose names have a colon."""
    resources = goal.document["resources"]
    own = {name: each for name, each in resources.items() if ":" not in name}
    return goal.document["roles"], own


def _reached(tx: Transaction, group: GroupState) -> Iterator[str]:
    """Return the versions of the goals that a group reached, the last one first."""
    if group.last_complete_goal is not None:
        yield group.last_complete_goal
        yield from tx.reached_goals(group.id)


def automatic_rollback_goal(
    tx: Transaction, group: GroupState, traversal: Traversal, *, blocked: bool
) -> Goal | None:
    """Return the goal that the current traversal, which has failed, goes back to by itself.

    A planned move goes back whatever its group file says, and also if it is ``blocked``: nothing
    depends on it, and it must not continue hours later when an operator has corrected the cause.
    None if the group asks for neither, if no goal was ever reached, if the failed traversal led to
    that goal itself, or if a member that is lost would have to serve again.
    """
    failed = tx.goal(group.id, traversal.goal_version)
    if failed is None or not (returns(failed) or _rolls_back(failed, blocked)):
        return None
    try:
        goal = rollback_goal(tx, group)
        asked_for = restored_goal(failed, failed)
    except InvalidDocument:
        return None
    return None if goal is None or goal.version == asked_for.version else goal


def _rolls_back(failed: Goal, blocked: bool) -> bool:
    return not blocked and failed.document.get("on_failure") == "rollback"
