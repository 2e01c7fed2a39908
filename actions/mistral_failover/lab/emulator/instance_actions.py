# SPDX-License-Identifier: Apache-2.0
"""Nova's os-instance-actions, of what changes a server's guest or its volumes: the requests, and
what the compute service did. Readable by the server's owner, also after the deletion (since 2.21),
with the events (since 2.51). A local delete, with the compute service down, leaves no event; nor
does a message that got lost. And os-migrations, for administrators only, of evacuations.
"""

from typing import Any

from starlette.routing import Route

from mistral_failover.lab.emulator.compute import SERVICE, asked_version, denied, refused
from mistral_failover.lab.emulator.state import CloudState, ServerAction
from mistral_failover.lab.emulator.web import Call, endpoint, utc

_SECONDS = "%Y-%m-%dT%H:%M:%S.000000"  # its database keeps whole ones


def _actions(call: Call) -> list[ServerAction]:
    server_id = call.path("server_id")
    state: CloudState = call.emulation.state
    server = state.servers.get(server_id)
    actions = [each for each in state.server_actions.values() if each.server_id == server_id]
    known = server is not None or (actions and asked_version(call) >= (2, 21))
    owner = server.project_id if server else actions[0].project_id if actions else ""
    if not known or not call.sees(owner):
        raise refused(404, f"Instance {server_id} could not be found.")
    return actions


def _view(action: ServerAction) -> dict[str, Any]:
    return {
        "action": action.action,
        "instance_uuid": action.server_id,
        "message": "Error" if action.result == "Error" else None,
        "project_id": action.project_id,
        "user_id": action.user_id,
        "request_id": action.request_id,
        "start_time": utc(action.started_at, _SECONDS),
        "updated_at": utc(action.finished_at or action.started_at, _SECONDS),
    }


def _list(call: Call) -> Any:
    return {"instanceActions": [_view(action) for action in reversed(_actions(call))]}


def _show(call: Call) -> Any:
    wanted = call.path("request_id")
    for action in _actions(call):
        if action.request_id == wanted:
            body = _view(action)
            if call.admin or asked_version(call) >= (2, 51):
                body["events"] = [_event(action)] if _begun(call, action) else []
            return {"instanceAction": body}
    raise refused(404, f"Action {wanted} not found")


def _begun(call: Call, action: ServerAction) -> bool:
    """Whether the compute service took it up; one that died has not seen the request."""
    state: CloudState = call.emulation.state
    ended = action.finished_at is not None
    return bool(action.event and (ended or state.host_up(action.host)))


def _event(action: ServerAction) -> dict[str, Any]:
    return {
        "event": action.event,
        "start_time": utc(action.started_at, _SECONDS),
        "finish_time": utc(action.finished_at, _SECONDS),
        "result": action.result,
    }


def _migrations(call: Call) -> Any:
    """Only evacuations: no server is moved otherwise. "completed": the old host was cleaned up."""
    if not call.admin:
        raise refused(403, denied("os_compute_api:os-migrations:index"))
    return {
        "migrations": [
            {
                "id": number,
                "uuid": action.request_id.removeprefix("req-"),
                "instance_uuid": action.server_id,
                "migration_type": "evacuation",
                "source_compute": action.host,
                "status": _migration_status(action),
                "created_at": utc(action.started_at, _SECONDS),
            }
            for number, action in enumerate(call.emulation.state.server_actions.values(), 1)
            if action.action == "evacuate"
            and call.query("instance_uuid") in (None, action.server_id)
            and call.query("migration_type") in (None, "evacuation")
        ]
    }


def _migration_status(action: ServerAction) -> str:
    if action.finished_at is None:
        return "accepted"
    if action.result != "Success":
        return "failed"
    return "completed" if action.cleaned else "done"


def routes() -> list[Route]:
    """The routes."""
    path = "/compute/v2.1/servers/{server_id}/os-instance-actions"
    return [
        endpoint(SERVICE, path, _list, "server_actions", ["GET"]),
        endpoint(SERVICE, f"{path}/{{request_id}}", _show, "server_actions", ["GET"]),
        endpoint(SERVICE, "/compute/v2.1/os-migrations", _migrations, "migrations", ["GET"]),
    ]
