# SPDX-License-Identifier: Apache-2.0
"""Look up what an id means, and everything about it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from mistral_failover.convergence import node_link
from mistral_failover.convergence.dry_run import dry_run_steps
from mistral_failover.convergence.graph import TraversalPlan
from mistral_failover.convergence.records import Node, NodeStatus, OperationStatus
from mistral_failover.convergence.sentences import because, operation_words_of
from mistral_failover.groups.snapshot import group_snapshot
from mistral_failover.mistral import executions
from mistral_failover.mistral.executions import execution_of
from mistral_failover.model.decisions import Decision
from mistral_failover.model.operation_words import operation_words
from mistral_failover.model.stages import Stage
from mistral_failover.model.types import ResourceType
from mistral_failover.orders import held_alarms
from mistral_failover.reports import status
from mistral_failover.reports.documents import (
    ChildIncident,
    Deferral,
    Details,
    GoalDetails,
    IncidentDetails,
    OperationDetails,
    OperationSummary,
    PlanDetails,
    ResourceDetails,
    StepAhead,
    TraversalDetails,
)
from mistral_failover.reports.durations import critical_path, node_of, stage_of, stages
from mistral_failover.runtime.request import Request
from mistral_failover.runtime.short_ids import find_by_short_id
from mistral_failover.store import details, groups, incidents, plans, views
from mistral_failover.store.details import LedgerRow, Match, NodeRow, TraversalBrief
from mistral_failover.store.transaction import ProjectTransaction
from mistral_failover.store.views import ChainRow, DeferredRow, TraversalRow

SENTENCES = 500
"""Maximum entries of a traversal's journal; the latest are shown."""
OPERATIONS = 100
"""Maximum operations of one resource; the first are shown."""


@dataclass
class _Found:
    """An object. ``operations``: to look for in Mistral; ``began``: the executions that started it;
    ``waits``: what to ask about a traversal's chain."""

    document: Details
    operations: list[LedgerRow] = field(default_factory=list)
    began: list[str | None] = field(default_factory=list)
    waits: _ChainWait | None = None


@dataclass
class _ChainWait:
    """A traversal that waits for its chain."""

    document: TraversalDetails
    group: str
    chain: ChainRow


def show(request: Request, said: str, group: str | None, *, trees: bool = True) -> Details:
    """Return everything about the one object of the project whose id begins with these digits: the
    document of its kind. Without ``trees`` Mistral is not asked. Raises ActionError UNKNOWN_ID,
    AMBIGUOUS_ID."""

    def read(tx: ProjectTransaction) -> _Found:
        match = find_by_short_id(request, tx, said, group)
        return _KINDS[match.kind](request, tx, match)

    found = request.store.reading(read)
    if found.waits is not None:
        document = found.waits.document
        snapshot = group_snapshot(request, found.waits.group)
        chain = status.chain_state(request, snapshot.group, found.waits.chain, ask=trees)
        document["chain"] = chain
        document["reason"] = status.reason_with(chain, document["status"], document["reason"])
    if trees:
        work: dict[str, list[str]] = {}
        for row in found.operations:
            if identity := execution_of(row["owner"]):
                work.setdefault(identity, []).append(f"{row['verb']} {row['resource']}")
        found.document["executions"] = executions.trees(request, [*found.began, *work], work)
    return found.document


def _head(tx: ProjectTransaction, match: Match) -> Details:
    return {"kind": match.kind, "id": match.id, "group": match.group, "now": tx.now()}


def _in_words(row: LedgerRow) -> str:
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


def _incident(request: Request, tx: ProjectTransaction, match: Match) -> _Found:
    incident = incidents.get(tx, match.id)
    assert incident is not None  # it was found in this transaction
    traversals: list[TraversalBrief] = []
    if match.group_id is not None:
        traversals += details.traversals_of(tx, match.group_id, incident_id=match.id)
        first = incident.traversal_id
        if first is not None and first not in [each["id"] for each in traversals]:
            # It is counted on another incident.
            traversals += details.traversals_of(tx, match.group_id, traversal_id=first)
    operations = _operations_of(tx, [each["id"] for each in traversals])
    children = _children(request, tx, match.id)
    waits = incident.decision == Decision.HELD or any(child["turn"] for child in children)
    commands = held_alarms.commands(incident, match.group) if waits else {}
    document: IncidentDetails = {
        **_head(tx, match),
        "source": incident.source,
        "decision": incident.decision,
        "rule": incident.rule,
        "sentence": incident.sentence,
        "fact": incident.fact.document(),
        "order": incident.order.document() if incident.order is not None else None,
        "said": dict(incident.payload),
        "heard": incident.duplicates + 1,
        "first_at": incident.first_at,
        "last_at": incident.last_at,
        "decided_at": incident.decided_at,
        "counts_on": incident.duplicate_of,
        "parent": incident.parent,
        "children": children,
        "traversals": traversals,
        "admit": commands.get("admit"),
        "dismiss": commands.get("dismiss"),
    }
    return _Found(document, operations, [incident.execution])


def _children(request: Request, tx: ProjectTransaction, host_event: str) -> list[ChildIncident]:
    """Return the children of a host event by group."""
    children = incidents.children_of(tx, host_event)
    if not children:
        return []
    held = held_alarms.held_children(tx, host_event)
    turns = {each.incident.id: turn for turn, each in enumerate(held, 1)}
    return [
        {
            "incident": child.id,
            "group": group,
            "lost": list(child.fact.lost),
            "decision": child.decision,
            "rule": child.rule,
            "sentence": child.sentence,
            "evidence": child.fact.evidence or None,
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
    met = _deferrals(views.deferred(tx, [match.id], waiting=False), operations)
    waited = [row["seconds"] for row in met if row["seconds"] is not None]
    graph = views.graph(tx, match.id)
    held = views.chain(tx, match.id) if ended is None else None
    document: TraversalDetails = {
        **_head(tx, match),
        "cause": found["cause"],
        "goal": found["goal_version"],
        "status": found["status"],
        "reason": found["reason"],
        "chain": None,
        "incident": found["incident_id"],
        "roles": dict(goal.document["roles"]) if goal else {},
        "lost": list(goal.document["lost"]) if goal else [],
        "nodes": found["nodes"],
        "started_at": since,
        "ended_at": ended,
        "seconds": (now if ended is None else ended) - since,
        "superseded_by": found["superseded_by"],
        "operations": [
            {
                **_operation_row(row, types, now),
                "stage": stage.value,
                "resource_id": row["resource_id"],
            }
            for row, stage in zip(operations, stage_of(graph, operations), strict=True)
        ],
        "stages": stages(graph, operations, since, now),
        "critical_path": critical_path(graph, operations, since, now),
        "lock_waits": {"count": len(met), "seconds": sum(waited)},
        "deferrals": met,
        "steals": details.broken_locks(tx, match.id),
        "ahead": _ahead(tx, found, graph, operations, types) if ended is None else [],
        "last_failover": details.last_failover(tx, match.id),
        "history": [
            {
                "at": row["at"],
                "kind": row["kind"],
                "sentence": row["sentence"],
                "resource_id": row["resource_id"],
            }
            for row in history
        ],
    }
    began = [begun.execution if begun else None, held["execution"] if held else None]
    waits = _ChainWait(document, match.group, held) if held and match.group else None
    return _Found(document, operations, began, waits)


def _ahead(
    tx: ProjectTransaction,
    traversal: TraversalRow,
    graph: Mapping[str, Any] | None,
    operations: Iterable[LedgerRow],
    types: Mapping[str, ResourceType],
) -> list[StepAhead]:
    """Return the steps that have not begun, each after those that it waits for."""
    group_id = traversal["group_id"]
    records = {each.id: each for each in tx.records(group_id) if each.type in types}
    known = {
        key: row
        for key, row in details.nodes_of(tx, traversal["id"]).items()
        if Node.parse(key).resource_id in records
    }
    if graph is None:
        return []
    drawn = node_link.read(graph)
    stage_by_node = {key: drawn.nodes[key].get("stage") for key in drawn}
    wanted = {
        Node.parse(key).resource_id: row["wanted"] for key, row in known.items() if row["wanted"]
    }
    plan = TraversalPlan(drawn.subgraph(known), wanted, (), tuple(records), {}, (), {})
    members = groups.members_of(tx, group_id)
    epochs = {name: member.epoch for name, member in members.items()}
    waves = dry_run_steps(plan, types, list(records.values()), epochs, tx.now())
    steps = {step.node.key: step for wave in waves for step in wave}
    words = {
        key: operation_words_of(step.verb, step.record, types[step.record.type])
        for key, step in steps.items()
    }
    begun = {node_of(row): row for row in operations}  # the latest of each node
    lasted = plans.durations(tx, group_id)
    return [
        {
            "key": key,
            "resource_id": step.node.resource_id,
            "what": words[key],
            "verb": step.verb,
            "stage": Stage(stage_by_node[key] or Stage.END).value,
            "certain": step.certain,
            "after": [begun[each]["key"] if each in begun else each for each in sorted(step.after)],
            "waits_for": _waits_for(known[key], [words[each] for each in sorted(step.after)]),
            "expected": lasted.get((step.record.type, step.verb)),
        }
        for key, step in steps.items()
        if known[key]["status"] == NodeStatus.WAITING
        and (key not in begun or begun[key]["ended_at"] is not None)
    ]


def _waits_for(row: NodeRow, before: list[str]) -> list[str]:
    if before:
        return before
    if row["waiting_for"]:
        return [row["waiting_for"]]
    return [f"the lock of {row['deferred_to']}"] if row["deferred_to"] else []


def _goal(request: Request, tx: ProjectTransaction, match: Match) -> _Found:
    assert match.group_id is not None  # only an incident has none
    goal = tx.goal(match.group_id, match.id)
    state = groups.get(tx, match.group_id)
    assert goal is not None
    assert state is not None
    traversals = details.traversals_of(tx, match.group_id, goal_version=match.id)
    document: GoalDetails = {
        **_head(tx, match),
        "roles": dict(goal.document["roles"]),
        "lost": list(goal.document["lost"]),
        "document": dict(goal.document),
        "last_complete": state.last_complete_goal == match.id,
        "traversals": traversals,
    }
    return _Found(document, _operations_of(tx, [each["id"] for each in traversals[-1:]]))


def _operation(request: Request, tx: ProjectTransaction, match: Match) -> _Found:
    (row,) = details.operations_of(tx, key=match.id)
    entry = views.operation(tx, match.id)
    document: OperationDetails = {
        **_head(tx, match),
        **_operation_row(row, _types(request, tx, match), tx.now()),
        "traversal": row["traversal_id"],
        "resource_id": row["resource_id"],
        "goal": row["goal_version"],
        "token": row["token"],
        "intent": entry["intent"] if entry else None,
        "error": (row["result"] or {}).get("error"),
    }
    return _Found(document, [row])


def _resource(request: Request, tx: ProjectTransaction, match: Match) -> _Found:
    record, now = tx.record(match.id), tx.now()
    assert record is not None
    operations = details.operations_of(tx, resource_id=match.id, limit=OPERATIONS)
    held = details.locks(tx, resource_id=match.id)
    types = _types(request, tx, match)
    document: ResourceDetails = {
        **_head(tx, match),
        "name": record.name,
        "type": record.type,
        "member": record.member,
        "epoch": record.epoch,
        "status": f"{record.action}_{record.status}",
        "reason": record.reason,
        "properties": None if record.properties is None else dict(record.properties),
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
    return _Found(document, operations[-10:])


def _plan(request: Request, tx: ProjectTransaction, match: Match) -> _Found:
    found = plans.find(tx, match.id)
    assert found is not None
    plan, _ = found
    document: PlanDetails = {
        **_head(tx, match),
        "verb": plan.order.verb,
        "inputs": plan.order.inputs,
        "goal": plan.goal_version,
        "expires_at": plan.expires_at,
        "expired": plan.expires_at <= tx.now(),
        "steps": f"failover plan --plan {match.id}",
    }
    return _Found(document)


_KINDS: dict[str, Callable[[Request, ProjectTransaction, Match], _Found]] = {
    "incident": _incident,
    "traversal": _traversal,
    "goal": _goal,
    "operation": _operation,
    "resource": _resource,
    "plan": _plan,
}


def _operations_of(tx: ProjectTransaction, traversals: Iterable[str]) -> list[LedgerRow]:
    return [row for each in traversals for row in details.operations_of(tx, traversal_id=each)]


def _types(request: Request, tx: ProjectTransaction, match: Match) -> Mapping[str, ResourceType]:
    state = groups.get(tx, match.group_id) if match.group_id is not None else None
    return request.runtime.definitions.group(tx, state).types if state else {}


def _operation_row(
    row: LedgerRow, types: Mapping[str, ResourceType], now: float
) -> OperationSummary:
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
        "result": _in_words(row),
    }


def _deferrals(met: Iterable[DeferredRow], operations: Iterable[LedgerRow]) -> list[Deferral]:
    """Add to each row how long the operation waited: until the next operation on the resource
    began, None if there is none."""
    begun: dict[str, list[float]] = {}
    for operation in operations:
        begun.setdefault(operation["resource_id"], []).append(operation["started_at"])
    rows: list[Deferral] = []
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
