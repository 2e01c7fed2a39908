# SPDX-License-Identifier: Apache-2.0
"""What a group's status tells besides: since when, who has the volumes, what the agents say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from mistral_failover.actions import hearing
from mistral_failover.actions.bounds import within
from mistral_failover.actions.errors import describe
from mistral_failover.actions.fencing import ATTACHMENT
from mistral_failover.actions.runtime import Request
from mistral_failover.actions.silence import sends_commands
from mistral_failover.actions.standing import Standing
from mistral_failover.convergence.records import Record
from mistral_failover.store import details, incidents

ASK = 3.0
"""Seconds that all agents together are asked for."""


def since(tx: Any, traversal: Mapping[str, Any]) -> float | None:
    """When a group came to stand as it does, in seconds since the epoch."""
    if traversal["ended_at"] is not None:
        return float(traversal["ended_at"])
    if traversal["status"] == "BLOCKED":
        said = details.last_said(tx, traversal["group_id"], "failed", traversal["id"])
        if said is not None:
            return said
    return float(traversal["started_at"])


def holders(tx: Any, group_id: str, records: Iterable[Record]) -> list[dict[str, Any]]:
    """Who has each volume of a group, by the group's records: ``volume`` (its resource's name),
    ``physical_id``, ``member``, ``server``, ``since``, ``status``."""
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


def held(tx: Any, project_id: str, group_id: str) -> int:
    """How many alarms of a group are held."""
    total, _ = incidents.held(tx, project_id, group_id, 1)
    return total


def agents(request: Request, stands: Standing) -> dict[str, str]:
    """What each member's agent last said, in words; nothing for a group that commands none."""
    if not sends_commands(stands.group):
        return {}
    try:
        rows = within(ASK, lambda: hearing.agents(request, stands.group.name))
    except Exception as error:  # noqa: BLE001 - a status is told without the agents as well
        return {"": str(describe(error)["message"])}
    if rows is None:
        return {"": f"the agents could not be asked within {ASK:.0f} s"}
    return {row["member"]: row["sentence"] for row in rows}
