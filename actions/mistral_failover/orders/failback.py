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
from mistral_failover.model.decisions import OrderVerb
from mistral_failover.model.errors import NoEligibleMember
from mistral_failover.model.goal import Goal
from mistral_failover.model.order import Order
from mistral_failover.orders import failover, switchover
from mistral_failover.orders.answers import StartedOrder
from mistral_failover.orders.failover import Derive
from mistral_failover.orders.switchover import AlreadyThere
from mistral_failover.runtime.request import Request


def failback(
    request: Request,
    group: str,
    to: str | None,
    role: str | None,
    recovered: tuple[str, ...],
    cause: str,
) -> StartedOrder:
    """Move the roles to their homes if these can take them: all roles, only ``role``, or only those
    whose home is the member ``to``. Once for each execution.

    ``recovered``: lost members that the operator confirms as recovered. Return as
    :func:`failover.begin`; if every role is at home, nothing starts, and the sentence says so.
    Raises UnknownGroup, CloudError; NoEligibleMember if no role can go home, with the reason for
    each home; ActionError BAD_INPUT for an unknown role, UNKNOWN_MEMBER, NOT_COMPLETE,
    CANNOT_QUIESCE.
    """
    order = Order(OrderVerb.FAILBACK, to=to, role=role, recovered=recovered)
    derive = goal_function(request, to, role, recovered)
    return switchover.start_planned_move(request, group, derive, order, cause)


def goal_function(
    request: Request,
    to: str | None,
    role: str | None,
    recovered: tuple[str, ...],
    *,
    remember: bool = True,
) -> Derive:
    """Return the function that derives the goal of a failback. ``remember``: record members that
    were replaced.

    Raises as :func:`failback`, and AlreadyThere.
    """

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
