# SPDX-License-Identifier: Apache-2.0
"""What a look finds in a group of a workflow test, and what is done about it."""

from __future__ import annotations

from typing import Any

from mistral_lib.actions.context import ActionContext, ExecutionContext, SecurityContext

from mistral_failover.actions import recovery


def observe(group: Any) -> list[dict[str, Any]]:
    """Look at the group now; the rows about services that have changed."""
    context = ActionContext(SecurityContext(), ExecutionContext())
    rows = recovery.Observe(group.name).run(context)
    assert isinstance(rows, list), rows
    return rows


def service(group: Any) -> tuple[str, list[str]]:
    """Whether the group serves, and why not."""
    found = group.status()["service"]
    return found["status"], found["reasons"]


def healed(group: Any) -> Any:
    """Look, and run the workflow that is to be started."""
    (row,) = [row for row in observe(group) if row["heal"]]
    return group.workflows.run(row["heal"]["workflow"], row["heal"]["input"], timeout=60)


def volume_of(group: Any) -> str:
    """The id of the group's volume."""
    return str(group.cloud.resources(group.name)["data_volume"]["physical_resource_id"])
