# SPDX-License-Identifier: Apache-2.0
"""The operations of a ``load_balancer_member``."""

from __future__ import annotations

from typing import Any

from mistral_failover.cloud import load_balancers
from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.load_balancers import PoolMember
from mistral_failover.convergence.records import Record
from mistral_failover.groups.project_view import ProjectView, unknown
from mistral_failover.mistral.operation_documents import OperationDocument
from mistral_failover.model.observation import AS_RECORDED, ObservedPresence, Presence
from mistral_failover.model.remedies import need
from mistral_failover.resources.modules import ExaminedResource, about
from mistral_failover.resources.operation_context import (
    OperationContext,
    fence_proof,
    kept_for,
    member_server,
    recorded_server,
)
from mistral_failover.runtime.errors import says_how_to_continue


def enable_pool_member(context: OperationContext, operation: OperationDocument) -> dict[str, Any]:
    """Enable the member's server in the pool."""
    server_id, properties = member_server(operation), operation["properties"]
    with says_how_to_continue(operation["group"]):
        pool_id = load_balancers.resolve_pool(context.cloud, operation["stack"], properties["pool"])
        member_id, attributes = load_balancers.enable(
            context.cloud,
            pool_id,
            server_id,
            operation["timeout"],
            properties.get("protocol_port"),
            shared=properties.get("shared", False),
            weight=operation["resource"]["attributes"].get("weight"),
        )
    return {"physical_id": member_id, "attributes": attributes}


def disable_pool_member(context: OperationContext, operation: OperationDocument) -> dict[str, Any]:
    """Drain and disable the server in the pool. A server that a fence proves off is not drained:
    its connections are dead. It stays enabled if another resource of the group needs it."""
    if (kept := kept_for(context, operation)) is not None:
        return kept
    recorded = operation["resource"]["attributes"]
    drain = operation["properties"].get("drain", 0) if fence_proof(operation) is None else 0
    with says_how_to_continue(operation["group"]):
        found = _found(context, operation)
        if found is not None:
            load_balancers.disable(
                context.cloud,
                *found,
                operation["timeout"],
                drain=drain,
                weight=recorded.get("weight"),
            )
    return {}


def _found(context: OperationContext, operation: OperationDocument) -> tuple[str, str] | None:
    """Return the ids of the pool and the member that the resource was created with; without a
    record, of those that the group file names. None if it names none: then nothing was created."""
    record, properties = operation["resource"], operation["properties"]
    if record["physical_id"] is not None:
        return str(record["attributes"]["pool_id"]), str(record["physical_id"])
    try:
        pool_id = load_balancers.resolve_pool(context.cloud, operation["stack"], properties["pool"])
        members = load_balancers.pool_members(context.cloud, pool_id).values()
        server_id, port = recorded_server(operation), properties.get("protocol_port")
        return pool_id, load_balancers.member_of(context.cloud, members, server_id, port).id
    except CloudError as error:
        if error.code in ("NOT_FOUND", "BAD_REQUEST", "NO_POOL_MEMBER"):
            return None
        raise


OPERATIONS = (enable_pool_member, disable_pool_member)


def observe(view: ProjectView, record: Record, group: str) -> ObservedPresence:
    """Return whether the load balancer still passes connections on to the recorded member, and to
    no other one unless the pool is shared."""
    pool_id, member_id = record.attributes.get("pool_id"), record.physical_id
    if pool_id is None or member_id is None:
        return ObservedPresence(Presence.UNKNOWN, "no pool or no member of it is recorded")
    try:
        members = view.listing.pool_members(pool_id)
    except CloudError as error:
        return unknown(error)
    found = members.get(member_id)
    if found is None:
        return ObservedPresence(Presence.GONE, f"pool {pool_id} no longer has member {member_id}")
    if why := _unreached(found):
        return ObservedPresence(Presence.GONE, f"member {found} of pool {pool_id} {why}")
    other = load_balancers.other_enabled(members.values(), found)
    if other is not None and not (record.properties or {}).get("shared", False):
        disable = need("DISABLE_POOL_MEMBER", pool=pool_id, member=other.id)
        words = f"pool {pool_id} also leads to {other}"
        return ObservedPresence(Presence.CHANGED, words, (disable,))
    return AS_RECORDED


def _unreached(member: PoolMember) -> str:
    """Return why a member gets no connections, empty if it gets them."""
    if not member.enabled:
        return "is disabled"
    if not member.weight:
        return "gets no new connections (its weight is 0)"
    return "is in ERROR" if member.status == "ERROR" else ""


def examine(subject: ExaminedResource) -> str:
    """Return what is right about a pool. Raises CloudError for what would fail."""
    cloud, given = subject.cloud, subject.spec.properties
    with about("pool"):
        pool_id = load_balancers.resolve_pool(cloud, subject.stack, str(given["pool"]))
        rows = load_balancers.pool_members(cloud, pool_id).values()
    port = given.get("protocol_port")
    found = [load_balancers.member_of(cloud, rows, server, port) for server in subject.members]
    load_balancers.refuse_failed(cloud, pool_id)
    if not given.get("shared", False):
        enabled = [each for each in found if each.enabled]
        for each in enabled[:1] or found[:1]:
            load_balancers.refuse_others(rows, each)
    return f"pool {pool_id} can lead to {len(found)} members"
