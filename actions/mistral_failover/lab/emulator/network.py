# SPDX-License-Identifier: Apache-2.0
"""Neutron's API v2.0: ports, floating IPs, the networks that they are on, subnets and routers.

A change may carry `If-Match: revision_number=N`; Neutron refuses it with 412 if the object was
changed since then. The addresses that a port may use in addition to its own are for the
network's owner to set.
"""

from __future__ import annotations

import ipaddress
from typing import Any

from starlette.routing import Route

from mistral_failover.lab.emulator import ports, topology
from mistral_failover.lab.emulator.state import FloatingIp, Network, Port, Router, Subnet
from mistral_failover.lab.emulator.web import ApiError, Call, Service, endpoint, next_page, paged

_TYPES = {404: "HTTPNotFound", 403: "PolicyNotAuthorized", 412: "HTTPPreconditionFailed"}


def error_body(status: int, message: str) -> dict[str, Any]:
    """Neutron's error body."""
    kind = _TYPES.get(status, "HTTPBadRequest" if status < 500 else "HTTPInternalServerError")
    return {"NeutronError": {"type": kind, "message": message, "detail": ""}}


_ABOUT_THE_LIST = ("limit", "marker", "page_reverse", "fields", "sort_key", "sort_dir")

SERVICE = Service("network", error_body)
refused = SERVICE.refused
EXTENSIONS = (
    "allowed-address-pairs",
    "external-net",
    "port-security",
    "router",
    "security-group",
    "standard-attr-revisions",
    "standard-attr-tag",
)
"""The aliases of Neutron's extensions of which there is something."""


def _network_view(call: Call, network: Network) -> dict[str, Any]:
    return {
        "id": network.id,
        "name": network.name,
        "project_id": network.project_id,
        "status": "ACTIVE",
        "router:external": network.external,
        "shared": network.external,
        "subnets": [each.id for each in topology.subnets_of(call.emulation, network.id)],
    }


def _subnet_view(call: Call, subnet: Subnet) -> dict[str, Any]:
    del call
    return {
        "id": subnet.id,
        "name": subnet.name,
        "project_id": subnet.project_id,
        "network_id": subnet.network_id,
        "cidr": subnet.cidr,
        "gateway_ip": subnet.gateway or None,
        "ip_version": 4,
        "enable_dhcp": True,
    }


def _router_view(call: Call, router: Router) -> dict[str, Any]:
    del call
    outside = {"network_id": router.external} if router.external else None
    return {
        "id": router.id,
        "name": router.name,
        "project_id": router.project_id,
        "status": "ACTIVE",
        "admin_state_up": True,
        "external_gateway_info": outside,
    }


def _port_view(call: Call, port: Port) -> dict[str, Any]:
    subnet_id = topology.subnet_id(call.emulation, port)
    return {
        "id": port.id,
        "name": port.name,
        "project_id": port.project_id,
        "network_id": port.network_id,
        "mac_address": port.mac,
        "fixed_ips": [{"subnet_id": subnet_id, "ip_address": port.address}],
        "device_id": port.device_id,
        "device_owner": port.device_owner,
        "status": port.status,
        "allowed_address_pairs": port.pairs,
        "security_groups": port.groups,
        "port_security_enabled": True,
        "tags": port.tags,
        "revision_number": port.revision,
    }


def _floating_view(call: Call, one: FloatingIp) -> dict[str, Any]:
    port = call.emulation.state.ports.get(one.port_id or "")
    return {
        "id": one.id,
        "project_id": one.project_id,
        "floating_network_id": one.network_id,
        "floating_ip_address": one.address,
        "port_id": one.port_id,
        "fixed_ip_address": port.address if port else None,
        "status": "ACTIVE" if one.port_id else "DOWN",
        "tags": one.tags,
        "revision_number": one.revision,
    }


def listed(
    call: Call, kind: str, rows: dict[str, Any], view: Any, word: str = ""
) -> dict[str, Any]:
    """A page of what the caller may see, with the values that the query names. ``word``: for one of
    them, if Neutron refuses a marker that it does not know."""
    query = call.request.query_params.multi_items()
    wanted = [(key, value) for key, value in query if key not in _ABOUT_THE_LIST]
    shown = [
        view(call, one)
        for one in rows.values()
        if call.sees(one.project_id) or getattr(one, "external", False) or _is_on_own(call, one)
    ]
    found = [one for one in shown if all(str(one.get(key)) == value for key, value in wanted)]

    def no_marker(marker: str) -> ApiError:
        return refused(404, f"{word} {marker} could not be found.")

    page = paged(call, found, lambda row: str(row["id"]), no_marker if word else None)
    links = next_page(call, found, page)
    return {kind: page, f"{kind}_links": links} if links else {kind: page}


def _is_on_own(call: Call, one: Any) -> bool:
    """Whether it is a port on a network of the caller's, whosever port it is."""
    return isinstance(one, Port) and call.sees(
        call.emulation.state.networks[one.network_id].project_id
    )


def _extensions(call: Call) -> Any:
    """What of Neutron's extensions there is."""
    del call
    return {"extensions": [{"alias": alias, "name": alias} for alias in EXTENSIONS]}


def _networks(call: Call) -> Any:
    return listed(call, "networks", call.emulation.state.networks, _network_view, "Network")


def _show_network(call: Call) -> Any:
    found = call.emulation.state.networks.get(call.path("network_id"))
    if found is None:
        raise refused(404, f"Network {call.path('network_id')} could not be found.")
    return {"network": _network_view(call, found)}


def _list_subnets(call: Call) -> Any:
    return listed(call, "subnets", call.emulation.state.subnets, _subnet_view)


def _list_routers(call: Call) -> Any:
    return listed(call, "routers", call.emulation.state.routers, _router_view)


def _list_ports(call: Call) -> Any:
    return listed(call, "ports", call.emulation.state.ports, _port_view, "Port")


def _list_floating(call: Call) -> Any:
    return listed(call, "floatingips", call.emulation.state.floating_ips, _floating_view)


def _port(call: Call) -> Port:
    port = call.emulation.state.ports.get(call.path("port_id"))
    if port is None or not (call.sees(port.project_id) or _is_on_own(call, port)):
        raise refused(404, f"Port {call.path('port_id')} could not be found.")
    return port


def _floating(call: Call) -> FloatingIp:
    one = call.emulation.state.floating_ips.get(call.path("floating_id"))
    if one is None or not call.sees(one.project_id):
        raise refused(404, f"Floating IP {call.path('floating_id')} could not be found")
    return one


def asked_for(call: Call, name: str) -> dict[str, Any]:
    asked = call.body.get(name)
    if not isinstance(asked, dict):
        raise refused(400, f"Unable to find '{name}' in request body")
    return asked


def _network_of(call: Call, asked: dict[str, Any], key: str) -> Network:
    network = call.emulation.state.networks.get(str(asked.get(key)))
    if network is None:
        raise refused(404, f"Network {asked.get(key)} could not be found.")
    return network


def _match(call: Call, revision: int) -> None:
    header = call.request.headers.get("if-match", "").strip('"')
    if header and header != f"revision_number={revision}":
        expected = header.removeprefix("revision_number=")
        raise refused(412, f"Constrained to {expected}, but current revision is {revision}")


def _show_port(call: Call) -> Any:
    return {"port": _port_view(call, _port(call))}


def _create_port(call: Call) -> Any:
    asked = asked_for(call, "port")
    on = _network_of(call, asked, "network_id")
    project = str(asked.get("project_id") or call.project_id)
    if not call.sees(project):
        raise refused(403, "rule:create_port is disallowed by policy")
    name, address = str(asked.get("name") or ""), _fixed_address(call, on, asked)
    port = ports.make(call.emulation, project, on, name, address=address)
    for key in ("device_id", "device_owner"):  # of any server, also of another project
        setattr(port, key, str(asked.get(key) or ""))
    port.pairs = _pairs(call, port, asked.get("allowed_address_pairs") or [])
    if "security_groups" in asked:
        port.groups = _groups(call, asked["security_groups"])
    return 201, {"port": _port_view(call, port)}


def _fixed_address(call: Call, on: Network, asked: dict[str, Any]) -> str | None:
    """The address that a new port asks for; None: any of its network."""
    fixed = next(
        (each["ip_address"] for each in asked.get("fixed_ips") or [] if each.get("ip_address")),
        None,
    )
    if fixed is not None and ports.is_taken(call.emulation, on, fixed):
        raise refused(409, f"IP address {fixed} already allocated in subnet of network {on.id}.")
    return fixed


def _update_port(call: Call) -> Any:
    port, asked = _port(call), asked_for(call, "port")
    _match(call, port.revision)
    if "allowed_address_pairs" in asked:
        if not call.sees(call.emulation.state.networks[port.network_id].project_id):
            raise refused(403, "rule:update_port:allowed_address_pairs is disallowed by policy")
        port.pairs = _pairs(call, port, asked["allowed_address_pairs"])
    if "security_groups" in asked:
        port.groups = _groups(call, asked["security_groups"])
    for key in ("name", "device_id", "device_owner"):
        if key in asked:
            setattr(port, key, str(asked[key] or ""))
    port.revision += 1
    ports.changed(call.emulation, port)
    return {"port": _port_view(call, port)}


def _pairs(call: Call, port: Port, asked: list[dict[str, str]]) -> list[dict[str, str]]:
    """The pairs as Neutron keeps them: with the port's own MAC address where none is named."""
    del call
    for pair in asked:
        try:
            ipaddress.ip_network(pair.get("ip_address", ""))
        except ValueError:
            raise refused(400, f"'{pair.get('ip_address')}' is not a valid IP address.") from None
    return [{"ip_address": p["ip_address"], "mac_address": port.mac, **p} for p in asked]


def _groups(call: Call, asked: list[str]) -> list[str]:
    """The ids of the security groups that a port is to have."""
    known = call.emulation.state.security_groups
    for each in asked:
        if each not in known or not call.sees(known[each].project_id):
            raise refused(404, f"Security group {each} does not exist")
    return list(dict.fromkeys(asked))


def _delete_port(call: Call) -> Any:
    port = _port(call)
    if port.device_owner.startswith("compute:"):
        raise refused(403, "Access was denied to this resource.")
    ports.remove(call.emulation, port.id)
    return 204, None


def _show_floating(call: Call) -> Any:
    return {"floatingip": _floating_view(call, _floating(call))}


def _create_floating(call: Call) -> Any:
    asked = asked_for(call, "floatingip")
    on, address = _network_of(call, asked, "floating_network_id"), asked.get("floating_ip_address")
    if address is not None:
        if not call.admin:  # by Neutron's own policy
            rule = "rule:create_floatingip:floating_ip_address"
            raise refused(403, f"({rule}) is disallowed by policy")
        taken = {each.address for each in call.emulation.state.floating_ips.values()}
        if address in taken:
            raise refused(409, f"IP address {address} already allocated in network {on.id}.")
    one = ports.make_floating_ip(call.emulation, call.project_id, on, address)
    if asked.get("port_id") is None:
        return 201, {"floatingip": _floating_view(call, one)}
    try:
        return 201, {"floatingip": _associate(call, one, asked["port_id"])}
    except ApiError:
        ports.remove(call.emulation, one.id)
        raise


def _update_floating(call: Call) -> Any:
    one, asked = _floating(call), asked_for(call, "floatingip")
    _match(call, one.revision)
    return {"floatingip": _associate(call, one, asked.get("port_id"))}


def _associate(call: Call, one: FloatingIp, wanted: Any) -> dict[str, Any]:
    """Let a floating IP lead to a port, or to none; return what it is then."""
    port = call.emulation.state.ports.get(str(wanted))
    if wanted is not None and (port is None or not call.sees(port.project_id)):
        raise refused(404, f"Port {wanted} could not be found.")
    others = call.emulation.state.floating_ips.values()
    if port and any(o.port_id == port.id and o is not one for o in others):
        raise refused(
            409,
            f"Cannot associate floating IP {one.address} ({one.id}) with port {port.id} using "
            f"fixed IP {port.address}, as that fixed IP already has a floating IP on external "
            f"network {one.network_id}.",
        )
    one.port_id = port.id if port else None
    one.revision += 1
    call.emulation.audit.record("floating_ip", floating_ip=one.id, port=one.port_id)
    call.emulation.changed()
    return _floating_view(call, one)


def _tag(one: Port | FloatingIp, call: Call) -> Any:
    """PUT .../tags: these and no others."""
    one.tags = sorted(set(map(str, call.body.get("tags") or [])))
    call.emulation.changed()
    return {"tags": one.tags}


def _tag_port(call: Call) -> Any:
    return _tag(_port(call), call)


def _tag_floating(call: Call) -> Any:
    return _tag(_floating(call), call)


def _delete_floating(call: Call) -> Any:
    ports.remove(call.emulation, _floating(call).id)
    return 204, None


def routes() -> list[Route]:
    """Neutron's routes."""
    base = "/network/v2.0"
    port, floating = f"{base}/ports/{{port_id}}", f"{base}/floatingips/{{floating_id}}"
    table = (
        (f"{base}/extensions", _extensions, "extension_list", "GET"),
        (f"{base}/networks", _networks, "network_list", "GET"),
        (f"{base}/networks/{{network_id}}", _show_network, "network_show", "GET"),
        (f"{base}/subnets", _list_subnets, "subnet_list", "GET"),
        (f"{base}/routers", _list_routers, "router_list", "GET"),
        (f"{base}/ports", _list_ports, "port_list", "GET"),
        (f"{base}/ports", _create_port, "port_create", "POST"),
        (port, _show_port, "port_show", "GET"),
        (port, _update_port, "port_update", "PUT"),
        (port, _delete_port, "port_delete", "DELETE"),
        (f"{base}/floatingips", _list_floating, "floating_ip_list", "GET"),
        (f"{base}/floatingips", _create_floating, "floating_ip_create", "POST"),
        (f"{port}/tags", _tag_port, "port_tag", "PUT"),
        (floating, _show_floating, "floating_ip_show", "GET"),
        (floating, _update_floating, "floating_ip_update", "PUT"),
        (floating, _delete_floating, "floating_ip_delete", "DELETE"),
        (f"{floating}/tags", _tag_floating, "floating_ip_tag", "PUT"),
    )
    return [
        endpoint(SERVICE, path, handler, name, [method]) for path, handler, name, method in table
    ]
