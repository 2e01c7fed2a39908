# SPDX-License-Identifier: Apache-2.0
"""The operations of a ``floating_ip``."""

from __future__ import annotations

from typing import Any

from mistral_failover.cloud import networks
from mistral_failover.cloud.errors import CloudError
from mistral_failover.convergence.records import Record
from mistral_failover.groups.project_view import ProjectView, unknown
from mistral_failover.mistral.operation_documents import OperationDocument
from mistral_failover.model.observation import AS_RECORDED, ObservedPresence, Presence
from mistral_failover.model.remedies import need
from mistral_failover.resources.modules import ExaminedResource, about
from mistral_failover.resources.operation_context import (
    OperationContext,
    member_server,
    physical_id_of,
    recorded_server,
)
from mistral_failover.runtime.errors import says_how_to_continue


def associate_floating_ip(
    context: OperationContext, operation: OperationDocument
) -> dict[str, Any]:
    """Associate the floating IP with the port of the member's server."""
    server_id, properties = member_server(operation), operation["properties"]
    with says_how_to_continue(operation["group"]):
        floating_ip = networks.resolve_floating_ip(
            context.cloud, operation["stack"], properties["floating_ip"]
        )
        attributes = networks.associate(
            context.cloud,
            floating_ip,
            server_id,
            operation["timeout"],
            properties.get("network"),
        )
    return {"physical_id": floating_ip, "attributes": attributes}


def disassociate_floating_ip(
    context: OperationContext, operation: OperationDocument
) -> dict[str, Any]:
    """Take the floating IP from the server that it led to. If it leads elsewhere, it stays."""
    record = operation["resource"]
    with says_how_to_continue(operation["group"]):
        floating_ip = physical_id_of(
            context, operation, networks.resolve_floating_ip, "floating_ip"
        )
        if floating_ip is None:
            return {}
        networks.disassociate(
            context.cloud,
            floating_ip,
            recorded_server(operation),
            record["attributes"].get("port_id"),
            operation["timeout"],
        )
    return {}


OPERATIONS = (associate_floating_ip, disassociate_floating_ip)


def holders(subject: ExaminedResource) -> list[str]:
    """Return the server that a floating IP leads to."""
    cloud, named = subject.cloud, str(subject.spec.properties["floating_ip"])
    found = networks.floating_ip(cloud, networks.resolve_floating_ip(cloud, subject.stack, named))
    if found.port_id is None:
        return []
    device = networks.port(cloud, found.port_id).device_id
    return [device] if device else []


def observe(view: ProjectView, record: Record, group: str) -> ObservedPresence:
    """Return whether the floating IP still leads to the recorded port."""
    floating_ip, port_id = record.physical_id, record.attributes.get("port_id")
    if floating_ip is None or port_id is None:
        return ObservedPresence(Presence.UNKNOWN, "no floating IP or no port is recorded")
    try:
        found = view.listing.floating_ip(floating_ip)
    except CloudError as error:
        return unknown(error)
    if found is None:
        return ObservedPresence(Presence.GONE, "the floating IP no longer exists")
    if found.port_id == port_id:
        return AS_RECORDED
    back = need("ASSIGN_FLOATING_IP", port=port_id, address=floating_ip)
    if found.port_id is None:
        words = f"floating IP {found.address} is associated with no port"
        return ObservedPresence(Presence.GONE, words, (back,))
    words = f"floating IP {found.address} is associated with another port ({found.port_id})"
    return ObservedPresence(Presence.CHANGED, words, (back,))


def examine(subject: ExaminedResource) -> str:
    """Return what is right about a floating IP. Raises CloudError for what would fail."""
    cloud, given = subject.cloud, subject.spec.properties
    with about("floating_ip"):
        identity = networks.resolve_floating_ip(cloud, subject.stack, str(given["floating_ip"]))
        found = networks.floating_ip(cloud, identity)
    with about("network" if "network" in given else ""):
        ports = [networks.port_of(cloud, each, given.get("network")) for each in subject.members]
    with about("floating_ip"):
        networks.refuse_foreign(found, ports)
    return f"floating IP {found.address} can lead to {len(ports)} members"
