# SPDX-License-Identifier: Apache-2.0
"""What a rehearsal of a group's failover would do. It reads, and changes nothing."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from shlex import quote
from typing import Any, TypedDict

from mistral_failover.agent.channel.interface import Heartbeat
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
from mistral_failover.model.rehearsal_goal import RehearsedGroup, Standby, checks_of
from mistral_failover.model.verbs import FAILOVER
from mistral_failover.orders import failover
from mistral_failover.orders.rehearsal.turns import Turn, turns
from mistral_failover.runtime.errors import ActionError
from mistral_failover.runtime.request import Request
from mistral_failover.store import groups, rehearsed_roles
from mistral_failover.store.groups import MemberRow
from mistral_failover.store.rehearsed_roles import RehearsedRole
from mistral_failover.store.transaction import ProjectTransaction

_PASSED_OVER = frozenset({"NO_STANDBY", "NOT_REHEARSABLE", "NOTHING_TO_REHEARSE"})
"""The errors of one turn, after which the next one is taken."""


class PlannedVolume(TypedDict):
    """A volume that is copied. ``resource``: its attachment; ``size``: in GiB."""

    resource: str
    volume: str
    size: int


class PassedOver(TypedDict):
    """A member whose turn came first, and that cannot be rehearsed now. ``role``: the one that it
    was to take; ``why``: in a sentence."""

    member: str
    role: str
    why: str


class PlannedRehearsal(TypedDict):
    """What a rehearsal does. ``lost``: the member whose loss is rehearsed. ``roles``: those that
    move, and the member that takes each; ``servers``: the server of each of these members.
    ``applications``: what is started on the copies. ``checks``: their commands. ``left_out``: by
    name, the type of what a failover would move, and a rehearsal does not. ``gib``: room for
    snapshots and copies, until the end. ``limit``: seconds. ``consistent``: whether the copies are
    of one instant; False for several volumes. ``passed_over``: whose turn came before."""

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
    passed_over: list[PassedOver]


@dataclass(frozen=True)
class RehearsalDraft:
    """A rehearsal that can begin. ``planned``: for people. ``snapshot``: of the group when it was
    drawn. The others: as of `RehearsedGroup`."""

    snapshot: GroupSnapshot
    moving: Mapping[str, Mapping[str, Any]]
    role_of: Mapping[str, str]
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
            role_of=self.role_of,
            standbys=self.standbys,
            volumes=self.volumes,
            recorded=self.recorded,
            spec=group.rehearsal,
        )


def draft(request: Request, group: str, order: Order) -> RehearsalDraft:
    """Return what a rehearsal would do: ``order.member`` is the member whose loss is rehearsed,
    ``order.to`` the one that takes its roles, or only ``order.role``. What the order does not name
    is that whose turn it is (`turns`); one that cannot be rehearsed now is passed over.

    Raises UnknownGroup, NoEligibleMember, CloudError CANNOT_COPY, QUOTA and others; ActionError
    NOT_AT_REST, NO_STANDBY, NOTHING_TO_REHEARSE, NOT_REHEARSABLE, BAD_INPUT, UNKNOWN_MEMBER.
    """
    snapshot = group_snapshot(request, group)
    refuse_at_work(snapshot)
    members = failover.read_members(request, snapshot, remember=False)
    known = request.store.reading(lambda tx: _read(tx, snapshot.state.id))
    servers = {fact.name: fact.server_id for fact in members if fact.server_id and fact.healthy}
    heard = agent_health.heard_agents(request, snapshot.group, snapshot.state.id, servers)
    refused: ActionError | None = None
    passed_over: list[PassedOver] = []
    for turn in turns(snapshot, order, members, known.rehearsed):
        try:
            drawn = _drawn(request, snapshot, order, members, known, heard, turn)
        except ActionError as error:
            if error.code not in _PASSED_OVER:
                raise
            refused = refused or error
            for role, member in turn.to.items() if isinstance(turn.to, Mapping) else ():
                passed_over.append({"member": member, "role": role, "why": error.message})
        else:
            drawn.planned["passed_over"] = passed_over
            return drawn
    assert refused is not None  # a group that serves has a member with a role, so there is a turn
    raise refused


def _drawn(
    request: Request,
    snapshot: GroupSnapshot,
    order: Order,
    members: list[MemberFact],
    known: _Known,
    heard: Mapping[str, Heartbeat],
    turn: Turn,
) -> RehearsalDraft:
    """Return the rehearsal of one turn. Raises as :func:`draft`."""
    group, lost = snapshot.group, turn.lost
    goal = _failover_goal(snapshot, turn, members, named=order.to is not None)
    roles: dict[str, str] = {
        role: member
        for role, member in goal.document["roles"].items()
        if member != snapshot.roles.get(role)
    }
    servers = {fact.name: fact.server_id for fact in members}
    standbys = {
        member: Standby(str(servers[member]), known.members[member].epoch)
        for member in sorted(set(roles.values()))
        if servers.get(member) and member in known.members
    }
    moving = {
        name: goal.document["resources"][name]
        for name, spec in group.resources.items()
        if any(each.kind == "get_param" and each.target in roles for each in _refers(spec))
    }
    # What only refers to a role that moves stays where it is.
    role_of = {
        name: str(group.role_of(name))
        for name, each in moving.items()
        if each["type"] in (ATTACHMENT, ACTIVATION) and group.role_of(name) in roles
    }
    applications = sorted(name for name in role_of if moving[name]["type"] == ACTIVATION)
    if not applications:
        raise ActionError(
            "NOTHING_TO_REHEARSE",
            f"{group.name} starts no application on the member that takes over",
            "A rehearsal starts the application on copies of its volumes: name it as an activation "
            "in the group file.",
        )
    _refuse_unable(snapshot, heard, roles)
    tried = {name: each for name, each in moving.items() if name in role_of}
    copied = _copied(request, snapshot, tried)
    sizes = dict(copied.values())
    planned: PlannedRehearsal = {
        "group": group.name,
        "lost": lost,
        "roles": roles,
        "servers": {member: each.server_id for member, each in standbys.items()},
        "volumes": [
            {"resource": name, "volume": volume, "size": size}
            for name, (volume, size) in sorted(copied.items())
        ],
        "applications": applications,
        "checks": [each.command for each in checks_of(group.rehearsal, roles)],
        "left_out": {
            name: each["type"] for name, each in sorted(moving.items()) if name not in role_of
        },
        "gib": 2 * sum(sizes.values()),
        "limit": group.rehearsal.limit,
        "consistent": len(sizes) < 2,  # noqa: PLR2004 - one volume is consistent with itself
        "passed_over": [],
    }
    recorded = _recorded(known.records)
    return RehearsalDraft(snapshot, tried, role_of, planned, standbys, copied, recorded)


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


def _failover_goal(
    snapshot: GroupSnapshot, turn: Turn, members: list[MemberFact], *, named: bool
) -> Goal:
    """Return the goal of the failover. ``named``: an operator named the member that takes over, so
    it is said why it cannot."""
    group, lost = snapshot.group, turn.lost
    try:
        asked = Order(FAILOVER, to=turn.to, lost=(lost,))
        goal = failover.next_goal_or_room(snapshot, asked, members)
    except NoEligibleMember:
        if named:
            raise
        goal = None
    if goal is not None and not vacant_roles(goal):
        return goal
    if {fact.name for fact in members} <= {lost}:
        raise ActionError(
            "NO_STANDBY",
            f"{group.name} cannot be rehearsed: {lost} is its only member. A rehearsal makes no "
            "server, because one from the same template would not be apart from what serves",
            "Add a standby; or try on a second stack how a server comes back: "
            "docs/rehearsal.md#a-single-server.",
        )
    raise ActionError(
        "NO_STANDBY",
        f"no member of {group.name} can take the roles of {lost} now, so there is none to rehearse "
        "on",
        f"See why: failover plan {quote(group.name)} --lost {quote(lost)}",
    )


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
    snapshot: GroupSnapshot, heard: Mapping[str, Heartbeat], roles: Mapping[str, str]
) -> None:
    """Refuse members whose agents do not say that they can rehearse. ``heard``: by member."""
    for member in sorted(set(roles.values())):
        held = {role for role, holder in roles.items() if holder == member}
        wanted = _commands(snapshot, held, roles)
        if why := agent_health.not_rehearsable(heard.get(member), wanted):
            raise ActionError(
                "NOT_REHEARSABLE",
                f"{member} cannot rehearse: {why}",
                "See docs/rehearsal.md, then repair it on the member, or its agent's "
                "configuration.",
            )


def _commands(snapshot: GroupSnapshot, held: Container[str], roles: Mapping[str, str]) -> set[str]:
    """Return the commands that a rehearsal runs on the holder of the roles ``held``, of those that
    move."""
    group, first = snapshot.group, min(roles)
    found = {
        str(spec.properties["start"])
        for name, spec in group.resources.items()
        if spec.type == ACTIVATION and group.role_of(name) in held
    }
    checks = checks_of(group.rehearsal, roles)
    return found | {each.command for each in checks if (each.role or first) in held}


def _recorded(records: Iterable[Record]) -> dict[str, Mapping[str, Any]]:
    return {
        record.name: {"id": record.physical_id, "attributes": dict(record.attributes)}
        for record in records
    }


@dataclass(frozen=True)
class _Known:
    """What the store has of a group."""

    members: Mapping[str, MemberRow]
    records: Sequence[Record]
    rehearsed: Sequence[RehearsedRole]


def _read(tx: ProjectTransaction, group_id: str) -> _Known:
    return _Known(
        groups.members_of(tx, group_id),
        list(tx.records(group_id)),
        rehearsed_roles.of_group(tx, group_id),
    )
