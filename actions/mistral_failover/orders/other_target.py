# SPDX-License-Identifier: Apache-2.0
"""Choose another member in the middle of a failover, if the chosen one goes down before it has the
volume, or if Nova refuses it the volume.

An attach to a server that can take nothing waits (TARGET_DOWN, a transient failure). Meanwhile this
module gives the group a goal with the next eligible member. If the volume may still arrive at the
dead target, or something of the role is there already, the target is declared lost: it is fenced
before another member gets the volume. A target that only refuses the volume lives: what it has of
the role leaves it as in a planned move. Everything is read from the state store, so the choice may
be repeated, lost, or made by several processes at once.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import cast

from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.transport import Unguarded
from mistral_failover.cloud.volume_holders import GONE, REFUSED, STATE
from mistral_failover.convergence.errors import ConvergenceError
from mistral_failover.convergence.ports import Transaction
from mistral_failover.convergence.records import (
    Action,
    JournalKind,
    Record,
    Traversal,
    TraversalStatus,
)
from mistral_failover.convergence.traversals import present_goal
from mistral_failover.groups import candidates
from mistral_failover.groups.refresh_members import depose, members_now, remember_members
from mistral_failover.groups.snapshot import GroupSnapshot, group_snapshot_in
from mistral_failover.model.assignment import MemberFact, as_planned
from mistral_failover.model.errors import InvalidDocument, NoEligibleMember
from mistral_failover.model.goal import returns, vacant_roles
from mistral_failover.model.group import Group
from mistral_failover.model.order import Order
from mistral_failover.model.verbs import FAILOVER
from mistral_failover.orders.failover import (
    next_goal,
    refuse_unmovable_new_volumes,
)
from mistral_failover.runtime.errors import ActionError
from mistral_failover.runtime.request import Request
from mistral_failover.store import groups, incidents, stalled_work, suspensions, views
from mistral_failover.store.stalled_work import TargetDown
from mistral_failover.store.transaction import ProjectTransaction

LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Refusal:
    """Why no other member is chosen, in words. ``final``: that does not change while the failover
    waits."""

    sentence: str
    final: bool = True


@dataclass(frozen=True)
class _TargetDownSituation:
    """A traversal whose target is down. ``roles``: those that the target cannot take;
    ``passed_over``: the earlier targets of the same failover; ``fenced``: whether the target must
    be fenced before another member gets the roles; ``refusal``: why it is not passed over, or
    None; ``at``: when this was read, in seconds."""

    at: float
    snapshot: GroupSnapshot
    traversal: Traversal
    down: TargetDown
    roles: frozenset[str]
    passed_over: frozenset[str]
    fenced: bool
    refusal: _Refusal | None

    def holds(self, now: _TargetDownSituation | None) -> bool:
        """Return whether the situation still calls for what was chosen in this one."""
        return now is not None and (
            (self.down.ready, self.roles, self.passed_over, self.fenced, self.refusal)
            == (now.down.ready, now.roles, now.passed_over, now.fenced, now.refusal)
        )


def choose_other_target(request: Request, traversal_id: str) -> bool:
    """Give the group a goal with another member if the target of a traversal is down. Return
    whether another traversal has taken its place.

    Nothing changes if no other member can take the roles, if the order names the target, while the
    group is paused, or at its limit; then the traversal waits, and the journal says why. It does
    not wait for a server that does not exist any more: unless another member may still come back,
    its step fails. Never raises because of the cloud.
    """
    database = request.store
    found = database.reading(lambda tx: _situation(request, tx, traversal_id))
    if found is None:
        return False
    try:
        refusal = found.refusal or _redirect(request, found)
    except (NoEligibleMember, InvalidDocument, ActionError, ConvergenceError) as error:
        refusal = _Refusal(str(error), final=False)
    except CloudError as error:
        LOG.info("No other target for traversal %s was looked for: %s", traversal_id, error)
        return False
    if refusal is None:
        return request.engine.current(traversal_id).id != traversal_id
    if refusal.final and found.down.evidence in (GONE, REFUSED):
        message = f"{found.down.error.get('message', found.down.why)}; {refusal.sentence}"
        request.engine.stop_waiting(found.down.ready, {**found.down.error, "message": message})
    else:
        database.atomically(lambda tx: _say_once(tx, found, refusal.sentence))
    return False


def _redirect(request: Request, found: _TargetDownSituation) -> _Refusal | None:
    """Start the traversal to a goal with another member, or with another server of the same one;
    return why that is refused, or None."""
    member, snapshot = found.down.member, found.snapshot
    cloud = request.cloud(Unguarded())
    seen, replaced = remember_members(
        request, cloud, snapshot, lambda: members_now(cloud, snapshot)
    )
    depose(request, cloud, snapshot, replaced)
    facts = candidates.member_facts(
        request,
        cloud,
        snapshot.group,
        snapshot.state.id,
        seen,
        snapshot.lost,
        thorough=True,
    )
    left = {role: holder for role, holder in snapshot.roles.items() if role not in found.roles}
    lost = (member,) if found.fenced else ()
    others = _others(facts, found)
    try:
        goal = next_goal(replace(snapshot, roles=left), Order(FAILOVER, lost=lost), others)
    except NoEligibleMember as error:
        out = snapshot.lost | found.passed_over | {member}
        may_return = any(fact.name not in out and not fact.gone for fact in others)
        return _Refusal(str(error), final=not may_return)
    if found.down.evidence == "agent" and not any(
        fact.name == member and (fact.silent or not fact.healthy) for fact in facts
    ):
        return _Refusal("the other agents are silent, too, so it may be their channel that is down")
    refuse_unmovable_new_volumes(request, snapshot, goal)
    to = ", ".join(f"{role} goes to {goal.document['roles'][role]}" for role in sorted(found.roles))
    fenced = ", and declared lost, because it may still get the volume" if found.fenced else ""

    def holds(tx: Transaction) -> bool:
        # The request's engine has the request's store, so it is a transaction of its project.
        now = _situation(request, cast(ProjectTransaction, tx), found.traversal.id, found.at)
        return found.holds(now)

    request.engine.redirect(
        found.traversal.id,
        goal,
        why=f"not {found.down.server}",
        cause=f"{member} is passed over ({found.down.why}){fenced}: {to}",
        holds=holds,
    )
    return None


def _others(facts: Sequence[MemberFact], found: _TargetDownSituation) -> list[MemberFact]:
    """Return the members' facts; those that this failover has tried can take nothing, but a new
    server of the target can."""
    down = found.down
    tried = dict.fromkeys(found.passed_over, "it was passed over earlier in this failover")
    if down.server in {fact.server_id for fact in facts if fact.name == down.member}:
        tried[down.member] = f"it cannot take what moves: {down.why}"
    return [
        replace(fact, healthy=False, why_not=tried[fact.name]) if fact.name in tried else fact
        for fact in as_planned(facts)
    ]


def _situation(
    request: Request, tx: ProjectTransaction, traversal_id: str, at: float | None = None
) -> _TargetDownSituation | None:
    """Return what to choose from; None if there is nothing to choose, or not now. ``at``: steps
    that were to be tried again since then still count."""
    traversal = tx.traversal(traversal_id)
    state = groups.get(tx, traversal.group_id) if traversal else None
    if traversal is None or state is None or state.current_traversal != traversal_id:
        return None
    if traversal.status == TraversalStatus.SUPERSEDED or traversal.back:
        return None
    at = tx.now() if at is None else at
    waiting = stalled_work.targets_down(tx, traversal_id, at)
    goal = present_goal(tx, state)
    if not waiting or goal is None or returns(goal):
        return None
    now, member = tx.now(), waiting[0].member
    here = [each for each in tx.records(state.id) if each.member == member and not each.gone]
    if any(record.held_at(now) for record in here):
        return None  # it is not known yet what arrives there
    # It continues the same order.
    snapshot = group_snapshot_in(request, tx, state, state.definition_version)
    mine = [each for each in waiting if each.member == member]
    roles = frozenset(filter(None, (snapshot.group.role_of(each.resource) for each in mine)))
    if not roles:
        return None
    free = {each.resource for each in mine if not each.held}
    lives = all(each.evidence in (REFUSED, STATE) for each in mine)
    fenced = not lives and any(_is_there(snapshot.group, record, roles, free) for record in here)
    others = {role for role, holder in snapshot.roles.items() if holder == member} - roles
    earlier = list(_earlier_targets(tx, traversal))
    refusal = None
    if incidents.is_pinned(tx, traversal.incident_id):
        refusal = _Refusal("the order names it, so no other member is chosen")
    elif "pause" in suspensions.of_group(tx, state.id):
        refusal = _Refusal("no other member is chosen while the group is paused", final=False)
    elif len(earlier) >= snapshot.group.limits.per_hour:
        refusal = _Refusal(
            f"this failover has tried {len(earlier) + 1} members, and per_hour allows no more"
        )
    elif fenced and others:
        refusal = _Refusal(f"fencing it would end what it serves ({', '.join(sorted(others))})")
    return _TargetDownSituation(
        at,
        snapshot,
        traversal,
        next((each for each in mine if each.held), mine[0]),
        roles,
        frozenset().union(*earlier) - set(snapshot.roles.values()),
        fenced,
        refusal,
    )


def _is_there(group: Group, record: Record, roles: frozenset[str], free: set[str]) -> bool:
    """Return whether something of these roles is, or may be, on the record's member."""
    if record.action == Action.INIT or record.name in free:
        return False
    return group.role_of(record.name) in roles


def _earlier_targets(tx: ProjectTransaction, traversal: Traversal) -> Iterator[frozenset[str]]:
    """Return the role holders of the earlier goals of the same failover."""
    before = tx.traversal(traversal.follows) if traversal.follows else None
    while before is not None:
        goal = tx.goal(before.group_id, before.goal_version)
        if goal is None or vacant_roles(goal):
            pass  # it only made room, and tried no member
        elif before.goal_version != traversal.goal_version:
            yield frozenset(goal.document["roles"].values())
        before = tx.traversal(before.follows) if before.follows else None


def _say_once(tx: ProjectTransaction, found: _TargetDownSituation, refusal: str) -> None:
    resource = found.down.resource_id
    sentence = f"{found.down.member} can take nothing ({found.down.why}): {refusal}"
    if not views.count_journal_entries(
        tx, found.traversal.id, resource, JournalKind.NO_OTHER_TARGET
    ):
        tx.journal(
            found.snapshot.state.id,
            sentence,
            kind=JournalKind.NO_OTHER_TARGET,
            traversal_id=found.traversal.id,
            resource_id=resource,
        )
