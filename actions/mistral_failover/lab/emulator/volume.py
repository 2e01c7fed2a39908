# SPDX-License-Identifier: Apache-2.0
"""Cinder's API v3, microversions 3.0 to 3.70: volumes, their actions and attachments.

Cinder lets only Nova end an attachment of a server: not even an administrator may.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any

from oslo_utils import strutils
from starlette.routing import Route

from mistral_failover.lab.emulator import attachments, quotas
from mistral_failover.lab.emulator.core import Emulation, transition
from mistral_failover.lab.emulator.servers import zone_shown
from mistral_failover.lab.emulator.state import (
    DEFAULT_ZONE,
    Attachment,
    Snapshot,
    Volume,
    new_id,
)
from mistral_failover.lab.emulator.web import (
    ApiError,
    Call,
    Service,
    endpoint,
    microversion,
    newest,
    paged,
    take_fault,
    utc,
)

_FAULTS = {
    400: "badRequest",
    403: "forbidden",
    404: "itemNotFound",
    409: "conflictingRequest",
    413: "overLimit",
    503: "serviceUnavailable",
}
LOWEST, HIGHEST = (3, 0), (3, 70)
TIME = "%Y-%m-%dT%H:%M:%S.000000"  # its database keeps whole seconds


def error_body(status: int, message: str) -> dict[str, Any]:
    """Cinder's error body."""
    return {_FAULTS.get(status, "computeFault"): {"code": status, "message": message}}


def _prepare(call: Call) -> dict[str, str]:
    wanted = call.request.path_params.get("project_id")
    if wanted is not None and wanted != call.project_id and not call.admin:
        raise refused(400, "Malformed request url")
    header = call.request.headers.get("openstack-api-version")
    version = microversion(header, "volume", LOWEST, newest(call, "volume", HIGHEST))
    return {
        "OpenStack-API-Version": f"volume {version[0]}.{version[1]}",
        "Vary": "OpenStack-API-Version",
    }


ENCRYPTED = "encrypted"
"""The volume type whose volumes have a key in the key manager."""
SERVICE = Service("volume", error_body, prepare=_prepare)
refused = SERVICE.refused


def find(call: Call) -> Volume:
    """The volume that the path names; 404 for one that the caller may not see."""
    volume = call.emulation.state.volumes.get(call.path("volume_id"))
    if volume is None or not call.sees(volume.project_id):
        raise refused(404, f"Volume {call.path('volume_id')} could not be found.")
    return volume


def view(call: Call, volume: Volume) -> dict[str, Any]:
    """A volume with its attachments; those only reserved or in progress do not show yet."""
    held = [
        a
        for a in call.emulation.state.attachments_of(volume_id=volume.id)
        if a.status in ("attached", "detaching")
    ]
    migration = {"migstat": None, "name_id": volume.name_id} if call.admin else {}
    href = f"{call.emulation.url}/volume/v3/{volume.project_id}/volumes/{volume.id}"
    return {
        "id": volume.id,
        "name": volume.name,
        "description": volume.description,
        "status": volume.status,
        "size": volume.size,
        "multiattach": volume.multiattach,
        "bootable": "true" if volume.bootable else "false",
        "encrypted": volume.encrypted,
        "metadata": volume.metadata,
        "attachments": [_attachment_of_volume(call, a) for a in held],
        "availability_zone": volume.zone,
        "volume_type": _type_shown(volume),
        "user_id": volume.user_id,
        "snapshot_id": volume.snapshot_id,
        "source_volid": None,
        "consistencygroup_id": None,
        "group_id": None,
        "replication_status": None,
        "created_at": utc(volume.created, TIME),
        "updated_at": utc(volume.updated, TIME),
        "os-vol-tenant-attr:tenant_id": volume.project_id,
        "links": [{"rel": "self", "href": href}],
        **{f"os-vol-mig-status-attr:{key}": value for key, value in migration.items()},
    }


def _type_shown(volume: Volume) -> str:
    if volume.multiattach:
        return "multiattach"
    return ENCRYPTED if volume.encrypted else "emulated"


def _attachment_of_volume(call: Call, attachment: Attachment) -> dict[str, Any]:
    return {
        "id": attachment.volume_id,
        "volume_id": attachment.volume_id,
        "attachment_id": attachment.id,
        "server_id": attachment.server_id,
        "host_name": attachment.host if call.admin else None,
        "device": attachment.device,
        "attached_at": utc(attachment.attached_at, TIME),
    }


def _listed(call: Call) -> list[Volume]:
    everywhere = call.admin and strutils.bool_from_string(call.query("all_tenants"))
    name, status = call.query("name"), call.query("status")
    found = [
        volume
        for volume in call.emulation.state.volumes.values()
        if (everywhere or volume.project_id == call.project_id)
        and name in (None, volume.name)
        and status in (None, volume.status)
    ]
    found.sort(key=lambda volume: volume.created, reverse=True)
    return paged(
        call, found, no_marker=lambda marker: refused(404, f"Volume {marker} could not be found.")
    )


def _list(call: Call) -> Any:
    brief = ("id", "name", "links")
    rows = [view(call, volume) for volume in _listed(call)]
    return {"volumes": [{k: v for k, v in row.items() if k in brief} for row in rows]}


def _list_detail(call: Call) -> Any:
    return {"volumes": [view(call, volume) for volume in _listed(call)]}


def _show(call: Call) -> Any:
    return {"volume": view(call, find(call))}


def _create(call: Call) -> Any:
    asked = call.body.get("volume")
    asked = asked if isinstance(asked, dict) else {}
    snapshot = _origin(call, asked.get("snapshot_id"))
    size = asked.get("size") or (snapshot.size if snapshot else None)
    if not isinstance(size, int | str) or not str(size).isdigit() or int(size) < 1:
        raise refused(
            400,
            f"Invalid input for field/attribute size. Value: {size}. "
            f"{size!r} is not a positive integer",
        )
    if snapshot is not None and int(size) < snapshot.size:
        raise refused(
            400,
            f"Invalid input received: Volume size '{size}'GB cannot be smaller than the snapshot "
            f"size {snapshot.size}GB. They must be >= original snapshot size.",
        )
    if why := quotas.no_volume(call.emulation.state, call.project_id, int(size)):
        raise refused(413, why)
    volume = create(
        call.emulation,
        project_id=call.project_id,
        name=asked.get("name") or "",
        size=int(size),
        description=asked.get("description"),
        metadata=dict(asked.get("metadata") or {}),
        multiattach=shared(asked),
        bootable=bool(asked.get("imageRef")),
        zone=zone_shown(call.emulation, str(asked.get("availability_zone") or "")),
        encrypted=asked.get("volume_type") == ENCRYPTED,
        user_id=call.user_id,
        snapshot_id=snapshot.id if snapshot else None,
    )
    made = view(call, volume) | {"updated_at": None}
    del made["os-vol-tenant-attr:tenant_id"]
    return 202, {"volume": made}


def _origin(call: Call, snapshot_id: Any) -> Snapshot | None:
    """The snapshot that a volume is to be made from."""
    if snapshot_id is None:
        return None
    snapshot = call.emulation.state.snapshots.get(str(snapshot_id))
    if snapshot is None or not call.sees(snapshot.project_id):
        raise refused(404, f"Snapshot {snapshot_id} could not be found.")
    if snapshot.status != "available":
        raise refused(
            400,
            "Invalid snapshot: Originating snapshot status must be one of 'available' values",
        )
    return snapshot


def shared(asked: dict[str, Any]) -> bool:
    """Whether many servers may hold the volume: since 3.50 its type says so, before a flag."""
    return asked.get("volume_type") == "multiattach" or asked.get("multiattach") in (
        True,
        "true",
        "True",
    )


def create(
    emulation: Emulation, *, project_id: str, name: str, size: int, **details: Any
) -> Volume:
    """Starts the creation of a volume of `size` GiB; `details` are fields of Volume."""
    now = time.time()
    volume = Volume(new_id(), project_id, name, size, created=now, updated=now, **details)
    emulation.state.volumes[volume.id] = volume
    origin = {"snapshot": volume.snapshot_id} if volume.snapshot_id else {}
    operation = emulation.begin("volume_create", volume=volume.id, **origin)
    emulation.later("volume_create", "volume.created", volume_id=volume.id, operation=operation)
    return volume


def of_image(
    emulation: Emulation, project_id: str, size: int, user_id: str, zone: str = DEFAULT_ZONE
) -> Volume:
    """Makes a volume of `size` GiB that has an image, as Nova does for a server that boots from
    it."""
    now = time.time()
    made = Volume(new_id(), project_id, "", size, now, now, "available", bootable=True)
    made.user_id, made.zone = user_id, zone
    emulation.state.volumes[made.id] = made
    return made


@transition("volume.created")
def _created(emulation: Emulation, volume_id: str, operation: str) -> None:
    volume = emulation.state.volumes.get(volume_id)
    if volume is None:
        emulation.finish(operation, "gone")
        return
    failed = take_fault(emulation, "volume_create", ("fail",)) is not None
    attachments.set_volume_status(emulation, volume, "error" if failed else "available")
    emulation.finish(operation, "failed" if failed else "done")
    _tell_owner(emulation, volume)


def _delete(call: Call) -> Any:
    volume = find(call)
    deletable = volume.status in ("available", "error")
    snapshots = call.emulation.state.snapshots.values()
    deletable = deletable and all(each.volume_id != volume.id for each in snapshots)
    if not deletable or call.emulation.state.attachments_of(volume_id=volume.id):
        raise refused(
            400,
            "Invalid volume: Volume status must be available or error or error_restoring or "
            "error_extending or error_managing and must not be migrating, attached, belong to a "
            "group, have snapshots, awaiting a transfer, or be disassociated from snapshots "
            "after volume transfer.",
        )
    delete(call.emulation, volume)
    return 202, None


def delete(emulation: Emulation, volume: Volume) -> None:
    """Starts the deletion of a volume."""
    attachments.set_volume_status(emulation, volume, "deleting")
    operation = emulation.begin("volume_delete", volume=volume.id)
    emulation.later("volume_delete", "volume.deleted", volume_id=volume.id, operation=operation)


@transition("volume.deleted")
def _deleted(emulation: Emulation, volume_id: str, operation: str) -> None:
    volume = emulation.state.volumes.pop(volume_id, None)
    emulation.finish(operation)
    if volume is not None:
        _tell_owner(emulation, volume)


def _tell_owner(emulation: Emulation, volume: Volume) -> None:
    if volume.owner is not None:
        stack_id, name = volume.owner
        emulation.fire("stack.part_settled", stack_id=stack_id, name=name)


def _limits(call: Call) -> Any:
    """What the project's quota allows, and what is used of it. -1: any number."""
    state = call.emulation.state
    quota = quotas.limits(state, call.project_id, quotas.BLOCK_STORAGE)
    used = quotas.used(state, call.project_id)
    absolute = {
        "maxTotalVolumes": quota["volumes"],
        "maxTotalSnapshots": quota["snapshots"],
        "maxTotalVolumeGigabytes": quota["gigabytes"],
        "maxTotalBackups": -1,
        "maxTotalBackupGigabytes": -1,
        "totalVolumesUsed": used["volumes"],
        "totalSnapshotsUsed": used["snapshots"],
        "totalGigabytesUsed": used["gigabytes"],
        "totalBackupsUsed": 0,
        "totalBackupGigabytesUsed": 0,
    }
    return {"limits": {"rate": [], "absolute": absolute}}


def _version(call: Call) -> dict[str, Any]:
    return {
        "id": "v3.0",
        "status": "CURRENT",
        "version": ".".join(map(str, newest(call, "volume", HIGHEST))),
        "min_version": f"{LOWEST[0]}.{LOWEST[1]}",
        "updated": "2023-08-31T00:00:00Z",
        "links": [{"rel": "self", "href": f"{call.emulation.url}/volume/v3/"}],
        "media-types": [
            {"base": "application/json", "type": "application/vnd.openstack.volume+json;version=3"}
        ],
    }


def _versions(call: Call) -> Any:
    return 300, {"versions": [_version(call)]}


def _one_version(call: Call) -> Any:
    return {"versions": [_version(call)]}


# -- actions on a volume, and its attachments: only Nova may end one of a server


_STATES = (
    "creating",
    "available",
    "deleting",
    "error",
    "error_deleting",
    "error_managing",
    "managing",
    "attaching",
    "in-use",
    "detaching",
    "maintenance",
    "restoring-backup",
    "error_restoring",
    "reserved",
    "awaiting-transfer",
    "backing-up",
    "error_backing-up",
    "error_extending",
    "downloading",
    "uploading",
    "retyping",
    "extending",
)


def _action(call: Call) -> Any:
    volume = find(call)
    name = next(iter(call.body), "")
    if name not in _ACTIONS:
        raise refused(400, f"There is no such action: {name}")
    _ACTIONS[name](call, volume, call.body[name] or {})
    return 200 if name == "os-set_bootable" else 202, None


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
    if status is None and asked.get("attach_status"):
        return  # the mark alone
    if status not in _STATES:
        valid = f"valid statuses are: {_STATES}"
        raise refused(400, f"Volume status: {status} is invalid, {valid}.")
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
    state = call.emulation.state
    if why := quotas.no_volume(state, volume.project_id, size - volume.size, kind=""):
        raise refused(413, why)
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


def _attachment_brief(attachment: Attachment) -> dict[str, Any]:
    return {
        "id": attachment.id,
        "volume_id": attachment.volume_id,
        "instance": attachment.server_id,
        "status": attachment.status,
    }


def _attachment_detail(attachment: Attachment) -> dict[str, Any]:
    return {
        **_attachment_brief(attachment),
        "attach_mode": "rw",
        "attached_at": utc(attachment.attached_at, TIME) or "",
        "detached_at": "",
        "connection_info": {},
    }


def _show_attachment(call: Call) -> Any:
    return {"attachment": _attachment_detail(_find_attachment(call))}


def _attachments_seen(call: Call) -> list[Attachment]:
    state = call.emulation.state
    return [
        attachment
        for attachment in state.attachments.values()
        if attachment.in_cinder
        and call.sees(state.volumes[attachment.volume_id].project_id)
        and call.query("volume_id") in (None, attachment.volume_id)
        and call.query("instance_id") in (None, attachment.server_id)
    ]


def _list_attachments(call: Call) -> Any:
    return {
        "attachments": [_attachment_brief(attachment) for attachment in _attachments_seen(call)]
    }


def _list_attachments_detail(call: Call) -> Any:
    return {
        "attachments": [_attachment_detail(attachment) for attachment in _attachments_seen(call)]
    }


def _create_attachment(call: Call) -> Any:
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
    return {"attachment": _attachment_detail(attachment)}


def _complete(call: Call) -> Any:
    attachment = _find_attachment(call)
    if "os-complete" not in call.body:
        raise refused(400, f"There is no such action: {next(iter(call.body), '')}")
    attachment.status = "attached"
    attachments.refresh_status(call.emulation, attachment.volume_id)
    return 204, None


def _delete_attachment(call: Call) -> Any:
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


def _attachment_routes(base: str) -> list[Route]:
    """The routes of actions and attachments."""
    attachment = f"{base}/attachments/{{attachment_id}}"
    return [
        endpoint(SERVICE, f"{base}/volumes/{{volume_id}}/action", _action, _action_name, ["POST"]),
        endpoint(SERVICE, f"{base}/attachments", _list_attachments, "volume_attachment_list"),
        endpoint(
            SERVICE,
            f"{base}/attachments/detail",
            _list_attachments_detail,
            "volume_attachment_list",
        ),
        endpoint(SERVICE, attachment, _show_attachment, "volume_attachment_show"),
        endpoint(
            SERVICE, f"{base}/attachments", _create_attachment, "volume_attachment_create", ["POST"]
        ),
        endpoint(SERVICE, attachment, _delete_attachment, "volume_attachment_delete", ["DELETE"]),
        endpoint(SERVICE, f"{attachment}/action", _complete, "volume_attachment_show", ["POST"]),
    ]


def _action_name(call: Call) -> str:
    return next(iter(call.body), "volume_action").removeprefix("os-")


def routes() -> list[Route]:
    """Cinder's routes: a project in the path is optional, as since 3.67."""
    versions = {"/volume": _versions, "/volume/v3": _one_version}
    return [
        *(
            endpoint(SERVICE, path + slash, handler, "versions", public=True)
            for path, handler in versions.items()
            for slash in ("", "/")
        ),
        *_volume_routes("/volume/v3"),
        *_volume_routes("/volume/v3/{project_id}"),
    ]


def _volume_routes(base: str) -> list[Route]:
    volume = f"{base}/volumes/{{volume_id}}"
    table = (
        (f"{base}/limits", _limits, "volume_limits", "GET"),
        (f"{base}/volumes", _list, "volume_list", "GET"),
        (f"{base}/volumes/detail", _list_detail, "volume_list", "GET"),
        (f"{base}/volumes", _create, "volume_create", "POST"),
        (volume, _show, "volume_show", "GET"),
        (volume, _delete, "volume_delete", "DELETE"),
    )
    return [
        *_attachment_routes(base),
        *(
            endpoint(SERVICE, path, handler, operation, [method])
            for path, handler, operation, method in table
        ),
    ]
