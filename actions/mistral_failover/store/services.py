# SPDX-License-Identifier: Apache-2.0
"""What is stored about whether groups serve (``groups.service``).

Functions over one transaction: of one project, or of every project. Times in seconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

import sqlalchemy as sa

from mistral_failover.convergence.records import GroupState, OperationStatus, Record
from mistral_failover.model.decisions import Decision
from mistral_failover.model.goal import Goal
from mistral_failover.model.observation import Look, Service, WaitingAlarm
from mistral_failover.model.types import Verb
from mistral_failover.store.incidents import WAITING
from mistral_failover.store.records import BIRTH, COLUMNS, read_record
from mistral_failover.store.session import Session, chunks
from mistral_failover.store.tables import (
    ALIVE,
    OF_TRAVERSAL,
    OF_USERS,
    goals,
    groups,
    incidents,
    members,
    observations,
    operations,
    resources,
    traversals,
)

_STATE = tuple(each.name for each in fields(GroupState))

_MISSED = sa.case(
    (
        sa.and_(
            observations.c.service != Service.SERVING,
            sa.or_(traversals.c.ended_at.is_(None), observations.c.at < traversals.c.ended_at),
        ),
        observations.c.seen,
    )
)
"""What a look found that the engine has worked after: its work may have ended a part of that."""


@dataclass(frozen=True)
class ServiceRow:
    """A group with its current traversal, goal and last look. ``goal`` None: it never had one.
    ``in_maintenance``: the members of a maintenance, and ``until`` when it is."""

    state: GroupState
    goal: Goal | None
    status: str | None
    started_at: float | None
    ended_at: float | None
    look: Look | None
    in_maintenance: tuple[str, ...]
    until: float


class _Query:
    """A query about groups, built once, because that takes longer than running it. ``group_id``:
    its column with the id of a row's group."""

    def __init__(self, query: sa.Select[Any], group_id: sa.ColumnElement[Any]) -> None:
        self._of_all = query
        self._of_some = query.where(group_id.in_(sa.bindparam("these_groups", expanding=True)))

    def of(self, tx: Session, group_ids: Sequence[str] | None) -> Iterator[Any]:
        """Yield the rows of these groups; None: all rows."""
        if group_ids is None:
            yield from tx.connection.execute(self._of_all)
            return
        for some in chunks(group_ids):
            yield from tx.connection.execute(self._of_some, {"these_groups": list(some)})


def _service_rows(seen: sa.ColumnElement[Any]) -> _Query:
    """The rows of `rows`; ``seen``: what to read of what was seen."""
    query = (
        sa.select(
            *(groups.c[name] for name in _STATE),
            groups.c.maintenance,
            traversals.c.status,
            traversals.c.started_at,
            traversals.c.ended_at,
            goals.c.document,
            observations.c.service,
            observations.c.at,
            observations.c.since,
            seen.label("seen"),
        )
        .select_from(groups)
        .join(traversals, traversals.c.id == groups.c.current_traversal, isouter=True)
        .join(goals, OF_TRAVERSAL, isouter=True)
        .join(observations, observations.c.group_id == groups.c.id, isouter=True)
        .where(OF_USERS)
    )
    return _Query(query, groups.c.id)


_ROWS = _service_rows(_MISSED)
_SINGLE = _service_rows(observations.c.seen)
_WAITING = _Query(
    sa.select(
        incidents.c.group_id,
        incidents.c.decision,
        incidents.c.fact,
        incidents.c.order,
        incidents.c.first_at,
    ).where(WAITING, incidents.c.group_id.is_not(None)),
    incidents.c.group_id,
)
_RECORDS = _Query(sa.select(*COLUMNS).where(ALIVE).order_by(*BIRTH), resources.c.group_id)
_MADE = _Query(
    sa.select(operations.c.resource_id, sa.func.max(operations.c.ended_at))
    .where(
        operations.c.verb.in_((Verb.CREATE, Verb.UPDATE)),
        operations.c.status == OperationStatus.DONE,
    )
    .group_by(operations.c.resource_id),
    operations.c.group_id,
)
_LOST = _Query(
    sa.select(traversals.c.group_id, traversals.c.ended_at, goals.c.document)
    .join(groups, groups.c.id == traversals.c.group_id)
    .join(goals, OF_TRAVERSAL)
    .join(observations, observations.c.group_id == groups.c.id, isouter=True)
    .where(
        traversals.c.id != groups.c.current_traversal,
        traversals.c.ended_at > sa.func.coalesce(observations.c.at, 0.0),
    )
    .order_by(traversals.c.ended_at),
    traversals.c.group_id,
)
_MEMBERS = _Query(
    sa.select(members.c.group_id, members.c.name).order_by(members.c.name), members.c.group_id
)


def rows(tx: Session, group_ids: Sequence[str] | None) -> list[ServiceRow]:
    """Return these groups, or all that the transaction sees: a single one with all that its last
    look found, because nothing that is asked of many shows the reasons."""
    single = group_ids is not None and len(group_ids) == 1
    found = []
    for row in (_SINGLE if single else _ROWS).of(tx, group_ids):
        work = row.maintenance or {}
        found.append(
            ServiceRow(
                GroupState(*row[: len(_STATE)]),
                Goal(row.document) if row.document is not None else None,
                row.status,
                row.started_at,
                row.ended_at,
                _look(row),
                tuple(work.get("members", ())),
                work.get("until", 0.0),
            )
        )
    return found


def _look(row: Any) -> Look | None:
    if row.service is None:
        return None
    reasons = row.seen.reasons if row.seen else ()
    return Look(row.service, reasons, row.at, row.since, row.seen)


def waiting_alarms(tx: Session, group_ids: Sequence[str] | None) -> dict[str, list[WaitingAlarm]]:
    """Return by group the alarms that wait, except the held ones that their source has called
    over."""
    found: dict[str, list[WaitingAlarm]] = {}
    for row in _WAITING.of(tx, group_ids):
        admitted = row.decision == Decision.ADMITTED
        if admitted or not row.fact.over:
            said = row.order.lost if row.order is not None else None  # the operator knows better
            lost = row.fact.lost if said is None else said
            waits = WaitingAlarm(lost, admitted, row.first_at)
            found.setdefault(row.group_id, []).append(waits)
    return found


def records(tx: Session, group_ids: Sequence[str]) -> dict[str, list[Record]]:
    """Return by group its records that exist, the oldest first."""
    found: dict[str, list[Record]] = {}
    for row in _RECORDS.of(tx, group_ids):
        found.setdefault(row.group_id, []).append(read_record(row))
    return found


def made_at(tx: Session, group_ids: Sequence[str]) -> dict[str, float]:
    """Return by resource of these groups when it was made or changed last, successfully."""
    return {row[0]: row[1] for row in _MADE.of(tx, group_ids)}


def lost_until(tx: Session, group_ids: Sequence[str]) -> dict[str, dict[str, float]]:
    """Return by group and member when the last earlier traversal ended that had the member declared
    lost; not of one that ended before the group was last looked at."""
    found: dict[str, dict[str, float]] = {}
    for row in _LOST.of(tx, group_ids):
        found.setdefault(row.group_id, {}).update(dict.fromkeys(row.document["lost"], row.ended_at))
    return found


def member_names(tx: Session, group_ids: Sequence[str]) -> dict[str, list[str]]:
    """Return by group the names of its members."""
    found: dict[str, list[str]] = {}
    for row in _MEMBERS.of(tx, group_ids):
        found.setdefault(row.group_id, []).append(row.name)
    return found
