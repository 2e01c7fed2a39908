# SPDX-License-Identifier: Apache-2.0
"""An alarm in this project's own form: a script, a watchdog or an operator sends it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mistral_failover.alarms.alarm import Alarm, AlarmSource, BodyReader, digest
from mistral_failover.model.text import parse_time, plain

_REMEDY = (
    "Signal a mapping with server (an id), or group and member, or host, or zone; and, if known, "
    "id, at, state (lost or ok), and reason."
)
_SERVER = ("server", "server_id", "instance_id")
_KEYS = (*_SERVER, "group", "member", "host", "zone", "id", "at", "state", "reason", "because")
_ABOUT = frozenset({*_SERVER, "group", "member", "host", "zone"})


def from_signal(body: Any) -> Alarm:
    """Read a signal.

    ``server`` is the id of a server (``server_id`` and ``instance_id`` mean the same); otherwise
    ``group`` and ``member`` say what it is about, or ``host``, a compute host that failed, or
    ``zone``, an availability zone that failed; one of them is required. ``id`` identifies the
    occurrence; without it equal bodies are one occurrence. ``state`` is ``lost`` (the default) or
    ``ok`` (what the signal with the same ``id`` reported is over); ``at`` a time in ISO 8601;
    ``reason`` is for people (``because`` means the same). A body proves nothing about its sender:
    what an operator reports says so beside it.

    Raises InvalidDocument if the body has another form.
    """
    reader = BodyReader.of(body, _REMEDY)
    for key in _ABOUT & reader.body.keys():
        # A sender's variable without a value. Without a member it would be about the active one.
        if reader.body[key] is not None and not reader.text(key).strip():
            raise reader.refuse(key, "it is empty")
    group, member = reader.first("group"), reader.first("member")
    server = reader.first(*_SERVER)
    host, zone = reader.first("host"), reader.first("zone")
    if not (group or member or server or host or zone):
        raise reader.refuse("", "it names neither a server nor a group nor a host nor a zone")
    if host and zone:
        raise reader.refuse("zone", "it names a host as well")
    state = reader.one_of("state", ("lost", "ok")) if reader.text("state") else "lost"
    identity, reason = reader.text("id"), reader.first("because", "reason")
    kept = reader.kept(*_KEYS)
    place = (f"host {host}" if host else None) or (f"zone {zone}" if zone else None)
    target = member or server or place or group
    at, ok = parse_time(reader.text("at")), state == "ok"
    said = f"a signal reports {target} as {state}"
    return Alarm(
        source="signal",
        key=digest(["signal", state, _about(reader, identity) if identity else kept]),
        firing=not ok,
        unique=bool(identity),
        sentence=plain(f"{said} ({reason})" if reason else said),
        servers=(server,) if server else (),
        payload=kept,
        group=group,
        member=member,
        at=at,
        series=digest(["signal", _about(reader, identity)]) if identity else "",
        over=ok and bool(identity),
        ended=at if ok else None,
        host=None if server or member else host,
        zone=None if server or member else zone,
    )


def _about(reader: BodyReader, identity: str) -> list[str | None]:
    """Return what identifies a signal with an id."""
    names = (_SERVER, ("group",), ("member",), ("host",), ("zone",))
    return [identity, *(reader.first(*each) for each in names)]


def looks_like(body: Mapping[str, Any]) -> bool:
    """Return whether it has the keys of a signal."""
    return not _ABOUT.isdisjoint(body)


SOURCE = AlarmSource(
    "server, group, host or zone", looks_like, lambda body: [from_signal(body)], last=True
)
