# SPDX-License-Identifier: Apache-2.0
"""Groups, their members and their removal, by project. Each function runs in one transaction."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa

from mistral_failover.convergence.records import Action, GroupState, TraversalStatus
from mistral_failover.model.canonical import version_of
from mistral_failover.model.goal import fence_name, goal_members, replace_name
from mistral_failover.model.ids import group_id
from mistral_failover.store import goals, hooks
from mistral_failover.store.session import ProjectSession, Session
from mistral_failover.store.tables import (
    ALIVE,
    GROUP_STATE,
    OF_TRAVERSAL,
    OF_USERS,
    definitions,
    edges,
    former_members,
    groups,
    members,
    metadata,
    nodes,
    observations,
    operations,
    plans,
    resources,
    traversals,
)
from mistral_failover.store.tables import goals as goal_table
from mistral_failover.store.transaction import ProjectTransaction

TO_MOVE = sa.func.coalesce(groups.c.in_force, groups.c.defined)
"""The version of the definition that a failover moves, as `GroupState.to_move`."""
_STATES = sa.select(*GROUP_STATE)
_STATE = _STATES.where(groups.c.id == sa.bindparam("group_id"))
_OF_TRAVERSAL = (
    sa.select(*_STATE.selected_columns)
    .join(traversals, traversals.c.group_id == groups.c.id)
    .where(traversals.c.id == sa.bindparam("traversal_id"))
)
_DEFINED = (
    sa.select(definitions.c.document)
    .join(groups, groups.c.id == definitions.c.group_id)
    .where(groups.c.id == sa.bindparam("group_id"), definitions.c.version == groups.c.defined)
)
_USED = definitions.c.version.in_(
    [groups.c.defined, groups.c.in_force, groups.c.definition_version]
)
_OF_MEMBER = (
    members.c.name,
    members.c.server_id,
    members.c.created_at,
    members.c.epoch,
    members.c.confirmed_epoch,
    members.c.confirmed_because,
)
_MEMBERS = (
    sa.select(*_OF_MEMBER)
    .where(members.c.group_id == sa.bindparam("group_id"))
    .order_by(members.c.name)
)
_OF_SERVER = (
    sa.select(groups.c.name, members.c.name)
    .join(groups, groups.c.id == members.c.group_id)
    .where(members.c.server_id == sa.bindparam("this_server"))
    .order_by(groups.c.name)
)
_IN_QUEUE = (
    sa.select(traversals.c.group_id, traversals.c.number, definitions.c.document)
    .join(
        definitions,
        sa.and_(
            definitions.c.group_id == traversals.c.group_id,
            definitions.c.version == traversals.c.definition_version,
        ),
    )
    .where(traversals.c.id == sa.bindparam("this_traversal"))
)
_TYPES = sa.select(resources.c.id, resources.c.type).where(
    resources.c.group_id == sa.bindparam("this_group")
)
_WITH_MEMBERS = (
    sa.select(*_STATE.selected_columns, *_OF_MEMBER)
    .join(members, members.c.group_id == groups.c.id, isouter=True)
    .where(groups.c.id == sa.bindparam("group_id"))
    .order_by(members.c.name)
)


@dataclass(frozen=True)
class MemberRow:
    """A member as last seen. ``confirmed_because`` is for this epoch only."""

    name: str
    server_id: str | None
    created_at: float | None
    epoch: int
    confirmed_because: str | None


def define(tx: ProjectSession, name: str, definition: Mapping[str, Any]) -> str:
    """Create a group or change what is defined for it. Return its id. What is in force stays.

    ``definition`` is ``{"document": group file, "types": [type files]}``. Types that live records
    and kept goals still need are kept, even if the new definition does not contain them.
    """
    identity = group_id(tx.project_id, name)
    row = tx.connection.execute(
        sa.select(groups.c.hook, groups.c.current_traversal)
        .where(groups.c.id == identity)
        .with_for_update()
    ).one_or_none()
    if row is None:
        version = version_of(definition)
        tx.insert(
            groups,
            id=identity,
            project_id=tx.project_id,
            name=name,
            definition_version=version,
            defined=version,
            created_at=tx.clock(),
            hook=_hook(definition),
            told=0,
        )
        _keep_definition(tx, identity, definition)
        return identity
    brought = {document["name"] for document in definition["types"]}
    needed = set(
        tx.connection.execute(
            sa.select(resources.c.type).where(resources.c.group_id == identity).where(ALIVE)
        ).scalars()
    )
    needed |= goals.needed_types(tx, identity)
    before = tx.connection.execute(_DEFINED, {"group_id": identity}).scalar_one()
    kept = [t for t in before["types"] if t["name"] in needed - brought]
    merged = {**definition, "types": [*definition["types"], *kept]}
    version = version_of(merged)
    _keep_definition(tx, identity, merged)
    changes = {"defined": version, "hook": _hook(definition)}
    if row.current_traversal is None:
        changes["definition_version"] = version
    tx.execute(groups.update().where(groups.c.id == identity).values(changes))
    goals.purge_definitions(tx, identity)
    if row.hook is None and _hook(definition) is not None:
        hooks.begin(tx, identity)
    return identity


def _keep_definition(tx: ProjectSession, identity: str, document: Mapping[str, Any]) -> None:
    """Keep a definition of a group; keeping it again changes nothing."""
    version = version_of(document)
    here = sa.and_(definitions.c.group_id == identity, definitions.c.version == version)
    if tx.connection.execute(sa.select(definitions.c.version).where(here)).first() is None:
        tx.insert(
            definitions,
            group_id=identity,
            version=version,
            document=document,
            created_at=tx.clock(),
        )


def _hook(definition: Mapping[str, Any]) -> str | None:
    """Return the workflow that receives events."""
    told: Mapping[str, Any] | None = definition.get("document", {}).get("on_event")
    return None if told is None else str(told["workflow"])


def find(tx: ProjectSession, name: str) -> GroupState | None:
    """Return a group by its name. It is read without a lock."""
    return get(tx, group_id(tx.project_id, name))


def get(tx: Session, identity: str) -> GroupState | None:
    """Return a group by its id, in a transaction of any kind. It is read without a lock."""
    row = tx.connection.execute(_STATE, {"group_id": identity}).one_or_none()
    return GroupState(*row) if row else None


def states(tx: Session) -> list[GroupState]:
    """Return every group of users: of the transaction's project, or of every project in a
    transaction of every project."""
    return [GroupState(*row) for row in tx.connection.execute(_STATES.where(OF_USERS))]


def used_definitions(tx: Session) -> list[Mapping[str, Any]]:
    """Return the definitions that every group works by, as for `states`: what is defined, what is
    in force, and that of its current traversal."""
    query = sa.select(definitions.c.document).join(groups, groups.c.id == definitions.c.group_id)
    return list(tx.connection.execute(query.where(_USED, OF_USERS)).scalars())


def of_traversal(tx: Session, traversal_id: str) -> GroupState | None:
    """Return the group of a traversal. It is read without a lock."""
    row = tx.connection.execute(_OF_TRAVERSAL, {"traversal_id": traversal_id}).one_or_none()
    return GroupState(*row) if row else None


def names(tx: ProjectSession) -> list[str]:
    """Return the names of the project's groups."""
    query = sa.select(groups.c.name).where(groups.c.project_id == tx.project_id, OF_USERS)
    return list(tx.connection.execute(query.order_by(groups.c.name)).scalars())


def documents(tx: ProjectSession, *, locked: bool = False) -> dict[str, list[Mapping[str, Any]]]:
    """Return, by the group's name, the group files by which each group of the project moves: what
    is defined, what is in force, and what its current traversal has. ``locked``: wait for
    transactions that define groups at the same time, and keep further ones waiting."""
    if locked:
        mine = groups.c.project_id == tx.project_id
        tx.connection.execute(sa.select(groups.c.id).where(mine).with_for_update(read=True)).all()
    query = (
        sa.select(groups.c.name, definitions.c.document)
        .join(definitions, definitions.c.group_id == groups.c.id)
        .where(groups.c.project_id == tx.project_id, OF_USERS, _USED)
        .order_by(groups.c.name)
    )
    found: dict[str, list[Mapping[str, Any]]] = {}
    for row in tx.connection.execute(query):
        found.setdefault(row.name, []).append(row.document["document"])
    return found


def members_of(tx: ProjectSession, identity: str) -> dict[str, MemberRow]:
    """Return the members of a group, by name."""
    return _members(tx.connection.execute(_MEMBERS, {"group_id": identity}))


def all_members_of(tx: ProjectSession, identity: str) -> dict[str, MemberRow]:
    """Return, by name, the members of a group and those that have left it, which may come back."""
    query = sa.select(
        former_members.c.name, former_members.c.server_id, former_members.c.epoch
    ).where(former_members.c.group_id == identity)
    former = {
        name: MemberRow(name, server_id, None, epoch, None)
        for name, server_id, epoch in tx.connection.execute(query)
    }
    return former | members_of(tx, identity)


def with_members(tx: Session, identity: str) -> tuple[GroupState, dict[str, MemberRow]] | None:
    """Return a group by its id, and its members by name, by one statement."""
    rows = tx.connection.execute(_WITH_MEMBERS, {"group_id": identity}).all()
    if not rows:
        return None
    width = len(_STATE.selected_columns)
    state = GroupState(*rows[0][:width])
    return state, _members(row[width:] for row in rows if row[width] is not None)


def _members(rows: Iterable[Sequence[Any]]) -> dict[str, MemberRow]:
    return {
        name: MemberRow(
            name, server_id, created_at, epoch, because if confirmed_epoch == epoch else None
        )
        for name, server_id, created_at, epoch, confirmed_epoch, because in rows
    }


@dataclass(frozen=True)
class ReplacedMember:
    """A member that has another server now. ``server_id``: the server before, None if there was
    none; ``epoch``: the new one."""

    name: str
    server_id: str | None
    epoch: int


def record_stack(
    tx: ProjectSession, identity: str, before: str | None, name: str | None, stack_id: str | None
) -> bool:
    """Record the name and the id of a group's stack, None if it has none any more, unless it has
    another name than ``before`` by now. Return whether that took effect."""
    return tx.changed(
        groups.update()
        .where(groups.c.id == identity, groups.c.stack_name.is_not_distinct_from(before))
        .values(stack_name=name, stack_id=stack_id)
    )


def adopt_stack(tx: ProjectTransaction, identity: str, before: str, stack_id: str) -> bool:
    """Let a group take another stack of the same name. Return False if it has another one than
    ``before`` by now. What was recorded until now was of the former stack
    (:attr:`views.AttachedVolume.of_former_stack`)."""
    return tx.changed(
        groups.update()
        .where(groups.c.id == identity, groups.c.stack_id == before)
        .values(stack_id=stack_id, adopted=tx.number())
    )


def raise_to(tx: ProjectSession, identity: str, epochs: Mapping[str, int]) -> None:
    """Raise the epochs of members to these, by name; a later one stays."""
    for name, epoch in epochs.items():
        tx.execute(
            members.update()
            .where(members.c.group_id == identity, members.c.name == name, members.c.epoch < epoch)
            .values(epoch=epoch)
        )


def mark_restored(tx: ProjectTransaction, identity: str) -> None:
    """Record that the rows of a group are older than what happened in the cloud, as the last line
    of a backup does. Its traversal is not the current one any more, so no worker continues it."""
    tx.execute(
        groups.update().where(groups.c.id == identity).values(restored=True, current_traversal=None)
    )


def begin_again(tx: ProjectTransaction, identity: str, because: str) -> None:
    """Forget what a restored group claims to have: its records, its goal, its last observation, the
    confirmations of its fences. It is then as if it was never activated. Its file, its history, its
    alarms and its members' epochs stay. ``because``: for the history."""
    _move_out(tx, identity, members_of(tx, identity).keys())
    of_group = sa.select(traversals.c.id).where(traversals.c.group_id == identity)
    for table in (nodes, edges):
        tx.execute(table.delete().where(table.c.traversal_id.in_(of_group)))
    open_ones = traversals.c.status.in_(
        (TraversalStatus.IN_PROGRESS, TraversalStatus.BLOCKED, TraversalStatus.FAILED)
    )
    ended = {"status": TraversalStatus.SUPERSEDED, "reason": because, "ended_at": tx.clock()}
    tx.execute(
        traversals.update().where(traversals.c.group_id == identity, open_ones).values(ended)
    )
    for table in (operations, resources, observations, plans):
        tx.execute(table.delete().where(table.c.group_id == identity))
    changes = dict.fromkeys(
        ("current_traversal", "last_complete_goal", "in_force", "stack_name", "stack_id")
    )
    tx.execute(
        groups.update()
        .where(groups.c.id == identity)
        .values(**changes, restored=False, definition_version=groups.c.defined)
    )


class StaleObservation(Exception):  # noqa: N818 - no error: it is looked at again
    """A member's server changed after these observations of the members began."""


def record_members(
    tx: ProjectTransaction,
    identity: str,
    seen: Iterable[tuple[str, str, float | None]],
    before: Mapping[str, MemberRow] | None = None,
) -> list[ReplacedMember]:
    """Record members as (name, server id, creation time). Return those that were replaced. If a
    known member has another server, it was replaced: its epoch is raised. Resources that were begun
    on the former server stay recorded there, even if their outcome is unknown.

    ``before``: :func:`members_of` from before the members were read from the cloud, None if that
    was just now. Raises StaleObservation if a member has neither the server it had then nor the one
    that was seen, because what was seen may be older.
    """
    seen = list(seen)
    known = members_of(tx, identity)
    before = known if before is None else before
    if returning := {name for name, _, _ in seen} - known.keys():
        tx.return_members(identity, returning)
        known = members_of(tx, identity)
        before = {**{name: known[name] for name in returning & known.keys()}, **before}
    replaced: dict[str, str | None] = {}
    for name, server_id, created_at in seen:
        if name not in known:
            tx.insert(
                members,
                group_id=identity,
                name=name,
                server_id=server_id,
                created_at=created_at,
                epoch=1,
            )
        elif known[name].server_id != server_id:
            former = known[name].server_id
            if name not in before or before[name].server_id != former:
                raise StaleObservation(
                    f"{name} was replaced while the members were being looked at"
                )
            if tx.changed(
                members.update()
                .where(
                    members.c.group_id == identity,
                    members.c.name == name,
                    members.c.server_id == former,
                )
                .values(server_id=server_id, created_at=created_at, epoch=members.c.epoch + 1)
            ):
                replaced[name] = former
                _pin(tx, identity, name, former)
    now = members_of(tx, identity) if replaced else {}
    return [ReplacedMember(name, former, now[name].epoch) for name, former in replaced.items()]


def leave(tx: ProjectTransaction, identity: str, seen: Collection[str] | None = None) -> None:
    """Let members leave that are not in the group any more and hold nothing of it. Their epochs are
    kept (``former_members``).

    A member is in the group if a group file names it by which the group moves, or if it is in
    ``seen``, the names that the cloud shows now. None: the cloud was not asked, so nothing is known
    about the members of an autoscaling group.
    """
    known = members_of(tx, identity)
    files = _used_files(tx, identity)
    if seen is None and not all(_servers(document) for document in files):
        return
    staying = {*(seen or ()), *itertools.chain.from_iterable(map(_servers, files))}
    if known.keys() <= staying:
        return
    # A new goal may name them: from here on it waits, and brings back what it names.
    state = tx.lock_group(identity, shared=False)
    traversal = tx.traversal(state.current_traversal) if state and state.current_traversal else None
    goal = tx.goal(identity, traversal.goal_version) if traversal else None
    staying |= goal_members(goal) if goal else frozenset()
    records = tx.records(identity)
    staying |= {record.member for record in records if record.member}
    names = {record.name for record in records}  # those about a member are not always on it
    staying |= {each for each in known if {fence_name(each), replace_name(each)} & names}
    _move_out(tx, identity, known.keys() - staying)


def _used_files(tx: ProjectSession, identity: str) -> list[Mapping[str, Any]]:
    """Return the group files by which a group moves: what is defined, what is in force, and what
    its current traversal has."""
    query = (
        sa.select(definitions.c.document)
        .join(groups, groups.c.id == definitions.c.group_id)
        .where(groups.c.id == identity, _USED)
    )
    return [row["document"] for row in tx.connection.execute(query).scalars()]


def _servers(document: Mapping[str, Any]) -> Sequence[str]:
    """Return the members that a group file names."""
    named: Sequence[str] = document["members"].get("servers", ())
    return named


def _move_out(tx: ProjectTransaction, identity: str, names: Collection[str]) -> None:
    """Make former members of these members."""
    of = sa.select(members.c.name, members.c.server_id, members.c.epoch).where(
        members.c.group_id == identity, members.c.name.in_(names)
    )
    for name, server_id, epoch in tx.connection.execute(of.with_for_update()).all():
        tx.insert(former_members, group_id=identity, name=name, server_id=server_id, epoch=epoch)
    tx.execute(members.delete().where(members.c.group_id == identity, members.c.name.in_(names)))


def _pin(tx: ProjectSession, identity: str, member: str, server_id: str | None) -> None:
    """Record the current server on a member's records that do not name one. From now on the
    member's name means another server."""
    query = sa.select(resources.c.id, resources.c.attributes).where(
        resources.c.group_id == identity,
        resources.c.member == member,
        resources.c.action != Action.INIT,
        ALIVE,
    )
    for row in tx.connection.execute(query.with_for_update()).all():
        if server_id and not row.attributes.get("server_id"):
            tx.execute(
                resources.update()
                .where(resources.c.id == row.id)
                .values(attributes={**row.attributes, "server_id": server_id})
            )


def confirm_fenced(tx: ProjectSession, identity: str, member: str, because: str) -> bool:
    """Record that an operator confirms: this member, in its present epoch, no longer writes. Return
    False if there is no such member."""
    return tx.changed(
        members.update()
        .where(members.c.group_id == identity, members.c.name == member)
        .values(confirmed_epoch=members.c.epoch, confirmed_because=because)
    )


def member_of_server(
    tx: ProjectSession, server_id: str, group: str | None = None
) -> tuple[str, str] | None:
    """Return the (group name, member name) of the member with this server, within the project. If
    there are several groups, return the one named, otherwise the first by name."""
    rows = tx.connection.execute(_OF_SERVER, {"this_server": server_id}).all()
    found = next((row for row in rows if group in (None, row[0])), None)
    return (found[0], found[1]) if found else None


@dataclass(frozen=True)
class MemberOfProject:
    """A member of one of the project's groups, with its last known server."""

    group_id: str
    group: str
    name: str
    server_id: str


def members_in(tx: ProjectSession) -> list[MemberOfProject]:
    """Return the members of all groups of the project that have a server, by group and name."""
    query = (
        sa.select(groups.c.id, groups.c.name, members.c.name, members.c.server_id)
        .join(members, members.c.group_id == groups.c.id)
        .where(groups.c.project_id == tx.project_id, members.c.server_id.is_not(None))
        .order_by(groups.c.name, members.c.name)
    )
    return [MemberOfProject(*row) for row in tx.connection.execute(query)]


def servers_of_others(tx: ProjectSession, identity: str) -> dict[str, str]:
    """Return, by server, the group that has it as a member, of the project's groups but this one:
    as they know their members, and as files without a stack name them."""
    found = {each.server_id: each.group for each in members_in(tx) if each.group_id != identity}
    query = (
        sa.select(groups.c.name, definitions.c.document)
        .join(definitions, definitions.c.group_id == groups.c.id)
        .where(groups.c.project_id == tx.project_id, OF_USERS, groups.c.id != identity, _USED)
    )
    for row in tx.connection.execute(query):
        for path, each in row.document.get("identities", {}).items():
            if path.startswith("members.servers"):
                found[each["id"]] = row.name
    return found


def priorities(tx: ProjectSession) -> dict[str, int]:
    """Return the priority of each group of the project, by the group's id."""
    query = (
        sa.select(groups.c.id, definitions.c.document)
        .join(definitions, definitions.c.group_id == groups.c.id)
        .where(groups.c.project_id == tx.project_id, definitions.c.version == TO_MOVE)
    )
    rows = tx.connection.execute(query)
    return {row.id: int(row.document["document"].get("priority", 0)) for row in rows}


def count_with_goal(tx: ProjectSession) -> int:
    """Return how many groups of the project were given a goal."""
    query = sa.select(sa.func.count()).where(
        groups.c.project_id == tx.project_id, OF_USERS, groups.c.current_traversal.is_not(None)
    )
    return int(tx.connection.execute(query).scalar_one())


def first_of(tx: ProjectSession) -> str | None:
    """Return the id of one group of the project. All callers get the same one."""
    mine = (groups.c.project_id == tx.project_id, OF_USERS)
    query = sa.select(sa.func.min(groups.c.id)).where(*mine)
    identity: str | None = tx.connection.execute(query).scalar_one()
    return identity


def declared_lost_since(tx: ProjectSession, identity: str, member: str, at: float) -> bool:
    """Return whether a goal declares a member lost: the goal that was current at that time, or a
    later one."""
    held_then = (
        sa.select(sa.func.max(traversals.c.number))
        .where(traversals.c.group_id == identity, traversals.c.started_at <= at)
        .scalar_subquery()
    )
    query = (
        sa.select(goal_table.c.document)
        .join(traversals, OF_TRAVERSAL)
        .where(
            traversals.c.group_id == identity,
            traversals.c.number >= sa.func.coalesce(held_then, 0),
        )
    )
    return any(member in goal["lost"] for goal in tx.connection.execute(query).scalars())


def forget(tx: ProjectTransaction, group_id: str) -> None:
    """Delete a group and everything that belongs to it: goals, traversals, records, operations,
    incidents, journal, members.

    Only the epochs of its members stay (``former_members``). If a group is defined again under this
    name, it continues from there and never sends a command with an old epoch.
    """
    _move_out(tx, group_id, members_of(tx, group_id).keys())
    of_group = sa.select(traversals.c.id).where(traversals.c.group_id == group_id)
    for table in reversed(metadata.sorted_tables):
        if "traversal_id" in table.c and "group_id" not in table.c:
            tx.execute(table.delete().where(table.c.traversal_id.in_(of_group)))
    for table in reversed(metadata.sorted_tables):
        if "group_id" in table.c and table is not former_members:
            tx.execute(table.delete().where(table.c.group_id == group_id))
    tx.execute(groups.delete().where(groups.c.id == group_id))


@dataclass(frozen=True)
class QueuePosition:
    """The place of a traversal among others. ``number`` grows from each traversal to the next,
    ``types`` are those of the group's resources, by id."""

    priority: int = 0
    number: int = 0
    types: Mapping[str, str] = field(default_factory=dict)


def queue_position(tx: ProjectSession, traversal_id: str) -> QueuePosition | None:
    """Return the place of a traversal; None if there is none."""
    row = tx.connection.execute(_IN_QUEUE, {"this_traversal": traversal_id}).first()
    if row is None:
        return None
    types = tx.connection.execute(_TYPES, {"this_group": row.group_id})
    return QueuePosition(
        int(row.document["document"].get("priority", 0)),
        row.number,
        {row.id: row.type for row in types},
    )
