# SPDX-License-Identifier: Apache-2.0
"""Nova's API of ports on servers: os-interface.

Nova waits for the compute service to attach a port, and does not wait for it to detach one: on a
dead host the former ends with 500 after a minute, the latter is accepted and happens when the host
is back.
"""

from __future__ import annotations

from typing import Any

from starlette.routing import Route

from mistral_failover.lab.emulator import ports
from mistral_failover.lab.emulator.compute import SERVICE, find_server, refused, require_state
from mistral_failover.lab.emulator.state import Port
from mistral_failover.lab.emulator.web import Call, endpoint

_ALLOWED = ("active", "paused", "stopped")


def _view(port: Port) -> dict[str, Any]:
    return {
        "net_id": port.network_id,
        "port_id": port.id,
        "mac_addr": port.mac,
        "port_state": port.status,
        "fixed_ips": [{"subnet_id": port.network_id, "ip_address": port.address}],
        "tag": None,
    }


def _list(call: Call) -> Any:
    server = find_server(call)
    rows = call.emulation.state.ports.values()
    return {"interfaceAttachments": [_view(port) for port in rows if port.device_id == server.id]}


async def _attach(call: Call) -> Any:
    emulation, server = call.emulation, find_server(call)
    port_id = str((call.body.get("interfaceAttachment") or {}).get("port_id"))
    require_state(server, "attach_interface", _ALLOWED)
    port = emulation.state.ports.get(port_id)
    if port is None or not call.sees(port.project_id):
        raise refused(404, f"Port id {port_id} could not be found.")
    if not emulation.state.host_up(server.host):
        await emulation.wait_for(f"host:{server.host}", emulation.latency.of("rpc_timeout"))
        raise refused(500, "Unexpected API Error. Please contact the administrator")
    await emulation.pause("attach")
    if port.device_id:
        raise refused(409, f"Port {port_id} is still in use.")
    ports.attached(emulation, port, server)
    return {"interfaceAttachment": _view(port)}


def _detach(call: Call) -> Any:
    emulation, server = call.emulation, find_server(call)
    require_state(server, "detach_interface", _ALLOWED)
    port_id = call.path("port_id")
    ids = {"port_id": port_id, "server_id": server.id}
    operation = emulation.begin("detach_port", port=port_id, server=server.id)
    emulation.after(emulation.latency.of("detach"), "port.detach", **ids, operation=operation)
    return 202, None


def routes() -> list[Route]:
    """The routes under a server."""
    base = "/compute/v2.1/servers/{server_id}/os-interface"
    return [
        endpoint(SERVICE, base, _list, "interface_list"),
        endpoint(SERVICE, base, _attach, "attach_port", ["POST"]),
        endpoint(SERVICE, f"{base}/{{port_id}}", _detach, "detach_port", ["DELETE"]),
    ]
