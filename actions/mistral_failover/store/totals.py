# SPDX-License-Identifier: Apache-2.0
"""Totals of deleted rows, so that a counter never falls.

A counter is the number of existing rows plus these totals. Code that deletes counted rows, or
changes how they are counted, adds them here in the same transaction: deleted goals, deleted groups,
a replaced decision. Nothing else has a cost.

A project's totals are in sixteen shards, so that groups rarely wait for each other. Rows are
updated in the order of their keys, so that two transactions never wait for each other in a circle.
"""

from __future__ import annotations

import sqlalchemy as sa

from mistral_failover.model.decisions import AdmissionRule
from mistral_failover.store import counting
from mistral_failover.store.counting import SEPARATOR, Count, Counts
from mistral_failover.store.session import ProjectSession, Session
from mistral_failover.store.tables import groups, incidents, operations, totals, traversals

SWEEPS = "sweeps"
UNLISTED = "unlisted"
_NO_GROUP = "-"


def add(tx: ProjectSession, group_id: str | None, counts: Counts) -> None:
    """Add to the project's totals, in the shard of a group."""
    shard = group_id[:1] if group_id else _NO_GROUP
    now = tx.now() if counts else 0.0
    for (name, labels), count in sorted(counts.items()):
        known = tx.changed(
            totals.update()
            .where(
                totals.c.project_id == tx.project_id,
                totals.c.shard == shard,
                totals.c.name == name,
                totals.c.labels == labels,
            )
            .values(
                value=totals.c.value + count.value,
                first_at=sa.case(
                    (totals.c.first_at > count.first_at, count.first_at), else_=totals.c.first_at
                ),
                last_at=now,
            )
        )
        if not known:
            tx.insert(
                totals,
                project_id=tx.project_id,
                shard=shard,
                name=name,
                labels=labels,
                value=count.value,
                first_at=count.first_at,
                last_at=now,
            )


def keep(
    tx: ProjectSession,
    group_id: str,
    which_traversals: sa.ColumnElement[bool],
    which_operations: sa.ColumnElement[bool],
) -> None:
    """Keep the counts of a group's traversals and operations that are about to be deleted."""
    counts = counting.merged(
        counting.of_traversals(tx, which_traversals), counting.of_operations(tx, which_operations)
    )
    add(tx, group_id, counts)


def keep_group(tx: ProjectSession, group_id: str) -> None:
    """Keep all counts of a group that is about to be deleted."""
    counts = counting.merged(
        counting.of_traversals(tx, traversals.c.group_id == group_id),
        counting.of_operations(tx, operations.c.group_id == group_id),
        counting.of_incidents(tx, incidents.c.group_id == group_id),
        counting.of_journal(tx, sa.select(groups.c.id).where(groups.c.id == group_id)),
    )
    add(tx, group_id, counts)


def keep_decision(tx: ProjectSession, incident_id: str, new: tuple[str, str]) -> None:
    """Keep the count of a decision that is about to be replaced by a ``new`` one (decision, rule).
    The same decision again is not counted."""
    was = sa.and_(
        incidents.c.id == incident_id,
        sa.or_(incidents.c.decision != new[0], incidents.c.rule != new[1]),
    )
    _keep_decisions(tx, incident_id, counting.of_incidents(tx, was))


def keep_dismissed(tx: ProjectSession, incident_id: str) -> None:
    """Keep the count of the decision HELD for an incident that was just dismissed."""
    found = counting.of_incidents(tx, incidents.c.id == incident_id)
    held: Counts = {}
    for (name, labels), count in found.items():
        _, _, rest = labels.partition(SEPARATOR)
        held[name, SEPARATOR.join(("HELD", rest))] = count
    _keep_decisions(tx, incident_id, held)


def swept(tx: ProjectSession, *, found: bool) -> None:
    """Count a sweep, by whether it found something."""
    add(tx, None, {(SWEEPS, "yes" if found else "no"): Count(1, tx.now())})


def unlisted(tx: ProjectSession, group_id: str | None, rule: AdmissionRule) -> None:
    """Count an alarm that this rule holds and that is not recorded, because the list is full."""
    add(tx, group_id, {(UNLISTED, rule): Count(1, tx.now())})


def unlisted_of(tx: ProjectSession) -> tuple[int, float | None]:
    """Return how many alarms of the project were not recorded, because the list of held ones was
    full, and when the last one arrived; None: never."""
    query = sa.select(sa.func.sum(totals.c.value), sa.func.max(totals.c.last_at)).where(
        totals.c.project_id == tx.project_id, totals.c.name == UNLISTED
    )
    number, last = tx.connection.execute(query).one()
    return int(number or 0), last


def last_of(tx: ProjectSession, name: str, since: float) -> list[tuple[str, float, float]]:
    """Return labels, value and time of the last increase of the totals of this name that increased
    since a time."""
    query = sa.select(totals.c.labels, totals.c.value, totals.c.last_at).where(
        totals.c.project_id == tx.project_id, totals.c.name == name, totals.c.last_at >= since
    )
    return [(row[0], row[1], row[2]) for row in tx.connection.execute(query)]


def of(tx: Session) -> Counts:
    """Return the totals: of the transaction's project, or of every project in a transaction of
    every project."""
    query = sa.select(
        totals.c.name, totals.c.labels, sa.func.sum(totals.c.value), sa.func.min(totals.c.first_at)
    ).group_by(totals.c.name, totals.c.labels)
    rows = tx.connection.execute(query)
    return {(name, labels): Count(value, first_at) for name, labels, value, first_at in rows}


def counters(tx: Session) -> Counts:
    """Return every counter, of the same projects as :func:`of`. Read it in a snapshot
    (``Database.snapshot``): otherwise rows that are deleted between two queries are counted twice,
    or not at all."""
    return counting.merged(counting.there(tx), of(tx))


def _keep_decisions(tx: ProjectSession, incident_id: str, counts: Counts) -> None:
    decisions = {key: count for key, count in counts.items() if key[0] == "incidents"}
    if not decisions:
        return
    group_id = tx.connection.execute(
        sa.select(incidents.c.group_id).where(incidents.c.id == incident_id)
    ).scalar_one()
    add(tx, group_id, decisions)
