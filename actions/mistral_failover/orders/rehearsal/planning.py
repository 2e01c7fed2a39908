# SPDX-License-Identifier: Apache-2.0
"""What a rehearsal of a group's failover would do. It reads, and changes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from shlex import quote
from typing import Any, TypedDict

from mistral_failover.cloud import volume_copies, volumes
from mistral_failover.cloud.transport import Unguarded
from mistral_failover.convergence.records import Record
from mistral_failover.groups import agent_health
from mistral_failover.groups.snapshot import GroupSnapshot, group_snapshot
from mistral_failover.model.assignment import MemberFact
from mistral_failover.model.errors import NoEligibleMember
from mistral_failover.model.goal import ACTIVATION, ATTACHMENT, Goal, vacant_roles
from mistral_failover.model.group import ResourceSpec
from mistral_failover.model.order import Order
from mistral_failover.model.references import Reference, find_references
from mistral_failover.model.rehearsal_goal import RehearsedGroup, Standby
from mistral_failover.model.verbs import FAILOVER
from mistral_failover.orders import failover
from mistral_failover.runtime.errors import ActionError
from mistral_failover.runtime.request import Request
from mistral_failover.store import groups
from mistral_failover.store.groups import MemberRow
from mistral_failover.store.transaction import ProjectTransaction


class PlannedVolume(TypedDict):
    """A volume that is copied. ``resource``: its attachment; ``size``: in GiB."""

    resource: str
    volume: str
    size: int


class PlannedRehearsal(TypedDict):
    """What a rehearsal does. ``lost``: the member whose loss is rehearsed. ``roles``: those that
    move, and the member that takes each; ``servers``: the server of each of these members.
    ``applications``: what is started on the copies. ``checks``: their commands. ``left_out``: by
    name, the type of what a failover would move, and a rehearsal does not. ``gib``: room for
    snapshots and copies, until the end. ``limit``: seconds. ``consistent``: whether the copies are
    of one instant; False for several volumes."""

    group: str
    lost: str
    roles: dict[str, str]
    servers: dict[str, str]
    volumes: list[PlannedVolume]
    applications: list[str]
    checks: list[str]
    left_out: dict[str, str]
    gib: int
    limit: float
    consistent: bool


@dataclass(frozen=True)
class RehearsalDraft:
    """A rehearsal that can begin. ``planned``: for people. ``snapshot``: of the group when it was
    drawn. The others: as of `RehearsedGroup`."""

    snapshot: GroupSnapshot
    moving: Mapping[str, Mapping[str, Any]]
    planned: PlannedRehearsal
    standbys: Mapping[str, Standby]
    volumes: Mapping[str, tuple[str, int]]
    recorded: Mapping[str, Mapping[str, Any]]

    def rehearsed(self, rehearsal_id: str) -> RehearsedGroup:
        """Return what the goal of the rehearsal with this id is made of."""
        group, planned = self.snapshot.group, self.planned
        return RehearsedGroup(
            id=rehearsal_id,
            group=group.name,
            group_id=self.snapshot.state.id,
            roles=planned["roles"],
            moving=self.moving,
            standbys=self.standbys,
            volumes=self.volumes,
            recorded=self.recorded,
            spec=group.rehearsal,
        )


def draft(request: Request, group: str, order: Order) -> RehearsalDraft:
    """Return what a rehearsal would do: ``order.member`` is the member whose loss is rehearsed, by
    default the only one that holds roles; ``order.to`` the one that takes them, by default the one
    that a failover would choose.

    Raises UnknownGroup, NoEligibleMember, CloudError CANNOT_COPY, QUOTA and others; ActionError
    NOT_AT_REST, NO_STANDBY, NOTHING_TO_REHEARSE, NOT_REHEARSABLE, BAD_INPUT, UNKNOWN_MEMBER.
    """
    snapshot = group_snapshot(request, group)
    refuse_at_work(snapshot)
    lost = _lost(snapshot, order)
    members = failover.read_members(request, snapshot, lost=[lost], remember=False)
    goal = _failover_goal(snapshot, order, members, lost)
    roles: dict[str, str] = {
        role: member
        for role, member in goal.document["roles"].items()
        if member != snapshot.roles.get(role)
    }
    rows, records = request.store.reading(lambda tx: _read(tx, snapshot.state.id))
    servers = {fact.name: fact.server_id for fact in members}
    standbys = {
        member: Standby(str(servers[member]), rows[member].epoch)
        for member in sorted(set(roles.values()))
        if servers.get(member) and member in rows
    }
    moving = {
        name: goal.document["resources"][name]
        for name, spec in snapshot.group.resources.items()
        if any(each.kind == "get_param" and each.target in roles for each in _refers(spec))
    }
    applications = sorted(n for n, each in moving.items() if each["type"] == ACTIVATION)
    if not applications:
        raise ActionError(
            "NOTHING_TO_REHEARSE",
            f"{group} starts no application on the member that takes over",
            "A rehearsal starts the application on copies of its volumes: name it as an activation "
            "in the group file.",
        )
    copied = _copied(request, snapshot, moving)
    _refuse_unable(request, snapshot, standbys, roles)
    sizes = dict(copied.values())
    planned: PlannedRehearsal = {
        "group": group,
        "lost": lost,
        "roles": roles,
        "servers": {member: each.server_id for member, each in standbys.items()},
        "volumes": [
            {"resource": name, "volume": volume, "size": size}
            for name, (volume, size) in sorted(copied.items())
        ],
        "applications": applications,
        "checks": [each.command for each in snapshot.group.rehearsal.checks],
        "left_out": {
            name: each["type"]
            for name, each in sorted(moving.items())
            if each["type"] not in (ATTACHMENT, ACTIVATION)
        },
        "gib": 2 * sum(sizes.values()),
        "limit": snapshot.group.rehearsal.limit,
        "consistent": len(sizes) < 2,  # noqa: PLR2004 - one volume is consistent with itself
    }
    return RehearsalDraft(snapshot, moving, planned, standbys, copied, _recorded(records))


def _refers(spec: ResourceSpec) -> list[Reference]:
    return find_references(spec.properties)


def refuse_at_work(snapshot: GroupSnapshot) -> None:
    """Refuse a rehearsal of a group that does not serve at rest. Raises ActionError NOT_AT_REST."""
    if snapshot.reached and snapshot.roles:
        return
    name = quote(snapshot.group.name)
    raise ActionError(
        "NOT_AT_REST",
        f"{snapshot.group.name} does not serve at rest, so its failover cannot be rehearsed now",
        f"See what it waits for: failover status {name}",
    )


def _lost(snapshot: GroupSnapshot, order: Order) -> str:
    holders = sorted(set(snapshot.roles.values()))
    if order.member is not None:
        failover.require_members(snapshot, holders, "member", [order.member])
        return order.member
    if len(holders) == 1:
        return holders[0]
    raise ActionError(
        "BAD_INPUT",
        f"member: {' and '.join(holders)} hold roles of {snapshot.group.name}",
        "Name the member whose loss is to be rehearsed.",
    )


def _failover_goal(
    snapshot: GroupSnapshot, order: Order, members: list[MemberFact], lost: str
) -> Goal:
    try:
        asked = Order(FAILOVER, to=order.to, lost=(lost,))
        goal = failover.next_goal_or_room(snapshot, asked, members)
    except NoEligibleMember:
        if order.to is not None:
            raise
        goal = None
    if goal is None or vacant_roles(goal):
        raise ActionError(
            "NO_STANDBY",
            f"no member of {snapshot.group.name} can take the roles of {lost} now, so there is "
            "none to rehearse on",
            f"See why: failover plan {quote(snapshot.group.name)} --lost {quote(lost)}",
        )
    return goal


def _copied(
    request: Request, snapshot: GroupSnapshot, moving: Mapping[str, Any]
) -> dict[str, tuple[str, int]]:
    """Return by attachment the volume and its size. Raises CloudError."""
    named = {
        name: str(each["properties"]["volume"])
        for name, each in moving.items()
        if each["type"] == ATTACHMENT
    }
    if not named:
        return {}
    cloud, stack = request.cloud(Unguarded()), snapshot.group.stack
    ids = {name: volumes.resolve_volume(cloud, stack, volume) for name, volume in named.items()}
    found = volume_copies.refuse_uncopyable(cloud, sorted(set(ids.values())))
    sizes = {each.id: each.size for each in found}
    return {name: (volume, sizes[volume]) for name, volume in ids.items()}


def _refuse_unable(
    request: Request,
    snapshot: GroupSnapshot,
    standbys: Mapping[str, Standby],
    roles: Mapping[str, str],
) -> None:
    """Refuse members whose agents do not say that they can rehearse."""
    servers = {member: each.server_id for member, each in standbys.items()}
    heard = agent_health.heard_agents(request, snapshot.group, snapshot.state.id, servers)
    for member in sorted(set(roles.values())):
        held = {role for role, holder in roles.items() if holder == member}
        wanted = _commands(snapshot, held, first=min(roles) in held)
        if why := agent_health.not_rehearsable(heard.get(member), wanted):
            raise ActionError(
                "NOT_REHEARSABLE",
                f"{member} cannot rehearse: {why}",
                "See docs/rehearsal.md, then repair it on the member, or its agent's "
                "configuration.",
            )


def _commands(snapshot: GroupSnapshot, roles: Iterable[str], *, first: bool) -> set[str]:
    """Return the commands that a rehearsal runs on the holder of roles. ``first``: it is the one of
    the checks that name no role."""
    held = set(roles)
    group = snapshot.group
    found = {
        str(spec.properties["start"])
        for name, spec in group.resources.items()
        if spec.type == ACTIVATION and group.role_of(name) in held
    }
    checks = group.rehearsal.checks
    return found | {c.command for c in checks if (c.role in held if c.role else first)}


def _recorded(records: Iterable[Record]) -> dict[str, Mapping[str, Any]]:
    return {
        record.name: {"id": record.physical_id, "attributes": dict(record.attributes)}
        for record in records
    }


def _read(tx: ProjectTransaction, group_id: str) -> tuple[dict[str, MemberRow], list[Record]]:
    return groups.members_of(tx, group_id), list(tx.records(group_id))
