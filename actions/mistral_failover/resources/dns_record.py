# SPDX-License-Identifier: Apache-2.0
"""The operations of a ``dns_record``.

A name that vanished would be remembered as missing by the name servers of the clients, often for an
hour. So a move deletes nothing: the new member's record takes the place of the old one.
"""

from __future__ import annotations

from typing import Any

from mistral_failover.cloud import dns_records
from mistral_failover.cloud.errors import CloudError
from mistral_failover.convergence.records import Record
from mistral_failover.groups.project_view import ProjectView, unknown
from mistral_failover.mistral.operation_documents import OperationDocument
from mistral_failover.model.observation import AS_RECORDED, ObservedPresence, Presence
from mistral_failover.resources.modules import ExaminedResource, about
from mistral_failover.resources.operation_context import OperationContext, member_of, member_server
from mistral_failover.runtime.errors import says_how_to_continue


def point_name(context: OperationContext, operation: OperationDocument) -> dict[str, Any]:
    """Point the name to the member."""
    server_id, properties = member_server(operation), operation["properties"]
    kind = properties.get("type", "A")
    with says_how_to_continue(operation["group"]):
        target = dns_records.target_of(
            context.cloud,
            member_of(operation)["name"],
            server_id,
            kind,
            properties.get("network"),
            properties.get("targets"),
        )
        wanted = dns_records.WantedRecordset(
            dns_records.resolve_zone(context.cloud, properties["zone"]),
            properties["name"],
            kind,
            target,
            properties["ttl"],
            dns_records.owner(operation["group"], operation["resource"]["name"]),
        )
        identity, attributes = dns_records.point(context.cloud, wanted, operation["timeout"])
    return {"physical_id": identity, "attributes": {**attributes, "server_id": server_id}}


def remove_name(context: OperationContext, operation: OperationDocument) -> dict[str, Any]:
    """Delete the name, unless the goal has another record that takes its place."""
    if operation.get("wanted", True):
        return {}
    with says_how_to_continue(operation["group"]):
        found = _found(context, operation)
        if found is not None:
            dns_records.remove(
                context.cloud,
                *found,
                dns_records.owner(operation["group"], operation["resource"]["name"]),
                operation["timeout"],
            )
    return {}


def _found(context: OperationContext, operation: OperationDocument) -> tuple[str, str] | None:
    """Return the ids of the zone and the recordset that the resource was created with; without a
    record, of those that the group file names. None if there are none."""
    record, properties = operation["resource"], operation["properties"]
    if record["physical_id"] is not None:
        return str(record["attributes"]["zone_id"]), str(record["physical_id"])
    try:
        zone_id = dns_records.resolve_zone(context.cloud, properties["zone"])
        kind = properties.get("type", "A")
        found = dns_records.named(context.cloud, zone_id, properties["name"], kind)
    except CloudError as error:
        if error.code == "NOT_FOUND":
            return None
        raise
    return None if found is None else (found.zone_id, found.id)


OPERATIONS = (point_name, remove_name)


def observe(view: ProjectView, record: Record, group: str) -> ObservedPresence:
    """Return whether Designate still leads the name to the recorded target."""
    zone_id, target = record.attributes.get("zone_id"), record.attributes.get("target")
    if zone_id is None or target is None or record.physical_id is None:
        return ObservedPresence(Presence.UNKNOWN, "no zone or no target is recorded")
    try:
        found = view.listing.recordset(zone_id, record.physical_id)
    except CloudError as error:
        return unknown(error)
    if found is None:
        name = record.attributes.get("name", record.physical_id)
        return ObservedPresence(Presence.GONE, f"record {name} no longer exists in zone {zone_id}")
    if not found.leads_to(target):
        there = ", ".join(found.records)
        return ObservedPresence(Presence.CHANGED, f"{found} leads to {there}, not {target}")
    if found.status == "ERROR":
        return ObservedPresence(
            Presence.UNKNOWN, f"{found} is in ERROR: some name server may lack it"
        )
    return AS_RECORDED


def examine(subject: ExaminedResource) -> str:
    """Return what is right about a DNS name. Raises CloudError for what would fail."""
    cloud, given = subject.cloud, subject.spec.properties
    with about("zone"):
        zone_id, kind = dns_records.resolve_zone(cloud, str(given["zone"])), given.get("type", "A")
    with about("name"):
        found = dns_records.named(cloud, zone_id, str(given["name"]), kind)
        if found is not None:
            owner = dns_records.owner(subject.group, subject.spec.name)
            dns_records.refuse_foreign(cloud, found, owner)
    for server, member in subject.members.items():
        dns_records.target_of(
            cloud, member, server, kind, given.get("network"), given.get("targets")
        )
    return f"{dns_records.absolute(given['name'])} can lead to {len(subject.members)} members"
