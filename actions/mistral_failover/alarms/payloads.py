# SPDX-License-Identifier: Apache-2.0
"""What an alarm says, whatever sent it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mistral_failover.model.errors import InvalidDocument

_REMEDY = "Hand on the alarm's body as Aodh posts it."
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


@dataclass(frozen=True)
class Alarm:
    """An alarm: ``key`` is the same for every delivery of the same occasion, ``firing`` says
    that it is a transition into alarm, ``unique`` that the key is the event's own id and no other
    occasion can have it, ``servers`` are the ids of servers that it names."""

    source: str
    key: str
    firing: bool
    unique: bool
    sentence: str
    servers: tuple[str, ...]
    payload: Mapping[str, Any]


def from_aodh(body: Mapping[str, Any]) -> Alarm:
    """Read the body that Aodh posts to an alarm action.

    It has no id of its own. An event alarm carries the event with its message id; for the other
    kinds the whole body is the occasion, so its repeats count as duplicates.

    Raises InvalidDocument when it is not such a body.
    """
    if not isinstance(body, Mapping):
        raise InvalidDocument("", "it is not a mapping", _REMEDY)
    name = _text(body, "alarm_name")
    current, previous = _text(body, "current"), _text(body, "previous")
    reason_data = body.get("reason_data") or {}
    if not isinstance(reason_data, Mapping):
        raise InvalidDocument("reason_data", "it is not a mapping", _REMEDY)
    event = reason_data.get("event")
    event = event if isinstance(event, Mapping) else {}
    message_id = event.get("message_id")
    occasion = message_id or {key: body.get(key) for key in AODH_KEYS}
    firing = current == "alarm" and previous != "alarm"
    return Alarm(
        source="aodh",
        # What does not fire is another occasion: arriving first, it must not hide what does.
        key=_digest([_text(body, "alarm_id"), current, firing, occasion]),
        firing=firing,
        unique=bool(message_id),
        sentence=f"alarm {name or body.get('alarm_id') or 'without a name'} went from "
        f"{previous or 'unknown'} to {current or 'unknown'}",
        servers=_servers(event),
        payload={key: body[key] for key in AODH_KEYS if key in body},
    )


def _text(body: Mapping[str, Any], key: str) -> str:
    value = body.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise InvalidDocument(key, "it is not text", _REMEDY)
    return value


def _digest(value: Any) -> str:
    """The SHA-256 of a JSON value; of any that a JSON parser lets through, NaN and all: an alarm
    is not refused for its looks."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()


def _servers(event: Mapping[str, Any]) -> tuple[str, ...]:
    """Traits are [name, type, value] lists."""
    traits = event.get("traits")
    found = (
        trait[2]
        for trait in (traits if isinstance(traits, list) else [])
        if isinstance(trait, list) and len(trait) == 3 and trait[0] in _TRAITS
    )
    return tuple(value for value in found if isinstance(value, str))
