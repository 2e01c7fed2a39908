# SPDX-License-Identifier: Apache-2.0
"""Who holds which role next."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from mistral_failover.model.errors import InvalidDocument, NoEligibleMember
from mistral_failover.model.group import Group
from mistral_failover.model.validation import did_you_mean


@dataclass(frozen=True)
class MemberFact:
    """What is known of one member at the moment of choosing."""

    name: str
    created_at: float | None = None
    """Seconds since the epoch; None when nobody knows."""
    healthy: bool = True
    why_not: str | None = None
    """Why it is not healthy, in words."""


def assign_roles(
    group: Group,
    members: Sequence[MemberFact],
    current: Mapping[str, str],
    lost: Set[str],
    to: str | Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return a member for every role of the group; the same facts give the same answer.

    A holder that is still a member and not lost keeps its role, healthy or not: being slow is no
    reason to lose it.  A vacant role goes to an eligible member (not lost, healthy) that holds the
    fewest roles, and among those to the one that ``members.choose`` of the group prefers; members
    of the same age follow the order of the group file, then the alphabet.

    :param members: every member there is.
    :param current: who held which role last; empty before the first activation.
    :param to: where to, if somebody said so: a member for each role that shall move, or one
        member for all vacant roles (for all roles, when none is vacant).
    :raises NoEligibleMember: when a role finds no member, or ``to`` names one that is not
        eligible; with the reason for each member.
    :raises InvalidDocument: when ``to`` names a role that the group does not have.
    """
    facts = {fact.name: fact for fact in members}
    reasons = {name: why for name, fact in facts.items() if (why := _why_not(fact, lost))}
    kept = {
        role: current[role]
        for role in group.roles
        if role in current and current[role] in facts and current[role] not in lost
    }
    wished = _wishes(group, kept, to)
    require_eligible(members, wished, lost)
    roles = {**kept, **wished}
    order = _preference(group, [fact for fact in members if fact.name not in reasons])
    for role in group.roles:
        if role in roles:
            continue
        if not order:
            raise NoEligibleMember(
                f'no member can take the role "{role}"',
                "Repair a member or add one, then start again.",
                reasons,
            )
        held = Counter(roles.values())
        roles[role] = min(order, key=lambda name: (held[name], order.index(name)))
    return {role: roles[role] for role in group.roles}


def require_eligible(
    members: Sequence[MemberFact], roles: Mapping[str, str], lost: Set[str]
) -> None:
    """Check that these roles can be given to these members now.

    :raises NoEligibleMember: for the first that can not, with the reason.
    """
    facts = {fact.name: fact for fact in members}
    for role, member in sorted(roles.items()):
        fact = facts.get(member)
        why = "it is not a member of the group" if fact is None else _why_not(fact, lost)
        if why:
            raise _refused(role, member, {member: why}, facts)


def _why_not(fact: MemberFact, lost: Set[str]) -> str | None:
    if fact.name in lost:
        return "it is declared lost"
    if not fact.healthy:
        return fact.why_not or "it is not healthy"
    return None


def _wishes(
    group: Group, kept: Mapping[str, str], to: str | Mapping[str, str] | None
) -> dict[str, str]:
    if to is None:
        return {}
    if isinstance(to, str):
        vacant = [role for role in group.roles if role not in kept]
        return dict.fromkeys(vacant or group.roles, to)
    for role in sorted(to):
        if role not in group.roles:
            raise InvalidDocument(
                f"to.{role}", f'unknown role "{role}"', did_you_mean(role, group.roles)
            )
    return dict(to)


def _preference(group: Group, eligible: Sequence[MemberFact]) -> list[str]:
    """Return the eligible members' names, the preferred one first."""
    choose = group.members.choose
    sign = -1.0 if choose == "newest" else 1.0
    listed = {name: index for index, name in enumerate(group.members.servers)}

    def key(fact: MemberFact) -> tuple[bool, float, int, str]:
        age = math.inf if fact.created_at is None else sign * fact.created_at
        return (fact.name != choose, age, listed.get(fact.name, len(listed)), fact.name)

    return [fact.name for fact in sorted(eligible, key=key)]


def _refused(
    role: str, member: str, reasons: Mapping[str, str], facts: Mapping[str, MemberFact]
) -> NoEligibleMember:
    known = member in facts
    return NoEligibleMember(
        f'"{member}" cannot take the role "{role}"',
        "Name another member, or repair this one." if known else did_you_mean(member, facts),
        reasons,
    )
