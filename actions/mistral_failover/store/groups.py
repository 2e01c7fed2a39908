# SPDX-License-Identifier: Apache-2.0
"""Groups and their members, by project. Functions over one transaction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from mistral_failover.convergence.records import GroupState
from mistral_failover.model.canonical import version_of
from mistral_failover.model.ids import group_id
from mistral_failover.store import goals, hooks
from mistral_failover.store.session import Session
from mistral_failover.store.tables import goals as goal_table
from mistral_failover.store.tables import groups, members, resources, traversals


@dataclass(frozen=True)
class MemberRow:
    """A member as it was last seen; ``confirmed_because`` holds for this epoch only."""

    name: str
    server_id: str | None
    created_at: float | None
    epoch: int
    confirmed_because: str | None


def define(tx: Session, project_id: str, name: str, definition: Mapping[str, Any]) -> str:
    """Create a group or change its definition; returns its id.

    ``definition`` is ``{"document": group file, "types": [type files]}``. Types that live records
    and kept goals still need, and that the new definition does not bring, are kept.
    """
    identity = group_id(project_id, name)
    row = tx.connection.execute(
        sa.select(groups.c.definition, groups.c.hook)
        .where(groups.c.id == identity)
        .with_for_update()
    ).one_or_none()
    if row is None:
        tx.insert(
            groups,
            id=identity,
            project_id=project_id,
            name=name,
            definition=definition,
            definition_version=version_of(definition),
            created_at=tx.clock(),
            hook=_hook(definition),
            told=0,
        )
        return identity
    brought = {document["name"] for document in definition["types"]}
    needed = set(
        tx.connection.execute(
            sa.select(resources.c.type)
            .where(resources.c.group_id == identity)
            .where(sa.or_(resources.c.action != "DELETE", resources.c.status != "COMPLETE"))
        ).scalars()
    )
    needed |= goals.needed_types(tx, identity)
    kept = [t for t in row.definition["types"] if t["name"] in needed - brought]
    merged = {**definition, "types": [*definition["types"], *kept]}
    tx.execute(
        groups.update()
        .where(groups.c.id == identity)
        .values(definition=merged, definition_version=version_of(merged), hook=_hook(definition))
    )
    if row.hook is None and _hook(definition) is not None:
        hooks.begin(tx, identity)
    return identity


def _hook(definition: Mapping[str, Any]) -> str | None:
    """The workflow that is to be told of events."""
    told: Mapping[str, Any] | None = definition.get("document", {}).get("on_event")
    return None if told is None else str(told["workflow"])


def find(tx: Session, project_id: str, name: str) -> GroupState | None:
    """A project's group by its name; read without a lock."""
    return get(tx, group_id(project_id, name))


def get(tx: Session, identity: str) -> GroupState | None:
    """A group by its id; read without a lock."""
    query = sa.select(
        groups.c.id,
        groups.c.project_id,
        groups.c.name,
        groups.c.definition_version,
        groups.c.current_traversal,
        groups.c.last_complete_goal,
    ).where(groups.c.id == identity)
    row = tx.connection.execute(query).one_or_none()
    return GroupState(*row) if row else None


def names(tx: Session, project_id: str) -> list[str]:
    """The names of a project's groups."""
    query = sa.select(groups.c.name).where(groups.c.project_id == project_id)
    return list(tx.connection.execute(query.order_by(groups.c.name)).scalars())


def members_of(tx: Session, identity: str) -> dict[str, MemberRow]:
    """The members of a group, by name."""
    query = sa.select(
        members.c.name,
        members.c.server_id,
        members.c.created_at,
        members.c.epoch,
        members.c.confirmed_epoch,
        members.c.confirmed_because,
    ).where(members.c.group_id == identity)
    return {
        row.name: MemberRow(
            row.name,
            row.server_id,
            row.created_at,
            row.epoch,
            row.confirmed_because if row.confirmed_epoch == row.epoch else None,
        )
        for row in tx.connection.execute(query.order_by(members.c.name))
    }


@dataclass(frozen=True)
class Replaced:
    """A member behind whose name another server was found. ``server_id``: the one before, None if
    there was none; ``epoch``: the new one."""

    name: str
    server_id: str | None
    epoch: int


class SeenTooLate(Exception):  # noqa: N818 - no error: it is looked at again
    """A member was noticed to be another server after the look began that shall be remembered."""


def see_members(
    tx: Session,
    identity: str,
    seen: Iterable[tuple[str, str, float | None]],
    before: Mapping[str, MemberRow] | None = None,
) -> list[Replaced]:
    """Record members as (name, server id, creation time). Another server behind a known name is a
    replacement: the member's epoch is raised, and what was begun on the former one stays known to
    be there, also where nobody heard how that ended. Returns those that this raised.

    ``before``: :func:`members_of` from before anybody looked, None where that was just now. Raises
    SeenTooLate where a member is neither whom it was then nor who was seen: the look may be older.
    """
    known = members_of(tx, identity)
    before = known if before is None else before
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
                raise SeenTooLate(f"{name} was replaced while the members were being looked at")
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
    return [Replaced(name, former, now[name].epoch) for name, former in replaced.items()]


def _pin(tx: Session, identity: str, member: str, server_id: str | None) -> None:
    """Write down on which server the records of a member were begun that do not say it: from now on
    the member's name means another one."""
    query = sa.select(resources.c.id, resources.c.attributes).where(
        resources.c.group_id == identity,
        resources.c.member == member,
        resources.c.action != "INIT",
        sa.or_(resources.c.action != "DELETE", resources.c.status != "COMPLETE"),
    )
    for row in tx.connection.execute(query.with_for_update()).all():
        if server_id and not row.attributes.get("server_id"):
            tx.execute(
                resources.update()
                .where(resources.c.id == row.id)
                .values(attributes={**row.attributes, "server_id": server_id})
            )


def confirm_fenced(tx: Session, identity: str, member: str, because: str) -> bool:
    """A person vouches that a member, in its present epoch, writes no more. False: no such
    member."""
    return tx.changed(
        members.update()
        .where(members.c.group_id == identity, members.c.name == member)
        .values(confirmed_epoch=members.c.epoch, confirmed_because=because)
    )


def member_behind(
    tx: Session, project_id: str, server_id: str, group: str | None = None
) -> tuple[str, str] | None:
    """The (group name, member name) whose server this is, within the project; of several groups
    the one named, else the first by name."""
    query = (
        sa.select(groups.c.name, members.c.name)
        .join(groups, groups.c.id == members.c.group_id)
        .where(groups.c.project_id == project_id, members.c.server_id == server_id)
        .order_by(groups.c.name)
    )
    if group is not None:
        query = query.where(groups.c.name == group)
    row = tx.connection.execute(query).first()
    return (row[0], row[1]) if row else None


def with_a_goal(tx: Session, project_id: str) -> int:
    """How many groups of a project were given a goal."""
    query = sa.select(sa.func.count()).where(
        groups.c.project_id == project_id, groups.c.current_traversal.is_not(None)
    )
    return int(tx.connection.execute(query).scalar_one())


def first_of(tx: Session, project_id: str) -> str | None:
    """The id of one group of the project, the same for everybody who asks."""
    query = sa.select(sa.func.min(groups.c.id)).where(groups.c.project_id == project_id)
    identity: str | None = tx.connection.execute(query).scalar_one()
    return identity


def declared_lost_since(tx: Session, identity: str, member: str, at: float) -> bool:
    """Whether a goal that held at a time, or was given later, declares a member lost."""
    held_then = (
        sa.select(sa.func.max(traversals.c.number))
        .where(traversals.c.group_id == identity, traversals.c.started_at <= at)
        .scalar_subquery()
    )
    query = (
        sa.select(goal_table.c.document)
        .join(
            traversals,
            sa.and_(
                traversals.c.group_id == goal_table.c.group_id,
                traversals.c.goal_version == goal_table.c.version,
            ),
        )
        .where(
            traversals.c.group_id == identity,
            traversals.c.number >= sa.func.coalesce(held_then, 0),
        )
    )
    return any(member in goal["lost"] for goal in tx.connection.execute(query).scalars())
