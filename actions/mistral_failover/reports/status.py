# SPDX-License-Identifier: Apache-2.0
"""The answers of the actions for operators: status, history, reports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mistral_failover.alarms import suspensions
from mistral_failover.convergence import sentences
from mistral_failover.convergence.records import Record
from mistral_failover.groups.snapshot import GroupSnapshot, group_snapshot
from mistral_failover.model.goal import FENCE_TYPE, goal_resources, returns
from mistral_failover.model.observation import EngineView, Presence, standing
from mistral_failover.orders import switchover
from mistral_failover.reports import status_details
from mistral_failover.resources.observed import missing
from mistral_failover.runtime import rights
from mistral_failover.runtime.errors import ActionError
from mistral_failover.runtime.process import Request
from mistral_failover.runtime.remedies import confirm_command
from mistral_failover.runtime.short_ids import identified
from mistral_failover.store import groups, incidents, observations, views
from mistral_failover.store.transaction import SqlTransaction

_INCIDENTS_SHOWN = 10


def status(request: Request, name: str, *, agents: bool = False) -> dict[str, Any]:
    """Return the state of a group: which member holds each role and volume, each resource, what is
    in progress or blocked. With ``agents`` also what the members' agents last reported, and how a
    chain ended that the group waits for; each takes up to 3 s."""
    snapshot = group_snapshot(request, name)

    def read(tx: SqlTransaction) -> dict[str, Any]:
        current = snapshot.state.current_traversal
        traversal = views.traversal(tx, current) if current else None
        now, records = tx.now(), list(tx.records(snapshot.state.id))
        return {
            "group": name,
            "stack": snapshot.group.stack,
            "status": traversal["status"] if traversal else "DEFINED",
            "reason": _reason(tx, traversal) if traversal else "it has never had a goal",
            "failure": _failure(tx, snapshot, traversal) if traversal else None,
            "roles": dict(snapshot.roles),
            "lost": sorted(snapshot.lost),
            "goal": traversal["goal_version"] if traversal else None,
            "last_complete_goal": snapshot.state.last_complete_goal,
            "traversal": traversal,
            **suspensions.standing(tx, snapshot.state.id),
            "members": [
                {"name": m.name, "server": m.server_id, "epoch": m.epoch}
                for m in groups.members_of(tx, snapshot.state.id).values()
            ],
            "resources": [_resource(record, now) for record in records],
            "remedies": _remedies(tx, name, current, records) if current else [],
            "since": status_details.since(tx, traversal) if traversal else None,
            "holders": status_details.holders(tx, snapshot.state.id, records),
            "held": status_details.held(tx, request.project_id, snapshot.state.id),
            "under_way": _under_way(tx, snapshot, records, now),
            "deferred": views.deferred(tx, current) if current else [],
            "chain": views.chain(tx, current) if current else None,
            "waiting": [
                {**row, "next_try": max(0.0, row["next_try"] - now)}
                for row in (views.waiting(tx, current) if current else [])
            ],
            "service": _service(tx, snapshot, traversal, records),
            "incidents": [
                {
                    "id": i.id,
                    "source": i.source,
                    "decision": i.decision,
                    "sentence": i.sentence,
                    "duplicates": i.duplicates,
                    "at": i.first_at,
                }
                for i in incidents.of_group(tx, snapshot.state.id, _INCIDENTS_SHOWN)
            ],
            "now": now,
        }

    found: dict[str, Any] = request.runtime.database.reading(read)
    if found["chain"] is not None:
        found["chain"] = status_details.chain(request, snapshot.group, found["chain"], ask=agents)
        if found["status"] == "IN_PROGRESS" and not found["reason"]:
            found["reason"] = status_details.chain_reason(found["chain"])
    return {**found, "agents": status_details.agents(request, snapshot) if agents else {}}


def _under_way(
    tx: SqlTransaction, snapshot: GroupSnapshot, records: list[Record], now: float
) -> list[dict[str, Any]]:
    """Return the operations in progress, each with ``sentence``, ``seconds`` (since its start) and
    ``limit`` (the seconds that it may take; None for a type that is not defined any more)."""
    known = {record.id: record for record in records}
    found = []
    for row in views.under_way(tx, snapshot.state.id):
        record = known[row["resource_id"]]
        of_type = snapshot.group.types.get(record.type)
        spec = of_type.operations.get(row["verb"]) if of_type else None
        found.append(
            {
                **row,
                "sentence": sentences.doing(row["verb"], record, of_type),
                "seconds": now - row["started_at"],
                "limit": spec.timeout if spec else None,
            }
        )
    return found


def _service(
    tx: SqlTransaction,
    snapshot: GroupSnapshot,
    traversal: dict[str, Any] | None,
    records: list[Record],
) -> dict[str, Any]:
    """Return whether the group serves: ``status``, ``since``, ``reasons``, ``seen_at`` (the time of
    the last look) and ``gone``, the members that hold a role and whose server did not run then."""
    goal = tx.goal(snapshot.state.id, traversal["goal_version"]) if traversal else None
    wanted = {each.name for each in goal_resources(goal)} if goal else set()
    engine = EngineView(
        snapshot.roles,
        traversal["started_at"] if traversal else None,
        traversal["ended_at"] if traversal else None,
        missing(wanted, records, snapshot.lost),
    )
    kept = observations.of_group(tx, snapshot.state.id)
    found = (
        standing(engine, kept.document, kept.at, kept.since)
        if kept
        else standing(engine, None, None, None)
    )
    return {
        "status": str(found.service),
        "since": found.since,
        "reasons": list(found.reasons),
        "seen_at": found.seen_at,
        "gone": sorted(
            row["name"]
            for row in (kept.document["members"] if kept and found.seen_at is not None else ())
            if row["presence"] == Presence.GONE and row["name"] in snapshot.roles.values()
        ),
    }


def _remedies(
    tx: SqlTransaction, group: str, traversal_id: str, records: list[Record]
) -> list[dict[str, Any]]:
    """Return the commands by which an operator releases blocked fences once the members are
    certainly off."""
    blocked = {node.resource_id for node in tx.stopped_nodes(traversal_id)}
    return [
        {
            "resource": record.name,
            "member": record.properties["member"],
            "reason": record.reason,
            "command": confirm_command(group, record.properties["member"]),
        }
        for record in records
        if record.id in blocked and record.type == FENCE_TYPE and record.properties
    ]


def history(
    request: Request, name: str | None, *, after: int, limit: int, traversal: str | None
) -> list[dict[str, Any]]:
    """Return the group's journal, one sentence per step; with ``traversal``, an id or its first
    digits, of that traversal alone. Without a name, return that of all groups of the project, each
    row with its ``group``. Raises ActionError BAD_INPUT, UNKNOWN_ID, AMBIGUOUS_ID."""
    if name is None:
        if traversal is not None:
            raise ActionError("BAD_INPUT", "traversal: it needs its group", "Give the group too.")
        return request.runtime.database.reading(
            lambda tx: views.history_of_project(tx, request.project_id, after=after, limit=limit)
        )
    group_id = group_snapshot(request, name).state.id

    def read(tx: SqlTransaction) -> list[dict[str, Any]]:
        which = traversal
        # Of one that was forgotten the journal is left, which has its whole id.
        if which is not None and not views.history(tx, group_id, limit=1, traversal_id=which):
            which = identified(request, tx, which, name, "traversal").id
        return views.history(tx, group_id, after=after, limit=limit, traversal_id=which)

    return request.runtime.database.reading(read)


def report(request: Request, name: str, traversal_id: str) -> dict[str, Any]:
    """Return the status of a traversal: the outcome of a failover's execution. It is that of the
    traversal by which the engine itself replaced it, if it did. For a planned move it covers the
    whole move, the way back included."""
    snapshot = group_snapshot(request, name)

    def read(tx: SqlTransaction) -> dict[str, Any] | None:
        first = views.traversal(tx, traversal_id)
        if first is None or first["group_id"] != snapshot.state.id:
            return None
        walked = views.following(tx, first)
        ended_first = (each for each in walked if each["status"] != "SUPERSEDED")
        traversal = next(ended_first, walked[-1])
        goal = tx.goal(snapshot.state.id, traversal["goal_version"])
        if goal is None:
            return None
        found = {
            "status": traversal["status"],
            "reason": _reason(tx, traversal),
            "failure": _failure(tx, snapshot, traversal),
            "roles": dict(goal.document["roles"]),
            "lost": list(goal.document["lost"]),
            "ended_at": traversal["ended_at"],
        }
        if returns(goal):
            # Its reason is that of the whole move, not of one step.
            found |= {**switchover.ending(tx, first), "failure": None}
        ended = found.pop("ended_at")
        seconds = None if ended is None else ended - first["started_at"]
        return {**found, "seconds": seconds}

    found = request.runtime.database.reading(read)
    if found is None:
        return {"group": name, "traversal": traversal_id, "status": "UNKNOWN", "reason": ""}
    return {"group": name, "traversal": traversal_id, **found}


def _reason(tx: SqlTransaction, traversal: dict[str, Any]) -> str:
    """Return the reason of a traversal's status; while it is in progress, why it waits for new
    credentials, or an empty text."""
    if traversal["status"] != "IN_PROGRESS":
        return str(traversal["reason"])
    return rights.waiting(tx.records(traversal["group_id"]))


def _failure(
    tx: SqlTransaction, snapshot: GroupSnapshot, traversal: Mapping[str, Any]
) -> dict[str, Any] | None:
    """Return the step whose failure is the reason of a traversal's status: ``resource``, ``what``
    was done, ``code``, ``message`` and ``remedy``. None if no operation failed."""
    if traversal["status"] not in ("FAILED", "BLOCKED"):
        return None
    found = views.failed_step(tx, traversal["id"], traversal["reason"])
    record = tx.record(found["resource_id"]) if found else None
    if found is None or record is None:
        return None
    error = found["error"]
    return {
        "resource": record.name,
        "what": sentences.doing(found["verb"], record, snapshot.group.types.get(record.type)),
        "code": str(error.get("code", "FAILED")),
        "message": str(error.get("message", "")),
        "remedy": str(error.get("remedy", "")),
    }


def _resource(record: Record, now: float) -> dict[str, Any]:
    return {
        "name": record.name,
        "type": record.type,
        "member": record.member,
        "status": f"{record.action}_{record.status}",
        "reason": record.reason,
        "physical_id": record.physical_id,
        "attributes": dict(record.attributes),
        "goal": record.goal_version,
        "owner": record.owner,
        "token": record.token,
        "lease_left": None if record.lease_until is None else record.lease_until - now,
        "id": record.id,
    }
