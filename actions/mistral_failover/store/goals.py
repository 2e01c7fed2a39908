# SPDX-License-Identifier: Apache-2.0
"""The goals of a group: list them, find one, and delete old ones by policy.

Each function runs in one transaction. Times are seconds since the epoch.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from mistral_failover.convergence.records import TraversalStatus
from mistral_failover.model.goal import Goal
from mistral_failover.store.records import BIRTH
from mistral_failover.store.session import ProjectSession, Session
from mistral_failover.store.tables import (
    ALIVE,
    definitions,
    goals,
    groups,
    operations,
    resources,
    traversals,
)

LONGEST_READER = 60.0
"""Seconds: no transaction takes as long."""


@dataclass(frozen=True)
class StoredGoal:
    """A goal, and the result of its traversals.

    ``traversals`` is their number. ``status`` is that of the latest one, which began at
    ``given_at``. ``reached_at`` is when the goal was last reached, None if never.
    """

    goal: Goal
    traversals: int
    status: TraversalStatus
    cause: str
    given_at: float
    reached_at: float | None


def listed(tx: ProjectSession, group_id: str) -> list[StoredGoal]:
    """Return a group's goals, the latest first."""
    started: dict[str, list[Any]] = {}
    query = (
        sa.select(
            traversals.c.goal_version,
            traversals.c.status,
            traversals.c.cause,
            traversals.c.started_at,
            traversals.c.ended_at,
        )
        .where(traversals.c.group_id == group_id)
        .order_by(traversals.c.number.desc())
    )
    for row in tx.connection.execute(query):
        started.setdefault(row.goal_version, []).append(row)
    documents = tx.connection.execute(
        sa.select(goals.c.version, goals.c.document).where(goals.c.group_id == group_id)
    )
    by_version = {row.version: row.document for row in documents}
    return [
        _kept(by_version[version], rows)
        for version, rows in started.items()
        if version in by_version
    ]


def _kept(document: Any, started: Sequence[Any]) -> StoredGoal:
    reached = [row.ended_at for row in started if row.status == TraversalStatus.COMPLETE]
    latest = started[0]
    return StoredGoal(
        goal=Goal(document),
        traversals=len(started),
        status=latest.status,
        cause=latest.cause,
        given_at=latest.started_at,
        reached_at=max(reached, default=None),
    )


def reached(tx: Session, group_id: str) -> list[str]:
    """Return the versions of the goals that were reached, the latest first, each once."""
    query = (
        sa.select(traversals.c.goal_version)
        .where(traversals.c.group_id == group_id, traversals.c.status == TraversalStatus.COMPLETE)
        .group_by(traversals.c.goal_version)
        .order_by(sa.func.max(traversals.c.number).desc())
    )
    return list(tx.connection.execute(query).scalars())


def beginning_with(tx: ProjectSession, group_id: str, prefix: str) -> list[str]:
    """Return the versions of a group's goals that begin with ``prefix``; two at most."""
    query = sa.select(goals.c.version).where(
        goals.c.group_id == group_id, goals.c.version.startswith(prefix, autoescape=True)
    )
    return list(tx.connection.execute(query.limit(2)).scalars())


def needed_types(tx: ProjectSession, group_id: str) -> set[str]:
    """Return the names of the types that a group's goals use."""
    query = sa.select(goals.c.document).where(goals.c.group_id == group_id)
    return {
        entry["type"]
        for document in tx.connection.execute(query).scalars()
        for entry in document["resources"].values()
    }


def purge(tx: ProjectSession, group_id: str, *, keep: int, older_than: float) -> int:
    """Delete the goals of a group that are no longer needed. Return their number.

    These are kept: the current goal, the last goal that was reached, and the goals of records that
    are not gone. Of the others: the ``keep`` latest, the ``keep`` latest that were reached, and all
    since ``older_than``. A goal is deleted with its traversals, their operations, and its records
    that are gone. A record is spared if only it shows what was last behind a resource.
    """
    count = sa.select(sa.func.count()).where(goals.c.group_id == group_id)
    if tx.connection.execute(count).scalar_one() <= keep:
        return 0
    known = listed(tx, group_id)
    kept: set[str | None] = {entry.goal.version for entry in known[:keep]}
    kept |= set(reached(tx, group_id)[:keep])
    kept |= {entry.goal.version for entry in known if entry.given_at >= older_than}
    kept |= _in_use(tx, group_id)
    forgotten = [entry.goal.version for entry in known if entry.goal.version not in kept]
    spared = _last_of_a_name(tx, group_id) if forgotten else set()
    for version in forgotten:
        _forget(tx, group_id, version, spared)
    purge_definitions(tx, group_id)
    return len(forgotten)


def purge_definitions(tx: ProjectSession, group_id: str) -> int:
    """Delete the definitions to which neither the group nor a kept traversal refers, unless they
    are new: a transaction that read their version may still read them. The group is locked. Return
    their number."""
    state = tx.connection.execute(
        sa.select(groups.c.defined, groups.c.in_force, groups.c.definition_version).where(
            groups.c.id == group_id
        )
    ).one()
    of_traversals = sa.select(traversals.c.definition_version).where(
        traversals.c.group_id == group_id
    )
    return tx.execute(
        definitions.delete().where(
            definitions.c.group_id == group_id,
            definitions.c.version.not_in([each for each in state if each]),
            definitions.c.version.not_in(of_traversals),
            definitions.c.created_at < tx.now() - LONGEST_READER,
        )
    )


def _in_use(tx: ProjectSession, group_id: str) -> set[str | None]:
    group = tx.connection.execute(
        sa.select(groups.c.last_complete_goal, traversals.c.goal_version)
        .join_from(groups, traversals, traversals.c.id == groups.c.current_traversal, isouter=True)
        .where(groups.c.id == group_id)
    ).one()
    carried = tx.connection.execute(
        sa.select(resources.c.goal_version)
        .where(resources.c.group_id == group_id, ALIVE)
        .distinct()
    ).scalars()
    return {*group, *carried}


def _forget(tx: ProjectSession, group_id: str, version: str, spared: Set[str]) -> None:
    of_goal = sa.select(traversals.c.id).where(
        traversals.c.group_id == group_id, traversals.c.goal_version == version
    )
    ended = list(tx.connection.execute(of_goal).scalars())
    gone = sa.select(resources.c.id).where(
        resources.c.group_id == group_id, resources.c.goal_version == version, sa.not_(ALIVE)
    )
    left = list(set(tx.connection.execute(gone).scalars()) - spared)
    # Operations of an older goal's traversal on a record that still exists stay with the record.
    still_there = sa.select(resources.c.id).where(resources.c.group_id == group_id, ALIVE)
    over = sa.and_(
        sa.or_(operations.c.resource_id.in_(left), operations.c.traversal_id.in_(ended)),
        operations.c.resource_id.not_in(still_there),
    )
    tx.execute(operations.delete().where(over))
    tx.execute(resources.delete().where(resources.c.id.in_(left)))
    tx.execute(traversals.delete().where(traversals.c.id.in_(ended)))
    tx.execute(goals.delete().where(goals.c.group_id == group_id, goals.c.version == version))


def _last_of_a_name(tx: ProjectSession, group_id: str) -> set[str]:
    """Return the records that are the only trace of what was behind a resource, because its present
    record has nothing yet (``views.attached_volumes``)."""
    rows = tx.connection.execute(
        sa.select(resources.c.id, resources.c.name, ALIVE.label("alive"), resources.c.physical_id)
        .where(resources.c.group_id == group_id)
        .order_by(*BIRTH)
    ).all()
    empty = {row.name for row in rows if row.alive and row.physical_id is None}
    latest = {row.name: row.id for row in rows if row.physical_id is not None}
    return {identity for name, identity in latest.items() if name in empty}
