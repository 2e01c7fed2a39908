# SPDX-License-Identifier: Apache-2.0
"""From a body, whoever sent it, to alarms: the kind is told by the body's shape, or given."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from mistral_failover.alarms import alertmanager, aodh, masakari, nova, signal
from mistral_failover.alarms.alarm import Alarm
from mistral_failover.model.errors import InvalidDocument

Read = Callable[[Any], list[Alarm]]
Looks = Callable[[Mapping[str, Any]], bool]

# In this order: a signal of ours is what has our words and nobody else's.
_ADAPTERS: Mapping[str, tuple[Looks, Read]] = {
    "alertmanager": (alertmanager.looks_like, alertmanager.from_alertmanager),
    "nova": (nova.looks_like, lambda body: [nova.from_nova(body)]),
    "masakari": (masakari.looks_like, lambda body: [masakari.from_masakari(body)]),
    "aodh": (aodh.looks_like, lambda body: [aodh.from_aodh(body)]),
    "signal": (signal.looks_like, lambda body: [signal.from_signal(body)]),
}
_HALVES = re.compile("[\ud800-\udfff]")  # surrogates; of a pair JSON's parser has made one whole
KINDS = tuple(_ADAPTERS)
_SHAPES = (
    "Give kind, one of " + ", ".join(KINDS) + ", or a body by which it can be told: Alertmanager's "
    "has alerts, Nova's event_type and payload, Masakari's notification, Aodh's alarm_id, a "
    "signal of yours server or group."
)


def read(body: Any, kind: str | None = None) -> list[Alarm]:
    """The alarms in a body, at least one.

    A body in Heat's wrapping (``{"input": {...}, "params": {...}}``, the form in which a workflow
    resource is signalled) is taken out of it, and what no database holds is replaced.

    Raises InvalidDocument when it is of no kind that is known, or not what ``kind`` says.
    """
    if not isinstance(body, Mapping):
        raise InvalidDocument("body", "it is not a mapping", _SHAPES)
    body = _unwrapped(writable(body))
    if kind is None:
        kind = next((name for name, (looks, _) in _ADAPTERS.items() if looks(body)), None)
        if kind is None:
            raise InvalidDocument("body", "nothing in it tells which kind of alarm it is", _SHAPES)
    elif kind not in _ADAPTERS:
        raise InvalidDocument("kind", f"there is no {kind}", _SHAPES)
    return _ADAPTERS[kind][1](body)


def writable(body: Any) -> Any:
    """A body as a database can hold it: halves of characters, which JSON may have, are replaced. An
    alarm is not lost for its looks."""
    text = json.dumps(body, ensure_ascii=False, default=str)
    if not _HALVES.search(text):
        return body
    return json.loads(_HALVES.sub("\N{REPLACEMENT CHARACTER}", text))


def _unwrapped(body: Mapping[str, Any]) -> Mapping[str, Any]:
    inner = body.get("input")
    return inner if isinstance(inner, Mapping) and set(body) <= {"input", "params"} else body
