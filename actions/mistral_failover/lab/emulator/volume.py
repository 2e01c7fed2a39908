# SPDX-License-Identifier: Apache-2.0
"""Cinder's API v3, microversions 3.0 to 3.70: volumes."""

import time
from typing import Any

from oslo_utils import strutils
from starlette.routing import Route

from mistral_failover.lab.emulator import attachments
from mistral_failover.lab.emulator.core import Emulation, transition
from mistral_failover.lab.emulator.state import Attachment, Volume, new_id
from mistral_failover.lab.emulator.web import ApiError, Call, Service, endpoint, take_fault, utc
from mistral_failover.lab.emulator.wire import microversion, newest, paged

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


def refused(status: int, message: str) -> ApiError:
    """An error of Cinder's."""
    return ApiError(status, error_body(status, message))


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


SERVICE = Service("volume", error_body, prepare=_prepare)


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
        "encrypted": False,
        "metadata": volume.metadata,
        "attachments": [_attachment_of_volume(call, a) for a in held],
        "availability_zone": "nova",
        "volume_type": "multiattach" if volume.multiattach else "emulated",
        "user_id": volume.user_id,
        "snapshot_id": None,
        "source_volid": None,
        "consistencygroup_id": None,
        "replication_status": None,
        "created_at": utc(volume.created, TIME),
        "updated_at": utc(volume.updated, TIME),
        "os-vol-tenant-attr:tenant_id": volume.project_id,
        "links": [{"rel": "self", "href": href}],
        **{f"os-vol-mig-status-attr:{key}": value for key, value in migration.items()},
    }


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
    size = asked.get("size") if isinstance(asked, dict) else None
    if not isinstance(size, int | str) or not str(size).isdigit() or int(size) < 1:
        raise refused(
            400,
            f"Invalid input for field/attribute size. Value: {size}. "
            f"{size!r} is not a positive integer",
        )
    volume = create(
        call.emulation,
        project_id=call.project_id,
        name=asked.get("name") or "",
        size=int(size),
        description=asked.get("description"),
        metadata=dict(asked.get("metadata") or {}),
        multiattach=shared(asked),
        bootable=bool(asked.get("imageRef")),
        user_id=call.user_id,
    )
    return 202, {"volume": view(call, volume)}


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
    operation = emulation.begin("volume_create", volume=volume.id)
    emulation.after(
        emulation.latency.of("volume_create"),
        "volume.created",
        volume_id=volume.id,
        operation=operation,
    )
    return volume


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
    emulation.after(
        emulation.latency.of("volume_delete"),
        "volume.deleted",
        volume_id=volume.id,
        operation=operation,
    )


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


def routes() -> list[Route]:
    """Cinder's routes."""
    base = "/volume/v3/{project_id}"
    volume = f"{base}/volumes/{{volume_id}}"
    table = (
        ("/volume", _versions, "versions", "GET", True),
        ("/volume/", _versions, "versions", "GET", True),
        ("/volume/v3", _one_version, "versions", "GET", True),
        ("/volume/v3/", _one_version, "versions", "GET", True),
        (f"{base}/volumes", _list, "volume_list", "GET", False),
        (f"{base}/volumes/detail", _list_detail, "volume_list", "GET", False),
        (f"{base}/volumes", _create, "volume_create", "POST", False),
        (volume, _show, "volume_show", "GET", False),
        (volume, _delete, "volume_delete", "DELETE", False),
    )
    return [
        endpoint(SERVICE, path, handler, operation, [method], public=public)
        for path, handler, operation, method, public in table
    ]
