# SPDX-License-Identifier: Apache-2.0
"""Stored plans, so that one can be started later; and how long operations took.

Each function runs in one transaction. Times are seconds; those of plans are since the epoch.
"""

from __future__ import annotations

import statistics
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import sqlalchemy as sa

from mistral_failover.convergence.records import GroupState, OperationStatus
from mistral_failover.model.goal import REPLACE_TYPE
from mistral_failover.model.order import Order
from mistral_failover.model.restarts import ANOTHER_SERVER
from mistral_failover.model.types import Verb
from mistral_failover.store.session import ProjectSession
from mistral_failover.store.tables import GROUP_STATE, groups, operations, plans, resources

KEPT = 20
"""The maximum number of plans that are kept for a group, the latest."""
REMEMBERED = 86400.0
"""Seconds for which an expired plan is kept, so that a user who starts it gets the reason."""
_SAMPLES = 200

Kind = TypeVar("Kind", bound=Hashable)
Durations = Mapping[tuple[str, str], float]
"""Seconds, by type and verb."""


@dataclass(frozen=True)
class StoredPlan:
    """A plan: the order, and the state that it depends on. ``id`` is derived from the group,
    ``order`` and ``fingerprint``, so the same plan in the same state is the same row."""

    id: str
    project_id: str
    group_id: str
    order: Order
    fingerprint: str
    world: Mapping[str, Any]
    goal_version: str
    created_at: float = 0.0
    expires_at: float = 0.0


def keep(tx: ProjectSession, plan: StoredPlan, lifetime: float) -> float:
    """Keep a plan, extend it if it is known, and delete old ones. Return when it expires.

    The group is locked (``Transaction.lock_group``).
    """
    now = tx.now()
    expires = now + lifetime
    again = plans.update().where(plans.c.id == plan.id)
    if not tx.changed(again.values(expires_at=expires)):
        tx.insert(plans, **{**plan.__dict__, "created_at": now, "expires_at": expires})
    latest = (
        sa.select(plans.c.id)
        .where(plans.c.group_id == plan.group_id, plans.c.expires_at > now - REMEMBERED)
        .order_by(plans.c.expires_at.desc())
        .limit(KEPT)
    )
    kept = [*tx.connection.execute(latest).scalars(), plan.id]
    tx.execute(plans.delete().where(plans.c.group_id == plan.group_id, plans.c.id.not_in(kept)))
    return expires


def find(tx: ProjectSession, plan_id: str) -> tuple[StoredPlan, GroupState] | None:
    """Return a plan and its group."""
    kept = tx.connection.execute(
        sa.select(plans).where(plans.c.id == plan_id, plans.c.project_id == tx.project_id)
    ).one_or_none()
    if kept is None:
        return None
    state = tx.connection.execute(
        sa.select(*GROUP_STATE).where(groups.c.id == kept.group_id)
    ).one_or_none()
    return (StoredPlan(**kept._mapping), GroupState(*state)) if state else None


def durations(tx: ProjectSession, group_id: str) -> Durations:
    """Return how long successful operations took: for each type and verb the median of the group's
    latest ones, or of the project's if the group had none."""
    ours = groups.c.project_id == tx.project_id
    return {
        **_medians(tx, ours),
        **_medians(tx, sa.and_(ours, operations.c.group_id == group_id)),
    }


def ways_lasted(tx: ProjectSession, group_id: str) -> Mapping[str, float]:
    """Return how many seconds each way to bring a member back took: the median of the group's
    latest successes, or of the project's if the group had none."""
    ours = sa.and_(
        groups.c.project_id == tx.project_id,
        resources.c.type == REPLACE_TYPE,
        operations.c.verb == Verb.CREATE,
    )

    def medians(of: sa.ColumnElement[bool]) -> Mapping[str, float]:
        rows = _successes(tx, of, operations.c.result)
        return _median_of_each((_way(row.result), row.seconds) for row in rows)

    return {**medians(ours), **medians(sa.and_(ours, operations.c.group_id == group_id))}


def _way(result: Mapping[str, Any] | None) -> str:
    return str(((result or {}).get("attributes") or {}).get("by", ANOTHER_SERVER))


def _medians(tx: ProjectSession, of: sa.ColumnElement[bool]) -> Durations:
    rows = _successes(tx, of, resources.c.type, operations.c.verb)
    return _median_of_each(((row.type, row.verb), row.seconds) for row in rows)


def _successes(
    tx: ProjectSession, of: sa.ColumnElement[bool], *columns: sa.ColumnElement[Any]
) -> sa.CursorResult[Any]:
    """Return columns of the latest successful operations, with the ``seconds`` that they took."""
    query = (
        sa.select(*columns, (operations.c.ended_at - operations.c.started_at).label("seconds"))
        .select_from(operations)
        .join(resources, resources.c.id == operations.c.resource_id)
        .join(groups, groups.c.id == operations.c.group_id)
        .where(of, operations.c.status == OperationStatus.DONE, operations.c.ended_at.is_not(None))
        .order_by(operations.c.ended_at.desc())
        .limit(_SAMPLES)
    )
    return tx.connection.execute(query)


def _median_of_each(lasted: Iterable[tuple[Kind, float]]) -> dict[Kind, float]:
    found: dict[Kind, list[float]] = {}
    for kind, seconds in lasted:
        found.setdefault(kind, []).append(max(0.0, seconds))
    return {kind: statistics.median(seconds) for kind, seconds in found.items()}
