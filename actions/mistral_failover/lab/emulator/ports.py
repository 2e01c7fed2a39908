# SPDX-License-Identifier: Apache-2.0
"""Ports, floating IPs, and the guests that answer at their addresses.

A guest answers at the addresses of the ports that are plugged into it: their own, those that they
may use besides (`pairs`), and their floating IPs. Its host enforces that, so a change does not
reach a guest whose host is down until the host is back. Two running guests that answer at one
address are the violation `address_on_two_servers`.
"""

from __future__ import annotations

from mistral_failover.lab.emulator import balancing, guests, topology
from mistral_failover.lab.emulator.core import Emulation, transition
from mistral_failover.lab.emulator.state import (
    FloatingIp,
    Guest,
    Network,
    Port,
    SecurityGroup,
    Server,
    new_id,
)


def network(emulation: Emulation, name: str | None) -> Network | None:
    """A network by its name or id."""
    return next((n for n in emulation.state.networks.values() if name in (n.name, n.id)), None)


def make(
    emulation: Emulation,
    project_id: str,
    on: Network,
    name: str = "",
    *,
    by_nova: bool = False,
    address: str | None = None,
) -> Port:
    """Makes a port with an address, or with the next free one."""
    taken = {port.address for port in emulation.state.ports.values() if port.network_id == on.id}
    address = address or topology.free_address(emulation, on, taken)
    mac = "fa:16:3e:" + ":".join(new_id()[at : at + 2] for at in (0, 2, 4))
    port = Port(new_id(), project_id, on.id, address, mac, name, made_by_nova=by_nova)
    port.groups = [default_group(emulation, project_id).id]
    emulation.state.ports[port.id] = port
    emulation.changed()
    return port


def default_group(emulation: Emulation, project_id: str) -> SecurityGroup:
    """The security group that a port gets if no other one is named. Neutron makes it when it is
    first needed."""
    rows = emulation.state.security_groups
    for each in rows.values():
        if (each.project_id, each.name) == (project_id, "default"):
            return each
    made = SecurityGroup(new_id(), project_id, "default", "Default security group")
    rows[made.id] = made
    emulation.changed()
    return made


def is_taken(emulation: Emulation, on: Network, address: str) -> bool:
    """Whether a port of a network has an address."""
    rows = emulation.state.ports.values()
    return any(port.address == address for port in rows if port.network_id == on.id)


def make_floating_ip(
    emulation: Emulation, project_id: str, on: Network, address: str | None = None
) -> FloatingIp:
    """Makes a floating IP with an address, or with the next free one."""
    taken = {each.address for each in emulation.state.floating_ips.values()}
    address = address or topology.free_address(emulation, on, taken)
    made = FloatingIp(new_id(), project_id, on.id, address)
    emulation.state.floating_ips[made.id] = made
    emulation.changed()
    return made


def remove(emulation: Emulation, identity: str) -> None:
    """Removes a port or a floating IP, if there is one with this id."""
    emulation.state.floating_ips.pop(identity, None)
    port = emulation.state.ports.pop(identity, None)
    if port is not None:
        for each in emulation.state.floating_ips.values():
            if each.port_id == identity:
                each.port_id, each.revision = None, each.revision + 1
        _unplug(emulation, identity)
    emulation.changed()


def give(emulation: Emulation, server: Server, one: Network | Port) -> None:
    """Gives a server that is being built a port."""
    if isinstance(one, Network):
        one = make(emulation, server.project_id, one, by_nova=True)
    one.device_id, one.device_owner = server.id, "compute:nova"
    one.revision += 1


def of(emulation: Emulation, server_id: str) -> list[Port]:
    """The ports of a server. A port of another project only says that it is one."""
    server = emulation.state.servers.get(server_id)
    return [
        port
        for port in emulation.state.ports.values()
        if port.device_id == server_id and (server is None or port.project_id == server.project_id)
    ]


def bind(emulation: Emulation, server: Server) -> None:
    """Makes the ports of a server active on its host."""
    for port in of(emulation, server.id):
        port.status = "ACTIVE"
    emulation.changed()


def of_deleted_server(emulation: Emulation, server_id: str) -> None:
    """Lets go of the ports of a server: Nova deletes those that it made."""
    for port in of(emulation, server_id):
        let_go(emulation, port)
        if port.made_by_nova:
            remove(emulation, port.id)


def attached(emulation: Emulation, port: Port, server: Server) -> None:
    """The compute service has plugged a port into a server."""
    port.device_id, port.device_owner, port.status = server.id, "compute:nova", "ACTIVE"
    port.revision += 1
    emulation.audit.record("port_attached", port=port.id, server=server.id)
    changed(emulation, port)


def let_go(emulation: Emulation, port: Port) -> None:
    """The port belongs to no server any more."""
    emulation.audit.record("port_detached", port=port.id, server=port.device_id)
    port.device_id = port.device_owner = ""
    port.status = "DOWN"
    port.revision += 1
    changed(emulation, port)


@transition("port.detach")
def detach(emulation: Emulation, port_id: str, server_id: str, operation: str) -> None:
    """The compute service takes a port from a server; its message waits for a host that is down."""
    server, port = emulation.state.servers.get(server_id), emulation.state.ports.get(port_id)
    if server is not None and not emulation.state.host_up(server.host):
        ids = {"port_id": port_id, "server_id": server_id, "operation": operation}
        emulation.defer(server.host, "port.detach", **ids)
        return
    if server is not None and port is not None and port.device_id == server_id:
        let_go(emulation, port)
    emulation.finish(operation)


def changed(emulation: Emulation, port: Port) -> None:
    """Tells the hosts about a port that has changed."""
    for guest in list(emulation.state.guests.values()):
        concerned = port.id in guest.interfaces or port.device_id == guest.server_id
        if concerned and emulation.state.host_up(guest.host):
            refresh_guest(emulation, guest)
    emulation.changed()
    _check(emulation)


def refresh_guest(emulation: Emulation, guest: Guest) -> None:
    """Lets a guest have the ports and addresses that Neutron says."""
    guest.interfaces = {
        port.id: [port.address, *(pair["ip_address"] for pair in port.pairs)]
        for port in of(emulation, guest.server_id)
    }
    emulation.changed()
    _check(emulation)


@transition("guest.ports")
def _refresh(emulation: Emulation, server_id: str) -> None:
    refresh_guest(emulation, emulation.state.guests[server_id])


def addresses(emulation: Emulation, server_id: str) -> dict[str, list[str]]:
    """The addresses of a server's ports, by the name of their network."""
    found: dict[str, list[str]] = {}
    for port in of(emulation, server_id):
        name = emulation.state.networks[port.network_id].name
        found.setdefault(name, []).append(port.address)
    return found


def answering(emulation: Emulation, address: str) -> list[str]:
    """The servers whose guests answer at an address now, a load balancer's included."""
    floating = emulation.state.floating_ips.values()
    at = {each.port_id for each in floating if each.address == address}
    meant = {address, *balancing.backends(emulation, address)}
    return [
        guest.server_id
        for guest in emulation.state.guests.values()
        if guests.runs(emulation, guest)
        and any(port in at or not meant.isdisjoint(own) for port, own in guest.interfaces.items())
    ]


def _unplug(emulation: Emulation, port_id: str) -> None:
    for guest in emulation.state.guests.values():
        if port_id in guest.interfaces and emulation.state.host_up(guest.host):
            del guest.interfaces[port_id]


def _check(emulation: Emulation) -> None:
    used: dict[str, list[str]] = {}
    for guest in emulation.state.guests.values():
        if guests.runs(emulation, guest):
            for address in {a for own in guest.interfaces.values() for a in own}:
                used.setdefault(address, []).append(guest.server_id)
    for address, servers in used.items():
        if len(servers) > 1:
            emulation.audit.record(
                "violation", rule="address_on_two_servers", address=address, servers=servers
            )
