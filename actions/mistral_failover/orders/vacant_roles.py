# SPDX-License-Identifier: Apache-2.0
"""Roles that no member can take: make room for one, then give them to a member that can.

It is what a group without a standby needs, and any group whose other members are lost, too. Two
goals follow each other in one failover. The first one makes room: the lost member is fenced, what
belonged to the roles is released, and the member gets another server. No member serves yet, so it
is never reached: it stays IN_PROGRESS until a member can take the roles. That is the first lost
member that is back, or a better one that became healthy in the meantime: once all is released,
nothing waits for the members that are still brought back. Then the second goal follows, an ordinary
one, in which that member is not lost. So the graph of each goal is fixed, and no command for the
former server can reach the new one: it is in another epoch.

Everything is read from the state store and the cloud, so it may be repeated, lost, or done by
several processes at once.
"""

from __future__ import annotations

from shlex import quote
from typing import cast

from mistral_failover.cloud.errors import CloudError
from mistral_failover.convergence.errors import ConvergenceError
from mistral_failover.convergence.ports import Transaction
from mistral_failover.convergence.records import (
    JournalKind,
    NodeStatus,
    Traversal,
    TraversalStatus,
)
from mistral_failover.fault_points import reach
from mistral_failover.groups.snapshot import GroupSnapshot, group_snapshot_in
from mistral_failover.model.errors import InvalidDocument, NoEligibleMember
from mistral_failover.model.goal import REPLACE_TYPE, Goal, vacant_roles
from mistral_failover.model.order import Order
from mistral_failover.model.verbs import FAILOVER
from mistral_failover.orders import failover
from mistral_failover.runtime.errors import ActionError
from mistral_failover.runtime.request import Request
from mistral_failover.store import groups, stalled_work, views
from mistral_failover.store.transaction import ProjectTransaction

_OPEN = (TraversalStatus.IN_PROGRESS, TraversalStatus.FAILED, TraversalStatus.BLOCKED)


def fill(request: Request, traversal_id: str) -> bool:
    """Give the roles to members if ``traversal_id`` has released what belonged to them. Return
    whether another traversal has taken its place.

    Otherwise nothing changes: it is not ready, or no member can take them yet. Once no member is
    brought back any more, the journal says why, and after the group's patience the traversal is
    FAILED. Never raises because of the cloud.
    """
    found = request.store.reading(lambda tx: _snapshot(request, tx, traversal_id))
    if found is None:
        return False
    reach("vacant.before")
    try:
        goal = _filled(request, found)
    except (
        CloudError,
        NoEligibleMember,
        InvalidDocument,
        ActionError,
        ConvergenceError,
    ) as error:
        _wait(request, found, traversal_id, str(error))
        return False
    to = ", ".join(f"{role} goes to {goal.document['roles'][role]}" for role in found.vacant)

    def holds(tx: Transaction) -> bool:
        now = _snapshot(request, cast(ProjectTransaction, tx), traversal_id)
        return now is not None and now.lost == found.lost

    request.engine.redirect(traversal_id, goal, why="room was made", cause=to, holds=holds)
    reach("vacant.after")
    return request.engine.current(traversal_id).id != traversal_id


def waiting(request: Request, tx: ProjectTransaction, group_id: str | None) -> list[str]:
    """Return the FAILED and BLOCKED traversals of the project, or of one group, that released all
    that belonged to their roles: a member may be able to take these by now."""
    stopped = stalled_work.stopped(tx, group_id)
    return [each for each in stopped if _snapshot(request, tx, each) is not None]


def makes_room(tx: ProjectTransaction, traversal: Traversal) -> bool:
    """Return whether the goal of a traversal leaves roles without a member."""
    goal = tx.goal(traversal.group_id, traversal.goal_version)
    return goal is not None and bool(vacant_roles(goal))


def _filled(request: Request, snapshot: GroupSnapshot) -> Goal:
    members = failover.read_members(request, snapshot, remember=True)
    goal = failover.next_goal(snapshot, Order(FAILOVER, lost=()), members)
    failover.refuse_unmovable_new_volumes(request, snapshot, goal)
    return goal


def _snapshot(request: Request, tx: ProjectTransaction, traversal_id: str) -> GroupSnapshot | None:
    """Return the group whose current traversal has released all that belonged to its vacant roles;
    None if it has not, if all members are lost that it still brings back, or if another one is
    current."""
    traversal = tx.traversal(traversal_id)
    state = groups.get(tx, traversal.group_id) if traversal else None
    if traversal is None or state is None or state.current_traversal != traversal_id:
        return None
    if traversal.status not in _OPEN or not makes_room(tx, traversal):
        return None
    left = [row for row in tx.progress(traversal_id) if row.status != NodeStatus.DONE]
    new = {each.id for each in tx.records(state.id) if each.type == REPLACE_TYPE} if left else set()
    if any(row.node.resource_id not in new for row in left):
        return None
    snapshot = group_snapshot_in(request, tx, state, state.definition_version)
    # Where a member is not back yet, or failed to come back, another one may be able to serve.
    under_way = any(row.status == NodeStatus.WAITING for row in left)
    if under_way and not groups.members_of(tx, state.id).keys() - snapshot.lost:
        return None
    return snapshot


def _wait(request: Request, found: GroupSnapshot, traversal_id: str, why: str) -> None:
    """Say once why no member takes the roles yet; end the wait after the group's patience."""
    group_id, name = found.state.id, found.group.name
    sentence = f"{' and '.join(found.vacant)} waits for a member: {why}"

    def say(tx: ProjectTransaction) -> None:
        tx.lock_group(group_id, shared=False)
        traversal = tx.traversal(traversal_id)
        if _snapshot(request, tx, traversal_id) is None or traversal is None:
            return
        if traversal.status != TraversalStatus.IN_PROGRESS:
            return  # it has said why; sweeps look on
        since = views.last_of_kind(tx, traversal_id, JournalKind.ROOM_MADE)
        if since is None:
            return  # a member is still brought back
        kind = JournalKind.NO_OTHER_TARGET
        if tx.now() - since > found.group.limits.patience:
            reason = f"{sentence}. Repair a member, then: failover start {quote(name)} --lost ''"
            tx.mark_traversal(traversal_id, TraversalStatus.FAILED, reason)
            kind = JournalKind.NOT_REACHED
        elif views.last_of_kind(tx, traversal_id, kind) is not None:
            return
        tx.journal(group_id, sentence, kind=kind, traversal_id=traversal_id)

    request.store.atomically(say)
