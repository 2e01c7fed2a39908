# SPDX-License-Identifier: Apache-2.0
"""The servers and volumes that belong to a group's service and that no update of its stack may
remove.

At any update, whatever it is about, Heat replaces resources that are marked as unhealthy: without
stopping the application, and without a fence (``cloud.heat_replacements``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace

from mistral_failover.cloud import heat_replacements
from mistral_failover.cloud.heat_replacements import KeptParts
from mistral_failover.cloud.transport import Unguarded
from mistral_failover.convergence.records import Action, Record, Status
from mistral_failover.groups.snapshot import GroupSnapshot
from mistral_failover.model.goal import ATTACHMENT, fence_name
from mistral_failover.model.types import Provides, ResourceType
from mistral_failover.runtime.request import Request
from mistral_failover.store import groups, views
from mistral_failover.store.groups import MemberRow
from mistral_failover.store.transaction import ProjectTransaction
from mistral_failover.store.views import AttachedVolume


def parts_to_keep(request: Request, group_id: str, group: str) -> Callable[[], KeptParts]:
    """Return a function that reads from the store, at each call, which servers and volumes belong
    to a group's service."""

    def read(tx: ProjectTransaction) -> KeptParts:
        records, state = tx.records(group_id), groups.get(tx, group_id)
        types = request.runtime.definitions.group(tx, state).types if state else {}
        servers = servers_of(records, groups.members_of(tx, group_id))
        return KeptParts(
            group,
            servers,
            volumes_of(records, views.attached_volumes(tx, group_id, ATTACHMENT)),
            addresses_of(records, types),
        )

    return lambda: request.store.reading(read)


def servers_of(records: Iterable[Record], members: Mapping[str, MemberRow]) -> dict[str, str]:
    """Return by server id the members that have, or may have, resources of the group and are not
    proven fenced.

    A fence covers what was started before it: it raised the member's epoch.
    """
    records = list(records)
    standing: dict[str, list[bool]] = {}
    for record in records:
        done = (record.action, record.status) == (Action.CREATE, Status.COMPLETE)
        standing.setdefault(record.name, []).append(done)
    found = {}
    for record in records:
        row = members.get(record.member or "")
        if row is None or record.action == Action.INIT:
            continue
        fences = standing.get(fence_name(row.name), [])
        if fences and all(fences) and record.epoch < row.epoch:
            continue
        server_id = record.attributes.get("server_id") or row.server_id
        if server_id:
            found[str(server_id)] = row.name
    return found


def volumes_of(records: Iterable[Record], known: Mapping[str, AttachedVolume]) -> dict[str, str]:
    """Return by id the volumes with the group's data, with their names in the group file. This
    includes a volume that is moving from one member to another, by the last known id of its
    resource."""
    found = {}
    for record in records:
        if record.type != ATTACHMENT:
            continue
        if record.physical_id and record.properties:
            found[record.physical_id] = str(record.properties["volume"])
        elif record.name in known and not known[record.name].of_former_stack:
            found[known[record.name].volume_id] = known[record.name].name
    return found


def addresses_of(records: Iterable[Record], types: Mapping[str, ResourceType]) -> dict[str, str]:
    """Return each resource that is an address, by the id of its port, floating IP, member of a
    pool or DNS record, and by the id of the member's port, the pool or the zone that has it."""
    return {
        str(identity): record.name
        for record in records
        if record.type in types and types[record.type].provides is Provides.ADDRESS
        for identity in (
            record.physical_id,
            record.attributes.get("port_id"),
            record.attributes.get("pool_id"),
            record.attributes.get("zone_id"),
        )
        if identity
    }


def refuse_marked(request: Request, snapshot: GroupSnapshot, but: Collection[str] = ()) -> None:
    """Refuse an update of the stack that would remove a volume of the group, or a member that has
    something of it and keeps it; ``but``: members that give it up before. Raises CloudError as
    ``cloud.heat_replacements.refuse_marked``."""
    keep = parts_to_keep(request, snapshot.state.id, snapshot.group.name)()
    staying = {server: name for server, name in keep.members.items() if name not in but}
    spared = replace(keep, members=staying)
    heat_replacements.refuse_marked(request.cloud(Unguarded()), snapshot.group.stack, spared)
