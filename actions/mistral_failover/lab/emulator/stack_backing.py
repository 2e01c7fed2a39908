# SPDX-License-Identifier: Apache-2.0
"""The objects behind a stack's resources: servers, volumes, addresses, and mere ids.

Among the latter is OS::Heat::TestResource, which takes `action_wait_secs` (else `wait_secs`) to be
made, to get a new `value` and to be deleted, and whose `fail` lets the first two go wrong.
"""

import json
import secrets
import string
import time
from collections.abc import Callable, Iterator
from typing import Any

from oslo_utils import strutils

from mistral_failover.lab.emulator import (
    attachments,
    balancing,
    ports,
    quotas,
    servers,
    topology,
    volume,
)
from mistral_failover.lab.emulator.core import Emulation
from mistral_failover.lab.emulator.hot_functions import text
from mistral_failover.lab.emulator.state import (
    Attachment,
    Network,
    Port,
    Server,
    Stack,
    StackResource,
    Volume,
    new_id,
)
from mistral_failover.lab.emulator.templates import (
    FLOATING_IP,
    FLOATING_IP_ASSOCIATION,
    LISTENER,
    LOAD_BALANCER,
    NET,
    POOL,
    POOL_MEMBER,
    PORT,
    RANDOM,
    ROUTER,
    ROUTER_INTERFACE,
    SERVER,
    SUBNET,
    TEST,
    VOLUME,
    VOLUME_ATTACHMENT,
)

# Properties that Heat changes in place; another one's change replaces the resource.
_IN_PLACE = {
    SERVER: {"name", "metadata"},
    VOLUME: {"name", "size", "description", "metadata", "volume_type"},
    RANDOM: set[str](),
    NET: {"name"},
    SUBNET: {"name"},
    ROUTER: {"name", "external_gateway_info"},
    PORT: {"name", "security_groups", "allowed_address_pairs"},
    FLOATING_IP_ASSOCIATION: set[str](),
}


def make(emulation: Emulation, stack: Stack, resource: StackResource) -> bool:
    """Starts the creation of a server or volume; False for what is complete at once."""
    asked = resource.properties
    name = asked.get("name") or f"{stack.name}-{resource.name}-{new_id()[:12].replace('-', '')}"
    common: dict[str, Any] = {
        "project_id": stack.project_id,
        "name": name,
        "owner": [stack.id, resource.name],
        "metadata": dict(asked.get("metadata") or {}),
        "user_id": stack.user_id,
    }
    if refusal := _refused_quota(emulation, stack, resource) or (
        resource.type == SERVER and _refused(emulation, asked)
    ):
        resource.physical_id, resource.refused = "", refusal
        emulation.after(0, "stack.part_settled", stack_id=stack.id, name=resource.name)
        return True
    if resource.type == SERVER:
        zone = str(asked.get("availability_zone") or "")
        resource.physical_id = servers.create(
            emulation,
            host=servers.host_of_zone(emulation, zone),
            zone=servers.zone_shown(emulation, zone),
            disks=_disks(emulation, stack, asked),
            networks=_networks(emulation, stack, asked),
            image=str(asked.get("image") or ""),
            flavor=str(asked["flavor"]),
            server_group=(asked.get("scheduler_hints") or {}).get("group"),
            **common,
        ).id
        return True
    if resource.type == VOLUME:
        resource.physical_id = volume.create(
            emulation,
            size=int(asked["size"]),
            multiattach=volume.shared(asked),
            bootable=bool(asked.get("image")),
            zone=servers.zone_shown(emulation, str(asked.get("availability_zone") or "")),
            encrypted=asked.get("volume_type") == volume.ENCRYPTED,
            description=asked.get("description"),
            **common,
        ).id
        return True
    if resource.type == TEST:
        resource.physical_id = "" if _fails(asked) else name
        return _take_time(emulation, stack, resource, "create")
    if resource.type == VOLUME_ATTACHMENT:
        emulation.after(0, "stack.part_settled", stack_id=stack.id, name=resource.name)
        return True
    make_it = _MADE_AT_ONCE.get(resource.type)
    resource.physical_id = (make_it(emulation, stack, resource) if make_it else "") or new_id()
    return False


_ROOTS = ("vda", "/dev/vda", "sda", "/dev/sda")


def _mappings(asked: dict[str, Any]) -> Iterator[tuple[dict[str, Any], bool]]:
    """The volumes that a server is to be made with, and whether it boots from each."""
    for each in asked.get("block_device_mapping_v2") or []:
        if each.get("volume_id") or each.get("image") or each.get("image_id"):
            yield each, str(each.get("boot_index")) == "0"
    for each in asked.get("block_device_mapping") or []:
        if each.get("volume_id"):
            yield each, each.get("device_name") in _ROOTS


def _disks(emulation: Emulation, stack: Stack, asked: dict[str, Any]) -> list[servers.Disk]:
    """The volumes that a server is made with: existing ones, and those that Nova makes of an
    image."""
    zone = servers.zone_shown(emulation, str(asked.get("availability_zone") or ""))
    found = []
    for each, root in _mappings(asked):
        identity = each.get("volume_id")
        if not identity:
            size = int(each.get("volume_size") or 1)
            identity = volume.of_image(emulation, stack.project_id, size, stack.user_id, zone).id
        delete = strutils.bool_from_string(each.get("delete_on_termination"))
        found.append(servers.Disk(str(identity), root, delete))
    return found


def _refused_quota(emulation: Emulation, stack: Stack, resource: StackResource) -> str:
    """Why a quota of the project allows no further server or volume; empty if it does."""
    state, project = emulation.state, stack.project_id
    if resource.type == SERVER and (why := quotas.no_server(state, project)):
        return f"Forbidden: {why} (HTTP 403)"
    if resource.type == VOLUME:
        size = int(resource.properties["size"])
        if why := quotas.no_volume(state, project, size):
            return f"OverLimit: {why} (HTTP 413)"
    return ""


def _refused(emulation: Emulation, asked: dict[str, Any]) -> str:
    """Why no server is made as it was asked for; empty if it is."""
    for each in asked.get("networks") or []:
        name = each.get("network") or each.get("uuid")
        if not name or each.get("port"):
            continue
        on, address = ports.network(emulation, name), each.get("fixed_ip")
        if on is None:
            return f"NotFound: Unable to find network with name or id '{name}'"
        if address and ports.is_taken(emulation, on, address):
            return f"BadRequest: Fixed IP address {address} is already in use on instance."
    return _refused_disk(emulation, asked)


def _refused_disk(emulation: Emulation, asked: dict[str, Any]) -> str:
    """Why Nova makes no server with these volumes; empty if it does."""
    for identity in [str(e["volume_id"]) for e, _ in _mappings(asked) if e.get("volume_id")]:
        found = emulation.state.volumes.get(identity)
        if found is None:
            words = f"Block Device Mapping is Invalid: failed to get volume {identity}."
        elif found.status != "available" and not (found.multiattach and found.status == "in-use"):
            words = (
                f"Invalid volume: Volume {found.id} status must be available or downloading to "
                f"reserve, but the current status is {found.status}."
            )
        else:
            continue
        return f"BadRequest: {words} (HTTP 400)"
    return ""


def _networks(
    emulation: Emulation, stack: Stack, asked: dict[str, Any]
) -> Iterator[Network | Port]:
    """The networks and ports of a server."""
    for each in asked.get("networks") or []:
        port = emulation.state.ports.get(each.get("port"))
        on = ports.network(emulation, each.get("network") or each.get("uuid"))
        address = each.get("fixed_ip")
        if port is None and on is not None and address:
            port = ports.make(emulation, stack.project_id, on, by_nova=True, address=address)
        if (one := port or on) is not None:
            yield one


def _net(emulation: Emulation, stack: Stack, resource: StackResource) -> str:
    name = resource.properties.get("name") or f"{stack.name}-{resource.name}"
    return topology.make_network(emulation, stack.project_id, str(name)).id


def _subnet(emulation: Emulation, stack: Stack, resource: StackResource) -> str:
    asked = resource.properties
    network = ports.network(emulation, asked.get("network") or asked.get("network_id"))
    if network is None:
        return ""
    name = str(asked.get("name") or "")
    cidr, gateway = str(asked["cidr"]), asked.get("gateway_ip")
    return topology.make_subnet(emulation, network, cidr, name=name, gateway=gateway).id


def _router(emulation: Emulation, stack: Stack, resource: StackResource) -> str:
    asked = resource.properties
    outside = (asked.get("external_gateway_info") or {}).get("network")
    name, external = str(asked.get("name") or ""), ports.network(emulation, outside)
    return topology.make_router(emulation, stack.project_id, name, external).id


def _router_interface(emulation: Emulation, stack: Stack, resource: StackResource) -> str:
    asked, state = resource.properties, emulation.state
    router = state.routers.get(str(asked.get("router") or asked.get("router_id")))
    subnet = state.subnets.get(str(asked.get("subnet") or asked.get("subnet_id")))
    if router is None or subnet is None:
        return ""
    router.subnets.append(subnet.id)
    return f"{router.id}:subnet_id={subnet.id}"


def _port(emulation: Emulation, stack: Stack, resource: StackResource) -> str:
    asked = resource.properties
    network = ports.network(emulation, asked.get("network") or asked.get("network_id"))
    if network is None:
        return ""
    fixed = next((each.get("ip_address") for each in asked.get("fixed_ips") or []), None)
    name = str(asked.get("name") or "")
    return ports.make(emulation, stack.project_id, network, name, address=fixed).id


def _floating_ip(emulation: Emulation, stack: Stack, resource: StackResource) -> str:
    asked = resource.properties
    outside = asked.get("floating_network") or asked.get("floating_network_id")
    network = ports.network(emulation, outside)
    if network is None:
        return ""
    fixed = asked.get("floating_ip_address")
    made = ports.make_floating_ip(emulation, stack.project_id, network, fixed)
    made.port_id = _known_port(emulation, asked)
    return made.id


def _floating_ip_association(emulation: Emulation, stack: Stack, resource: StackResource) -> str:
    made = emulation.state.floating_ips.get(str(resource.properties.get("floatingip_id")))
    if made is None:
        return ""
    made.port_id = _known_port(emulation, resource.properties)
    made.revision += 1
    return f"{made.id}:{made.port_id}"


def _known_port(emulation: Emulation, asked: dict[str, Any]) -> str | None:
    port_id = str(asked.get("port_id"))
    return port_id if port_id in emulation.state.ports else None


def _random(emulation: Emulation, stack: Stack, resource: StackResource) -> str:
    length = int(resource.properties.get("length") or 32)
    return "".join(secrets.choice(string.ascii_letters + string.digits) for _ in range(length))


def _load_balancer(emulation: Emulation, stack: Stack, resource: StackResource) -> str:
    name = str(resource.properties.get("name") or "")
    return balancing.make_load_balancer(emulation, stack.project_id, name).id


def _pool(emulation: Emulation, stack: Stack, resource: StackResource) -> str:
    asked = resource.properties
    listeners = (r for r in stack.resources.values() if r.type == LISTENER)
    of_listener = {r.physical_id: r.properties.get("loadbalancer") for r in listeners}
    balancer_id = asked.get("loadbalancer") or of_listener.get(str(asked.get("listener")))
    balancer = emulation.state.load_balancers.get(str(balancer_id))
    return balancing.make_pool(emulation, balancer).id if balancer else ""


def _pool_member(emulation: Emulation, stack: Stack, resource: StackResource) -> str:
    asked = resource.properties
    pool = emulation.state.pools.get(str(asked.get("pool")))
    if pool is None:
        return ""
    where = (text(asked.get("address")), int(asked.get("protocol_port") or 0))
    return balancing.make_member(emulation, pool, *where, enabled=_enabled(asked)).id


_MADE_AT_ONCE: dict[str, Callable[[Emulation, Stack, StackResource], str]] = {
    NET: _net,
    SUBNET: _subnet,
    ROUTER: _router,
    ROUTER_INTERFACE: _router_interface,
    PORT: _port,
    FLOATING_IP: _floating_ip,
    FLOATING_IP_ASSOCIATION: _floating_ip_association,
    RANDOM: _random,
    LOAD_BALANCER: _load_balancer,
    POOL: _pool,
    POOL_MEMBER: _pool_member,
}
"""What makes the object behind a resource, and returns its id: empty if what it is to be made on is
not there, then it is a mere id."""


def _enabled(asked: dict[str, Any]) -> bool:
    return strutils.bool_from_string(asked.get("admin_state_up"), default=True)


def _fails(asked: dict[str, Any]) -> bool:
    return str(asked.get("fail")).lower() == "true"


def _take_time(emulation: Emulation, stack: Stack, resource: StackResource, action: str) -> bool:
    asked = resource.properties
    seconds = (asked.get("action_wait_secs") or {}).get(action)
    seconds = float((asked.get("wait_secs") or 0) if seconds is None else seconds)
    resource.busy_until = time.time() + seconds
    emulation.after(seconds, "stack.part_settled", stack_id=stack.id, name=resource.name)
    return True


def needs_replacement(kind: str, resource: StackResource, wanted: dict[str, Any]) -> bool:
    """Whether new properties cannot be given to what exists."""
    changed = {
        key
        for key in {*resource.properties, *wanted}
        if resource.properties.get(key) != wanted.get(key)
    }
    return bool(kind in _IN_PLACE and changed - _IN_PLACE[kind])


def change(
    emulation: Emulation, stack: Stack, resource: StackResource, wanted: dict[str, Any]
) -> bool:
    """Gives what exists the resource's new properties; False for what is complete at once."""
    valued = resource.properties.get("value") != wanted.get("value")
    if resource.type == POOL_MEMBER and _enabled(resource.properties) != _enabled(wanted):
        balancing.set_member(emulation, resource.physical_id, enabled=_enabled(wanted))
    resource.properties = wanted
    if resource.type == VOLUME_ATTACHMENT:
        emulation.after(0, "stack.part_settled", stack_id=stack.id, name=resource.name)
        return True
    if resource.type == TEST and (valued or _fails(wanted)):
        return _take_time(emulation, stack, resource, "update")
    asked, state = resource.properties, emulation.state
    real: Any = state.servers.get(resource.physical_id) or state.volumes.get(resource.physical_id)
    if real is not None:
        real.name = asked.get("name") or real.name
        real.metadata = dict(asked.get("metadata") or {})
        if resource.type == VOLUME:
            real.size = int(asked["size"])
    return False


def unmake(emulation: Emulation, physical_id: str) -> str:
    """Starts the deletion of a server or volume; the answer is why it cannot be, or empty."""
    server = emulation.state.servers.get(physical_id)
    if server is not None:
        servers.delete(emulation, server, f"req-{new_id()}")
    if (attachment := emulation.state.attachments.get(physical_id)) is not None:
        _detach(emulation, attachment)
    ports.remove(emulation, physical_id)
    topology.remove(emulation, physical_id)
    balancing.remove(emulation, physical_id)
    found = emulation.state.volumes.get(physical_id)
    if found is not None and emulation.state.attachments_of(volume_id=physical_id):
        return "Volume in use"
    if found is not None and found.status != "deleting":
        volume.delete(emulation, found)
    return ""


def lingers(emulation: Emulation, stack: Stack, resource: StackResource) -> bool:
    """Whether the deletion takes time although the resource has no object."""
    return resource.type == TEST and _take_time(emulation, stack, resource, "delete")


def exists(emulation: Emulation, physical_id: str) -> bool:
    """Whether a server, a volume or an attachment is still there."""
    state = emulation.state
    return any(physical_id in kind for kind in (state.servers, state.volumes, state.attachments))


def pursue(emulation: Emulation, resource: StackResource) -> None:
    """Takes the next step to what a resource is to become, if it consists of several: a volume is
    detached from where it was, then attached when it and the server are ready."""
    if resource.type != VOLUME_ATTACHMENT or resource.action == "DELETE":
        return
    state, asked = emulation.state, resource.properties
    server = state.servers.get(str(asked["instance_uuid"]))
    volume_asked = state.volumes.get(str(asked["volume_id"]))
    if server is None or volume_asked is None:
        return
    own = state.attachments_of(server_id=server.id, volume_id=volume_asked.id)
    before = state.attachments.get(resource.physical_id)
    if own:
        resource.physical_id = own[0].id
    elif before is not None:
        _detach(emulation, before)
    elif server.status == "ACTIVE" and volume_asked.status == "available":
        device = asked.get("mountpoint") or None
        resource.physical_id = attachments.attach(emulation, server, volume_asked, device).id


def _detach(emulation: Emulation, attachment: Attachment) -> None:
    server = emulation.state.servers.get(attachment.server_id)
    if server is not None and attachment.status == "attached":
        event = "compute_detach_volume"
        action = emulation.state.accept(server, f"req-{new_id()}", "detach_volume", event)
        attachments.detach(emulation, server, attachment, action)


def state_of(emulation: Emulation, resource: StackResource) -> tuple[str, str]:
    """One of ready, failed, gone, busy, and the reason."""
    real: Any
    if resource.type in (SERVER, VOLUME) and resource.refused and not resource.physical_id:
        return "failed", resource.refused
    if resource.type == VOLUME_ATTACHMENT:
        return _state_of_attachment(emulation, resource)
    if resource.type == SERVER:
        real = emulation.state.servers.get(resource.physical_id)
        good, bad = "ACTIVE", "ERROR"
    elif resource.type == TEST:
        if time.time() < resource.busy_until - 0.01:
            return "busy", ""
        if resource.action == "DELETE":
            return "gone", ""
        if _fails(resource.properties):
            name = resource.name
            return "failed", f"ValueError: resources.{name}: Test Resource failed {name}"
        return "ready", ""
    else:
        real = emulation.state.volumes.get(resource.physical_id)
        good, bad = "available", "error"
    if real is None:
        return "gone", f"{resource.physical_id} could not be found."
    if real.status == bad:
        detail = getattr(real, "fault", None) or "Unknown"
        words = f'Went to status {bad} due to "Message: {detail}, Code: 500"'
        return "failed", f"ResourceInError: resources.{resource.name}: {words}"
    return ("ready" if real.status == good else "busy"), ""


def _state_of_attachment(emulation: Emulation, resource: StackResource) -> tuple[str, str]:
    state, asked = emulation.state, resource.properties
    attachment = state.attachments.get(resource.physical_id)
    server = state.servers.get(str(asked["instance_uuid"]))
    made = state.volumes.get(str(asked["volume_id"]))
    if resource.action == "DELETE":
        return ("busy" if attachment else "gone"), ""
    if server is None:
        return "failed", f"NotFound: Instance {asked['instance_uuid']} could not be found."
    if made is None:
        return "failed", f"NotFound: Volume {asked['volume_id']} could not be found."
    if made.status == "error":
        return "failed", "Error: Volume in error state"
    own = attachment is not None and attachment.server_id == server.id
    if own and attachment is not None and attachment.status == "attached":
        return "ready", ""
    if attachment is None and made.status == "in-use" and not made.multiattach:
        words = f"volume {made.id} is already attached to another server"
        return "failed", f"BadRequest: Invalid volume: {words}"
    return "busy", ""


def _addresses(emulation: Emulation, server: Server) -> dict[str, list[dict[str, Any]]]:
    """The addresses of a server with their ports, by the names of their networks."""
    found: dict[str, list[dict[str, Any]]] = {}
    rows = emulation.state.ports.values()
    for port in [each for each in rows if each.device_id == server.id]:
        row = {"addr": port.address, "port": port.id, "version": 4}
        row |= {"OS-EXT-IPS:type": "fixed", "OS-EXT-IPS-MAC:mac_addr": port.mac}
        found.setdefault(emulation.state.networks[port.network_id].name, []).append(row)
    return found


def _of_volume(emulation: Emulation, made: Volume) -> dict[str, Any]:
    """The attributes of a volume: text, as Heat has them."""
    rows = emulation.state.attachments_of(volume_id=made.id)
    attached = [
        {"server_id": row.server_id, "device": row.device, "volume_id": made.id}
        for row in rows
        if row.in_cinder
    ]
    return {
        "name": made.name,
        "display_name": made.name,
        "size": str(made.size),
        "status": made.status,
        "bootable": str(made.bootable).lower(),
        "multiattach": str(made.multiattach),
        "encrypted": str(made.encrypted),
        "availability_zone": made.zone,
        "metadata_values": made.metadata,
        "attachments": json.dumps(attached),
        "attachments_list": attached,
    }


def attributes(emulation: Emulation, resource: StackResource) -> dict[str, Any]:
    """A resource's attributes: its properties, and what the object behind it has."""
    state, identity = emulation.state, resource.physical_id
    server, made = state.servers.get(identity), state.volumes.get(identity)
    port, floating = state.ports.get(identity), state.floating_ips.get(identity)
    balancer = state.load_balancers.get(identity)
    found: dict[str, Any] = {**resource.properties, "name": resource.name}
    if server is not None:
        addresses = ports.addresses(emulation, server.id)
        first = next((each[0] for each in addresses.values() if each), "")
        found |= {"name": server.name, "networks": addresses, "first_address": first}
        found |= {"accessIPv4": "", "instance_name": f"instance-{server.id[:8]}"}
        found |= {"addresses": _addresses(emulation, server), "tags": server.tags}
    elif made is not None:
        found |= _of_volume(emulation, made)
    elif port is not None:
        found |= {"name": port.name, "mac_address": port.mac, "status": port.status}
        found |= {
            "fixed_ips": [
                {"ip_address": port.address, "subnet_id": topology.subnet_id(emulation, port)}
            ]
        }
    elif floating is not None:
        found |= {"floating_ip_address": floating.address, "port_id": floating.port_id}
    elif balancer is not None:
        found |= {"vip_address": balancer.address, "vip_port_id": None}
    elif resource.type == RANDOM:
        found |= {"value": identity}
    elif resource.type == TEST:
        found |= {"output": resource.properties.get("value")}
    return found
