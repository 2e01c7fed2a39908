# SPDX-License-Identifier: Apache-2.0
"""The operation of a ``group_member``: bring a member back, by the first of its ways that can."""

from __future__ import annotations

from typing import Any

from mistral_failover.cloud.heat_replacements import MARKED
from mistral_failover.cloud.servers import server_state
from mistral_failover.fault_points import reach
from mistral_failover.groups import refresh_members
from mistral_failover.groups.refresh_members import remember_members
from mistral_failover.groups.snapshot import GroupSnapshot, group_snapshot
from mistral_failover.mistral.operation_documents import OperationDocument
from mistral_failover.model.goal import fence_name
from mistral_failover.model.installed import installed
from mistral_failover.model.remedies import another_server, instead, need
from mistral_failover.model.restarts import ANOTHER_SERVER, RESTARTS
from mistral_failover.resources.operation_context import OperationContext
from mistral_failover.resources.restart.way import Attempt, Way
from mistral_failover.runtime.errors import ActionError
from mistral_failover.store import groups
from mistral_failover.store.leases import elapsed


def bring_back(context: OperationContext, operation: OperationDocument) -> dict[str, Any]:
    """Bring a member back: start or evacuate its server, have Heat create another one, or as the
    group states it. Then record the server, which begins the member's next epoch if it is another
    one, and tell the agent of the former server that it is deposed.

    Safe to repeat at any point. Raises CloudError, LeaseLost; ActionError NOT_BACK if no way can.
    """
    began, wish = elapsed(), operation["properties"]
    snapshot = group_snapshot(context.request, operation["group"])
    member, old = str(wish["member"]), str(wish["server_id"])
    proof = operation["inputs"].get(fence_name(member))
    fence = proof["attributes"] if proof else {}
    attempt = Attempt(context, operation, snapshot, member, old, wish, fence)
    tried = []
    ways = wish.get("restart") or [ANOTHER_SERVER]
    if len(ways) > 1 and _is_replaced(context, snapshot, member, old):
        # Another server was begun: whatever else is done, the stack's next update removes this one.
        tried.append(f"Heat has begun to replace server {old}, and its next update removes it")
        ways = [name for name in ways if name == ANOTHER_SERVER]
    for name in ways:
        kind = installed(RESTARTS).get(name)
        if kind is None:
            tried.append(f"{name}: no installed package provides it")
            continue
        way: Way = kind(name)
        server, observed = way.bring_back(attempt)
        if server is not None:
            reach("replaced.before")
            _see(context, snapshot, member, old)
            attributes = {"old_server": old, "server": server, "by": name}
            seconds = round(elapsed() - began, 1)
            return {"physical_id": server, "attributes": {**attributes, "seconds": seconds}}
        tried.append(f"{name}: {observed}")
    given = another_server(operation["stack"], member)
    another = given.words(f"{given.remedy.when}: {given.remedy.command}.", operation["group"])
    repaired = need("MOVE_TO_RECOVERED", lost=[""], recovered=[member], able=member)
    there = server_state(context.cloud, old).exists
    repair = f" Or repair server {old}, then: {repaired.command(operation['group'])}"
    raise ActionError(
        "NOT_BACK",
        f"{member} is not back ({'; '.join(tried)})",
        f"{another[0].upper()}{another[1:]}{repair if there else ''}",
        needs=instead([repaired, given] if there else [given]),
    )


def _is_replaced(context: OperationContext, snapshot: GroupSnapshot, member: str, old: str) -> bool:
    """Return whether Heat removes a member's server at the next update of its stack: it has marked
    it, or it has begun another one, which may have failed."""
    seen = refresh_members.members_now(context.cloud, snapshot)
    return not any(
        (each.name, each.server_id) == (member, old) and each.status != MARKED for each in seen
    )


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


OPERATIONS = (bring_back,)
