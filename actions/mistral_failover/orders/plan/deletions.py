# SPDX-License-Identifier: Apache-2.0
"""What a plan may delete: servers by a fence, for their volumes, or for their successors, and what
goes with them. A failover deletes nothing else but what it has made."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from mistral_failover.cloud.servers import server_state
from mistral_failover.cloud.transport import Unguarded
from mistral_failover.groups.kept_parts import parts_to_keep
from mistral_failover.groups.snapshot import GroupSnapshot
from mistral_failover.model.goal import ATTACHMENT, Goal, replace_name
from mistral_failover.model.installed import installed
from mistral_failover.model.restarts import RESTARTS
from mistral_failover.model.rungs import rung_kind
from mistral_failover.orders.plan.documents import PlannedDeletion, PlannedFence, PlannedReturn
from mistral_failover.orders.plan.preconditions import Preconditions
from mistral_failover.resources.restart.deletions import server_with_disks
from mistral_failover.resources.restart.way import LostServer, Way
from mistral_failover.resources.volume_attachment import deletes_on_dead_host
from mistral_failover.runtime.request import Request

if TYPE_CHECKING:
    from mistral_failover.cloud.clients import Cloud


def deletions(
    request: Request,
    snapshot: GroupSnapshot,
    found: Preconditions,
    goal: Goal,
    fences: Sequence[PlannedFence],
    ways_back: Sequence[PlannedReturn],
) -> Iterator[PlannedDeletion]:
    """Yield what the plan may delete. Raises CloudError, also where a way back would be refused
    because of what it would delete."""
    cloud = request.cloud(Unguarded())
    for fence in fences:
        if fence["state"] == "climbs":
            yield from _by_fence(cloud, found, fence)
    yield from _on_dead_hosts(cloud, found, goal)
    for row in ways_back:
        yield from _by_ways(request, cloud, snapshot, goal, row)


def _deleted(member: str, what: str, when: str) -> PlannedDeletion:
    return {"member": member, "what": what, "when": when, "sentence": f"{member}: {what}; {when}"}


def _by_fence(cloud: Cloud, found: Preconditions, fence: PlannedFence) -> Iterator[PlannedDeletion]:
    member = fence["member"]
    kinds = [rung_kind(rung["kind"]) for rung in fence["ladder"]]
    server = found.servers.get(member)
    for kind in kinds:
        if kind.deletes_server and server and server_state(cloud, server).exists:
            words = f"in Nova, by its fence, if the rungs before {kind.kind} prove nothing"
            first = "in Nova, by its fence"
            when = first if kind is kinds[0] else words
            yield _deleted(member, server_with_disks(cloud, server), when)


def _on_dead_hosts(cloud: Cloud, found: Preconditions, goal: Goal) -> Iterator[PlannedDeletion]:
    """Yield the servers of lost members that may be deleted for their volumes."""
    of: dict[tuple[str, str], list[str]] = {}
    for record in found.records:
        server = record.attributes.get("server_id")
        lost = record.member in goal.document["lost"]
        if record.type == ATTACHMENT and server and lost and deletes_on_dead_host(record):
            of.setdefault((str(record.member), str(server)), []).append(record.name)
    for (member, server), names in sorted(of.items()):
        if server_state(cloud, server).exists:
            when = f"in Nova, if its host is down, after its fence, so that {_free(names)}"
            yield _deleted(member, server_with_disks(cloud, server), when)


def _free(names: Sequence[str]) -> str:
    return f"{' and '.join(sorted(names))} {'is' if len(names) == 1 else 'are'} free"


def _by_ways(
    request: Request, cloud: Cloud, snapshot: GroupSnapshot, goal: Goal, row: PlannedReturn
) -> Iterator[PlannedDeletion]:
    group, member = snapshot.group, row["member"]
    lost = LostServer(
        cloud,
        group.stack,
        group.members.autoscaling_group,
        member,
        row["server"],
        goal.document["resources"][replace_name(member)]["properties"].get("resource"),
        parts_to_keep(request, snapshot.state.id, group.name)(),
    )
    for planned in row["ways"]:
        if planned["after"] == []:
            continue
        way: Way = installed(RESTARTS)[planned["way"]](planned["way"])
        for each in way.deletes(lost):
            only = len(row["ways"]) == 1
            when = each.when if only else f"{each.when}, if it comes back by {way.name}"
            yield _deleted(member, each.what, when)
