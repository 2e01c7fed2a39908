# SPDX-License-Identifier: Apache-2.0
"""Checks of a group's addresses: they exist, are free to move, and each member can get them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from mistral_failover.cloud import load_balancers, names, networks
from mistral_failover.cloud.errors import CloudError, translated
from mistral_failover.doctor.checks import Finding, Subject, error, ok
from mistral_failover.groups import refresh_members
from mistral_failover.groups.candidates import Seen
from mistral_failover.model.goal import ADDRESSES
from mistral_failover.model.group import ResourceSpec


def addresses(subject: Subject) -> Iterable[Finding]:
    """Check each address of the group file, as Neutron, Octavia and Designate report it."""
    group = subject.snapshot.group
    specs = [spec for spec in group.resources.values() if spec.type in ADDRESSES]
    if not specs or subject.out_of_service:
        return
    members = refresh_members.members_now(subject.look.cloud, group)
    for spec in specs:
        try:
            said = _address(subject, spec, members)
        except CloudError as problem:
            yield error(f"{spec.name}: {problem.message} [{problem.code}]", problem.remedy)
        else:
            yield ok(f"{spec.name}: {said}")


def _address(subject: Subject, spec: ResourceSpec, members: Sequence[Seen]) -> str:
    """Return what is right about an address. Raises `CloudError` for what would fail."""
    cloud, stack, given = subject.look.cloud, subject.snapshot.group.stack, spec.properties
    own = {member.server_id: member.name for member in members}
    if spec.type == "floating_ip":
        identity = networks.resolve_floating_ip(cloud, stack, str(given["floating_ip"]))
        found = networks.floating_ip(cloud, identity)
        ports = [networks.port_of(cloud, server, given.get("network")) for server in own]
        networks.refuse_foreign(found, ports)
        return f"floating IP {found.address} can lead to {len(ports)} members"
    if spec.type == "load_balancer_member":
        return _pool(subject, spec, own)
    if spec.type == "dns_record":
        return _name(subject, spec, own)
    port = networks.port(cloud, networks.resolve_port(cloud, stack, str(given["port"])))
    if spec.type == "port":
        if port.device_id and port.device_id not in own:
            raise networks.port_in_use(port)
        return f"port {port.id} is free or on a member"
    _refuse_foreign_network(subject, port)
    address = networks.address_of(cloud, port.id)
    if port.device_id:  # first: a member that has it has two ports on the network
        networks.refuse_other_users(cloud, port, address, ())
    ports = [networks.port_of(cloud, server, port.network_id) for server in own]
    user = [each.id for each in ports if networks.allows(each, address)][:1]
    networks.refuse_other_users(cloud, port, address, user)
    return f"{len(own)} members can be allowed {address}"


def _pool(subject: Subject, spec: ResourceSpec, own: Iterable[str]) -> str:
    """Return what is right about a pool. Raises `CloudError` for what would fail."""
    cloud, given = subject.look.cloud, spec.properties
    stack = subject.snapshot.group.stack
    pool_id = load_balancers.resolve_pool(cloud, stack, str(given["pool"]))
    rows = load_balancers.pool_members(cloud, pool_id).values()
    port = given.get("protocol_port")
    found = [load_balancers.member_of(cloud, rows, server, port) for server in own]
    load_balancers.refuse_failed(cloud, pool_id)
    if not given.get("shared", False):
        enabled = [each for each in found if each.enabled]
        for each in enabled[:1] or found[:1]:
            load_balancers.refuse_others(rows, each)
    return f"pool {pool_id} can lead to {len(found)} members"


def _name(subject: Subject, spec: ResourceSpec, own: Mapping[str, str]) -> str:
    """Return what is right about a DNS name. Raises `CloudError` for what would fail."""
    cloud, given = subject.look.cloud, spec.properties
    zone_id, kind = names.resolve_zone(cloud, str(given["zone"])), given.get("type", "A")
    found = names.named(cloud, zone_id, str(given["name"]), kind)
    if found is not None:
        names.refuse_foreign(found, names.owner(subject.snapshot.group.name, spec.name))
    for server, member in own.items():
        names.target_of(cloud, member, server, kind, given.get("network"), given.get("targets"))
    return f"{names.absolute(given['name'])} can lead to {len(own)} members"


def _refuse_foreign_network(subject: Subject, port: networks.Port) -> None:
    """Refuse a network of another project: Neutron's default policy lets only a network's owner
    and administrators allow addresses on its ports."""
    cloud = subject.look.cloud
    with translated(f"read network {port.network_id}", "Neutron"):
        row = cloud.network.get(f"/v2.0/networks/{port.network_id}").json()["network"]
    if row.get("project_id") not in (None, cloud.project_id):
        raise CloudError(
            "FORBIDDEN",
            f"Network {port.network_id} belongs to another project, so Neutron's default policy "
            "does not let this project allow addresses on its ports.",
            remedy="Use a network of the project, a floating_ip or a port; or ask an administrator "
            "of the cloud for the right to update allowed_address_pairs.",
        )
