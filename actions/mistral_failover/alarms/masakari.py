# SPDX-License-Identifier: Apache-2.0
"""Masakari's notifications, as its monitors post them to its API, or as its API shows them.

For a server (type VM), only those events fire that no client requests: its emulator died
(``STOPPED_FAILED``), or it was suspended by an I/O error or by its watchdog. A regular stop also
produces ``STOPPED_SHUTDOWN`` and ``STOPPED_DESTROYED``, so these do not fire.

A host (type COMPUTE_HOST) that stopped fires for each group with a member on it. If its monitor
does not know the host's state (``host_status`` UNKNOWN), the host only left the cluster, as behind
a partition: Masakari itself ignores that, and here it is doubted, so it starts nothing by itself. A
process of a host (type PROCESS) never fires: the guests continue to run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mistral_failover.alarms.alarm import Alarm, AlarmSource, BodyReader, digest
from mistral_failover.model.text import parse_time, plain

_REMEDY = (
    "Pass on the body as a monitor posts it to Masakari: {notification: {type, payload, ...}}."
)
_LOST = frozenset({"STOPPED_FAILED", "SUSPENDED_IOERROR", "SUSPENDED_WATCHDOG"})
_UNKNOWN = "UNKNOWN"
_TYPES = ("VM", "COMPUTE_HOST", "PROCESS")


def from_masakari(body: Any) -> Alarm:
    """Read a notification; its ``notification_uuid``, or else its whole content, identifies the
    occurrence.

    Raises InvalidDocument if the body has another form.
    """
    reader = BodyReader.of(body, _REMEDY)
    if "notification" in body:
        reader = reader.inner("notification")
    kind = reader.one_of("type", _TYPES)
    payload = reader.inner("payload")
    host, when = reader.text("hostname"), reader.text("generated_time")
    event = payload.text("event")
    server, detail, doubt = None, event, ""
    if kind == "VM":
        server, detail = payload.needed("instance_uuid"), payload.text("vir_domain_event")
        target, firing = f"server {server}", detail in _LOST
    elif kind == "COMPUTE_HOST":
        target, firing = f"host {host}", event == "STOPPED"
        if payload.text("host_status").upper() == _UNKNOWN:
            detail = f"{event}, but its host_status is {_UNKNOWN}"
            doubt = "its monitor has lost sight of the host and does not know whether it is off"
    else:
        target, firing = f"process {payload.text('process_name')} of host {host}", False
    identity = reader.text("notification_uuid")
    kept = reader.kept("type", "hostname", "generated_time", "payload", "notification_uuid")
    return Alarm(
        source="masakari",
        key=digest(["masakari", identity or kept]),
        firing=firing,
        unique=bool(identity or when),
        sentence=plain(f"Masakari reports for {target}: {detail or 'nothing'}"),
        servers=(server,) if server else (),
        payload=kept,
        host=(host or None) if kind == "COMPUTE_HOST" else None,
        at=parse_time(when),
        doubt=doubt,
        routine=not firing,
    )


def looks_like(body: Mapping[str, Any]) -> bool:
    """Return whether it is a notification, wrapped or not."""
    return isinstance(body.get("notification"), Mapping) or {"type", "payload", "hostname"} <= set(
        body
    )


SOURCE = AlarmSource(
    "notification",
    looks_like,
    lambda body: [from_masakari(body)],
    of_server=lambda payload: True,
)
