# SPDX-License-Identifier: Apache-2.0
"""The operations of a ``virtual_ip``."""

from __future__ import annotations

from typing import Any

from mistral_failover.cloud import networks, servers
from mistral_failover.cloud.clients import Cloud
from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.url_paths import url_path
from mistral_failover.convergence.records import Record
from mistral_failover.groups.project_view import ProjectView, unknown
from mistral_failover.mistral.operation_documents import OperationDocument
from mistral_failover.model.observation import AS_RECORDED, ObservedPresence, Presence
from mistral_failover.model.remedies import need
from mistral_failover.model.rungs import ServerAfter, rung_kind
from mistral_failover.resources.commands import command_member
from mistral_failover.resources.modules import ExaminedResource, about
from mistral_failover.resources.operation_context import (
    OperationContext,
    fence_proof,
    member_server,
    physical_id_of,
    recorded_server,
    refuse_unproven,
)
from mistral_failover.runtime.errors import says_how_to_continue


def allow_address(context: OperationContext, operation: OperationDocument) -> dict[str, Any]:
    """Allow the address on the member's port, then run the command that announces it."""
    server_id, properties = member_server(operation), operation["properties"]
    with says_how_to_continue(operation["group"]):
        reserved = networks.resolve_port(context.cloud, operation["stack"], properties["port"])
        attributes = networks.allow_address(
            context.cloud, reserved, server_id, operation["timeout"]
        )
    if (announce := properties.get("announce")) is not None:
        arguments = {"address": attributes["address"]}
        command_member(context, operation, announce, arguments, server_id)
    return {"physical_id": reserved, "attributes": attributes}


def forbid_address(context: OperationContext, operation: OperationDocument) -> dict[str, Any]:
    """Run the command that removes the address from the server, then forbid it on the server's
    port.

    If a fence proves the server off, no command runs. Without a proof, the command must succeed: a
    host that is cut off from Neutron continues with the old permission.
    """
    record, server_id = operation["resource"], recorded_server(operation)
    proof = fence_proof(operation)
    with says_how_to_continue(operation["group"]):
        if proof is None:
            refuse_unproven(context, operation, server_id)
        reserved = physical_id_of(context, operation, networks.resolve_port, "port")
        address = record["attributes"].get("address") or _reserved_address(context, reserved)
    if reserved is None or address is None:
        return {}  # no port could be allowed it
    runs = proof is None or rung_kind(proof["rung"]).server_after is ServerAfter.RUNNING
    withdraw = operation["properties"].get("withdraw")
    if runs and withdraw is not None and servers.server_state(context.cloud, server_id).exists:
        command_member(context, operation, withdraw, {"address": address}, server_id)
    with says_how_to_continue(operation["group"]):
        for port_id in _ports(context, operation, server_id, reserved):
            networks.forbid_address(
                context.cloud,
                address,
                port_id,
                operation["timeout"],
            )
    return {}


def _reserved_address(context: OperationContext, reserved: str | None) -> str | None:
    """Return the address of the port that reserves it; None if there is no such port or address."""
    try:
        return None if reserved is None else networks.address_of(context.cloud, reserved)
    except CloudError as error:
        if error.code in ("NOT_FOUND", "NO_PORT"):
            return None
        raise


def _ports(
    context: OperationContext, operation: OperationDocument, server_id: str, reserved: str
) -> list[str]:
    """Return the port that may use the address; if none is recorded, those of the server."""
    recorded = operation["resource"]["attributes"].get("port_id")
    if recorded is not None:
        return [str(recorded)]
    network = networks.port(context.cloud, reserved).network_id
    found = networks.ports_of(context.cloud, server_id, network_id=network)
    return [each.id for each in found]


OPERATIONS = (allow_address, forbid_address)


def holders(subject: ExaminedResource) -> list[str]:
    """Return the members whose port may use the address."""
    cloud, named = subject.cloud, str(subject.spec.properties["port"])
    reserved = networks.port(cloud, networks.resolve_port(cloud, subject.stack, named))
    address = networks.address_of(cloud, reserved.id)
    return [
        server
        for server in subject.members
        for port in networks.ports_of(cloud, server, network_id=reserved.network_id)
        if networks.allows(port, address)
    ]


def observe(view: ProjectView, record: Record, group: str) -> ObservedPresence:
    """Return whether the member's port may still use the address."""
    port_id, address = record.attributes.get("port_id"), record.attributes.get("address")
    if port_id is None or address is None:
        return ObservedPresence(Presence.UNKNOWN, "no port or no address is recorded")
    try:
        found = view.listing.port(port_id)
    except CloudError as error:
        return unknown(error)
    if found is None:
        return ObservedPresence(Presence.GONE, "its port no longer exists")
    if networks.allows(found, address):
        return AS_RECORDED
    words = f"its port is not allowed to use {address}"
    back = need("ALLOW_ADDRESS", address=address, port=port_id)
    return ObservedPresence(Presence.GONE, words, (back,))


def examine(subject: ExaminedResource) -> str:
    """Return what is right about a virtual IP. Raises CloudError for what would fail."""
    cloud, named = subject.cloud, str(subject.spec.properties["port"])
    with about("port"):
        port = networks.port(cloud, networks.resolve_port(cloud, subject.stack, named))
        _refuse_foreign_network(cloud, port)
        address = networks.address_of(cloud, port.id)
        if port.device_id:  # first: a member that has it has two ports on the network
            networks.refuse_other_users(cloud, port, address, ())
    ports = [networks.port_of(cloud, server, port.network_id) for server in subject.members]
    user = [each.id for each in ports if networks.allows(each, address)][:1]
    networks.refuse_other_users(cloud, port, address, user)
    return f"{len(ports)} members can be allowed {address}"


def _refuse_foreign_network(cloud: Cloud, port: networks.Port) -> None:
    """Refuse a network of another project: Neutron's default policy lets only a network's owner
    and administrators allow addresses on its ports."""
    row = cloud.read("Neutron", url_path("v2.0", "networks", port.network_id))["network"]
    if networks.PROJECT_ID.of(row) != cloud.project_id:
        raise CloudError(
            "FORBIDDEN",
            f"Network {port.network_id} belongs to another project, so Neutron's default policy "
            "does not let this project allow addresses on its ports.",
            remedy="Use a network of the project, a floating_ip or a port; or ask an administrator "
            "of the cloud for the right to update allowed_address_pairs.",
        )
