# SPDX-License-Identifier: Apache-2.0
"""Nova's os-instance-actions, of deletions alone: the requests, and what the compute service did.
Readable by the server's owner, also after the deletion (since 2.21), with the events (since 2.51).
A local delete, with the compute service down, leaves no event.
"""

from typing import Any

from starlette.routing import Route

from mistral_failover.emulator.compute import SERVICE, asked_version, refused
from mistral_failover.emulator.state import CloudState
from mistral_failover.emulator.web import Call, endpoint, utc

_SECONDS = "%Y-%m-%dT%H:%M:%S.000000"  # its database keeps whole ones


def _rows(call: Call) -> list[dict[str, Any]]:
    server_id = call.path("server_id")
    state: CloudState = call.emulation.state
    server = state.servers.get(server_id)
    rows = state.deletions.get(server_id, [])
    known = server is not None or (rows and asked_version(call) >= (2, 21))
    owner = server.project_id if server else rows[0]["project_id"] if rows else ""
    if not known or not call.sees(owner):
        raise refused(404, f"Instance {server_id} could not be found.")
    return rows


def _view(call: Call, row: dict[str, Any]) -> dict[str, Any]:
    return {
        "action": "delete",
        "instance_uuid": call.path("server_id"),
        "message": None,
        "project_id": row["project_id"],
        "user_id": row["user_id"],
        "request_id": row["request_id"],
        "start_time": utc(row["started_at"], _SECONDS),
        "updated_at": utc(row["finished_at"] or row["started_at"], _SECONDS),
    }


def _list(call: Call) -> Any:
    return {"instanceActions": [_view(call, row) for row in reversed(_rows(call))]}


def _show(call: Call) -> Any:
    wanted = call.path("request_id")
    for row in _rows(call):
        if row["request_id"] == wanted:
            body = _view(call, row)
            if call.admin or asked_version(call) >= (2, 51):
                body["events"] = [_event(row)] if _begun(call, row) else []
            return {"instanceAction": body}
    raise refused(404, f"Action {wanted} not found")


def _begun(call: Call, row: dict[str, Any]) -> bool:
    """Whether the compute service took the deletion up; one that died has not seen the request."""
    state: CloudState = call.emulation.state
    ended = row["finished_at"] is not None
    return bool(row["by_service"] and (ended or state.host_up(row["host"])))


def _event(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "event": "compute_terminate_instance",
        "start_time": utc(row["started_at"], _SECONDS),
        "finish_time": utc(row["finished_at"], _SECONDS),
        "result": "Success" if row["finished_at"] is not None else None,
    }


def routes() -> list[Route]:
    """The routes."""
    path = "/compute/v2.1/servers/{server_id}/os-instance-actions"
    return [
        endpoint(SERVICE, path, _list, "server_actions", ["GET"]),
        endpoint(SERVICE, f"{path}/{{request_id}}", _show, "server_actions", ["GET"]),
    ]
