# SPDX-License-Identifier: Apache-2.0
"""The operations of a ``port``."""

from __future__ import annotations

from typing import Any

from mistral_failover.cloud import networks
from mistral_failover.cloud.errors import CloudError
from mistral_failover.convergence.records import Record
from mistral_failover.groups.project_view import ProjectView, unknown
from mistral_failover.mistral.operation_documents import OperationDocument
from mistral_failover.model.observation import AS_RECORDED, ObservedPresence, Presence
from mistral_failover.model.remedies import need
from mistral_failover.model.rungs import ServerAfter, rung_kind
from mistral_failover.resources.modules import ExaminedResource, about
from mistral_failover.resources.operation_context import (
    OperationContext,
    fence_proof,
    member_server,
    physical_id_of,
    recorded_server,
    refuse_started,
    refuse_unproven,
    says_how_to_leave_a_dead_host,
)
from mistral_failover.runtime.errors import says_how_to_continue


def attach_port(context: OperationContext, operation: OperationDocument) -> dict[str, Any]:
    """Attach the port to the member's server and wait until it is ACTIVE."""
    server_id = member_server(operation)
    with says_how_to_continue(operation["group"]):
        port_id = networks.resolve_port(
            context.cloud, operation["stack"], operation["properties"]["port"]
        )
        attributes = networks.attach_port(context.cloud, port_id, server_id, operation["timeout"])
    return {"physical_id": port_id, "attributes": attributes}


def detach_port(context: OperationContext, operation: OperationDocument) -> dict[str, Any]:
    """Detach the port from the server that it was attached to, and check that it is gone.

    Nova does it, unless a fence proves the server off without Nova's help: a request to a dead host
    would wait there, so Neutron releases the port.
    """
    server_id, proof = recorded_server(operation), fence_proof(operation)
    after = rung_kind(proof["rung"]).server_after if proof else None
    with (
        says_how_to_continue(operation["group"]),
        says_how_to_leave_a_dead_host(operation, ServerAfter.RUNNING, ServerAfter.SHUTOFF),
    ):
        if proof is None:
            refuse_unproven(context, operation, server_id)
        elif after is ServerAfter.SHUTOFF:
            refuse_started(context, operation, server_id)
        port_id = physical_id_of(context, operation, networks.resolve_port, "port")
        if port_id is None:
            return {}
        networks.detach_port(
            context.cloud,
            port_id,
            server_id,
            operation["timeout"],
            off=after is ServerAfter.CUT_OFF,
        )
    return {}


OPERATIONS = (attach_port, detach_port)


def holders(subject: ExaminedResource) -> list[str]:
    """Return the server that a port is attached to."""
    cloud, named = subject.cloud, str(subject.spec.properties["port"])
    found = networks.port(cloud, networks.resolve_port(cloud, subject.stack, named))
    return [found.device_id] if found.device_id else []


def observe(view: ProjectView, record: Record, group: str) -> ObservedPresence:
    """Return whether the port is still attached to the same server."""
    port_id, server_id = record.physical_id, record.attributes.get("server_id")
    if port_id is None or server_id is None:
        return ObservedPresence(Presence.UNKNOWN, "no port or no server is recorded")
    try:
        found = view.listing.port(port_id)
    except CloudError as error:
        return unknown(error)
    if found is None:
        return ObservedPresence(Presence.GONE, "the port no longer exists")
    if found.device_id == server_id:
        return AS_RECORDED
    back = need("ATTACH_PORT", server=server_id, port=port_id)
    if not found.device_id:
        words = "the port is attached to no server"
        return ObservedPresence(Presence.GONE, words, (back,))
    there, wanted = view.called(found.device_id), view.called(server_id)
    words = f"the port is attached to {there}, not to {wanted}"
    away = need("DETACH_PORT", server=found.device_id, port=port_id)
    return ObservedPresence(Presence.CHANGED, words, (away, back))


def examine(subject: ExaminedResource) -> str:
    """Return what is right about a port. Raises CloudError for what would fail."""
    cloud, named = subject.cloud, str(subject.spec.properties["port"])
    with about("port"):
        port = networks.port(cloud, networks.resolve_port(cloud, subject.stack, named))
        if port.device_id and not subject.is_ours(port.device_id):
            raise networks.port_in_use(port)
    return f"port {port.id} is free or on a member"
