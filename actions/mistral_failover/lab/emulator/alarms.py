# SPDX-License-Identifier: Apache-2.0
"""The webhook that Aodh sends when an event alarm about a server fires."""

import asyncio
import urllib.parse
import uuid
from typing import Any

import requests

from mistral_failover.lab.emulator.core import Emulation
from mistral_failover.lab.emulator.faults import begin_incident
from mistral_failover.lab.emulator.web import plain_error, utc


def body(emulation: Emulation, server_id: str, alarm_name: str) -> dict[str, Any]:
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
    content = body(emulation, server_id, alarm_name)
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
