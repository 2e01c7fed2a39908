# SPDX-License-Identifier: Apache-2.0
"""The state of a group, read from the store in one transaction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from mistral_failover.convergence.errors import UnknownGroup
from mistral_failover.convergence.records import GroupState, TraversalStatus
from mistral_failover.groups import unfinished_replacements
from mistral_failover.model.goal import ATTACHMENT, vacant_roles
from mistral_failover.model.group import Group
from mistral_failover.model.ids import group_id
from mistral_failover.runtime.request import Request
from mistral_failover.store import groups
from mistral_failover.store.transaction import ProjectTransaction


@dataclass(frozen=True)
class GroupSnapshot:
    """The state of a group. ``group``: the definition that a failover moves, unless
    another one was asked for. ``lost``: the members that are declared lost and have no other server
    yet. ``reached``: whether the current goal was reached. ``occupied``: the members that still
    have resources of the group. ``vacant``: the roles that no member can take at present, so that
    the goal makes room for one. ``attached_volumes``: (name, volume) of the volumes that it has
    moved. ``replacing``: by member, the unfinished replacements (``unfinished_replacements``);
    ``being_replaced``: those that a worker is carrying out."""

    state: GroupState
    group: Group
    roles: Mapping[str, str]
    lost: frozenset[str]
    reached: bool
    occupied: frozenset[str]
    attached_volumes: frozenset[tuple[str, str]] = frozenset()
    replacing: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    being_replaced: frozenset[str] = frozenset()
    vacant: tuple[str, ...] = ()

    @property
    def in_service(self) -> bool:
        """Whether the group is to serve: its goal assigns roles, or makes room for a member that
        takes them."""
        return bool(self.roles or self.vacant)


def not_yet_defined(project_id: str, group: Group) -> GroupSnapshot:
    """Return the snapshot that a group would have once it is defined, and never had a goal."""
    state = GroupState(
        group_id(project_id, group.name),
        project_id,
        group.name,
        definition_version=group.version,
        current_traversal=None,
        last_complete_goal=None,
        defined=group.version,
        in_force=None,
    )
    return GroupSnapshot(state, group, {}, frozenset(), False, frozenset())


def with_definition(request: Request, snapshot: GroupSnapshot, version: str) -> GroupSnapshot:
    """Return the snapshot with this definition of the group."""
    if version == snapshot.group.version:
        return snapshot
    of = request.runtime.definitions
    group = request.store.reading(lambda tx: of.group(tx, snapshot.state, version))
    return replace(snapshot, group=group)


def group_snapshot(request: Request, name: str) -> GroupSnapshot:
    """Return the state of a group of the request's project. Raises UnknownGroup."""
    return request.store.reading(lambda tx: named_snapshot_in(request, tx, name))


def named_snapshot_in(request: Request, tx: ProjectTransaction, name: str) -> GroupSnapshot:
    """As :func:`group_snapshot`, within a transaction."""
    state = groups.find(tx, name)
    if state is None:
        raise UnknownGroup(name, groups.names(tx))
    return group_snapshot_in(request, tx, state)


def group_snapshot_in(
    request: Request, tx: ProjectTransaction, state: GroupState, version: str | None = None
) -> GroupSnapshot:
    """As :func:`group_snapshot` of a known group, within a transaction. ``version``: of the
    definition; by default the one that a failover moves."""
    group = request.runtime.definitions.group(tx, state, version or state.to_move)
    traversal = tx.traversal(state.current_traversal) if state.current_traversal else None
    goal = tx.goal(state.id, traversal.goal_version) if traversal else None
    roles = goal.document["roles"] if goal else {}
    lost = goal.document["lost"] if goal else ()
    records = list(tx.records(state.id))
    replaced = unfinished_replacements.replaced_lost_members(goal, records) if goal else frozenset()
    occupied = {record.member for record in records if record.member}
    attached_volumes = {
        (record.name, str(record.properties["volume"]))
        for record in records
        if record.type == ATTACHMENT and record.properties
    }
    return GroupSnapshot(
        state,
        group,
        roles,
        frozenset(lost) - replaced,
        traversal is not None and traversal.status == TraversalStatus.COMPLETE,
        frozenset(occupied),
        frozenset(attached_volumes),
        unfinished_replacements.unfinished(goal, records) if goal else {},
        unfinished_replacements.being_replaced(records, tx.now()),
        vacant_roles(goal) if goal else (),
    )


def locked(request: Request, tx: ProjectTransaction, group: str) -> GroupState:
    """Lock the group, so that no other transaction gives it a goal. Raises UnknownGroup."""
    found = groups.find(tx, group)
    state = tx.lock_group(found.id, shared=False) if found else None
    if state is None:
        raise UnknownGroup(group, groups.names(tx))
    return state
