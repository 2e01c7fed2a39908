# SPDX-License-Identifier: Apache-2.0
"""The body that Aodh posts to an alarm action."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mistral_failover.alarms.alarm import Alarm, AlarmSource, BodyReader, digest
from mistral_failover.model.text import parse_time, plain

_REMEDY = "Pass on the alarm's body as Aodh posts it."
_TRAITS = ("instance_id", "resource_id", "server_id")
AODH_KEYS = (
    "alarm_name",
    "alarm_id",
    "severity",
    "previous",
    "current",
    "reason",
    "reason_data",
)


def from_aodh(body: Any) -> Alarm:
    """Read an alarm of Aodh.

    The body has no id of the occurrence. An event alarm has the event with its message id: an event
    happens once, so another event is another occurrence, whatever Aodh reports as the previous
    state. (Aodh never resets an event alarm by itself.) For the other kinds the whole body
    identifies the occurrence. With ``repeat_actions`` Aodh posts them at every evaluation, with the
    same state before and after: that is no transition, but says that the alarm continues.

    Raises InvalidDocument if the body has another form.
    """
    reader = BodyReader.of(body, _REMEDY)
    name, alarm_id = reader.text("alarm_name"), reader.text("alarm_id")
    current, previous = reader.text("current"), reader.text("previous")
    event = reader.inner("reason_data").body.get("event")
    event = event if isinstance(event, Mapping) else {}
    message_id = event.get("message_id")
    repeat = current == previous and not message_id
    occasion = message_id or {key: body.get(key) for key in AODH_KEYS}
    went = f"went from {previous or 'unknown'} to {current or 'unknown'}"
    if repeat and current:
        went = f"is still {current}"
    return Alarm(
        source="aodh",
        # What is no transition is another occasion: arriving first, it must not hide what is one.
        key=digest(["aodh", alarm_id, current, repeat, occasion]),
        firing=current == "alarm" and (bool(alarm_id) or not repeat),
        unique=bool(message_id),
        sentence=plain(f"alarm {name or alarm_id or 'without a name'} {went}"),
        servers=_servers(event),
        payload=reader.kept(*AODH_KEYS),
        at=parse_time(event.get("generated")),
        series=digest(["aodh", alarm_id]) if alarm_id else "",
        over=current == "ok" and not repeat,
        level=current == "alarm" and repeat and bool(alarm_id),
        routine=current != "alarm" and repeat,
    )


def _servers(event: Mapping[str, Any]) -> tuple[str, ...]:
    """Traits are [name, type, value] lists."""
    traits = event.get("traits")
    found = (
        trait[2]
        for trait in (traits if isinstance(traits, list) else [])
        if isinstance(trait, list) and len(trait) == 3 and trait[0] in _TRAITS
    )
    return tuple(value for value in found if isinstance(value, str))


def looks_like(body: Mapping[str, Any]) -> bool:
    """Return whether it has the keys that only Aodh's bodies have."""
    return "alarm_id" in body or {"previous", "current"} <= set(body)


def _of_server(payload: Mapping[str, Any]) -> bool:
    """Return whether it is about an event of a server."""
    reason = payload.get("reason_data")
    event = reason.get("event") if isinstance(reason, Mapping) else None
    kind = event.get("event_type") if isinstance(event, Mapping) else None
    return isinstance(kind, str) and kind.startswith("compute.instance.")


SOURCE = AlarmSource("alarm_id", looks_like, lambda body: [from_aodh(body)], of_server=_of_server)
