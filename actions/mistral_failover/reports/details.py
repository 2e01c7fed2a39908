# SPDX-License-Identifier: Apache-2.0
"""Look up what an id means, and everything about it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from mistral_failover.alarms import held_alarms
from mistral_failover.convergence.records import OperationStatus
from mistral_failover.convergence.sentences import because
from mistral_failover.groups.snapshot import group_snapshot
from mistral_failover.mistral import executions
from mistral_failover.mistral.executions import execution_of
from mistral_failover.model.decisions import Decision
from mistral_failover.model.operation_words import operation_words
from mistral_failover.model.types import ResourceType
from mistral_failover.reports import status
from mistral_failover.reports.durations import critical_path, stage_of, stages
from mistral_failover.runtime.request import Request
from mistral_failover.runtime.short_ids import find_by_short_id
from mistral_failover.store import details, groups, incidents, plans, views
from mistral_failover.store.id_lookup import Match
from mistral_failover.store.transaction import ProjectTransaction
from mistral_failover.store.views import TraversalStep

SENTENCES = 500
"""Maximum entries of a traversal's journal; the latest are shown."""
OPERATIONS = 100
"""Maximum operations of one resource; the first are shown."""

Row = dict[str, Any]


def show(request: Request, said: str, group: str | None, *, trees: bool = True) -> Row:
    """Return everything about the one object of the project whose id begins with these digits.

    Returns ``kind`` (incident, traversal, goal, operation, resource, plan), ``id``, ``group`` (its
    name, None if unknown), ``now``, the fields of the kind, and ``executions``, the trees in
    Mistral (see ``executions.trees``); without ``trees`` Mistral is not asked. Raises ActionError
    UNKNOWN_ID, AMBIGUOUS_ID.
    """

    def read(tx: ProjectTransaction) -> tuple[Row, list[Row], list[str | None]]:
        match = find_by_short_id(request, tx, said, group)
        found = _KINDS[match.kind](request, tx, match)
        head = {"kind": match.kind, "id": match.id, "group": match.group, "now": tx.now()}
        return {**head, **found[0]}, found[1], found[2]

    found, operations, began = request.store.reading(read)
    if found.get("chain"):
        snapshot = group_snapshot(request, found["group"])
        chain = status.chain_state(request, snapshot.group, found["chain"], ask=trees)
        reason = status.reason_with(chain, found["status"], found["reason"])
        found = {**found, "chain": chain, "reason": reason}
    if not trees:
        return found
    work: dict[str, list[str]] = {}
    for row in operations:
        if identity := execution_of(row["owner"]):
            work.setdefault(identity, []).append(f"{row['verb']} {row['resource']}")
    return {**found, "executions": executions.trees(request, [*began, *work], work)}


def in_words(row: Row) -> str:
    """Return the result of an operation as a sentence."""
    if row["status"] == OperationStatus.STARTED:
        return "in progress"
    result = row["result"] or {}
    if error := result.get("error"):
        return because(error)
    if row["status"] == OperationStatus.UNKNOWN:
        return "its outcome is unknown"
    if row["status"] == OperationStatus.OVERTAKEN:
        return "its outcome is unknown; another operation replaced it"
    known = {**{"id": result.get("physical_id")}, **(result.get("attributes") or {})}
    told = ", ".join(f"{name}: {value}" for name, value in known.items() if value is not None)
    return f"done ({told})" if told else "done"


_Found = tuple[Row, list[Row], list[str | None]]
"""The fields of the kind, the operations to look for in Mistral, and the executions that started
it."""


def _incident(request: Request, tx: ProjectTransaction, match: Match) -> _Found:
    incident = incidents.get(tx, match.id)
    assert incident is not None  # it was found in this transaction
    traversals = (
        details.traversals_of(tx, match.group_id, incident_id=match.id)
        if match.group_id is not None
        else []
    )
    first = incident.traversal_id
    if first is not None and first not in [each["id"] for each in traversals]:
        counted = views.traversal(tx, first)  # it is counted on another incident
        traversals += [_brief(counted)] if counted else []
    operations = _operations_of(tx, [each["id"] for each in traversals])
    children = _children(request, tx, match.id)
    commands: dict[str, str | None] = {"admit": None, "dismiss": None}
    if incident.decision == Decision.HELD or any(child["turn"] for child in children):
        commands |= held_alarms.commands(incident, match.group)
    return (
        {
            "source": incident.source,
            "decision": incident.decision,
            "rule": incident.rule,
            "sentence": incident.sentence,
            "fact": dict(incident.fact),
            "said": dict(incident.payload),
            "heard": incident.duplicates + 1,
            "first_at": incident.first_at,
            "last_at": incident.last_at,
            "decided_at": incident.decided_at,
            "counts_on": incident.duplicate_of,
            "parent": incident.parent,
            "children": children,
            "traversals": traversals,
            **commands,
        },
        operations,
        [incident.execution],
    )


def _children(request: Request, tx: ProjectTransaction, host_event: str) -> list[Row]:
    """Return the children of a host event by group: ``incident``, ``group``, ``lost``,
    ``decision``, ``rule``, ``sentence``, ``evidence`` (why the storm guard still holds it) and
    ``turn``, its place among the held ones when several are admitted, from 1 (None: not held)."""
    children = incidents.children_of(tx, host_event)
    if not children:
        return []
    held = held_alarms.held_children(tx, host_event)
    turns = {each.incident.id: turn for turn, each in enumerate(held, 1)}
    return [
        {
            "incident": child.id,
            "group": group,
            "lost": list(incidents.reported_lost(child)),
            "decision": child.decision,
            "rule": child.rule,
            "sentence": child.sentence,
            "evidence": child.fact.get("evidence"),
            "turn": turns.get(child.id),
        }
        for child, group in children
    ]


def _traversal(request: Request, tx: ProjectTransaction, match: Match) -> _Found:
    found = views.traversal(tx, match.id)
    assert found is not None
    operations, now = details.operations_of(tx, traversal_id=match.id), tx.now()
    types = _types(request, tx, match)
    since, ended = found["started_at"], found["ended_at"]
    goal = tx.goal(found["group_id"], found["goal_version"])
    begun = incidents.get(tx, found["incident_id"] or "")
    history = views.history(tx, found["group_id"], limit=SENTENCES, traversal_id=match.id)
    met = _deferrals(details.deferrals(tx, match.id), operations)
    waited = [row["seconds"] for row in met if row["seconds"] is not None]
    graph = views.graph(tx, match.id)
    held = views.chain(tx, match.id) if ended is None else None
    document = {
        "cause": found["cause"],
        "goal": found["goal_version"],
        "status": found["status"],
        "reason": found["reason"],
        "chain": held,
        "incident": found["incident_id"],
        "roles": dict(goal.document["roles"]) if goal else {},
        "lost": list(goal.document["lost"]) if goal else [],
        "nodes": found["nodes"],
        "started_at": since,
        "ended_at": ended,
        "seconds": (now if ended is None else ended) - since,
        "superseded_by": found["superseded_by"],
        "operations": [
            _operation_row(row, types, now)
            | {"stage": stage.value, "resource_id": row["resource_id"]}
            for row, stage in zip(operations, stage_of(graph, operations), strict=True)
        ],
        "stages": stages(graph, operations, since, now),
        "critical_path": critical_path(graph, operations, since, now),
        "lock_waits": {"count": len(met), "seconds": sum(waited)},
        "deferrals": met,
        "steals": details.broken_locks(tx, match.id),
        "history": [
            {name: row[name] for name in ("at", "kind", "sentence", "resource_id")}
            for row in history
        ],
    }
    began = [begun.execution if begun else None, held["execution"] if held else None]
    return document, operations, began


def _goal(request: Request, tx: ProjectTransaction, match: Match) -> _Found:
    assert match.group_id is not None  # only an incident has none
    goal = tx.goal(match.group_id, match.id)
    state = groups.get(tx, match.group_id)
    assert goal is not None
    assert state is not None
    traversals = details.traversals_of(tx, match.group_id, goal_version=match.id)
    return (
        {
            "roles": dict(goal.document["roles"]),
            "lost": list(goal.document["lost"]),
            "document": dict(goal.document),
            "last_complete": state.last_complete_goal == match.id,
            "traversals": traversals,
        },
        _operations_of(tx, [each["id"] for each in traversals[-1:]]),
        [],
    )


def _operation(request: Request, tx: ProjectTransaction, match: Match) -> _Found:
    (row,) = details.operations_of(tx, key=match.id)
    entry = views.operation(tx, match.id)
    document = {
        **_operation_row(row, _types(request, tx, match), tx.now()),
        "traversal": row["traversal_id"],
        "resource_id": row["resource_id"],
        "goal": row["goal_version"],
        "token": row["token"],
        "intent": entry["intent"] if entry else None,
        "error": (row["result"] or {}).get("error"),
    }
    return document, [row], []


def _resource(request: Request, tx: ProjectTransaction, match: Match) -> _Found:
    record, now = tx.record(match.id), tx.now()
    assert record is not None
    operations = details.operations_of(tx, resource_id=match.id, limit=OPERATIONS)
    held = details.locks(tx, resource_id=match.id)
    types = _types(request, tx, match)
    document = {
        "name": record.name,
        "type": record.type,
        "member": record.member,
        "epoch": record.epoch,
        "status": f"{record.action}_{record.status}",
        "reason": record.reason,
        "properties": record.properties and dict(record.properties),
        "physical_id": record.physical_id,
        "attributes": dict(record.attributes),
        "requires": list(record.requires),
        "goal": record.goal_version,
        "replaces": record.replaces,
        "replaced_by": record.replaced_by,
        "token": record.token,
        "lock": held[0] if held else None,
        "operations": [_operation_row(row, types, now) for row in operations],
    }
    return document, operations[-10:], []


def _plan(request: Request, tx: ProjectTransaction, match: Match) -> _Found:
    found = plans.find(tx, match.id)
    assert found is not None
    plan, _ = found
    return (
        {
            "verb": plan.verb,
            "inputs": dict(plan.inputs),
            "goal": plan.goal_version,
            "expires_at": plan.expires_at,
            "expired": plan.expires_at <= tx.now(),
            "steps": f"failover plan --plan {match.id}",
        },
        [],
        [],
    )


_KINDS: dict[str, Callable[[Request, Any, Match], _Found]] = {
    "incident": _incident,
    "traversal": _traversal,
    "goal": _goal,
    "operation": _operation,
    "resource": _resource,
    "plan": _plan,
}


def _operations_of(tx: ProjectTransaction, traversals: Iterable[str]) -> list[Row]:
    return [row for each in traversals for row in details.operations_of(tx, traversal_id=each)]


def _types(request: Request, tx: ProjectTransaction, match: Match) -> Mapping[str, ResourceType]:
    state = groups.get(tx, match.group_id) if match.group_id is not None else None
    return request.runtime.definitions.group(tx, state).types if state else {}


def _operation_row(row: Row, types: Mapping[str, ResourceType], now: float) -> Row:
    ended = row["ended_at"]
    return {
        "key": row["key"],
        "what": operation_words(
            row["verb"], row["resource"], row["member"], types.get(row["type"])
        ),
        "verb": row["verb"],
        "resource": row["resource"],
        "type": row["type"],
        "member": row["member"],
        "status": row["status"],
        "owner": row["owner"],
        "execution": execution_of(row["owner"]),
        "attempts": row["attempts"],
        "started_at": row["started_at"],
        "ended_at": ended,
        "seconds": (now if ended is None else ended) - row["started_at"],
        "result": in_words(row),
    }


def _deferrals(met: Iterable[Row], operations: Iterable[Row]) -> list[Row]:
    """Add to each row how long the operation waited: until the next operation on the resource
    began, None if there is none."""
    begun: dict[str, list[float]] = {}
    for row in operations:
        begun.setdefault(row["resource_id"], []).append(row["started_at"])
    rows = []
    for row in met:
        after = [at for at in begun.get(row["resource_id"], []) if at >= row["deferred_at"]]
        rows.append(
            {
                "resource": row["resource"],
                "held_by": row["deferred_to"],
                "at": row["deferred_at"],
                "seconds": min(after) - row["deferred_at"] if after else None,
            }
        )
    return rows


def _brief(traversal: TraversalStep) -> Row:
    return {
        "id": traversal["id"],
        "status": traversal["status"],
        "reason": traversal["reason"],
        "cause": traversal["cause"],
        "started_at": traversal["started_at"],
        "ended_at": traversal["ended_at"],
        "goal": traversal["goal_version"],
    }
