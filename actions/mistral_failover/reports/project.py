# SPDX-License-Identifier: Apache-2.0
"""The state of all groups of a project, in one answer."""

from __future__ import annotations

from typing import Any

from mistral_failover.alarms.suspensions import still
from mistral_failover.runtime.process import Request
from mistral_failover.store import groups
from mistral_failover.store.overview import overview
from mistral_failover.store.transaction import SqlTransaction

MOST = 500
"""Maximum groups described in one answer; it has the names of all."""


def project(request: Request, *, after: str | None = None) -> dict[str, Any]:
    """Return the project's groups: ``groups``, all of their names; ``total``; ``overview``, of the
    first 500 by name (of those behind the name ``after``, if it is given) ``name``, ``stack``,
    ``status`` (DEFINED: it has never had a goal), ``reason``, ``cause``, ``since`` (seconds),
    ``roles``, ``lost``, ``pause``, ``maintenance``, ``held`` (how many of its alarms wait for an
    operator), ``service`` (as last seen; null: not looked at since the engine last worked on it);
    ``now``."""

    def read(tx: SqlTransaction) -> dict[str, Any]:
        now = tx.now()
        total, rows = overview(tx, request.project_id, MOST, after=after)
        return {
            "groups": groups.names(tx, request.project_id),
            "total": total,
            "overview": [_row(row, now) for row in rows],
            "now": now,
        }

    return request.runtime.database.reading(read)


def _row(row: dict[str, Any], now: float) -> dict[str, Any]:
    goal = row["goal"] or {"roles": {}, "lost": []}
    return {
        "name": row["name"],
        "stack": row["definition"]["document"]["stack"],
        "status": row["status"] or "DEFINED",
        "reason": row["reason"] or "",
        "cause": row["cause"] or "",
        "since": row["since"],
        "roles": dict(goal["roles"]),
        "lost": list(goal["lost"]),
        "pause": row["pause"],
        "maintenance": still(row["maintenance"], now),
        "held": row["held"],
        "service": row["service"],
    }
