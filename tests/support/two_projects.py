# SPDX-License-Identifier: Apache-2.0
"""The rows of two projects, ``mine`` and ``theirs``, that have groups and members of the same
names."""

from __future__ import annotations

import hashlib
from typing import Any

import sqlalchemy as sa

from mistral_failover.model.alarm_fact import AlarmFact
from mistral_failover.model.ids import group_id
from mistral_failover.model.observation import Observation, ObservationMemory, Service
from mistral_failover.model.order import Order
from mistral_failover.store import tables

NOW = 1_000_000.0
GROUP, SERVER = "payments", "server-of-both"
DEFINITION: dict[str, Any] = {
    "document": {"on_event": {"workflow": "tell", "events": ["held", "ended"]}},
    "types": [],
}
GOAL: dict[str, Any] = {"resources": {}, "roles": {}, "lost": []}


def ids(project: str) -> dict[str, Any]:
    """What a caller names: the ids of a project's rows."""
    return {
        "admitted_id": f"{project}-admitted",
        "after": 0,
        "batch": 10,
        "counts": {},
        "definition": DEFINITION,
        "execution": "execution",
        "found": True,
        "group": GROUP,
        "group_id": group_id(project, GROUP),
        "host": "cmp1",
        "incident_id": f"{project}-incident",
        "interval": 1.0,
        "keep": 10.0,
        "kind": None,
        "limit": 10,
        "most": 1,
        "name": GROUP,
        "older_than": NOW + 1,
        "now": NOW,
        "parent": f"{project}-event",
        "parents": [f"{project}-event"],
        "plan_id": f"{project}-plan",
        "quiet": 1.0,
        "rehearsal_id": f"{project}-rehearsal",
        "resource_id": f"{project}-resource",
        "rule": "storm",
        "rules": ["storm"],
        "said": f"{project}-traversal",
        "server_id": SERVER,
        "signature": project,
        "since": 0.0,
        "stuck": True,
        "traversal_id": f"{project}-traversal",
        "within": NOW,
        "times": 2,
        "final": False,
    }


def row(table: sa.Table, **values: Any) -> sa.Insert:
    """A row; what it must have besides is nought."""
    nought: dict[str, Any] = {}
    for column in table.columns:
        if (
            not column.nullable
            and column.server_default is None
            and column.autoincrement is not True
        ):
            kind = column.type
            nought[column.name] = (
                {}
                if isinstance(kind, tables.PlainJson)
                else "0"
                if isinstance(kind, sa.String)
                else 0
            )
    return table.insert().values({**nought, **values})


def fill(connection: sa.Connection, project: str) -> None:
    """A group with a row of each kind, in every state that somebody asks for."""
    group, traversal = group_id(project, GROUP), f"{project}-traversal"
    lasted = {"mine": 10.0, "theirs": 20.0}[project]
    resource, member = f"{project}-resource", {"properties": {"member": "a"}}
    rows = [
        row(
            tables.groups,
            id=group,
            project_id=project,
            name=GROUP,
            definition_version="v",
            defined="v",
            in_force="v",
            current_traversal=traversal,
            last_complete_goal=f"{project}-goal",
            hook="tell",
            told=0,
        ),
        row(tables.definitions, group_id=group, version="v", document=DEFINITION),
        row(tables.goals, group_id=group, version=f"{project}-goal", document=GOAL),
        row(tables.members, group_id=group, name="a", server_id=SERVER, confirmed_epoch=0),
        row(tables.former_members, group_id=group, name="b", server_id=SERVER),
        row(
            tables.traversals,
            id=traversal,
            group_id=group,
            status="IN_PROGRESS",
            definition_version="v",
            goal_version=f"{project}-goal",
            reason=project,
        ),
        row(
            tables.resources,
            id=resource,
            group_id=group,
            name="data",
            type="volume_attachment",
            action="CREATE",
            status="FAILED",
            owner=f"{project}-owner",
            token=1,
            lease_until=1.0,
            **member,
        ),
        row(
            tables.resources,
            id=f"{project}-blocked",
            group_id=group,
            name="fence:a",
            type="volume_attachment",
            action="CREATE",
            status="FAILED",
        ),
        *(
            row(
                tables.nodes,
                traversal_id=traversal,
                node=f"update:{project}-{which}",
                resource_id=f"{project}-{which}",
                status=status,
            )
            for which, status in (("resource", "WAITING"), ("blocked", "BLOCKED"))
        ),
        *(
            row(
                tables.operations,
                key=f"{project}-{which}-{status}",
                group_id=group,
                resource_id=f"{project}-{which}",
                traversal_id=traversal,
                status=status,
                verb="create",
                owner=f"{project}-owner",
                token=1,
                started_at=NOW - lasted,
                ended_at=ended,
                result={"error": {"about": {"volume": "v", "server": "s", "sight": project}}},
            )
            for which, status, ended in (
                ("resource", "started", None),
                ("resource", "done", NOW),
                ("blocked", "failed", NOW),
            )
        ),
        *(
            row(
                tables.incidents,
                id=f"{project}-{identity}",
                project_id=project,
                group_id=of,
                source="aodh",
                rule="storm",
                firing=True,
                series="s",
                decided_at=1.0,
                decision=decision,
                parent=f"{project}-event" if identity == "child" else None,
                fact=AlarmFact(host="cmp1"),
            )
            for identity, decision, of in (
                ("incident", "IGNORED", group),
                ("admitted", "ADMITTED", group),
                ("held", "HELD", group),
                ("child", "HELD", group),
                ("event", "ADMITTED", None),
                ("nowhere", "HELD", None),
            )
        ),
        row(
            tables.plans,
            id=f"{project}-plan",
            project_id=project,
            group_id=group,
            order=Order("failover"),
            expires_at=NOW + 1,
        ),
        row(
            tables.rehearsals,
            id=f"{project}-rehearsal",
            group_id=group,
            planned={"servers": {}},
            outcome="RUNNING",
            began_at=1.0,
        ),
        row(
            tables.rehearsals,
            id=f"{project}-rehearsed",
            group_id=group,
            outcome="PASSED",
            began_at=1.0,
        ),
        row(
            tables.rehearsed_roles,
            group_id=group,
            role="active",
            member="a",
            tried_at=lasted,
            outcome="RUNNING",
        ),
        row(tables.service_changes, group_id=group, at=1.0, service="SERVING"),
        row(tables.service_changes, group_id=group, at=2.0, service="DOWN"),
        row(
            tables.observations,
            group_id=group,
            service="DOWN",
            at=1.0,
            seen=Observation(Service.DOWN),
            memory=ObservationMemory(
                hosts={SERVER: [project, project, ""]},
                zones={SERVER: project},
                heard={SERVER: float(len(project))},
            ),
        ),
        row(tables.journal, group_id=group, traversal_id=traversal, kind="held", sentence=project),
        row(tables.journal, group_id=group, kind="sweep", sentence=project),
        row(
            tables.deliveries,
            project_id=project,
            digest=hashlib.sha256(project.encode()).hexdigest(),
            execution=project,
            at=NOW,
        ),
        *(
            row(tables.totals, project_id=project, shard="-", name=name, labels=label, value=1.0)
            for name, label in (("sweeps", "yes"), ("unlisted", "storm"))
        ),
    ]
    for insert in rows:
        connection.execute(insert)
