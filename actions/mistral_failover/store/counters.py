# SPDX-License-Identifier: Apache-2.0
"""Counters for the metrics.

The transaction that records an event counts it, so neither a crash nor a deletion of old rows
changes a counter, and reading them is one query. What a transaction counts is written as its last
statement, in the order of the keys: the rows are locked for a moment only, and two transactions
never wait for each other in a circle. A project's counters are in seventeen shards, so that groups
rarely wait for each other.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import mysql, sqlite

from mistral_failover.convergence.records import JournalKind
from mistral_failover.store.session import ProjectSession, Session
from mistral_failover.store.tables import groups, totals

BUCKETS = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600)
"""Upper bounds of the histograms, in seconds. There is one more bucket for longer times."""
KINDS = frozenset(
    {
        JournalKind.BLOCKED,
        JournalKind.ENDED,
        JournalKind.HANDED_BACK,
        JournalKind.STEAL,
        JournalKind.SWEEP,
    }
)
"""The kinds of journal entries that are counted."""
SEPARATOR = "|"
"""Separates labels. No type, verb, decision or rule has it in its name."""
SWEEPS = "sweeps"
UNLISTED = "unlisted"
_NO_SHARD = "-"


@dataclass(frozen=True)
class Count:
    """A sum, and the first time of what it counts, in seconds by the database's clock."""

    value: float
    first_at: float


Counts = dict[tuple[str, str], Count]
"""Counts by name and by labels, joined with :data:`SEPARATOR`."""


def count_time(tx: Session, owner: str, name: str, labels: tuple[str, ...], seconds: float) -> None:
    """Count a duration in the histogram ``name``: in its bucket, and in its sum."""
    bucket = next((n for n, bound in enumerate(BUCKETS) if seconds <= bound), len(BUCKETS))
    tx.count(owner, name, *labels, str(bucket))
    tx.count(owner, f"{name}_sum", *labels, value=max(0.0, seconds))


def write(tx: Session) -> None:
    """Write what a transaction counted; as its last statement."""
    if not tx.counted:
        return
    projects = _projects(tx)
    rows: dict[tuple[str, str, str, str], float] = {}
    for (owner, name, labels), value in tx.counted.items():
        if owner not in projects:
            continue  # a group that does not exist any more
        shard = owner[:1] if owner else _NO_SHARD
        key = projects[owner], shard, name, SEPARATOR.join(labels)
        rows[key] = rows.get(key, 0.0) + value
    tx.counted.clear()
    if not rows:
        return
    names = ("project_id", "shard", "name", "labels")
    tx.connection.execute(
        _added(tx.connection.dialect.name, tx.clock()),
        [{**dict(zip(names, key, strict=True)), "value": rows[key]} for key in sorted(rows)],
    )


def _projects(tx: Session) -> Mapping[str | None, str]:
    """Return the projects of those for whom something is counted."""
    owners = {owner for owner, _, _ in tx.counted}
    if isinstance(tx, ProjectSession):
        return dict.fromkeys(owners, tx.project_id)
    known: dict[str | None, str] = {}
    known |= tx.projects.items()
    if missing := [each for each in owners if each not in known]:
        query = sa.select(groups.c.id, groups.c.project_id).where(groups.c.id.in_(missing))
        known |= {row.id: row.project_id for row in tx.connection.execute(query)}
    return known


@functools.lru_cache(64)
def _added(dialect: str, now: sa.ColumnElement[float]) -> sa.Insert:
    if dialect == "sqlite":
        lite = sqlite.insert(totals).values(first_at=now, last_at=now)
        new = lite.excluded
        return lite.on_conflict_do_update(
            index_elements=list(totals.primary_key),
            set_={"value": totals.c.value + new.value, "last_at": new.last_at},
        )
    many = mysql.insert(totals).values(first_at=now, last_at=now)
    return many.on_duplicate_key_update(
        value=totals.c.value + many.inserted.value, last_at=many.inserted.last_at
    )


def lately(tx: ProjectSession, name: str, since: float) -> list[tuple[str, float, float]]:
    """Return labels, value and time of the last increase of the project's counters of this name
    that increased since a time."""
    query = (
        sa.select(totals.c.labels, sa.func.sum(totals.c.value), sa.func.max(totals.c.last_at))
        .where(totals.c.project_id == tx.project_id, totals.c.name == name)
        .group_by(totals.c.labels)
        .having(sa.func.max(totals.c.last_at) >= since)
    )
    return [(row[0], row[1], row[2]) for row in tx.connection.execute(query)]


def unlisted_of(tx: ProjectSession) -> tuple[int, float | None]:
    """Return how many alarms of the project were not recorded, because the list of held ones was
    full, and when the last one arrived; None: never."""
    rows = lately(tx, UNLISTED, 0.0)
    return int(sum(row[1] for row in rows)), max((row[2] for row in rows), default=None)


def counters(tx: Session) -> Counts:
    """Return every counter: of the transaction's project, or of every project in a transaction of
    every project."""
    query: sa.Select[Any] = sa.select(
        totals.c.name, totals.c.labels, sa.func.sum(totals.c.value), sa.func.min(totals.c.first_at)
    ).group_by(totals.c.name, totals.c.labels)
    rows = tx.connection.execute(query)
    return {(name, labels): Count(value, first_at) for name, labels, value, first_at in rows}
