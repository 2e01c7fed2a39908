# SPDX-License-Identifier: Apache-2.0
"""A group's members: what they hold, and whether they may take a role."""

from __future__ import annotations

from typing import TypedDict

from mistral_failover.cloud.transport import Unguarded
from mistral_failover.groups import candidates, refresh_members
from mistral_failover.groups.snapshot import GroupSnapshot, group_snapshot
from mistral_failover.model import assignment
from mistral_failover.model.assignment import MemberFact
from mistral_failover.model.roles import DEFAULT_PRIORITY
from mistral_failover.runtime.request import Request
from mistral_failover.store import groups
from mistral_failover.store.groups import MemberRow


class ListedMember(TypedDict):
    """A member of a group. ``epoch``: None if the group has not recorded it yet. ``age``: seconds.
    ``host``: equal for members on one host. ``eligible``: whether it can take a vacant role;
    ``why_not``: the reason, in words. ``doubt``: a reason to prefer other members."""

    member: str
    server: str | None
    epoch: int | None
    roles: list[str]
    age: float | None
    host: str | None
    priority: int
    eligible: bool
    why_not: str | None
    doubt: str | None


_LEFT = "it is no longer a member of the stack"


def members(request: Request, name: str) -> list[ListedMember]:
    """Return a group's members, the one that it would choose first at the top.

    This looks at the cloud and records nothing. A member that left the stack is listed while it
    still holds something of the group. Raises UnknownGroup, CloudError.
    """
    snapshot = group_snapshot(request, name)
    cloud = request.cloud(Unguarded())
    seen = refresh_members.members_now(cloud, snapshot)
    facts = candidates.member_facts(
        request, cloud, snapshot.group, snapshot.state.id, seen, snapshot.lost, thorough=True
    )
    known, now = request.store.reading(
        lambda tx: (groups.members_of(tx, snapshot.state.id), tx.now())
    )
    servers = {member.name: member.server_id for member in seen}
    lost = snapshot.lost & {fact.name for fact in facts}
    why_not = assignment.reasons(snapshot.group, facts, lost)
    doubts = assignment.doubts(facts, lost)
    order = assignment.eligible(snapshot.group, facts, lost)
    place = {member: index for index, member in enumerate(order)}
    rows: list[ListedMember] = [
        {
            **_row(snapshot, fact, known, now),
            "server": servers[fact.name],
            "eligible": fact.name not in why_not,
            "why_not": why_not.get(fact.name),
            "doubt": doubts.get(fact.name),
        }
        for fact in sorted(facts, key=lambda fact: (place.get(fact.name, len(place)), fact.name))
    ]
    left = sorted((snapshot.occupied | set(snapshot.roles.values())) - servers.keys())
    return rows + [_row(snapshot, MemberFact(member), known, now) for member in left]


def _row(
    snapshot: GroupSnapshot, fact: MemberFact, known: dict[str, MemberRow], now: float
) -> ListedMember:
    """Return a member as if it had left the stack."""
    row = known.get(fact.name)
    return {
        "member": fact.name,
        "server": None,
        "epoch": row.epoch if row else None,
        "roles": sorted(role for role, member in snapshot.roles.items() if member == fact.name),
        "age": None if fact.created_at is None else max(0.0, now - fact.created_at),
        "host": fact.host,
        "priority": snapshot.group.members.priority.get(fact.name, DEFAULT_PRIORITY),
        "eligible": False,
        "why_not": _LEFT,
        "doubt": None,
    }
