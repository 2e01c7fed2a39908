# SPDX-License-Identifier: Apache-2.0
"""Choose which member holds each role.

A holder that is still a member and not lost keeps its role. Each vacant role goes to the eligible
member that comes first by:

1. no doubt about it (its agent is silent, or does not know a command for this role; Nova changes
   nothing of its server now; it is on the host of a lost member; it is in another availability zone
   than a volume of this role)
2. its place in the role's ``prefer``
3. its load: the weights of the roles that it already holds
4. its ``priority``, the highest first
5. ``choose`` of the group: by age, or the member named; members of the same age in the order of the
   group file, then by name

Roles with an eligible member in their ``prefer`` are assigned first, then the heavier ones, then in
the order of the group file. So no role that was placed by load would share its member with less
load elsewhere.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from mistral_failover.model.errors import InvalidDocument, NoEligibleMember
from mistral_failover.model.group import Group
from mistral_failover.model.remedies import Need
from mistral_failover.model.roles import DEFAULT_PRIORITY, NEVER
from mistral_failover.model.validation import did_you_mean

ZONES = (
    "Nova refuses the volume if the cloud's operator has turned [cinder] cross_az_attach off; ask. "
    "Then the failover takes another member, or fails if there is none: keep a standby in the "
    "volume's zone."
)
"""What to do about members that are in another zone than a volume."""


@dataclass(frozen=True)
class MemberFact:
    """What is known about one member when roles are assigned."""

    name: str
    created_at: float | None = None
    """Seconds since the epoch; None if unknown."""
    healthy: bool = True
    why_not: str | None = None
    """Why it is not healthy, in words."""
    gone: bool = False
    """Whether Nova says that its server does not exist."""
    marked: bool = False
    """Whether it counts as unhealthy only because Heat would replace its server: it may serve."""
    unseen: bool = False
    """Whether it counts as unhealthy only because its server could not be checked."""
    server_id: str | None = None
    """The server behind its name; None if unknown."""
    host: str | None = None
    """The same value for members on one host; None if unknown."""
    host_down: bool = False
    """Whether its host is known to be down."""
    deleted_first: bool = False
    """Whether its server must be deleted before it can get another one, because of its disk; known
    only where one of several lost members is to come back."""
    maintenance: str | None = None
    """In words, that it is in maintenance."""
    silent: str | None = None
    """In words, that its agent is silent while other agents report."""
    needs: tuple[Need, ...] = ()
    """What a person does so that its guest runs and Nova changes its server, in order."""
    hindered: str | None = None
    """In words, with what ends it, that Nova changes nothing of its server now."""
    lacks: Mapping[str, str] = field(default_factory=dict)
    """By role, in words, the commands for that role that its agent does not know."""
    zone: str | None = None
    """The availability zone of its server; None if unknown."""
    apart: Mapping[str, str] = field(default_factory=dict)
    """By role, in words, the volumes of that role that are in another zone. The cloud may allow
    that."""

    def ruled_out(self, why: str) -> MemberFact:
        """Return the facts of a member that must take no role. Another fault of it is kept, because
        it says more."""
        return replace(self, healthy=False, why_not=why) if self.healthy else self


def assign_roles(
    group: Group,
    members: Sequence[MemberFact],
    current: Mapping[str, str],
    lost: Set[str],
    to: str | Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return a member for every role of the group; the same facts give the same result.

    A holder that is still a member and not lost keeps its role, even if it is unhealthy: a slow
    member is no reason to move its role. ``to`` may name a member that takes no role by itself.

    :param members: every existing member.
    :param current: the last holder of each role; empty before the first activation.
    :param to: the requested target, if any: a member for each role that must move, or one member
        for all vacant roles (for all roles if none is vacant).
    :raises NoEligibleMember: when a role finds no member, or ``to`` names one that is not eligible;
        with the reason for each member.
    :raises InvalidDocument: when ``to`` names a role that the group does not have.
    """
    present = {fact.name for fact in members}
    kept = {
        role: current[role]
        for role in group.roles
        if role in current and current[role] in present and current[role] not in lost
    }
    wished = _wishes(group, kept, to)
    require_eligible(members, wished, lost)
    return _filled(group, members, {**kept, **wished}, lost)


def homes(
    group: Group, members: Sequence[MemberFact], current: Mapping[str, str], lost: Set[str]
) -> dict[str, str]:
    """Return the home of each role of the group while the members are in this state.

    The home of a role is the member that would hold it if every member were healthy and no role
    were assigned. If that member cannot take the role, the role goes to another member by
    preference and load. It stays with its holder if the holder is equally good.

    :raises NoEligibleMember: when no member takes roles by itself.
    """
    able = eligible(group, members, lost)
    ideal = ideal_homes(group, members)
    at_home = {
        role: home
        for role, home in ideal.items()
        if home in able or (home == current.get(role) and home not in lost)
    }
    stuck = {
        role: holder
        for role in group.roles
        if role not in at_home
        and (holder := current.get(role)) is not None
        and holder not in able
        and holder not in lost
    }
    return _filled(group, members, {**at_home, **stuck}, lost, current)


def ideal_homes(group: Group, members: Sequence[MemberFact]) -> dict[str, str]:
    """Return where each role would be if every member were healthy and no role were assigned.

    :raises NoEligibleMember: when no member takes roles by itself.
    """
    well = [MemberFact(fact.name, fact.created_at) for fact in members]
    return _filled(group, well, {}, frozenset())


def eligible(group: Group, members: Sequence[MemberFact], lost: Set[str]) -> list[str]:
    """Return the members that may take a role by themselves, the group's first choice first.
    Members with doubts against them come last, see the module."""
    refused = reasons(group, members, lost)
    rank = {fact.name: _rank(fact, group.roles, members, lost) for fact in members}
    order = [name for name in _by_choice(group, members) if name not in refused]
    return sorted(order, key=lambda name: (rank[name], -_priority(group, name)))


def reasons(group: Group, members: Sequence[MemberFact], lost: Set[str]) -> dict[str, str]:
    """Return the reason, in words, for each member that takes no role by itself now."""
    found = {}
    for fact in members:
        why = _refusal(fact, members, lost)
        if why is None and fact.maintenance:
            why = fact.maintenance
        if why is None and _priority(group, fact.name) == NEVER:
            why = "it has priority 0, so it takes a role only if it is named for it"
        if why is not None:
            found[fact.name] = why
    return found


def doubts(members: Sequence[MemberFact], lost: Set[str]) -> dict[str, str]:
    """Return doubts about members, in words. A doubt does not forbid them a role."""
    found = {}
    for fact in members:
        said = [fact.silent] if fact.silent else []
        said += [fact.hindered] if fact.hindered else []
        said += sorted({*fact.lacks.values(), *fact.apart.values()})
        if beside := _lost_beside(fact, members, lost):
            said.append(f"it is on the same host as {beside}, which is lost")
        if said:
            found[fact.name] = "; ".join(said)
    return found


def passed_over(
    group: Group,
    members: Sequence[MemberFact],
    current: Mapping[str, str],
    lost: Set[str],
    roles: Mapping[str, str],
) -> dict[str, str]:
    """Return the reason, in words, for each member that would have got a role, if nothing spoke
    against it, and was given none. ``roles``: what :func:`assign_roles` returned for these facts
    without ``to``."""
    why = doubts(members, lost) | reasons(group, members, lost)
    found: dict[str, str] = {}
    while True:
        supposed = [
            MemberFact(fact.name, fact.created_at, healthy=fact.name not in found)
            for fact in members
        ]
        ideal = assign_roles(group, supposed, current, lost)
        over = set(ideal.values()) & why.keys() - roles.values() - found.keys()
        if not over:
            return found
        found |= {name: why[name] for name in sorted(over)}


def as_planned(members: Iterable[MemberFact]) -> list[MemberFact]:
    """Return the facts for a planned move, which can wait: a member whose agent is
    silent is no target, and neither is one whose server Nova refuses to change."""
    return [
        fact.ruled_out(why) if (why := fact.silent or fact.hindered) else fact for fact in members
    ]


def require_eligible(
    members: Sequence[MemberFact], roles: Mapping[str, str], lost: Set[str]
) -> None:
    """Check that an operator may give these roles to these members now.

    :raises NoEligibleMember: for the first member that cannot take its role, with the reason.
    """
    facts = {fact.name: fact for fact in members}
    for role, member in sorted(roles.items()):
        fact = facts.get(member)
        why = "it is not a member of the group" if fact is None else _refusal(fact, members, lost)
        if why:
            raise _refused(role, member, {member: why}, facts)


def _filled(
    group: Group,
    members: Sequence[MemberFact],
    roles: Mapping[str, str],
    lost: Set[str],
    holders: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Assign the remaining roles as the module describes. Among equally good members, prefer the
    one in ``holders``."""
    given = dict(roles)
    order = eligible(group, members, lost)
    facts = {fact.name: fact for fact in members}
    load: Counter[str] = Counter()
    for role, member in given.items():
        load[member] += group.role_specs[role].weight

    def urgency(role: str) -> tuple[bool, int, int]:
        spec = group.role_specs[role]
        by_load = not any(name in order for name in spec.prefer)
        return (by_load, -spec.weight, group.roles.index(role))

    for role in sorted((role for role in group.roles if role not in given), key=urgency):
        if not order:
            raise NoEligibleMember(
                f'no member can take the role "{role}"',
                "Repair a member, or add one."
                if members
                else f"Stack {group.stack} has no server of the group now: add one, or correct "
                "members in the group file.",
                reasons(group, members, lost),
            )
        prefer = group.role_specs[role].prefer
        given[role] = min(
            order,
            key=lambda name, role=role, prefer=prefer: (  # type: ignore[misc]
                _rank(facts[name], (role,), members, lost),
                prefer.index(name) if name in prefer else len(prefer),
                load[name],
                name != (holders or {}).get(role),
                order.index(name),
            ),
        )
        load[given[role]] += group.role_specs[role].weight
    return {role: given[role] for role in group.roles}


def _refusal(fact: MemberFact, members: Sequence[MemberFact], lost: Set[str]) -> str | None:
    """Return why a member can take no role, even if it is named for it."""
    if fact.name in lost:
        return "it is declared lost"
    if not fact.healthy:
        return fact.why_not or "it is not healthy"
    down = [each.name for each in members if each.host_down and each.host == fact.host]
    if fact.host is not None and down:
        return f"it is on the host of {down[0]}, which is down"
    return None


def _lost_beside(fact: MemberFact, members: Sequence[MemberFact], lost: Set[str]) -> str | None:
    """Return a lost member on the same host, if one is known."""
    if fact.host is None:
        return None
    beside = [e.name for e in members if e.host == fact.host and e.name in lost - {fact.name}]
    return min(beside, default=None)


def _rank(
    fact: MemberFact, roles: Iterable[str], members: Sequence[MemberFact], lost: Set[str]
) -> tuple[bool, bool, bool, bool]:
    """Rank the doubts about a member that is to hold one of these roles. An agent that is silent
    or lacks a command is the worst: nothing can be started through it. Then comes a
    server to which Nova gives nothing at present, then a host that may be dead: the failover has to
    wait for it before it takes another member, while a volume that Nova refuses is refused at
    once."""
    roles = set(roles)
    unable = fact.silent is not None or not roles.isdisjoint(fact.lacks)
    beside = _lost_beside(fact, members, lost) is not None
    return unable, fact.hindered is not None, beside, not roles.isdisjoint(fact.apart)


def _priority(group: Group, name: str) -> int:
    return group.members.priority.get(name, DEFAULT_PRIORITY)


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


def _by_choice(group: Group, members: Sequence[MemberFact]) -> list[str]:
    """Return the members' names, the one that ``choose`` prefers first."""
    choose = group.members.choose
    sign = -1.0 if choose == "newest" else 1.0
    listed = {name: index for index, name in enumerate(group.members.servers)}

    def key(fact: MemberFact) -> tuple[bool, float, int, str]:
        age = math.inf if fact.created_at is None else sign * fact.created_at
        return (fact.name != choose, age, listed.get(fact.name, len(listed)), fact.name)

    return [fact.name for fact in sorted(members, key=key)]


def _refused(
    role: str, member: str, why: Mapping[str, str], facts: Mapping[str, MemberFact]
) -> NoEligibleMember:
    known = member in facts
    return NoEligibleMember(
        f'"{member}" cannot take the role "{role}"',
        "Name another member, or repair this one." if known else did_you_mean(member, facts),
        why,
    )
