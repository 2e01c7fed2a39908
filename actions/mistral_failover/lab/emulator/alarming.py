# SPDX-License-Identifier: Apache-2.0
"""Aodh's API v2: the alarms that a project has defined. None of them fires by itself.

An action by a trust (``trust+http://``) is kept with the id of its trust, and shown without it.
"""

import asyncio
import urllib.parse
import uuid
from typing import Any
from urllib.parse import urlsplit

import requests
from starlette.routing import Route

from mistral_failover.lab.emulator.core import Emulation
from mistral_failover.lab.emulator.faults import begin_incident
from mistral_failover.lab.emulator.state import new_id
from mistral_failover.lab.emulator.web import Call, Service, endpoint, plain_error, utc

_ACTIONS = ("ok_actions", "alarm_actions", "insufficient_data_actions")
_DEFAULTS: dict[str, Any] = {
    "enabled": True,
    "repeat_actions": False,
    "severity": "low",
    "state": "insufficient data",
    "time_constraints": [],
    **{name: [] for name in _ACTIONS},
}
_KNOWN = frozenset({"name", "type", "description", "alarm_id", "project_id", "user_id", *_DEFAULTS})
_TIMES = frozenset({"timestamp", "state_timestamp", "evaluate_timestamp", "state_reason"})
_NEW, _BY_HAND = "Not evaluated yet", "Manually set via API"


def error_body(status: int, message: str) -> dict[str, Any]:
    """Aodh's error body."""
    fault = "Client" if status < 500 else "Server"
    return {"error_message": {"faultcode": fault, "faultstring": message, "debuginfo": None}}


SERVICE = Service("alarming", error_body)
_refused = SERVICE.refused


def _list(call: Call) -> Any:
    rows = [each for each in call.emulation.state.alarms.values() if call.sees(each["project_id"])]
    if call.query("q.field") == "name":
        rows = [each for each in rows if each["name"] == call.query("q.value")]
    return [_shown(each) for each in rows]


def _create(call: Call) -> Any:
    alarm_id = new_id()
    alarm = _kept(call, alarm_id, trust=None) | {"state_reason": _NEW}
    call.emulation.state.alarms[alarm_id] = alarm
    call.emulation.changed()
    return 201, _shown(alarm)


def _show(call: Call) -> Any:
    return _shown(_found(call))


def _replace(call: Call) -> Any:
    """Makes the alarm what the body says; what the body lacks gets its default."""
    before = _found(call)
    alarm = _kept(call, before["alarm_id"], trust=_trust(before))
    alarm["project_id"] = before["project_id"]
    same = alarm["state"] == before["state"]
    alarm["state_reason"] = before["state_reason"] if same else _BY_HAND
    call.emulation.state.alarms[before["alarm_id"]] = alarm
    call.emulation.changed()
    return _shown(alarm)


def _delete(call: Call) -> Any:
    del call.emulation.state.alarms[_found(call)["alarm_id"]]
    call.emulation.changed()
    return 204, None


def _found(call: Call) -> dict[str, Any]:
    alarm_id = call.path("alarm_id")
    alarm = call.emulation.state.alarms.get(alarm_id)
    if alarm is None or not call.sees(alarm["project_id"]):
        raise _refused(404, f"Alarm {alarm_id} not found")
    return alarm


def _kept(call: Call, alarm_id: str, trust: str | None) -> dict[str, Any]:
    """The body as an alarm. Its actions by a trust use the one that there is, or a new one."""
    given = call.body
    for name in given:
        if name not in _KNOWN | _TIMES and not name.endswith("_rule"):
            raise _refused(400, f"Unknown attribute for argument data: {name}")
    for name in ("name", "type"):
        if given.get(name) is None:
            raise _refused(
                400,
                f"Invalid input for field/attribute {name}. Value: 'None'. "
                "Mandatory field missing.",
            )
    rule = f"{given['type']}_rule"
    if given.get(rule) is None:
        raise _refused(400, f"{rule} must be set for {given['type']} type alarm")
    alarm = {**_DEFAULTS, "description": f"{given['type']} alarm rule", **given}
    alarm = {
        name: value for name, value in alarm.items() if name == rule or not name.endswith("_rule")
    }
    alarm |= {"alarm_id": alarm_id, "project_id": call.project_id, "user_id": call.user_id}
    own = trust or new_id().replace("-", "")
    for name in _ACTIONS:
        alarm[name] = [_with_trust(url, own) for url in alarm[name]]
    return alarm


def _with_trust(url: str, trust: str) -> str:
    if not url.startswith("trust+"):
        return url
    parts = urlsplit(url)
    if "@" in parts.netloc:
        raise _refused(400, "trust URL cannot contain a trust ID.")
    return parts._replace(netloc=f"{trust}:delete@{parts.netloc}").geturl()


def _trust(alarm: dict[str, Any]) -> str | None:
    """The trust that an alarm's actions use."""
    urls = [urlsplit(url) for name in _ACTIONS for url in alarm[name]]
    return next((url.username for url in urls if url.scheme.startswith("trust+")), None)


def _shown(alarm: dict[str, Any]) -> dict[str, Any]:
    return {**alarm, **{name: [_without_trust(url) for url in alarm[name]] for name in _ACTIONS}}


def _without_trust(url: str) -> str:
    parts = urlsplit(url)
    if not parts.scheme.startswith("trust+"):
        return url
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


# -- the webhook of an alarm about a server


def webhook_body(emulation: Emulation, server_id: str, alarm_name: str) -> dict[str, Any]:
    """Aodh's body about the server's present fault; the same fault gives the same body."""
    incident = emulation.state.incidents.get(server_id) or begin_incident(emulation, server_id)
    server = emulation.state.servers.get(server_id)
    traits = [["instance_id", 1, server_id], ["state", 1, "error"]]
    if server is not None:
        traits.append(["project_id", 1, server.project_id])
    generated = utc(float(incident["at"]), "%Y-%m-%dT%H:%M:%S.%f")
    event = {
        "message_id": incident["message_id"],
        "event_type": "compute.instance.update",
        "generated": generated,
        "message_signature": "",
        "traits": traits,
        "raw": {},
    }
    return {
        "alarm_name": alarm_name,
        "alarm_id": str(uuid.uuid5(uuid.NAMESPACE_URL, f"{server_id}/{alarm_name}")),
        "severity": "low",
        "previous": "ok",
        "current": "alarm",
        "reason": f"Event <id={incident['message_id']},event_type=compute.instance.update> hits "
        f'the query <query=[{{"field": "traits.instance_id", "op": "eq", "type": '
        f'"string", "value": "{server_id}"}}]>.',
        "reason_data": {"type": "event", "event": event},
    }


def emit(
    emulation: Emulation,
    *,
    url: str,
    server_id: str,
    alarm_name: str,
    times: int,
    headers: dict[str, str],
) -> None:
    """Posts the alarm `times` times, at once and side by side; the audit tells each outcome.

    :raises ApiError: the url is not on loopback.
    """
    target = urllib.parse.urlsplit(url)
    if target.scheme != "http" or target.hostname not in ("127.0.0.1", "localhost", "::1"):
        raise plain_error(
            "NOT_LOOPBACK", 400, "Alarms go to loopback only.", "Give an http://127.0.0.1 url."
        )
    content = webhook_body(emulation, server_id, alarm_name)
    for number in range(1, times + 1):
        emulation.audit.record(
            "alarm_emitted", server=server_id, alarm_name=alarm_name, number=number
        )
        task = asyncio.create_task(_post(emulation, url, content, headers, server_id))
        emulation.background.add(task)
        task.add_done_callback(emulation.background.discard)


async def _post(
    emulation: Emulation,
    url: str,
    content: dict[str, Any],
    headers: dict[str, str],
    server_id: str,
) -> None:
    def send() -> int:
        with requests.Session() as session:
            session.trust_env = False  # no proxy is needed between loopback and loopback
            return session.post(url, json=content, headers=headers, timeout=30).status_code

    try:
        status: int | None = await asyncio.to_thread(send)
    except requests.RequestException:
        status = None
    emulation.audit.record("alarm_answered", server=server_id, status=status)
    emulation.audit.flush()


def routes() -> list[Route]:
    """The routes."""
    one = "/alarming/v2/alarms/{alarm_id}"
    return [
        endpoint(SERVICE, "/alarming/v2/alarms", _list, "alarm_list"),
        endpoint(SERVICE, "/alarming/v2/alarms", _create, "alarm_create", ["POST"]),
        endpoint(SERVICE, one, _show, "alarm_show"),
        endpoint(SERVICE, one, _replace, "alarm_update", ["PUT"]),
        endpoint(SERVICE, one, _delete, "alarm_delete", ["DELETE"]),
    ]
