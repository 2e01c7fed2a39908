# SPDX-License-Identifier: Apache-2.0
"""Nova's API of what is plugged into servers: os-volume_attachments and os-interface.

Nova waits for the compute service to attach a port, and does not wait for it to detach one: on a
dead host the former ends with 500 after a minute, the latter is accepted and happens when the host
is back.
"""

import asyncio
from typing import Any

from oslo_utils import uuidutils
from starlette.routing import Route

from mistral_failover.lab.emulator import attachments, ports
from mistral_failover.lab.emulator.compute import (
    SERVICE,
    asked_version,
    find_server,
    of_cinder,
    refused,
    require_state,
    unreservable,
)
from mistral_failover.lab.emulator.state import Attachment, Port, Server, Volume
from mistral_failover.lab.emulator.web import ApiError, Call, endpoint, paged, take_fault

_ATTACHABLE = (
    "active",
    "paused",
    "stopped",
    "resized",
    "soft-delete",
    "shelved",
    "shelved_offloaded",
)
"""``nova.compute.api``: the same for ``attach_volume`` and ``detach_volume``."""


def _attachment_view(call: Call, attachment: Attachment) -> dict[str, Any]:
    version = asked_version(call)
    body: dict[str, Any] = {
        "serverId": attachment.server_id,
        "volumeId": attachment.volume_id,
    }
    if attachment.device:
        body["device"] = attachment.device
    if version >= (2, 89):
        made = None if attachment.never_made else attachment.id
        body |= {"attachment_id": made, "bdm_uuid": attachment.bdm_id}
    else:
        body["id"] = attachment.volume_id
    if version >= (2, 70):
        body["tag"] = None
    if version >= (2, 79):
        body["delete_on_termination"] = attachment.delete_on_termination
    return body


def _list_attachments(call: Call) -> Any:
    server = find_server(call)
    found = paged(call, call.emulation.state.attachments_of(server_id=server.id))
    return {"volumeAttachments": [_attachment_view(call, a) for a in found]}


async def _attach(call: Call) -> Any:
    server = find_server(call)
    asked = call.body.get("volumeAttachment")
    volume_id = asked.get("volumeId") if isinstance(asked, dict) else None
    if not uuidutils.is_uuid_like(volume_id):
        raise refused(
            400,
            f"Invalid input for field/attribute volumeId. Value: {volume_id}. "
            f"'{volume_id}' is not a 'uuid'",
        )
    state = call.emulation.state
    volume = state.volumes.get(str(volume_id))
    if volume is None or not call.sees(volume.project_id):
        raise refused(404, f"Volume {volume_id} could not be found.")
    require_state(call, server, "attach_volume", _ATTACHABLE)
    _refuse_attached(call, server, volume)
    if volume.status not in ("available", "downloading") and not (
        volume.multiattach and volume.status == "in-use"
    ):
        raise unreservable(volume)
    _refuse_other_zone(call, server, volume)
    if not state.host_up(server.host):
        # Nova asks the compute service for a device name and waits for the answer.
        await call.emulation.wait_for(
            f"host:{server.host}", call.emulation.latency.of("rpc_timeout")
        )
        raise _rpc_timeout()
    _refuse_more_disks(call, server)
    await _in_the_queue(call, server, volume, asked.get("device"))
    attachment = attachments.attach(
        call.emulation,
        server,
        volume,
        asked.get("device"),
        delete_on_termination=bool(asked.get("delete_on_termination")),
    )
    body = _attachment_view(call, attachment)
    # The answer to an attach keeps its old shape: the attachment's own id is not in it.
    return {
        "volumeAttachment": {"id": volume_id}
        | {k: v for k, v in body.items() if k not in ("attachment_id", "bdm_uuid")}
    }


def _refuse_other_zone(call: Call, server: Server, volume: Volume) -> None:
    """What Nova's API refuses without cross_az_attach. Nova gives the number of the server's row
    instead of its id."""
    if not call.emulation.state.config["cross_az_attach"] and server.zone != volume.zone:
        raise refused(
            400,
            f"Invalid volume: Instance 186 and volume {volume.id} are not in the same "
            f"availability_zone. Instance is in {server.zone}. Volume is in {volume.zone}",
        )


def _refuse_more_disks(call: Call, server: Server) -> None:
    """What the compute service refuses when it is asked for a device name. Root disks count."""
    most = call.emulation.state.config["max_disk_devices_to_attach"]
    held = call.emulation.state.attachments_of(server_id=server.id)
    if 0 <= most <= len({attachments.ROOT_DEVICE} | {each.device for each in held}):
        raise refused(
            403,
            f"The maximum allowed number of disk devices ({most}) to attach to a single instance "
            "has been exceeded.",
        )


async def _in_the_queue(call: Call, server: Server, volume: Volume, device: str | None) -> None:
    """Let a request wait for the compute service, which reserves a device for it; the request is
    invisible in the meantime. When its turn comes, it is refused if another one came before it."""
    emulation = call.emulation
    fault = take_fault(emulation, "attach", ("queue",))
    if fault is None:
        return
    limit = emulation.latency.of("rpc_timeout")
    if fault.seconds > limit:
        ids = {"server_id": server.id, "volume_id": volume.id}
        emulation.after(fault.seconds, "attach.left", **ids, device=device)
        await asyncio.sleep(limit)
        raise _rpc_timeout()
    await asyncio.sleep(fault.seconds)
    if emulation.state.attachments_of(server_id=server.id, volume_id=volume.id):
        raise refused(400, f"Invalid volume: volume {volume.id} already attached")
    free = ("available", "in-use") if volume.multiattach else ("available",)
    if volume.status not in free:
        raise unreservable(volume)


def _rpc_timeout() -> ApiError:
    return refused(
        500,
        "Unexpected API Error. Please contact the administrator\n"
        "<class 'oslo_messaging.rpc.client.RemoteError'>",
    )


def _refuse_attached(call: Call, server: Server, volume: Volume) -> None:
    """Nova's own check, before Cinder is asked."""
    holders = [
        a.server_id
        for a in call.emulation.state.attachments.values()
        if a.volume_id == volume.id and (a.in_nova or a.status == "attached")
    ]
    if holders and not volume.multiattach:
        raise refused(
            400,
            f"Invalid volume: volume {volume.id} is already attached to instances: "
            f"{' '.join(holders)}",
        )
    if server.id in holders:
        raise refused(400, f"Invalid volume: volume {volume.id} already attached")


def _attachment(call: Call, server: Server) -> Attachment:
    volume_id = call.path("volume_id")
    found = call.emulation.state.attachments_of(server_id=server.id, volume_id=volume_id)
    if not found:
        raise refused(404, f"Instance {server.id} is not attached to volume {volume_id}")
    return found[0]


def _show_attachment(call: Call) -> Any:
    return {"volumeAttachment": _attachment_view(call, _attachment(call, find_server(call)))}


def _keep_or_not(call: Call) -> Any:
    """Says, since 2.85, whether a volume is deleted with its server."""
    server, asked = find_server(call), call.body.get("volumeAttachment") or {}
    if asked_version(call) < (2, 85):
        raise refused(400, "delete_on_termination cannot be changed before microversion 2.85.")
    _attachment(call, server).delete_on_termination = bool(asked.get("delete_on_termination"))
    call.emulation.changed()
    return 202, None


def _detach(call: Call) -> Any:
    server = find_server(call)
    volume = call.emulation.state.volumes.get(call.path("volume_id"))
    if volume is None or not call.sees(volume.project_id):
        raise refused(404, f"Volume {call.path('volume_id')} could not be found.")
    attachment = _attachment(call, server)
    if attachment.device == attachments.ROOT_DEVICE:
        raise refused(400, "Cannot detach a root device volume")
    require_state(call, server, "detach_volume", _ATTACHABLE)
    if not call.emulation.state.host_up(server.host):
        raise refused(409, "Service is unavailable at this time.")
    # Cinder is asked for the volume's status, not for the outcome of this attachment.
    held = call.emulation.state.attachments_of(volume_id=volume.id)
    free = attachment not in held and not any(a.status == "attached" for a in held)
    free = free or attachment.status == "detaching"
    if volume.status != "in-use" or free:
        raise refused(
            400,
            "Invalid volume: "
            + of_cinder(
                "Invalid volume: Unable to detach volume. Volume status must be 'in-use' and "
                "attach_status must be 'attached' to detach."
            ),
        )
    fault = take_fault(call.emulation, "detach", ("unsent",))
    event = None if fault else "compute_detach_volume"
    action = call.emulation.state.accept(server, call.request_id, "detach_volume", event)
    if fault is None:
        attachments.detach(call.emulation, server, attachment, action)
    else:
        attachments.begin_detaching(call.emulation, attachment)
        if fault.status >= 400:
            raise refused(fault.status, "Timed out waiting for a reply to message ID 4711")
    return 202, None


# -- ports: os-interface


_PLUGGABLE = ("active", "paused", "stopped")


def _port_view(port: Port) -> dict[str, Any]:
    return {
        "net_id": port.network_id,
        "port_id": port.id,
        "mac_addr": port.mac,
        "port_state": port.status,
        "fixed_ips": [{"subnet_id": port.network_id, "ip_address": port.address}],
        "tag": None,
    }


def _list_ports(call: Call) -> Any:
    server = find_server(call)
    rows = call.emulation.state.ports.values()
    return {
        "interfaceAttachments": [_port_view(port) for port in rows if port.device_id == server.id]
    }


async def _attach_port(call: Call) -> Any:
    emulation, server = call.emulation, find_server(call)
    port_id = str((call.body.get("interfaceAttachment") or {}).get("port_id"))
    require_state(call, server, "attach_interface", _PLUGGABLE)
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
    return {"interfaceAttachment": _port_view(port)}


def _detach_port(call: Call) -> Any:
    emulation, server = call.emulation, find_server(call)
    require_state(call, server, "detach_interface", _PLUGGABLE)
    port_id = call.path("port_id")
    ids = {"port_id": port_id, "server_id": server.id}
    operation = emulation.begin("detach_port", port=port_id, server=server.id)
    emulation.later("detach", "port.detach", **ids, operation=operation)
    return 202, None


def _port_routes() -> list[Route]:
    """The routes of ports."""
    base = "/compute/v2.1/servers/{server_id}/os-interface"
    return [
        endpoint(SERVICE, base, _list_ports, "interface_list"),
        endpoint(SERVICE, base, _attach_port, "attach_port", ["POST"]),
        endpoint(SERVICE, f"{base}/{{port_id}}", _detach_port, "detach_port", ["DELETE"]),
    ]


def routes() -> list[Route]:
    """The routes under a server."""
    base = "/compute/v2.1/servers/{server_id}/os-volume_attachments"
    one = f"{base}/{{volume_id}}"
    return [
        *_port_routes(),
        endpoint(SERVICE, base, _list_attachments, "attachment_list"),
        endpoint(SERVICE, base, _attach, "attach", ["POST"]),
        endpoint(SERVICE, one, _show_attachment, "attachment_show"),
        endpoint(SERVICE, one, _keep_or_not, "attachment_update", ["PUT"]),
        endpoint(SERVICE, one, _detach, "detach", ["DELETE"]),
    ]
