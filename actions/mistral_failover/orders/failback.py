# SPDX-License-Identifier: Apache-2.0
"""Failback: the roles return to their homes, as a planned move.

The home of a role is the member that would hold it if every member were healthy and no role were
assigned: the first of its ``prefer``, otherwise as the group chooses (``model.assignment``). A role
never goes home by itself: an operator checks the old member first and then orders it. Several roles
may move in one traversal. If any step fails, all of them return to where they were. A recovered
member stays recovered.
"""

from __future__ import annotations

from collections.abc import Mapping
from shlex import quote

from mistral_failover.groups.snapshot import GroupSnapshot
from mistral_failover.model import assignment
from mistral_failover.model.assignment import MemberFact
from mistral_failover.model.errors import NoEligibleMember
from mistral_failover.model.goal import Goal
from mistral_failover.model.order import Order
from mistral_failover.orders import failover, switchover
from mistral_failover.orders.failover import Derive
from mistral_failover.orders.operator_order import AlreadyThere
from mistral_failover.runtime.request import Request


def goal_function(request: Request, order: Order, *, remember: bool) -> Derive:
    """Return the function that derives the goal of a failback: all roles move to their homes if
    these can take them, or only ``order.role``, or only those whose home is ``order.to``. The
    ``recovered`` ones are lost members that the operator confirms as healthy. ``remember``: record
    members that were replaced.

    Raises CloudError; NoEligibleMember if no role can go home, with the reason for each home;
    AlreadyThere if every role is at home; ActionError BAD_INPUT for an unknown role,
    UNKNOWN_MEMBER, NOT_COMPLETE, CANNOT_QUIESCE.
    """
    to, role, recovered = order.member_to, order.role, order.recovered

    def derive(snapshot: GroupSnapshot) -> Goal:
        asked = list(snapshot.group.roles)
        if role is not None:
            asked = [switchover.known_role(snapshot, role)]
        switchover.refuse_unreached(request, snapshot)
        seen = failover.read_members(request, snapshot, recovered=recovered, remember=remember)
        names = {fact.name for fact in seen} | snapshot.occupied
        failover.require_members(snapshot, names, "recovered", recovered)
        failover.require_members(snapshot, names, "to", () if to is None else (to,))
        lost = (snapshot.lost - set(recovered)) & names
        homes = _homes(snapshot, seen, lost, asked, to)
        roles = {**snapshot.roles, **homes}
        if roles == snapshot.roles and lost == snapshot.lost:
            where = f"{', '.join(homes) or ', '.join(asked)} of {snapshot.group.name}"
            raise AlreadyThere(
                snapshot, f"{where} {'is' if len(asked) == 1 else 'are'} already at home"
            )
        return switchover.planned_goal(request, snapshot, seen, roles, lost)

    return derive


def _homes(
    snapshot: GroupSnapshot,
    seen: list[MemberFact],
    lost: frozenset[str],
    asked: list[str],
    to: str | None,
) -> Mapping[str, str]:
    """Return the new holders of the requested roles. Raises NoEligibleMember if roles are away from
    home and none of them can return, or if no requested role has its home on ``to``."""
    members = assignment.as_planned(seen)
    ideal = assignment.ideal_homes(snapshot.group, members)
    homes = assignment.homes(snapshot.group, members, snapshot.roles, lost)
    if to is not None:
        asked = [role for role in asked if ideal[role] == to]
    going = {role: homes[role] for role in asked}
    away = [role for role in asked if snapshot.roles.get(role) != ideal[role]]
    if to is not None and not asked:
        raise NoEligibleMember(
            f"none of the requested roles has its home on {to}",
            "Move a role there with failover switchover, or prefer this member in the group file.",
            {to: f"homes: {', '.join((f'{r} on {m}' for r, m in sorted(ideal.items())))}"},
        )
    if away and all(home == snapshot.roles.get(role) for role, home in going.items()):
        raise _nowhere_to_go(snapshot, members, lost, {role: ideal[role] for role in away})
    return going


def _nowhere_to_go(
    snapshot: GroupSnapshot,
    members: list[MemberFact],
    lost: frozenset[str],
    homes: Mapping[str, str],
) -> NoEligibleMember:
    why = assignment.reasons(snapshot.group, members, lost)
    reasons = {member: why[member] for member in sorted(set(homes.values())) if member in why}
    group = quote(snapshot.group.name)
    remedy = f"Correct what keeps its home from taking the role, then: failover failback {group}"
    if unwell := sorted(set(homes.values()) & lost):
        named = " ".join(f"--recovered {quote(member)}" for member in unwell)
        remedy = (
            f"Check that {', '.join(unwell)} is healthy, then: failover failback {group} {named}"
        )
    where = ", ".join(f"{role} to {member}" for role, member in sorted(homes.items()))
    return NoEligibleMember(f"no role can go home ({where})", remedy, reasons)
