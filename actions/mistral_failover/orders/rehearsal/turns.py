# SPDX-License-Identifier: Apache-2.0
"""Whose turn a rehearsal is: the loss that it rehearses, and the member that takes a role."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from mistral_failover.groups.snapshot import GroupSnapshot
from mistral_failover.model.assignment import MemberFact, eligible
from mistral_failover.model.goal import application_roles
from mistral_failover.model.order import Order
from mistral_failover.model.validation import did_you_mean
from mistral_failover.orders import failover
from mistral_failover.runtime.errors import ActionError
from mistral_failover.store.rehearsed_roles import RehearsedRole

_NEVER = -math.inf


@dataclass(frozen=True)
class Turn:
    """A rehearsal that may begin. ``lost``: the member whose loss is rehearsed. ``to``: as of an
    order, the member that takes its roles, or that of one role; None: as a failover would choose.
    ``last``: when it was begun last, in seconds since the epoch."""

    lost: str
    to: str | Mapping[str, str] | None
    last: float


def turns(
    snapshot: GroupSnapshot,
    order: Order,
    members: Sequence[MemberFact],
    rehearsed: Sequence[RehearsedRole],
) -> list[Turn]:
    """Return the rehearsals that an order asks for, the one first that was begun the longest ago or
    never. There is one for each member that holds roles; and with `RehearsalSpec.each`, unless the
    order names the member that takes over, one for each role with an application and each member
    that may have to take it.

    Raises ActionError BAD_INPUT, UNKNOWN_MEMBER.
    """
    last = {(each["role"], each["member"]): each["tried_at"] for each in rehearsed}
    found = [
        turn
        for lost in _losses(snapshot, order)
        for turn in _of_loss(snapshot, order, members, last, lost)
    ]
    return sorted(found, key=lambda turn: turn.last)  # a stable sort: the first choice comes first


def _losses(snapshot: GroupSnapshot, order: Order) -> list[str]:
    """Return the members whose loss may be rehearsed."""
    group, role = snapshot.group.name, order.role
    if role is not None and role not in snapshot.roles:
        raise ActionError(
            "BAD_INPUT",
            f"role: {role} is not a role of {group} that a member holds",
            did_you_mean(role, list(snapshot.roles)),
        )
    holders = sorted(set(snapshot.roles.values()))
    if order.member is not None:
        failover.require_members(snapshot, holders, "member", [order.member])
    if role is None:
        if order.member is not None:
            return [order.member]
        return [each for each in holders if each != order.to] or holders
    holder = snapshot.roles[role]
    if order.member not in (None, holder):
        raise ActionError(
            "BAD_INPUT",
            f"member: {role} of {group} is on {holder}, not on {order.member}",
            "Name the role or the member, not both.",
        )
    return [holder]


def _of_loss(
    snapshot: GroupSnapshot,
    order: Order,
    members: Sequence[MemberFact],
    last: Mapping[tuple[str, str], float],
    lost: str,
) -> Iterator[Turn]:
    roles = [order.role] if order.role is not None else tried_roles(snapshot, lost)
    if order.member_to is not None:
        taker = order.member_to
        to = taker if order.role is None else {order.role: taker}
        yield Turn(lost, to, min(last.get((role, taker), _NEVER) for role in roles))
        return
    able = eligible(snapshot.group, members, snapshot.lost | {lost})
    if snapshot.group.rehearsal.each and able:
        for role in roles:
            for member in able:
                yield Turn(lost, {role: member}, last.get((role, member), _NEVER))
        return
    ages = [max((at for (r, _), at in last.items() if r == role), default=_NEVER) for role in roles]
    yield Turn(lost, None, min(ages))


def tried_roles(snapshot: GroupSnapshot, holder: str) -> list[str]:
    """Return the roles of a holder with an application, which is what a rehearsal tries; all of
    them if none has one."""
    held = [role for role in snapshot.group.roles if snapshot.roles.get(role) == holder]
    starts = application_roles(snapshot.group)
    return [role for role in held if role in starts] or held
