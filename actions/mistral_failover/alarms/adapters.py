# SPDX-License-Identifier: Apache-2.0
"""Turn a request body into alarms. The kind is given, or recognized by the form of the body."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from mistral_failover.alarms.alarm import Alarm, AlarmSource
from mistral_failover.model.documents import load_json
from mistral_failover.model.errors import InvalidDocument
from mistral_failover.model.installed import installed
from mistral_failover.runtime.errors import caught

SOURCES = "mistral_failover.alarm_sources"
"""The group of the entry points."""
MOST = 500
"""Maximum number of alarms in one body."""
_HALVES = re.compile("[\ud800-\udfff]")  # surrogates; of a pair JSON's parser has made one whole


def sources() -> Mapping[str, AlarmSource]:
    """Return the kinds of alarms by name, in the order in which they are asked."""
    return dict(sorted(installed(SOURCES).items(), key=lambda found: found[1].last))


def _shapes() -> str:
    told = "; ".join(f"{kind}: {source.shape}" for kind, source in sources().items())
    return f"Give kind, or a body that has the form of one kind ({told})."


def read(body: Any, kind: str | None = None) -> list[Alarm]:
    """Return the alarms in a body, at least one.

    A body in Heat's wrapping (``{"input": {...}, "params": {...}}``, the form in which a workflow
    resource is signalled) is unwrapped, and characters that no database can store are replaced.

    Raises InvalidDocument if the body has no known kind, is not of the given ``kind``, or has more
    than `MOST` alarms.
    """
    if not isinstance(body, Mapping):
        raise InvalidDocument("body", "it is not a mapping", _shapes())
    body = _unwrapped(writable(body))
    known = sources()
    if kind is None:
        kind = next((name for name, each in known.items() if each.looks_like(body)), None)
        if kind is None:
            raise InvalidDocument("body", "the body matches no known kind of alarm", _shapes())
    elif kind not in known:
        raise InvalidDocument("kind", f"there is no kind {kind}", _shapes())
    alarms = known[kind].read(body)
    if len(alarms) > MOST:
        raise InvalidDocument(
            "body",
            f"it has {len(alarms)} alarms, and the limit is {MOST}",
            "Send fewer at once (Alertmanager: max_alerts of the webhook's receiver).",
        )
    return alarms


def is_of_server(source: str, payload: Mapping[str, Any]) -> bool:
    """Return whether an alarm of a source reports that a server or its host failed; False if the
    source is not installed or cannot tell."""
    known = sources().get(source)
    try:
        return known is not None and bool(known.of_server(payload))
    except Exception as error:  # one source's error must not stop the alarms of others
        caught(error, f"asking the alarm source {source} what an alarm is about")
        return False


def writable(body: Any) -> Any:
    """Return a body in a form that a database can store: unpaired surrogates, which JSON may have,
    are replaced. An alarm must not be lost because of a character."""
    text = json.dumps(body, ensure_ascii=False, default=str)
    if not _HALVES.search(text):
        return body
    return load_json(_HALVES.sub("\N{REPLACEMENT CHARACTER}", text), "body")


def _unwrapped(body: Mapping[str, Any]) -> Mapping[str, Any]:
    inner = body.get("input")
    return inner if isinstance(inner, Mapping) and set(body) <= {"input", "params"} else body
