# SPDX-License-Identifier: Apache-2.0
"""Count rows for the metrics: incidents, traversals, operations and the journal.

Each function counts the rows that match a condition. The same functions count the existing rows and
the rows that are about to be deleted (``store.totals``), so that a deletion changes no sum.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from mistral_failover.convergence.records import JournalKind, OperationStatus, TraversalStatus
from mistral_failover.store.session import Session
from mistral_failover.store.tables import (
    groups,
    incidents,
    journal,
    nodes,
    operations,
    resources,
    traversals,
)

BUCKETS = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600)
"""Upper bounds of the histograms, in seconds. There is one more bucket for longer times."""
KINDS = (
    JournalKind.BLOCKED,
    JournalKind.ENDED,
    JournalKind.HANDED_BACK,
    JournalKind.STEAL,
    JournalKind.SWEEP,
)
"""The kinds of journal entries that are counted."""
SEPARATOR = "|"
"""Separates labels. No type, verb, decision or rule has it in its name."""
STARTED = "operations_started"
"""Operations by type, whatever their outcome: since when a type is used."""
_PERSON = "operator"  # incidents.OPERATOR, which cannot be imported here


@dataclass(frozen=True)
class Count:
    """A sum, and the first time of what it counts, in seconds by the database's clock."""

    value: float
    first_at: float

    def __add__(self, other: Count) -> Count:
        return Count(self.value + other.value, min(self.first_at, other.first_at))


Counts = dict[tuple[str, str], Count]
"""Counts by name and by labels, joined with :data:`SEPARATOR`."""


def merged(*parts: Counts) -> Counts:
    """Return the sums of several counts."""
    found: Counts = {}
    for part in parts:
        for key, count in part.items():
            found[key] = found[key] + count if key in found else count
    return found


def of_traversals(tx: Session, where: sa.ColumnElement[bool]) -> Counts:
    """Return ``traversals_started``; ``traversals`` by outcome; ``traversal_seconds`` by outcome
    and bucket; ``traversal_seconds_sum`` by outcome; ``deferrals``."""
    came_back = sa.and_(traversals.c.back, traversals.c.status == TraversalStatus.COMPLETE)
    outcome = sa.case((came_back, "RETURNED"), else_=traversals.c.status).label("outcome")
    query = _timed(traversals, outcome).where(where)
    found: Counts = {}
    for row in tx.connection.execute(query):
        count = Count(row.number, row.first_at)
        _add(found, "traversals_started", (), count)
        if row.outcome in (TraversalStatus.IN_PROGRESS, TraversalStatus.BLOCKED):
            continue
        _add(found, "traversals", (row.outcome,), count)
        if row.outcome != TraversalStatus.SUPERSEDED:
            _add_timed(found, "traversal_seconds", (row.outcome,), row)
    # The deferrals of existing sync points are not yet added to their traversal.
    deferred = sa.select(
        sa.func.sum(traversals.c.deferrals), sa.func.min(traversals.c.started_at)
    ).where(where, traversals.c.deferrals > 0)
    standing = (
        sa.select(sa.func.sum(nodes.c.deferrals), sa.func.min(nodes.c.deferred_at))
        .join(traversals, traversals.c.id == nodes.c.traversal_id)
        .where(where, nodes.c.deferrals > 0)
    )
    for each in (deferred, standing):
        total, first_at = tx.connection.execute(each).one()
        if total:
            _add(found, "deferrals", (), Count(float(total), first_at))
    return found


def of_operations(tx: Session, where: sa.ColumnElement[bool]) -> Counts:
    """Return ``operations`` by type, verb and outcome, for operations that have ended;
    ``operation_seconds`` by type, verb and bucket, and ``operation_seconds_sum``, for those that
    are done; ``unknowns`` by type and verb; :data:`STARTED`."""
    join = resources.c.id == operations.c.resource_id
    labels = (resources.c.type, operations.c.verb)
    query = (
        _timed(operations, *labels, operations.c.status)
        .join(resources, join)
        .where(
            where,
            operations.c.status.in_(
                (OperationStatus.DONE, OperationStatus.FAILED, OperationStatus.OVERTAKEN)
            ),
        )
    )
    found: Counts = {}
    for row in tx.connection.execute(query):
        said = (row.type, row.verb)
        _add(found, "operations", (*said, row.status), Count(row.number, row.first_at))
        if row.status == OperationStatus.DONE:
            _add_timed(found, "operation_seconds", said, row)
    unknown = (
        sa.select(*labels, sa.func.sum(operations.c.unknowns), sa.func.min(operations.c.started_at))
        .join(resources, join)
        .where(where, operations.c.unknowns > 0)
        .group_by(*labels)
    )
    for kind, verb, total, first_at in tx.connection.execute(unknown):
        _add(found, "unknowns", (kind, verb), Count(float(total), first_at))
    begun = (
        sa.select(resources.c.type, sa.func.count(), sa.func.min(operations.c.started_at))
        .select_from(operations)
        .join(resources, join)
        .where(where)
        .group_by(resources.c.type)
    )
    for kind, number, first_at in tx.connection.execute(begun):
        _add(found, STARTED, (kind,), Count(number, first_at))
    return found


def of_incidents(tx: Session, where: sa.ColumnElement[bool]) -> Counts:
    """Return ``incidents`` by decision, rule and source (a person or an alarm); ``repeats``."""
    source = sa.case((incidents.c.source == _PERSON, "person"), else_="alarm").label("source")
    labels = (incidents.c.decision, incidents.c.rule, source)
    query = (
        sa.select(
            *labels,
            sa.func.count().label("number"),
            sa.func.sum(incidents.c.duplicates).label("repeats"),
            sa.func.min(incidents.c.first_at).label("first_at"),
        )
        .where(where)
        .group_by(*_names(labels))
    )
    found: Counts = {}
    for row in tx.connection.execute(query):
        said = (row.decision, row.rule, row.source)
        _add(found, "incidents", said, Count(row.number, row.first_at))
        if row.repeats:
            _add(found, "repeats", (), Count(float(row.repeats), row.first_at))
    return found


def of_journal(
    tx: Session, group_ids: sa.Select[Any], where: sa.ColumnElement[bool] | None = None
) -> Counts:
    """Return ``journal`` by kind, for the :data:`KINDS`, of these groups; ``where``: only of these
    entries."""
    query = (
        sa.select(journal.c.kind, sa.func.count(), sa.func.min(journal.c.at))
        .where(journal.c.group_id.in_(group_ids), journal.c.kind.in_(KINDS))
        .where(sa.true() if where is None else where)
        .group_by(journal.c.kind)
    )
    found: Counts = {}
    for kind, count, first_at in tx.connection.execute(query):
        _add(found, "journal", (kind,), Count(count, first_at))
    return found


def there(tx: Session) -> Counts:
    """Return the counts of all existing rows: of the transaction's project, or of every project in
    a transaction of every project."""
    mine = sa.select(groups.c.id)
    return merged(
        of_incidents(tx, sa.true()),
        of_traversals(tx, traversals.c.group_id.in_(mine)),
        of_operations(tx, operations.c.group_id.in_(mine)),
        of_journal(tx, mine),
    )


def _timed(table: sa.Table, *labels: sa.ColumnElement[Any]) -> sa.Select[Any]:
    """Count rows by labels and by the bucket of their duration."""
    took = sa.func.coalesce(table.c.ended_at, table.c.started_at) - table.c.started_at
    steps = [(took <= bound, number) for number, bound in enumerate(BUCKETS)]
    bucket = sa.case(*steps, else_=len(BUCKETS)).label("bucket")
    return (
        sa.select(
            *labels,
            bucket,
            sa.func.count().label("number"),
            sa.func.sum(took).label("seconds"),
            sa.func.min(table.c.started_at).label("first_at"),
        )
        .select_from(table)
        # Group by name: a database does not recognise an expression with parameters as the same.
        .group_by(*_names(labels), "bucket")
    )


def _names(labels: tuple[sa.ColumnElement[Any], ...]) -> list[Any]:
    return [each.name if isinstance(each, sa.Label) else each for each in labels]


def _add_timed(found: Counts, name: str, labels: tuple[str, ...], row: Any) -> None:
    _add(found, name, (*labels, str(row.bucket)), Count(row.number, row.first_at))
    _add(found, f"{name}_sum", labels, Count(max(0.0, row.seconds), row.first_at))


def _add(found: Counts, name: str, labels: tuple[str, ...], count: Count) -> None:
    key = name, SEPARATOR.join(labels)
    found[key] = found[key] + count if key in found else count
