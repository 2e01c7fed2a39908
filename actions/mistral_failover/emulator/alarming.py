# SPDX-License-Identifier: Apache-2.0
"""Aodh's API v2: the alarms that a project has defined. None of them fires by itself."""

from typing import Any

from starlette.routing import Route

from mistral_failover.emulator.state import new_id
from mistral_failover.emulator.web import ApiError, Call, Service, endpoint


def error_body(status: int, message: str) -> dict[str, Any]:
    """Aodh's error body."""
    fault = "Client" if status < 500 else "Server"
    return {"error_message": {"faultcode": fault, "faultstring": message, "debuginfo": None}}


SERVICE = Service("alarming", error_body)


def _list(call: Call) -> Any:
    return [each for each in call.emulation.state.alarms.values() if call.sees(each["project_id"])]


def _create(call: Call) -> Any:
    alarm = {"enabled": True, **call.body, "alarm_id": new_id(), "project_id": call.project_id}
    call.emulation.state.alarms[alarm["alarm_id"]] = alarm
    call.emulation.changed()
    return 201, alarm


def _delete(call: Call) -> Any:
    alarms, alarm_id = call.emulation.state.alarms, call.path("alarm_id")
    if alarm_id not in alarms or not call.sees(alarms[alarm_id]["project_id"]):
        message = f"Alarm {alarm_id} not found"
        raise ApiError(404, error_body(404, message))
    del alarms[alarm_id]
    call.emulation.changed()
    return 204, None


def routes() -> list[Route]:
    """The routes."""
    return [
        endpoint(SERVICE, "/alarming/v2/alarms", _list, "alarm_list"),
        endpoint(SERVICE, "/alarming/v2/alarms", _create, "alarm_create", ["POST"]),
        endpoint(SERVICE, "/alarming/v2/alarms/{alarm_id}", _delete, "alarm_delete", ["DELETE"]),
    ]
