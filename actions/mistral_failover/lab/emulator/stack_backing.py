# SPDX-License-Identifier: Apache-2.0
"""The objects behind a stack's resources: servers, volumes, and mere ids.

Among the latter is OS::Heat::TestResource, which takes `action_wait_secs` (else `wait_secs`) to be
made, to get a new `value` and to be deleted, and whose `fail` lets the first two go wrong.
"""

import time
from typing import Any

from oslo_utils import strutils

from mistral_failover.lab.emulator import balancing, ports, servers, volume
from mistral_failover.lab.emulator.core import Emulation
from mistral_failover.lab.emulator.state import Network, Port, Stack, StackResource, new_id
from mistral_failover.lab.emulator.templates import (
    FLOATING_IP,
    LOAD_BALANCER,
    POOL,
    POOL_MEMBER,
    PORT,
    SERVER,
    TEST,
    VOLUME,
)

# Properties that Heat changes in place; another one's change replaces the resource.
_IN_PLACE = {
    SERVER: {"name", "metadata"},
    VOLUME: {"name", "size", "description", "metadata", "volume_type"},
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
    if resource.type == SERVER and (refusal := _refused_disk(emulation, asked)):
        resource.physical_id, resource.refused = "", refusal
        emulation.after(0, "stack.part_settled", stack_id=stack.id, name=resource.name)
        return True
    if resource.type == SERVER:
        zone = str(asked.get("availability_zone") or "")
        resource.physical_id = servers.create(
            emulation,
            host=servers.host_of_zone(emulation, zone),
            zone=servers.zone_shown(emulation, zone),
            root_volume=_boot_disk(asked),
            networks=_networks(emulation, asked),
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
    made = _address(emulation, stack, resource) or _balanced(emulation, stack, resource)
    resource.physical_id = made or new_id()
    return False


def _boot_disk(asked: dict[str, Any]) -> dict[str, Any] | None:
    """The existing volume that a server is to boot from, as Nova is asked for it."""
    for disk in asked.get("block_device_mapping_v2") or []:
        if disk.get("volume_id") and str(disk.get("boot_index")) == "0":
            delete = strutils.bool_from_string(disk.get("delete_on_termination"))
            return {"id": str(disk["volume_id"]), "delete_on_termination": delete}
    return None


def _refused_disk(emulation: Emulation, asked: dict[str, Any]) -> str:
    """Why Nova makes no server with that boot disk; empty if it does."""
    disk = _boot_disk(asked)
    if disk is None:
        return ""
    volume = emulation.state.volumes.get(disk["id"])
    if volume is None:
        words = f"Block Device Mapping is Invalid: failed to get volume {disk['id']}."
    elif volume.status != "available":
        words = (
            f"Invalid volume: Volume {volume.id} status must be available or downloading to "
            f"reserve, but the current status is {volume.status}."
        )
    else:
        return ""
    return f"BadRequest: {words} (HTTP 400)"


def _networks(emulation: Emulation, asked: dict[str, Any]) -> list[Network | Port]:
    """The networks and ports of a server; what the cloud does not have is passed over."""
    found = [
        emulation.state.ports.get(each.get("port")) or ports.network(emulation, each.get("network"))
        for each in asked.get("networks") or []
    ]
    return [each for each in found if each is not None]


def _address(emulation: Emulation, stack: Stack, resource: StackResource) -> str | None:
    """Makes a port or a floating IP, on a network that the cloud has; returns its id."""
    asked = resource.properties
    if resource.type == PORT:
        network = ports.network(emulation, asked.get("network") or asked.get("network_id"))
        return ports.make(emulation, stack.project_id, network).id if network else None
    if resource.type == FLOATING_IP:
        network = ports.network(emulation, asked.get("floating_network"))
        return ports.make_floating_ip(emulation, stack.project_id, network).id if network else None
    return None


def _balanced(emulation: Emulation, stack: Stack, resource: StackResource) -> str | None:
    """Makes a load balancer, a pool of one, or a member of one; returns its id."""
    asked, state = resource.properties, emulation.state
    if resource.type == LOAD_BALANCER:
        return balancing.make_load_balancer(emulation, stack.project_id).id
    if resource.type == POOL:
        balancer = state.load_balancers.get(str(asked.get("loadbalancer")))
        return balancing.make_pool(emulation, balancer).id if balancer else None
    pool = state.pools.get(str(asked.get("pool")))
    if resource.type == POOL_MEMBER and pool is not None:
        where = (str(asked.get("address")), int(asked.get("protocol_port") or 0))
        return balancing.make_member(emulation, pool, *where, enabled=_enabled(asked)).id
    return None


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
    ports.remove(emulation, physical_id)
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
    """Whether a server or volume is still there."""
    return physical_id in emulation.state.servers or physical_id in emulation.state.volumes


def state_of(emulation: Emulation, resource: StackResource) -> tuple[str, str]:
    """One of ready, failed, gone, busy, and the reason."""
    real: Any
    if resource.type == SERVER and resource.refused and not resource.physical_id:
        return "failed", resource.refused
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


def name_of(emulation: Emulation, resource: StackResource) -> str:
    """The name of the object behind the resource, else the resource's own."""
    state = emulation.state
    real: Any = state.servers.get(resource.physical_id) or state.volumes.get(resource.physical_id)
    return real.name if real is not None else resource.name
