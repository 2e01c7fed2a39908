# SPDX-License-Identifier: Apache-2.0
"""What the actions for people answer: status, history, and plans that touch nothing."""

from __future__ import annotations

from typing import Any

import networkx as nx

from mistral_failover.actions import rights, starting, suspending, switching
from mistral_failover.actions.fencing import confirm_command
from mistral_failover.actions.runtime import Request
from mistral_failover.actions.starting import Facts, Standing
from mistral_failover.convergence.graph import Plan, plan
from mistral_failover.convergence.records import Record
from mistral_failover.convergence.sentences import doing
from mistral_failover.model.goal import FENCE_TYPE, Goal, returns
from mistral_failover.model.ids import derived_id
from mistral_failover.store import groups, incidents, views

_INCIDENTS_SHOWN = 10


def status(request: Request, name: str) -> dict[str, Any]:
    """Where a group stands: who holds which role, each resource, what is under way or blocked."""
    stands = starting.standing(request, name)

    def read(tx: Any) -> dict[str, Any]:
        current = stands.state.current_traversal
        traversal = views.traversal(tx, current) if current else None
        now, records = tx.now(), list(tx.records(stands.state.id))
        return {
            "group": name,
            "stack": stands.group.stack,
            "status": traversal["status"] if traversal else "DEFINED",
            "reason": _reason(tx, traversal) if traversal else "no goal was given yet",
            "roles": dict(stands.roles),
            "lost": sorted(stands.lost),
            "goal": traversal["goal_version"] if traversal else None,
            "last_complete_goal": stands.state.last_complete_goal,
            "traversal": traversal,
            **suspending.standing(tx, stands.state.id),
            "members": [
                {"name": m.name, "server": m.server_id, "epoch": m.epoch}
                for m in groups.members_of(tx, stands.state.id).values()
            ],
            "resources": [_resource(record, now) for record in records],
            "remedies": _remedies(tx, name, current, records) if current else [],
            "under_way": views.under_way(tx, stands.state.id),
            "deferred": views.deferred(tx, current) if current else [],
            "incidents": [
                {
                    "id": i.id,
                    "decision": i.decision,
                    "sentence": i.sentence,
                    "duplicates": i.duplicates,
                    "at": i.first_at,
                }
                for i in incidents.of_group(tx, stands.state.id, _INCIDENTS_SHOWN)
            ],
            "now": now,
        }

    return request.runtime.database.reading(read)


def _remedies(
    tx: Any, group: str, traversal_id: str, records: list[Record]
) -> list[dict[str, Any]]:
    """What a person types to let blocked fences go on, once they are sure."""
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
    request: Request, name: str, *, after: int, limit: int, traversal: str | None
) -> list[dict[str, Any]]:
    """The group's journal: one sentence per step."""
    stands = starting.standing(request, name)
    return request.runtime.database.reading(
        lambda tx: views.history(
            tx, stands.state.id, after=after, limit=limit, traversal_id=traversal
        )
    )


def report(request: Request, name: str, traversal_id: str) -> dict[str, Any]:
    """How a traversal stands: the outcome that a failover's execution ends with. Of a planned move
    it is that of the whole of it, the way back included."""
    stands = starting.standing(request, name)

    def read(tx: Any) -> dict[str, Any] | None:
        traversal = views.traversal(tx, traversal_id)
        if traversal is None or traversal["group_id"] != stands.state.id:
            return None
        goal = tx.goal(stands.state.id, traversal["goal_version"])
        if goal is None:
            return None
        found = {
            "status": traversal["status"],
            "reason": _reason(tx, traversal),
            "roles": dict(goal.document["roles"]),
            "lost": list(goal.document["lost"]),
            "ended_at": traversal["ended_at"],
        }
        if returns(goal):
            found |= switching.ending(tx, traversal)
        ended = found.pop("ended_at")
        seconds = None if ended is None else ended - traversal["started_at"]
        return {**found, "seconds": seconds}

    found = request.runtime.database.reading(read)
    if found is None:
        return {"group": name, "traversal": traversal_id, "status": "UNKNOWN", "reason": ""}
    return {"group": name, "traversal": traversal_id, **found}


def _reason(tx: Any, traversal: dict[str, Any]) -> str:
    """Why a traversal stands as it does; while it is under way, whose rights it waits for."""
    if traversal["status"] != "IN_PROGRESS":
        return str(traversal["reason"])
    return rights.waiting(tx.records(traversal["group_id"]))


def preview(request: Request, name: str, facts: Facts) -> dict[str, Any]:
    """What a failover would do now: the goal and each operation, in an order that may happen.

    ``steps`` have number, what (a sentence), resource, member, and after: the numbers of the
    steps that come first; steps that do not wait for each other run in parallel.
    """
    stands = starting.standing(request, name)
    members = starting.look_at_members(request, stands, facts, remember=False)
    goal = starting.next_goal(stands, facts, members)
    starting.look_at_new_volumes(request, stands, goal)

    def read(tx: Any) -> tuple[Plan, list[Record]]:
        records = list(tx.records(stands.state.id))
        drawn = plan(
            goal,
            stands.group.types,
            records,
            tx.epochs(stands.state.id),
            group_id=stands.state.id,
            new_id=lambda resource: derived_id(stands.state.id, "preview", resource),
        )
        return drawn, records

    drawn, records = request.runtime.database.reading(read)
    return {
        "group": name,
        "goal": goal.version,
        "roles": dict(goal.document["roles"]),
        "lost": list(goal.document["lost"]),
        "steps": _steps(stands, goal, drawn, records),
    }


def _steps(
    stands: Standing, goal: Goal, drawn: Plan, records: list[Record]
) -> list[dict[str, Any]]:
    by_id = {record.id: record for record in [*records, *drawn.new]}
    nodes = drawn.in_order()
    nearest = nx.transitive_reduction(drawn.graph)
    numbers = {node.key: number for number, node in enumerate(nodes, start=1)}
    steps = []
    for node in nodes:
        record = by_id[node.resource_id]
        resource_type = stands.group.types[record.type]
        if node.kind == "cleanup":
            what = doing("delete", record, resource_type)
        elif record.id in drawn.kept:
            what = f"check or update: {record.name}"
        else:
            what = doing("create", record, resource_type)
        steps.append(
            {
                "number": numbers[node.key],
                "what": what,
                "resource": record.name,
                "member": record.member,
                "after": sorted(numbers[key] for key in nearest.predecessors(node.key)),
            }
        )
    return steps


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
