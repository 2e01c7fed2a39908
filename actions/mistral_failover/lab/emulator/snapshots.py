# SPDX-License-Identifier: Apache-2.0
"""Cinder's snapshots: those of attached volumes are as after a loss of power."""

import time
from typing import Any

from oslo_utils import strutils
from starlette.routing import Route

from mistral_failover.lab.emulator import quotas
from mistral_failover.lab.emulator.core import Emulation, transition
from mistral_failover.lab.emulator.state import Snapshot, new_id
from mistral_failover.lab.emulator.volume import SERVICE, TIME, refused
from mistral_failover.lab.emulator.web import Call, endpoint, paged, take_fault, utc


def routes() -> list[Route]:
    """Cinder's routes of snapshots."""
    return [
        *_snapshot_routes("/volume/v3"),
        *_snapshot_routes("/volume/v3/{project_id}"),
    ]


def _snapshot_view(snapshot: Snapshot) -> dict[str, Any]:
    return {
        "id": snapshot.id,
        "name": snapshot.name,
        "description": None,
        "volume_id": snapshot.volume_id,
        "status": snapshot.status,
        "size": snapshot.size,
        "metadata": snapshot.metadata,
        "created_at": utc(snapshot.created, TIME),
        "updated_at": utc(snapshot.updated, TIME) if snapshot.updated else None,
        "os-extended-snapshot-attributes:progress": (
            "100%" if snapshot.status == "available" else "0%"
        ),
        "os-extended-snapshot-attributes:project_id": snapshot.project_id,
    }


def _find_snapshot(call: Call) -> Snapshot:
    snapshot = call.emulation.state.snapshots.get(call.path("snapshot_id"))
    if snapshot is None or not call.sees(snapshot.project_id):
        raise refused(404, f"Snapshot {call.path('snapshot_id')} could not be found.")
    return snapshot


def _create_snapshot(call: Call) -> Any:
    asked = call.body.get("snapshot")
    asked = asked if isinstance(asked, dict) else {}
    volume = call.emulation.state.volumes.get(str(asked.get("volume_id")))
    if volume is None or not call.sees(volume.project_id):
        raise refused(404, f"Volume {asked.get('volume_id')} could not be found.")
    takes = ("available", "in-use") if strutils.bool_from_string(asked.get("force")) else None
    if volume.status not in (takes or ("available",)):
        raise refused(
            400,
            f"Invalid volume: Volume {volume.id} status must be available, but current status is: "
            f"{volume.status}.",
        )
    owner, state = volume.project_id, call.emulation.state
    if why := quotas.no_volume(state, owner, volume.size, kind="snapshots"):
        raise refused(413, why)
    snapshot = Snapshot(
        new_id(),
        volume.project_id,
        volume.id,
        str(asked.get("name") or ""),
        volume.size,
        time.time(),
        metadata=dict(asked.get("metadata") or {}),
    )
    call.emulation.state.snapshots[snapshot.id] = snapshot
    operation = call.emulation.begin("snapshot_create", snapshot=snapshot.id, volume=volume.id)
    call.emulation.later(
        "snapshot_create", "snapshot.created", snapshot_id=snapshot.id, operation=operation
    )
    made = _snapshot_view(snapshot)
    hidden = [name for name in made if name.startswith("os-extended-snapshot-attributes")]
    shown = {name: value for name, value in made.items() if name not in hidden}
    return 202, {"snapshot": shown}


@transition("snapshot.created")
def _snapshot_created(emulation: Emulation, snapshot_id: str, operation: str) -> None:
    failed = take_fault(emulation, "snapshot_create", ("fail",)) is not None
    snapshot = emulation.state.snapshots.get(snapshot_id)
    if snapshot is not None:
        snapshot.status = "error" if failed else "available"
        snapshot.updated = time.time()
    emulation.finish(operation, "failed" if failed else "done")
    emulation.changed()


def _list_snapshots(call: Call) -> Any:
    found = [
        each
        for each in call.emulation.state.snapshots.values()
        if each.project_id == call.project_id
        and call.query("name") in (None, each.name)
        and call.query("volume_id") in (None, each.volume_id)
        and call.query("status") in (None, each.status)
    ]
    found.sort(key=lambda each: each.created, reverse=True)
    rows = paged(
        call,
        found,
        no_marker=lambda marker: refused(404, f"Snapshot {marker} could not be found."),
    )
    return {"snapshots": [_snapshot_view(each) for each in rows]}


def _show_snapshot(call: Call) -> Any:
    return {"snapshot": _snapshot_view(_find_snapshot(call))}


def _delete_snapshot(call: Call) -> Any:
    snapshot = _find_snapshot(call)
    if snapshot.status not in ("available", "error"):
        raise refused(
            400,
            "Invalid snapshot: Snapshot status must be available or error and snapshot must not be "
            "part of a group.",
        )
    snapshot.status = "deleting"
    operation = call.emulation.begin("snapshot_delete", snapshot=snapshot.id)
    call.emulation.later(
        "snapshot_delete", "snapshot.deleted", snapshot_id=snapshot.id, operation=operation
    )
    return 202, None


@transition("snapshot.deleted")
def _snapshot_deleted(emulation: Emulation, snapshot_id: str, operation: str) -> None:
    emulation.state.snapshots.pop(snapshot_id, None)
    emulation.finish(operation)


def _snapshot_routes(base: str) -> list[Route]:
    snapshot = f"{base}/snapshots/{{snapshot_id}}"
    table = (
        (f"{base}/snapshots", _list_snapshots, "snapshot_list", "GET"),
        (f"{base}/snapshots/detail", _list_snapshots, "snapshot_list", "GET"),
        (f"{base}/snapshots", _create_snapshot, "snapshot_create", "POST"),
        (snapshot, _show_snapshot, "snapshot_show", "GET"),
        (snapshot, _delete_snapshot, "snapshot_delete", "DELETE"),
    )
    return [
        endpoint(SERVICE, path, handler, operation, [method])
        for path, handler, operation, method in table
    ]
