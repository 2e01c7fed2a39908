# SPDX-License-Identifier: Apache-2.0
"""Cinder's API for forcing a volume's state, extending it, and for its attachments.

Cinder lets only Nova end an attachment of a server: not even an administrator may.
"""

from collections.abc import Callable, Mapping
from typing import Any

from starlette.routing import Route

from mistral_failover.lab.emulator import attachments
from mistral_failover.lab.emulator.state import Attachment, Volume, new_id
from mistral_failover.lab.emulator.volume import SERVICE, TIME, delete, find, refused
from mistral_failover.lab.emulator.web import ApiError, Call, endpoint, utc

_STATES = (
    "creating",
    "available",
    "deleting",
    "error",
    "error_deleting",
    "attaching",
    "detaching",
    "in-use",
    "maintenance",
    "reserved",
    "downloading",
)


def _action(call: Call) -> Any:
    volume = find(call)
    name = next(iter(call.body), "")
    if name not in _ACTIONS:
        raise refused(400, f"There is no such action: {name}")
    _ACTIONS[name](call, volume, call.body[name] or {})
    return 202, None


def _administrators_only(call: Call, rule: str) -> None:
    if not call.admin:
        rule = f"volume_extension:volume_admin_actions:{rule}"
        raise refused(403, f"Policy doesn't allow {rule} to be performed.")


def _force_detach(call: Call, volume: Volume, asked: dict[str, Any]) -> None:
    _administrators_only(call, "force_detach")
    _detach(call, volume, asked)


def _detach(call: Call, volume: Volume, asked: dict[str, Any]) -> None:
    for attachment in call.emulation.state.attachments_of(volume_id=volume.id):
        if asked.get("attachment_id") in (None, attachment.id):
            raise _used_by_nova(attachment)
    raise refused(400, "Invalid volume: Unable to detach volume: it is not attached.")


def _used_by_nova(attachment: Attachment) -> ApiError:
    """Only a service token, which shows that Nova calls, would be accepted."""
    return refused(
        409,
        f"ConflictNovaUsingAttachment: Detach volume from instance {attachment.server_id} using "
        "the Compute API",
    )


def _reset_status(call: Call, volume: Volume, asked: dict[str, Any]) -> None:
    """Sets the volume's status as requested; its attachments stay unless it is set to detached."""
    _administrators_only(call, "reset_status")
    state = call.emulation.state
    if asked.get("attach_status") == "detached":
        for attachment in state.attachments_of(volume_id=volume.id):
            _forget(call, attachment)
    status = asked.get("status")
    if status not in _STATES:
        raise refused(400, f"Must specify a valid status: {status}")
    if status == "in-use" and not state.attachments_of(volume_id=volume.id):
        raise refused(400, "Cannot set status to in-use without attachments.")
    attachments.set_volume_status(call.emulation, volume, str(status))


def _forget(call: Call, attachment: Attachment) -> None:
    """Removes it from Cinder; Nova still lists what it listed."""
    attachment.in_cinder = False
    if not attachment.in_nova:
        del call.emulation.state.attachments[attachment.id]


def _roll_detaching(call: Call, volume: Volume, asked: dict[str, Any]) -> None:
    del asked
    attachments.roll_detaching(call.emulation, volume)


def _set_bootable(call: Call, volume: Volume, asked: dict[str, Any]) -> None:
    volume.bootable = bool(asked.get("bootable"))
    call.emulation.changed()


def _extend(call: Call, volume: Volume, asked: dict[str, Any]) -> None:
    """Gives the volume its new size at once, attached or not."""
    size = asked.get("new_size")
    if not isinstance(size, int) or size <= volume.size:
        raise refused(
            400,
            "Invalid input received: New size for extend must be greater than current size. "
            f"(current: {volume.size}, extended: {size}).",
        )
    if volume.status not in ("available", "in-use"):
        raise refused(
            400,
            f"Invalid volume: Volume {volume.id} status must be '{{'status': 'available'}}' to "
            f"extend, currently {volume.status}.",
        )
    volume.size = size
    call.emulation.changed()


def _force_delete(call: Call, volume: Volume, asked: dict[str, Any]) -> None:
    del asked
    _administrators_only(call, "force_delete")
    delete(call.emulation, volume)


_ACTIONS: Mapping[str, Callable[[Call, Volume, dict[str, Any]], None]] = {
    "os-detach": _detach,
    "os-extend": _extend,
    "os-force_delete": _force_delete,
    "os-force_detach": _force_detach,
    "os-reset_status": _reset_status,
    "os-roll_detaching": _roll_detaching,
    "os-set_bootable": _set_bootable,
}


def _find_attachment(call: Call) -> Attachment:
    attachment = call.emulation.state.attachments.get(call.path("attachment_id"))
    volume = call.emulation.state.volumes.get(attachment.volume_id) if attachment else None
    known = attachment is not None and attachment.in_cinder
    if not known or attachment is None or volume is None or not call.sees(volume.project_id):
        raise refused(
            404,
            f"Volume attachment could not be found with filter: attachment_id = "
            f"{call.path('attachment_id')}.",
        )
    return attachment


def _brief(attachment: Attachment) -> dict[str, Any]:
    return {
        "id": attachment.id,
        "volume_id": attachment.volume_id,
        "instance": attachment.server_id,
        "status": attachment.status,
    }


def _detail(attachment: Attachment) -> dict[str, Any]:
    return {
        **_brief(attachment),
        "attach_mode": "rw",
        "attached_at": utc(attachment.attached_at, TIME) or "",
        "detached_at": "",
        "connection_info": {},
    }


def _show(call: Call) -> Any:
    return {"attachment": _detail(_find_attachment(call))}


def _mine(call: Call) -> list[Attachment]:
    state = call.emulation.state
    return [
        attachment
        for attachment in state.attachments.values()
        if attachment.in_cinder
        and call.sees(state.volumes[attachment.volume_id].project_id)
        and call.query("volume_id") in (None, attachment.volume_id)
        and call.query("instance_id") in (None, attachment.server_id)
    ]


def _list(call: Call) -> Any:
    return {"attachments": [_brief(attachment) for attachment in _mine(call)]}


def _list_detail(call: Call) -> Any:
    return {"attachments": [_detail(attachment) for attachment in _mine(call)]}


def _create(call: Call) -> Any:
    """One that Nova does not know: reserved, or, with a connector, on its way to a host."""
    asked = call.body.get("attachment")
    if not isinstance(asked, dict):
        raise refused(400, "Invalid input for field/attribute attachment.")
    volume = call.emulation.state.volumes.get(str(asked.get("volume_uuid")))
    if volume is None or not call.sees(volume.project_id):
        raise refused(404, f"Volume {asked.get('volume_uuid')} could not be found.")
    if volume.status != "available":
        raise refused(
            400,
            f"Invalid volume: Volume {volume.id} status must be available or downloading to "
            f"reserve, but the current status is {volume.status}.",
        )
    connector = asked.get("connector") or {}
    attachment = Attachment(
        new_id(),
        volume.id,
        str(asked.get("instance_uuid")),
        str(connector.get("mountpoint", "")),
        status="attaching" if connector else "reserved",
        in_nova=False,
        connected=bool(connector),
    )
    call.emulation.state.attachments[attachment.id] = attachment
    attachments.refresh_status(call.emulation, volume.id)
    return {"attachment": _detail(attachment)}


def _complete(call: Call) -> Any:
    attachment = _find_attachment(call)
    if "os-complete" not in call.body:
        raise refused(400, f"There is no such action: {next(iter(call.body), '')}")
    attachment.status = "attached"
    attachments.refresh_status(call.emulation, attachment.volume_id)
    return 204, None


def _delete(call: Call) -> Any:
    """Cinder's own check: an attachment may go if it has no connection yet or is not Nova's."""
    attachment = _find_attachment(call)
    free = attachment.status == "reserved" or not attachment.connected
    if not free and call.token and call.token.trust_id:
        # To ask Nova, Cinder scopes the caller's token again, which Keystone refuses for a trust's.
        raise refused(
            500,
            "The server has either erred or is incapable of performing the requested operation.",
        )
    if attachment.in_nova and not free:
        raise _used_by_nova(attachment)
    del call.emulation.state.attachments[attachment.id]
    attachments.refresh_status(call.emulation, attachment.volume_id)
    return {"attachments": []}


def routes() -> list[Route]:
    """The routes."""
    base = "/volume/v3/{project_id}"
    attachment = f"{base}/attachments/{{attachment_id}}"
    return [
        endpoint(SERVICE, f"{base}/volumes/{{volume_id}}/action", _action, _name, ["POST"]),
        endpoint(SERVICE, f"{base}/attachments", _list, "volume_attachment_list"),
        endpoint(SERVICE, f"{base}/attachments/detail", _list_detail, "volume_attachment_list"),
        endpoint(SERVICE, attachment, _show, "volume_attachment_show"),
        endpoint(SERVICE, f"{base}/attachments", _create, "volume_attachment_create", ["POST"]),
        endpoint(SERVICE, attachment, _delete, "volume_attachment_delete", ["DELETE"]),
        endpoint(SERVICE, f"{attachment}/action", _complete, "volume_attachment_show", ["POST"]),
    ]


def _name(call: Call) -> str:
    return next(iter(call.body), "volume_action").removeprefix("os-")
