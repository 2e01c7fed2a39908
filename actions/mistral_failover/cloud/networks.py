# SPDX-License-Identifier: Apache-2.0
"""Ports, floating IPs, and the addresses that a port may use in addition to its own.

A list is always of the project, and a row that is read by its id must be: Neutron shows an
administrator the rows of all projects, and the owner of a network all ports on it. Another project
can give a port of its own the ``device_id`` and the ``device_owner`` of this project's server.

Each call looks first, so a repeat continues at any point. Neutron numbers the changes of an object.
A change is sent with the number that the look saw (``If-Match``). If another client changed the
object in between, Neutron refuses the change, and the next look decides again. So an address is
never taken from another client, and a request that arrives late takes nothing back.
"""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from oslo_utils import netutils, uuidutils

from mistral_failover.cloud import absence
from mistral_failover.cloud.clients import Cloud
from mistral_failover.cloud.errors import CloudError, if_there
from mistral_failover.cloud.fields import Field
from mistral_failover.cloud.servers import server_fingerprint, server_state
from mistral_failover.cloud.stacks import named_in
from mistral_failover.cloud.url_paths import url_path
from mistral_failover.cloud.volume_holders import (
    STATE,
    server_busy,
    server_in_error,
    target_refused,
)
from mistral_failover.cloud.waits import ProbeResult, ResendPolicy
from mistral_failover.model import remedies
from mistral_failover.model.remedies import need

PORT, FLOATING_IP = "OS::Neutron::Port", "OS::Neutron::FloatingIP"
_BY_NOVA = "compute:"
"""How the owner of a server's port begins; its availability zone follows."""
PAGE = 1000
"""Rows in one answer of Neutron, unless the operator allows fewer."""
PROJECT_ID = Field("Neutron", "project_id")
_DEVICE_ID, _STATUS, _MAC = (Field("Neutron", n) for n in ("device_id", "status", "mac_address"))
_FIXED_IPS, _PAIRS = Field("Neutron", "fixed_ips"), Field("Neutron", "allowed_address_pairs")
_PORT_ID, _FIXED_ADDRESS = Field("Neutron", "port_id"), Field("Neutron", "fixed_ip_address")
_REVISION = Field("Neutron", "revision_number")
_DEVICE_OWNER = Field("Neutron", "device_owner")
"""Of the extension ``standard-attr-revisions``. Without the number, a change could take an address
from another client."""


_FREED = {"device_id": "", "device_owner": ""}
"""What a port has that is on no server."""


@dataclass(frozen=True, slots=True)
class Port:
    """A port as Neutron shows it. ``device_id``: the server that has it, "" if none has;
    ``addresses``: its own; ``pairs``: those that it may use besides, as Neutron lists them."""

    id: str
    network_id: str
    device_id: str
    status: str
    mac: str
    addresses: tuple[str, ...]
    pairs: tuple[Mapping[str, str], ...]
    revision: int


@dataclass(frozen=True, slots=True)
class FloatingIp:
    """A floating IP as Neutron shows it. ``port_id``: the port that it is associated with."""

    id: str
    address: str
    port_id: str | None
    fixed_address: str | None
    revision: int


def read_port(row: Mapping[str, Any]) -> Port:
    """Convert Neutron's row of a port. Raises `CloudError` NOT_OFFERED."""
    return Port(
        id=str(row["id"]),
        network_id=str(row["network_id"]),
        device_id=str(_DEVICE_ID.of(row) or ""),
        status=str(_STATUS.of(row)),
        mac=str(_MAC.of(row)),
        addresses=tuple(str(each["ip_address"]) for each in _FIXED_IPS.of(row)),
        pairs=tuple(_PAIRS.of(row)),
        revision=int(_REVISION.of(row)),
    )


def read_floating_ip(row: Mapping[str, Any]) -> FloatingIp:
    """Convert Neutron's row of a floating IP. Raises `CloudError` NOT_OFFERED."""
    return FloatingIp(
        id=str(row["id"]),
        address=str(row["floating_ip_address"]),
        port_id=_PORT_ID.of(row) or None,
        fixed_address=_FIXED_ADDRESS.of(row) or None,
        revision=int(_REVISION.of(row)),
    )


def port(cloud: Cloud, port_id: str) -> Port:
    """Return a port of the project. Raises `CloudError` NOT_FOUND, FORBIDDEN."""
    row = cloud.read("Neutron", url_path("v2.0", "ports", port_id))["port"]
    return read_port(cloud.own(row, f"Port {port_id}"))


def floating_ip(cloud: Cloud, floating_ip_id: str) -> FloatingIp:
    """Return a floating IP of the project. Raises `CloudError` NOT_FOUND, FORBIDDEN."""
    row = cloud.read("Neutron", url_path("v2.0", "floatingips", floating_ip_id))["floatingip"]
    return read_floating_ip(cloud.own(row, f"Floating IP {floating_ip_id}"))


def listed(cloud: Cloud, kind: str, **wanted: str) -> list[Mapping[str, Any]]:
    """Return the project's rows of a kind (``ports``, ``floatingips``) with these values."""
    project = cloud.project_id
    rows = _visible(cloud, kind, project_id=project, **wanted)
    return [row for row in rows if PROJECT_ID.of(row) == project]


def shown_alone(cloud: Cloud, kind: str, identity: str) -> Mapping[str, Any] | None:
    """Return a row that was not among those `listed`, by a call of its own; None if the project has
    no such thing. Raises `CloudError`."""
    row = if_there(lambda: cloud.read("Neutron", url_path("v2.0", kind, identity))[kind[:-1]])
    return row if row is not None and PROJECT_ID.of(row) == cloud.project_id else None


def _visible(cloud: Cloud, kind: str, **wanted: str) -> list[Mapping[str, Any]]:
    """As `listed`, with the rows of other projects that Neutron shows."""
    return cloud.rows("Neutron", kind, url_path("v2.0", kind), {"limit": str(PAGE), **wanted})


def resolve_floating_ip(cloud: Cloud, stack: str | None, name: str) -> str:
    """Return the id of a floating IP: a resource of the stack, an address of the project, or an id.

    Raises `CloudError` NOT_FOUND, or BAD_REQUEST if the stack's resource is no floating IP, or if
    several networks have the address.
    """
    if netutils.is_valid_ip(name):
        found = listed(cloud, "floatingips", floating_ip_address=name)
        if len(found) > 1:
            raise CloudError(
                "BAD_REQUEST",
                f"The project has {len(found)} floating IPs {name}, on different networks.",
                remedy="Write the id of one of them in the group file.",
            )
        if found:
            return str(found[0]["id"])
    return named_in(cloud, stack, name, FLOATING_IP, "a floating IP")


def resolve_port(cloud: Cloud, stack: str | None, name: str) -> str:
    """Return the id of a port: a resource of the stack, or an id; errors as above."""
    return named_in(cloud, stack, name, PORT, "a port")


def ports_of(cloud: Cloud, server_id: str, **wanted: str) -> list[Port]:
    """Return the ports of a server, with these values: those of the project that Nova attached."""
    rows = listed(cloud, "ports", device_id=server_id, **wanted)
    return [read_port(row) for row in rows if str(_DEVICE_OWNER.of(row)).startswith(_BY_NOVA)]


def port_of(cloud: Cloud, server_id: str, network: str | None = None) -> Port:
    """Return the port of a server, on a network if one is named (by name or id).

    Raises `CloudError` NO_PORT if the server has none, or several.
    """
    found = ports_of(cloud, server_id)
    where = ""
    if network is not None:
        networks = {network}
        if not uuidutils.is_uuid_like(network):
            # Also shared ones of other projects: what counts is the project's port there.
            networks = {str(row["id"]) for row in _visible(cloud, "networks", name=network)}
        found = [each for each in found if each.network_id in networks]
        where = f" on network {network}"
    if len(found) == 1:
        return found[0]
    said = "no port" if not found else f"{len(found)} ports"
    if not found:
        remedy = "Give the server a port there, or name another network in the group file."
    elif network is None:
        remedy = "Name the network of the port in the group file."
    else:
        remedy = "Leave the server one port on this network."
    raise CloudError("NO_PORT", f"Server {server_id} has {said}{where}.", remedy=remedy)


def associate(
    cloud: Cloud,
    floating_ip_id: str,
    server_id: str,
    limit: float,
    network: str | None = None,
) -> dict[str, str]:
    """Associate a floating IP with the server's port; return ``address``, ``fixed_address``,
    ``port_id`` and ``server_id``.

    ``limit``: seconds in total. Raises `CloudError` ADDRESS_IN_USE if the floating IP belongs to
    another port, NO_PORT, NOT_FOUND.
    """
    target = port_of(cloud, server_id, network)
    repeats = ResendPolicy(cloud)

    def step() -> ProbeResult:
        now = floating_ip(cloud, floating_ip_id)
        if now.port_id == target.id:
            return ProbeResult(
                "associated",
                done=True,
                result={
                    "address": now.address,
                    "fixed_address": now.fixed_address or "",
                    "port_id": target.id,
                    "server_id": server_id,
                },
            )
        refuse_foreign(now, [target])
        return _put(repeats, _floating(now), {"port_id": target.id}, "it is free")

    what = f"floating IP {floating_ip_id} to be associated with port {target.id}"
    return cloud.carry_out(repeats, step, what, limit)  # type: ignore[no-any-return]


def refuse_foreign(one: FloatingIp, own: Iterable[Port]) -> None:
    """Raise `CloudError` ADDRESS_IN_USE if a floating IP belongs to another port than these."""
    if one.port_id is not None and one.port_id not in {each.id for each in own}:
        free = need("FREE_FLOATING_IP", floating_ip=one.id)
        raise CloudError(
            "ADDRESS_IN_USE",
            f"Floating IP {one.address} is associated with port {one.port_id}, not with a port of "
            "this group's member.",
            remedy=f"{remedies.sentence([free], '')}.",
            needs=(free,),
        )


def disassociate(
    cloud: Cloud,
    floating_ip_id: str,
    server_id: str,
    port_id: str | None,
    limit: float,
) -> None:
    """Take a floating IP from the server, if it is on ``port_id`` or on another port of the server.

    Elsewhere it stays. ``limit``: seconds in total. A floating IP that no longer exists is no
    error.
    """
    repeats = ResendPolicy(cloud)

    def step() -> ProbeResult:
        now = absence.unless_absent(
            cloud, absence.FLOATING_IP, floating_ip_id, lambda: floating_ip(cloud, floating_ip_id)
        )
        if now is None:
            return ProbeResult("gone", done=True)
        if now.port_id is None or not _is_here(cloud, now.port_id, port_id, server_id):
            return repeats.settled("it is on no port of the server")
        return _put(repeats, _floating(now), {"port_id": None}, "it is associated")

    cloud.carry_out(repeats, step, f"floating IP {floating_ip_id} to be free", limit)


def _is_here(cloud: Cloud, now: str, recorded: str | None, server_id: str) -> bool:
    return now == recorded or now in {each.id for each in ports_of(cloud, server_id)}


def attach_port(cloud: Cloud, port_id: str, server_id: str, limit: float) -> dict[str, str]:
    """Attach a port to the server and wait until Neutron calls it ACTIVE; return ``address``,
    ``port_id`` and ``server_id``.

    ``limit``: seconds in total. Raises `CloudError` PORT_IN_USE that names the server that has it,
    NOT_FOUND; transient: TARGET_DOWN while the server is in a state that a person must end.
    """
    repeats = ResendPolicy(cloud)

    def step() -> ProbeResult:
        now = port(cloud, port_id)
        state = f"it is {now.status}" + (f" on server {now.device_id}" if now.device_id else "")
        if now.device_id == server_id:
            repeats.answered()
            found = {
                "address": next(iter(now.addresses), ""),
                "port_id": port_id,
                "server_id": server_id,
            }
            return ProbeResult(state, done=now.status == "ACTIVE", result=found)
        if now.device_id:
            raise port_in_use(now)
        doing = f"attach port {port_id} to server {server_id}"
        path = url_path("servers", server_id, "os-interface")
        body = {"interfaceAttachment": {"port_id": port_id}}
        try:
            return repeats.send(state, doing, "Nova", "POST", path, body)
        except CloudError as error:
            if error.code != "CONFLICT":
                raise
            # The server has a task, or the request lost a race.
            _refuse_target(cloud, port_id, server_id, held=not repeats.open)
            return ProbeResult(f"{state}, and {error.message}")

    what = f"port {port_id} to be attached to server {server_id}"
    return cloud.carry_out(repeats, step, what, limit)  # type: ignore[no-any-return]


def port_in_use(one: Port) -> CloudError:
    """Return the error for a port that another server has."""
    return CloudError(
        "PORT_IN_USE",
        f"Port {one.id} belongs to {one.device_id}.",
        remedy="Detach it: "
        f"{remedies.command('DETACH_PORT', '', server=str(one.device_id), port=str(one.id))}.",
    )


def detach_port(
    cloud: Cloud,
    port_id: str,
    server_id: str,
    limit: float,
    *,
    off: bool = False,
) -> None:
    """Detach a port from the server and wait until Neutron shows that it is gone from there.

    ``off``: a fence proves that the server's guest does not run, and perhaps its host does not
    either. Then Neutron releases the port without Nova, whose request would stay in the queue of a
    dead host and take effect after its return. So it does for a server that is shelved and on no
    host, whose ports Nova keeps: when it is unshelved, it gets those that are its own then.
    ``limit``: seconds in total. A port or a server that no longer exists is no error. Raises
    `CloudError` HOST_DOWN if Nova shows that the host is down; blocked: SERVER_BUSY,
    SERVER_IN_ERROR while the server is in a state that a person must end.
    """
    repeats = ResendPolicy(cloud)
    asked_at: float | None = None

    def step() -> ProbeResult:
        nonlocal asked_at
        now = absence.unless_absent(cloud, absence.PORT, port_id, lambda: port(cloud, port_id))
        if now is None:
            return ProbeResult("gone", done=True)
        if now.device_id != server_id:
            where = f" on server {now.device_id}" if now.device_id else ""
            return repeats.settled(f"it is {now.status}{where}")
        if off:
            return _put(repeats, _port(now), _FREED, "it is on a server that is off")
        waited = f"it is {now.status} on the server"
        if asked_at is not None and time.monotonic() - asked_at < cloud.settings.repeat_after:
            return ProbeResult(f"{waited}, and Nova has accepted the request to detach it")
        if not repeats.allow():
            return repeats.no_effect_yet(waited)
        _refuse_dead_host(cloud, port_id, server_id)
        try:
            with repeats.sending(f"detach port {port_id} from server {server_id}"):
                path = url_path("servers", server_id, "os-interface", port_id)
                cloud.send("Nova", "DELETE", path)
        except CloudError as error:
            # The server has a task, or it is gone and Neutron will follow.
            if error.code in ("CONFLICT", "NOT_FOUND"):
                if server_state(cloud, server_id).on_no_host:
                    return _put(repeats, _port(now), _FREED, "its server is on no host")
                _refuse_holder(cloud, port_id, server_id)
                return ProbeResult(f"{waited}, and {error.message}")
            raise
        asked_at = time.monotonic()
        return ProbeResult("Nova has just accepted the request")

    cloud.carry_out(repeats, step, f"port {port_id} to be free of server {server_id}", limit)


def _refuse_target(cloud: Cloud, port_id: str, server_id: str, *, held: bool) -> None:
    """Raise `CloudError` TARGET_DOWN if Nova has just refused to attach a port because of a state
    of the server that does not end by itself. ``held``: an earlier request may still attach it."""
    seen = server_state(cloud, server_id)
    by = seen.hindrance if seen.exists else None
    if by is None or by.passes:
        return
    why = seen.unfit or seen.hindered or f"its server is {seen}"
    remedy = by.sentence(server_id) or "Repair the server."
    raise target_refused(f"port {port_id}", server_id, why, STATE, remedy=remedy, held=held)


def _refuse_holder(cloud: Cloud, port_id: str, server_id: str) -> None:
    """Raise `CloudError` SERVER_BUSY or SERVER_IN_ERROR, blocked, if Nova has just refused to
    detach a port because of a state of the server that does not end by itself."""
    seen, what = server_state(cloud, server_id), f"port {port_id}"
    by = seen.keeping_ports
    if by is None or by.passes:
        return
    if seen.status == "ERROR":
        error = server_in_error(what, server_id)
    else:
        error = server_busy(what, server_id, seen, by)
    error.about = {"server": server_id, "sight": server_fingerprint(cloud, server_id)}
    raise error


def _refuse_dead_host(cloud: Cloud, port_id: str, server_id: str) -> None:
    """Raise `CloudError` HOST_DOWN if Nova shows that the server's host is down. It would keep the
    request, and take the port from its next server when the host is back."""
    if server_state(cloud, server_id).host_silent:
        raise CloudError(
            "HOST_DOWN",
            f"Could not detach port {port_id} from server {server_id}: the compute service of its "
            "host is down.",
            remedy="Start nova-compute on its host again.",
        )


def allow_address(
    cloud: Cloud, address_port_id: str, server_id: str, limit: float
) -> dict[str, str]:
    """Allow the server's port to use the address of another port of its network; return
    ``address``, ``port_id`` and ``server_id``.

    ``limit``: seconds in total. Raises `CloudError` ADDRESS_IN_USE if another port may use it or
    has it, NO_PORT, NOT_FOUND, FORBIDDEN if the project does not own the network.
    """
    reserved = port(cloud, address_port_id)
    address = _address_of(reserved)
    target = port_of(cloud, server_id, reserved.network_id)
    repeats = ResendPolicy(cloud)

    def step() -> ProbeResult:
        now = port(cloud, target.id)
        refuse_other_users(cloud, port(cloud, address_port_id), address, {target.id})
        if allows(now, address):
            found = {"address": address, "port_id": target.id, "server_id": server_id}
            return ProbeResult("allowed", done=True, result=found)
        pairs = [*now.pairs, {"ip_address": address}]
        wanted = {"allowed_address_pairs": pairs}
        return _put(repeats, _port(now), wanted, "it is not allowed")

    return cloud.carry_out(  # type: ignore[no-any-return]
        repeats, step, f"port {target.id} to be allowed {address}", limit
    )


def forbid_address(
    cloud: Cloud,
    address: str,
    port_id: str,
    limit: float,
) -> None:
    """Forbid a port to use an address in addition to its own; other addresses stay allowed.

    ``limit``: seconds in total. A port that no longer exists is no error.
    """
    repeats = ResendPolicy(cloud)

    def step() -> ProbeResult:
        now = absence.unless_absent(cloud, absence.PORT, port_id, lambda: port(cloud, port_id))
        if now is None:
            return ProbeResult("gone", done=True)
        pairs = [pair for pair in now.pairs if not _is_one(pair, address)]
        if len(pairs) == len(now.pairs):
            return repeats.settled("it is not allowed")
        wanted = {"allowed_address_pairs": pairs}
        return _put(repeats, _port(now), wanted, "it is allowed")

    cloud.carry_out(repeats, step, f"port {port_id} not to be allowed {address}", limit)


def address_of(cloud: Cloud, port_id: str) -> str:
    """Return the first address of a port. Raises `CloudError` NOT_FOUND, NO_PORT."""
    return _address_of(port(cloud, port_id))


def _address_of(reserved: Port) -> str:
    if reserved.addresses:
        return reserved.addresses[0]
    raise CloudError(
        "NO_PORT",
        f"Port {reserved.id} has no address.",
        remedy="Name a port with an address in the group file.",
    )


def refuse_other_users(cloud: Cloud, reserved: Port, address: str, own: Collection[str]) -> None:
    """Raise `CloudError` ADDRESS_IN_USE if a server may use the address by another port than these
    (ids). A server that may answer at it needs no more to do so."""
    if reserved.device_id:
        raise _in_use(address, f"server {reserved.device_id} has its port {reserved.id}")
    for row in listed(cloud, "ports", network_id=reserved.network_id):
        each = read_port(row)
        if each.id not in own and each.device_id and allows(each, address):
            raise _in_use(address, f"port {each.id} of server {each.device_id} may use it, too")


def _in_use(address: str, why: str) -> CloudError:
    return CloudError(
        "ADDRESS_IN_USE",
        f"Address {address} is in use: {why}.",
        remedy=f"Take it away there: openstack port unset --allowed-address ip-address={address} "
        "PORT, or openstack server remove port SERVER PORT.",
    )


def allows(of: Port, address: str) -> bool:
    """Return whether a port may use an address in addition to its own."""
    return any(_covers(pair, address) for pair in of.pairs)


def _covers(pair: Mapping[str, str], address: str) -> bool:
    network = ipaddress.ip_network(pair["ip_address"], strict=False)
    return ipaddress.ip_address(address) in network


def _is_one(pair: Mapping[str, str], address: str) -> bool:
    """Return whether a pair is for this address alone."""
    network = ipaddress.ip_network(pair["ip_address"], strict=False)
    return network.num_addresses == 1 and _covers(pair, address)


@dataclass(frozen=True, slots=True)
class _NeutronObject:
    """An object to change: its path, its key in a body, and what the look saw of its number."""

    path: str
    key: str
    name: str
    revision: int


def _port(now: Port) -> _NeutronObject:
    path = url_path("v2.0", "ports", now.id)
    return _NeutronObject(path, "port", f"port {now.id}", now.revision)


def _floating(now: FloatingIp) -> _NeutronObject:
    path = url_path("v2.0", "floatingips", now.id)
    return _NeutronObject(path, "floatingip", f"floating IP {now.address}", now.revision)


def _put(
    repeats: ResendPolicy, one: _NeutronObject, values: Mapping[str, Any], state: str
) -> ProbeResult:
    """Change an object, unless it was changed since the look."""
    return repeats.send(
        state,
        f"change {one.name}",
        *("Neutron", "PUT", one.path, {one.key: dict(values)}),
        headers={"If-Match": f"revision_number={one.revision}"},
        busy={412: "another client has just changed it"},
    )
