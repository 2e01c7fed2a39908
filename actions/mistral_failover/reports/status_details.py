# SPDX-License-Identifier: Apache-2.0
"""Details of a group's status: since when, which member has each volume, what the agents report."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from shlex import quote
from typing import Any

from mistral_failover.cloud.errors import CloudError
from mistral_failover.convergence.records import Record
from mistral_failover.groups import agent_health
from mistral_failover.groups.agent_health import sends_commands
from mistral_failover.groups.snapshot import GroupSnapshot
from mistral_failover.mistral.api import mistral_of
from mistral_failover.mistral.client import ENDED
from mistral_failover.model.goal import ATTACHMENT
from mistral_failover.model.group import Group
from mistral_failover.model.stages import at
from mistral_failover.orders.failover import chain_of
from mistral_failover.runtime.deadlines import Until, within
from mistral_failover.runtime.errors import describe, masked
from mistral_failover.runtime.process import Request
from mistral_failover.store import details, incidents
from mistral_failover.store.transaction import SqlTransaction

_WORDS = 500  # characters of a workflow's own text in a sentence
ASK = 3.0
"""Seconds that all agents together may take to answer."""


def since(tx: SqlTransaction, traversal: Mapping[str, Any]) -> float | None:
    """Return when a group got its present status, in seconds since the epoch."""
    if traversal["ended_at"] is not None:
        return float(traversal["ended_at"])
    if traversal["status"] == "BLOCKED":
        said = details.last_said(tx, traversal["group_id"], "failed", traversal["id"])
        if said is not None:
            return said
    return float(traversal["started_at"])


def holders(tx: SqlTransaction, group_id: str, records: Iterable[Record]) -> list[dict[str, Any]]:
    """Return which member has each volume of a group, according to the group's records: ``volume``
    (its resource's name), ``physical_id``, ``member``, ``server``, ``since``, ``status``."""
    volumes = [record for record in records if record.type == ATTACHMENT]
    made = details.made_at(tx, group_id) if volumes else {}
    return [
        {
            "volume": record.name,
            "physical_id": record.physical_id,
            "member": record.member,
            "server": record.attributes.get("server_id"),
            "since": made.get(record.id),
            "status": f"{record.action}_{record.status}",
        }
        for record in volumes
    ]


def held(tx: SqlTransaction, project_id: str, group_id: str) -> int:
    """Return how many alarms of a group are held."""
    total, _ = incidents.held_alarms(tx, project_id, group_id, 1)
    return total


def agents(request: Request, snapshot: GroupSnapshot) -> dict[str, str]:
    """Return what each member's agent last reported, in words; empty for a group that sends no
    commands."""
    if not sends_commands(snapshot.group):
        return {}
    try:
        rows = within(ASK, lambda: agent_health.agents(request, snapshot.group.name))
    except Exception as error:  # noqa: BLE001 - a status is told without the agents as well
        return {"": str(describe(error)["message"])}
    if rows is None:
        return {"": f"the agents did not answer within {ASK:.0f} s"}
    return {row["member"]: row["sentence"] for row in rows}


def chain(request: Request, group: Group, held: Mapping[str, Any], *, ask: bool) -> dict[str, Any]:
    """Return what a traversal is waiting for, if it waits for its chain.

    ``held``: the result of ``store.views.chain``. ``ask``: ask Mistral how the chain's last
    execution ended, within :data:`ASK` seconds. Returns ``workflow``, ``execution``,
    ``executions``, ``stage``, ``state`` (None: not asked, or unknown), ``task`` (the one that
    failed), ``sentence``, and ``remedy``, the command that helps; it is empty while the chain may
    continue without help.
    """
    workflow, execution = chain_of(group), held["execution"]
    stage, sweep = at(held["stage"]).value, f"failover sweep {quote(group.name)}"
    found = {
        "workflow": workflow,
        "execution": execution,
        "executions": held["executions"],
        "stage": stage,
        "state": None,
        "task": None,
        "remedy": "",
    }
    if execution is None:
        sentence = (
            f"waits for its chain {workflow}, which has not started, to open the stage {stage}"
        )
        return {**found, "sentence": sentence, "remedy": sweep}
    name = f"its chain {workflow} (execution {execution})"
    found["sentence"] = f"waits for {name} to open the stage {stage}"
    try:
        ended = _ended(request, execution) if ask else None
    except CloudError:  # the status is told without it
        ended = None
    if ended is None:
        return found
    state, task, words = ended
    where = f" in task {task}" if task else ""
    why = f": {words}" if words else ""
    sentence = f"{name} ended with {state}{where} before it opened the stage {stage}{why}"
    return {**found, "state": state, "task": task, "sentence": sentence, "remedy": sweep}


def _ended(request: Request, execution: str) -> tuple[str, str | None, str] | None:
    """Return how an execution ended: its state, the task that failed, and its error message; None
    while it runs, or if Mistral does not know it. Raises CloudError."""
    mistral = mistral_of(request, Until(time.monotonic() + ASK, ASK))
    found = mistral.outcome(execution) if mistral else None
    if mistral is None or found is None or found.state not in ENDED:
        return None
    failure = mistral.failure(execution)
    error = found.output.get("error")
    if isinstance(error, Mapping):
        words = str(error.get("message") or "")
    else:
        words = failure.said if failure else found.said
    return found.state, failure.task if failure else None, masked(words)[:_WORDS]


def chain_reason(found: Mapping[str, Any]) -> str:
    """Return the result of :func:`chain` as one sentence with the command that helps."""
    next_step = f"; next: {found['remedy']}" if found["remedy"] else ""
    return f"{found['sentence']}{next_step}"
