# SPDX-License-Identifier: Apache-2.0
"""What a sweep looks for: what seems to be left lying. Functions over one transaction; lengths of
time in seconds, counted by the database's clock."""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa

from mistral_failover.convergence.records import Node, Ready
from mistral_failover.model.goal import FENCE_PREFIX
from mistral_failover.store.incidents import OPERATOR
from mistral_failover.store.session import Session
from mistral_failover.store.tables import (
    groups,
    incidents,
    journal,
    members,
    nodes,
    operations,
    resources,
    traversals,
)

SWEPT = "sweep"
"""The kind of the journal's sentences about what a sweep did."""


@dataclass(frozen=True)
class Loose:
    """A ready node that nobody alive works on. ``dead``: who held its lock until the lease ended;
    None where the lock is free."""

    ready: Ready
    group_id: str
    group: str
    resource: str
    dead: str | None


@dataclass(frozen=True)
class LongLock:
    """A lock that lasts longer than anybody can vouch for: that of an operation which is a
    workflow. ``left``: seconds until its lease ends."""

    resource_id: str
    resource: str
    group_id: str
    group: str
    owner: str
    token: int
    left: float


@dataclass(frozen=True)
class HeldUp:
    """A node that is blocked by a volume. ``sight``: what there was to be seen of ``volume`` and
    ``server`` (ids) then."""

    ready: Ready
    group_id: str
    group: str
    resource: str
    volume: str
    server: str
    sight: str


def loose(tx: Session, project_id: str, group_id: str | None, quiet: float) -> list[Loose]:
    """The ready nodes that nobody alive works on, and that seem to be left lying.

    A lock whose lease is over is the sign of a dead owner. Where the lock is free the node may be
    on its way through Mistral, so it counts as left only when nothing was said in its traversal
    for ``quiet`` seconds. Neither counts within ``quiet`` seconds after a sweep has triggered it:
    so of two sweeps at once one triggers it.
    """
    now = tx.clock()
    heard = sa.exists().where(
        journal.c.group_id == groups.c.id,
        journal.c.traversal_id == nodes.c.traversal_id,
        journal.c.at > now - quiet,
        sa.or_(
            resources.c.owner.is_(None),
            sa.and_(journal.c.kind == SWEPT, journal.c.resource_id == resources.c.id),
        ),
    )
    query = (
        sa.select(
            nodes.c.traversal_id,
            nodes.c.node,
            groups.c.id.label("group_id"),
            groups.c.name.label("group"),
            resources.c.name.label("resource"),
            resources.c.owner,
        )
        .join(groups, groups.c.current_traversal == nodes.c.traversal_id)
        .join(resources, resources.c.id == nodes.c.resource_id)
        .where(
            groups.c.project_id == project_id,
            nodes.c.status == "WAITING",
            nodes.c.remaining == 0,
            sa.or_(resources.c.owner.is_(None), resources.c.lease_until <= now),
            sa.not_(heard),
        )
        .order_by(groups.c.name, nodes.c.node)
    )
    if group_id is not None:
        query = query.where(groups.c.id == group_id)
    return [
        Loose(
            Ready(row.traversal_id, Node.parse(row.node)),
            row.group_id,
            row.group,
            row.resource,
            row.owner,
        )
        for row in tx.connection.execute(query)
    ]


def vouched(tx: Session, project_id: str, group_id: str | None) -> list[tuple[str, str, str]]:
    """The (group id, group, member) of blocked fences of members that a person, in their present
    epoch, has vouched for: whoever wrote that down died before it reopened them."""
    query = (
        sa.select(groups.c.id, groups.c.name, members.c.name)
        .join(nodes, nodes.c.traversal_id == groups.c.current_traversal)
        .join(resources, resources.c.id == nodes.c.resource_id)
        .join(members, members.c.group_id == groups.c.id)
        .where(
            groups.c.project_id == project_id,
            nodes.c.status == "BLOCKED",
            resources.c.name == sa.literal(FENCE_PREFIX) + members.c.name,
            members.c.confirmed_epoch == members.c.epoch,
        )
        .order_by(groups.c.name, members.c.name)
    )
    if group_id is not None:
        query = query.where(groups.c.id == group_id)
    return [(row[0], row[1], row[2]) for row in tx.connection.execute(query)]


def held_up(tx: Session, project_id: str, group_id: str | None) -> list[HeldUp]:
    """The blocked nodes whose operation said what of a volume has to change."""
    query = (
        sa.select(
            nodes.c.traversal_id,
            nodes.c.node,
            groups.c.id.label("group_id"),
            groups.c.name.label("group"),
            resources.c.name.label("resource"),
            operations.c.result,
        )
        .join(groups, groups.c.current_traversal == nodes.c.traversal_id)
        .join(resources, resources.c.id == nodes.c.resource_id)
        .join(
            operations,
            sa.and_(
                operations.c.resource_id == nodes.c.resource_id,
                operations.c.traversal_id == nodes.c.traversal_id,
            ),
        )
        .where(groups.c.project_id == project_id, nodes.c.status == "BLOCKED")
        .order_by(groups.c.name, nodes.c.node, operations.c.token)
    )
    if group_id is not None:
        query = query.where(groups.c.id == group_id)
    found: dict[str, HeldUp] = {}
    for row in tx.connection.execute(query):
        # Of a node's operations the latest counts.
        found.pop(row.node, None)
        about = ((row.result or {}).get("error") or {}).get("about")
        if about is not None:
            ready = Ready(row.traversal_id, Node.parse(row.node))
            found[row.node] = HeldUp(ready, row.group_id, row.group, row.resource, **about)
    return list(found.values())


def long_locks(tx: Session, project_id: str, group_id: str | None, lease: float) -> list[LongLock]:
    """The locks that last for more than ``lease`` seconds from now."""
    left = resources.c.lease_until - tx.clock()
    query = (
        sa.select(
            resources.c.id.label("resource_id"),
            resources.c.name.label("resource"),
            groups.c.id.label("group_id"),
            groups.c.name.label("group"),
            resources.c.owner,
            resources.c.token,
            left.label("left"),
        )
        .join(groups, groups.c.id == resources.c.group_id)
        .where(groups.c.project_id == project_id, resources.c.owner.is_not(None), left > lease)
        .order_by(groups.c.name, resources.c.name)
    )
    if group_id is not None:
        query = query.where(groups.c.id == group_id)
    return [LongLock(**row._mapping) for row in tx.connection.execute(query)]


def at_work(tx: Session, project_id: str, within: float) -> set[str]:
    """The owners that hold a live lock in the project, or that began or ended an operation within
    the last ``within`` seconds: between two operations nobody holds a lock."""
    now = tx.clock()
    holders = (
        sa.select(resources.c.owner)
        .join(groups, groups.c.id == resources.c.group_id)
        .where(groups.c.project_id == project_id, resources.c.lease_until > now)
    )
    found = set(tx.connection.execute(holders).scalars())
    lately = (
        sa.select(operations.c.owner)
        .join(groups, groups.c.id == operations.c.group_id)
        .where(
            groups.c.project_id == project_id,
            sa.or_(operations.c.started_at > now - within, operations.c.ended_at > now - within),
        )
        .distinct()
    )
    return found | set(tx.connection.execute(lately).scalars())


def unstarted(tx: Session, project_id: str, quiet: float) -> bool:
    """Whether an alarm was admitted, and ``quiet`` seconds later no traversal has begun. What a
    person asked for does not count: they see that it failed, and may have gone elsewhere."""
    query = sa.select(incidents.c.id).where(
        incidents.c.project_id == project_id,
        incidents.c.decision == "ADMITTED",
        incidents.c.source != OPERATOR,
        incidents.c.traversal_id.is_(None),
        incidents.c.decided_at <= tx.clock() - quiet,
    )
    return tx.connection.execute(query.limit(1)).first() is not None


def group_of(tx: Session, project_id: str, traversal_id: str) -> str | None:
    """The id of the project's group that a traversal belongs to."""
    query = (
        sa.select(groups.c.id)
        .join(traversals, traversals.c.group_id == groups.c.id)
        .where(groups.c.project_id == project_id, traversals.c.id == traversal_id)
    )
    found: str | None = tx.connection.execute(query).scalar_one_or_none()
    return found
