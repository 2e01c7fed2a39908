# SPDX-License-Identifier: Apache-2.0
"""Nova's API of volumes on servers: os-volume_attachments."""

from typing import Any

from starlette.routing import Route

from mistral_failover.emulator import attachments
from mistral_failover.emulator.compute import (
    SERVICE,
    asked_version,
    find_server,
    refused,
    require_state,
    unreservable,
)
from mistral_failover.emulator.state import Attachment, Server
from mistral_failover.emulator.web import Call, endpoint
from mistral_failover.emulator.wire import UUID_SHAPE, paged

_ATTACHABLE = ("active", "paused", "stopped", "suspended")


def _attachment_view(call: Call, attachment: Attachment) -> dict[str, Any]:
    version = asked_version(call)
    body: dict[str, Any] = {
        "device": attachment.device,
        "serverId": attachment.server_id,
        "volumeId": attachment.volume_id,
    }
    if version >= (2, 89):
        body |= {"attachment_id": attachment.id, "bdm_uuid": attachment.bdm_id}
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
    if not isinstance(volume_id, str) or not UUID_SHAPE.fullmatch(volume_id):
        raise refused(
            400,
            f"Invalid input for field/attribute volumeId. Value: {volume_id}. "
            f"'{volume_id}' is not a 'uuid'",
        )
    state = call.emulation.state
    volume = state.volumes.get(volume_id)
    if volume is None or not call.sees(volume.project_id):
        raise refused(404, f"Volume {volume_id} could not be found.")
    require_state(server, "attach_volume", _ATTACHABLE)
    if state.attachments_of(server_id=server.id, volume_id=volume_id):
        raise refused(400, f"Invalid volume: volume {volume_id} already attached")
    if volume.status != "available" and not (volume.multiattach and volume.status == "in-use"):
        raise refused(400, unreservable(volume_id, volume.status))
    if not state.host_up(server.host):
        # Nova asks the compute service for a device name and waits for the answer.
        await call.emulation.wait_for(
            f"host:{server.host}", call.emulation.latency.of("rpc_timeout")
        )
        raise refused(
            500,
            "Unexpected API Error. Please report this at http://bugs.launchpad.net/nova/ and "
            "attach the Nova API log if possible.\n"
            "<class 'oslo_messaging.exceptions.MessagingTimeout'>",
        )
    attachment = attachments.attach(
        call.emulation,
        server,
        volume,
        asked.get("device"),
        delete_on_termination=bool(asked.get("delete_on_termination")),
    )
    return {"volumeAttachment": _attachment_view(call, attachment)}


def _attachment(call: Call, server: Server) -> Attachment:
    volume_id = call.path("volume_id")
    found = call.emulation.state.attachments_of(server_id=server.id, volume_id=volume_id)
    if not found:
        volume = call.emulation.state.volumes.get(volume_id)
        if volume is None or not call.sees(volume.project_id):
            raise refused(404, f"Volume {volume_id} could not be found.")
        raise refused(404, f"Instance {server.id} is not attached to volume {volume_id}")
    return found[0]


def _show_attachment(call: Call) -> Any:
    return {"volumeAttachment": _attachment_view(call, _attachment(call, find_server(call)))}


def _detach(call: Call) -> Any:
    server = find_server(call)
    attachment = _attachment(call, server)
    require_state(server, "detach_volume", _ATTACHABLE)
    if attachment.device == attachments.ROOT_DEVICE:
        raise refused(403, "Cannot detach a root device volume")
    if attachment.status != "attached":
        raise refused(
            400,
            "Invalid volume: Invalid input received: Invalid volume: Unable to detach volume. "
            "Volume status must be 'in-use' and attach_status must be 'attached' to detach. "
            "(HTTP 400)",
        )
    if not call.emulation.state.host_up(server.host):
        raise refused(409, f"Compute service of {server.host} is unavailable at this time.")
    attachments.detach(call.emulation, server, attachment)
    return 202, None


def routes() -> list[Route]:
    """The routes under a server."""
    base = "/compute/v2.1/servers/{server_id}/os-volume_attachments"
    one = f"{base}/{{volume_id}}"
    return [
        endpoint(SERVICE, base, _list_attachments, "attachment_list"),
        endpoint(SERVICE, base, _attach, "attach", ["POST"]),
        endpoint(SERVICE, one, _show_attachment, "attachment_show"),
        endpoint(SERVICE, one, _detach, "detach", ["DELETE"]),
    ]
