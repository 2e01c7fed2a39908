# SPDX-License-Identifier: Apache-2.0
"""Nova's notifications about servers, versioned and unversioned.

Nova reports everything that happens to a server, and most of it was requested. So only two things
fire, and only at the moment when they begin:

- the server's state becomes ``error`` (it was not before);
- the server is off (power state ``shutdown`` or ``crashed``) although its state is still ``active``
  and no task is in progress: no client requested it. A crashed guest looks like this before Nova
  itself stops what remains of it; so does one that was shut down from inside.

A compute service (``service.update``) fires when an operator or a monitor forces it down, which
promises that the host is off: its host has failed, with every guest.

A stop, a deletion or another request of a client (a user, Heat, our own fence) has a task while it
is in progress, and ends in ``stopped`` or ``deleted``: that never fires.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mistral_failover.alarms.alarm import Alarm, AlarmSource, BodyReader, digest
from mistral_failover.model.text import parse_time, plain

_REMEDY = (
    "Pass on Nova's notification as it is on the bus: event_type, payload, message_id, timestamp."
)
_OFF = ("shutdown", "crashed")
_SHOWN = ("state", "power", "task")
_OBJECT = "nova_object.data"
_SERVICE = "service.update"


def from_nova(body: Any) -> Alarm:
    """Read a notification; its message id identifies the occurrence.

    Raises InvalidDocument if the body has another form.
    """
    reader = BodyReader.of(body, _REMEDY)
    event_type = reader.needed("event_type")
    message_id, at = reader.text("message_id"), reader.text("timestamp")
    payload = reader.inner("payload")
    if event_type == _SERVICE:
        return _of_service(payload, message_id, at)
    versioned = _OBJECT in payload.body
    facts = _versioned(payload) if versioned else _unversioned(payload)
    server, why = facts["server"], _fires(facts)
    told = ", ".join([event_type, *(f"{k} {facts[k]}" for k in _SHOWN if facts[k])])
    return Alarm(
        source="nova",
        key=digest(["nova", message_id or [event_type, at, facts]]),
        firing=why is not None,
        unique=bool(message_id),
        sentence=plain(f"Nova reports for server {server}: {why or told}"),
        servers=(server,),
        payload={"event_type": event_type, "message_id": message_id, "timestamp": at, **facts},
        at=parse_time(at),
        routine=why is None,
    )


def _of_service(payload: BodyReader, message_id: str, at: str) -> Alarm:
    """Read a notification about a service of Nova."""
    data = payload.inner(_OBJECT)
    host, binary = data.needed("host"), data.needed("binary")
    down = data.body.get("forced_down")
    if not isinstance(down, bool):
        raise data.refuse("forced_down", "it is missing, or neither true nor false")
    facts = {"host": host, "binary": binary, "forced_down": down}
    firing = down and binary == "nova-compute"
    told = f"{binary} of host {host} is {'forced down' if down else 'not forced down'}"
    return Alarm(
        source="nova",
        key=digest(["nova", message_id or [_SERVICE, at, facts]]),
        firing=firing,
        unique=bool(message_id),
        sentence=plain(f"Nova reports: {told}"),
        servers=(),
        payload={"event_type": _SERVICE, "message_id": message_id, "timestamp": at, **facts},
        at=parse_time(at),
        routine=not firing,
        host=host,
    )


def _versioned(payload: BodyReader) -> dict[str, str]:
    data = payload.inner(_OBJECT)
    before = data.inner("state_update").inner(_OBJECT)
    return {
        "server": data.needed("uuid"),
        "state": data.text("state"),
        "before": before.text("old_state"),
        "power": data.text("power_state"),
        "task": data.text("task_state"),
    }


def _unversioned(payload: BodyReader) -> dict[str, str]:
    return {
        "server": payload.needed("instance_id"),
        "state": payload.text("state"),
        "before": payload.text("old_state"),
        "power": "",  # these do not say
        "task": payload.text("new_task_state") or payload.text("state_description"),
    }


def _fires(facts: Mapping[str, str]) -> str | None:
    """Return why this fires, or None."""
    if facts["state"] == "error" and facts["before"] != "error":
        return f"it went from {facts['before'] or 'unknown'} to error"
    if facts["state"] == "active" and facts["power"] in _OFF and not facts["task"]:
        return f"its guest is {facts['power']}, and no client requested that"
    return None


def looks_like(body: Mapping[str, Any]) -> bool:
    """Return whether it has a notification's envelope."""
    return "event_type" in body and "payload" in body


SOURCE = AlarmSource(
    "event_type and payload",
    looks_like,
    lambda body: [from_nova(body)],
    of_server=lambda payload: True,
)
