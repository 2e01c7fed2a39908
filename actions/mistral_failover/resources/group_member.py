# SPDX-License-Identifier: Apache-2.0
"""The operation of a ``group_member``: Heat creates another server for a member."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from shlex import quote
from typing import Any

from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.stack_updates import Replacement
from mistral_failover.cloud.stack_updates import replace_member as replace_by_heat
from mistral_failover.fault_points import reach
from mistral_failover.groups import kept_parts, refresh_members
from mistral_failover.groups.refresh_members import remember_members
from mistral_failover.groups.snapshot import GroupSnapshot, group_snapshot
from mistral_failover.mistral.operation_documents import OperationDocument
from mistral_failover.resources.operation_context import OperationContext
from mistral_failover.runtime.errors import says_how_to_continue, start_command
from mistral_failover.store import groups
from mistral_failover.store.leases import elapsed


def replace_server(context: OperationContext, operation: OperationDocument) -> dict[str, Any]:
    """Have Heat create another server for a member; then record it, which begins the member's next
    epoch, and tell the agent of the former server that it is deposed.

    Safe to repeat at any point, because it names the server to remove. Raises CloudError,
    LeaseLost.
    """
    began, request = elapsed(), context.request
    snapshot = group_snapshot(request, operation["group"])
    wish = operation["properties"]
    member, old = str(wish["member"]), str(wish["server_id"])
    with says_how_to_continue(operation["group"]), _left_for_good(operation["group"], member):
        found: Replacement = replace_by_heat(
            context.cloud,
            operation["stack"],
            member,
            autoscaling_group=snapshot.group.members.autoscaling_group,
            resource=wish.get("resource"),
            server_id=old,
            # Heat shows it, and by it a repeat knows its own mark.
            reason=f"replaced by mistral-failover, operation {operation['key']}",
            limit=float(operation["timeout"]),
            keep=kept_parts.parts_to_keep(request, operation["group_id"], operation["group"]),
        )
    reach("replaced.before")
    _see(context, snapshot, member, old)
    return {
        "physical_id": found.server,
        "attributes": {
            "old_server": old,
            "server": found.server,
            "seconds": round(elapsed() - began, 1),
        },
    }


@contextmanager
def _left_for_good(group: str, member: str) -> Iterator[None]:
    """Add how to withdraw the replacement of a member that Heat no longer knows."""
    try:
        yield
    except CloudError as error:
        if error.code == "NOT_FOUND":
            error.remedy += (
                f" If the member has left the stack permanently: {start_command(group)} --lost '' "
                f"--recovered {quote(member)}."
            )
        raise


def _see(context: OperationContext, snapshot: GroupSnapshot, member: str, old: str) -> None:
    """Record the present members. Every repeat notifies the former server's agent again: a process
    that died may have raised the epoch without notifying it."""
    request = context.request
    _, others = remember_members(
        request,
        context.cloud,
        snapshot,
        lambda: refresh_members.members_now(context.cloud, snapshot),
    )
    rows = request.store.reading(lambda tx: groups.members_of(tx, snapshot.state.id))
    told = [one for one in others if one.name != member]
    if (now := rows.get(member)) is not None and now.server_id != old:
        told.insert(0, groups.ReplacedMember(member, old, now.epoch))
    refresh_members.depose(request, context.cloud, snapshot, told)


OPERATIONS = (replace_server,)
