# SPDX-License-Identifier: Apache-2.0
"""The contents of an alarm, whatever its source, and how bodies from outside are read: the kind is
given, or recognized by the form of the body."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from mistral_failover.model.documents import load_json
from mistral_failover.model.errors import InvalidDocument
from mistral_failover.model.installed import installed
from mistral_failover.model.text import plain
from mistral_failover.runtime.errors import caught, masked

SOURCES = "mistral_failover.alarm_sources"
"""The group of the entry points."""
MOST = 500
"""Maximum number of alarms in one body."""
_HALVES = re.compile("[\ud800-\udfff]")  # surrogates; of a pair JSON's parser has made one whole


@dataclass(frozen=True)
class Alarm:
    """One alarm.

    ``key`` is the same for every delivery of the same occurrence. ``firing``: it is a transition
    into alarm. ``unique``: the key is the source's own id of the occurrence, and no other
    occurrence can have it. ``servers`` are the ids of servers that it names, ``others`` other names
    in it. ``host`` is the compute host that failed, with all its guests, or ``zone`` the
    availability zone; ``parent`` is the incident of that host event, in the alarm about one group;
    ``also`` are further members that are lost with ``member``. ``group`` and ``member`` are those
    that its body names, or its sender beside it. ``at`` is when it happened, in seconds since the
    epoch by the source's clock, None if unknown. ``series`` is the same whenever the same alarm
    fires or clears; empty if there is none. ``level``: the source reports it for as long as it
    fires, which may be longer than one failure: under one ``unique`` key, or else the series says
    which reports belong together. ``over``: the source says that what the series reported has
    ended; that it has no data any more says nothing. An alarm that fires is over if that was
    reported before it. ``ended``: when it ended, in seconds since the epoch by the source's clock,
    None if it has not or if that is unknown. ``doubt``: why the source is not certain of the
    failure, as a clause; empty if it is. ``routine``: the source reports everything that happens,
    and this asks for nothing, so it is answered and not recorded. ``because``: the reason of
    the operator who reports it, empty if no operator does; then no evidence takes it back. No body
    gives it: who has a sender's token is no operator.
    """

    source: str
    key: str
    firing: bool
    unique: bool
    sentence: str
    servers: tuple[str, ...]
    payload: Mapping[str, Any]
    others: tuple[str, ...] = ()
    group: str | None = None
    member: str | None = None
    at: float | None = None
    series: str = ""
    level: bool = False
    over: bool = False
    ended: float | None = None
    doubt: str = ""
    routine: bool = False
    host: str | None = None
    zone: str | None = None
    parent: str | None = None
    also: tuple[str, ...] = ()
    because: str = ""

    @property
    def is_host_event(self) -> bool:
        """Whether it is about whatever runs on a compute host, or in an availability zone."""
        return self.member is None and (self.host is not None or self.zone is not None)


@dataclass(frozen=True)
class AlarmSource:
    """A kind of alarm: how its bodies are recognized and read.

    It is an entry point of the group ``mistral_failover.alarm_sources``, whose name is the kind and
    the ``source`` of its alarms.
    """

    shape: str
    """What a body of this kind has, in words, for the error about an unknown body."""
    looks_like: Callable[[Mapping[str, Any]], bool]
    """Return whether a body is of this kind. Only one kind may claim a body."""
    read: Callable[[Mapping[str, Any]], list[Alarm]]
    """Return the alarms of a body, at least one. Raises InvalidDocument, which names the field."""
    of_server: Callable[[Mapping[str, Any]], bool] = lambda payload: False
    """Return whether an alarm with this payload, as it was recorded, reports that a server or its
    host failed. Such an alarm is dismissed when the server runs; any other one is not, because an
    application may be down on a server that runs."""
    occasion: Callable[[Mapping[str, Any]], str] = lambda payload: ""
    """Return what two alarms of a series have in common, with these payloads, if they are about the
    same occasion; the same for all where the source does not tell occasions apart."""
    last: bool = False
    """Whether it is asked after all others, because their bodies may have its keys too."""


def digest(value: Any) -> str:
    """Return the SHA-256 of a JSON value; also of values like NaN that a JSON parser accepts, so
    that no alarm is refused because of them."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()


@dataclass(frozen=True)
class BodyReader:
    """Reads the fields of a body; ``path`` leads to it and ``remedy`` says what is expected.

    Every method raises InvalidDocument, which names the field.
    """

    body: Mapping[str, Any]
    remedy: str
    path: str = ""

    @classmethod
    def of(cls, body: Any, remedy: str, path: str = "") -> BodyReader:
        """Return a reader of a value that must be a mapping."""
        if not isinstance(body, Mapping):
            raise InvalidDocument(path, "it is not a mapping", remedy)
        return cls(body, remedy, path)

    def refuse(self, key: str, why: str) -> InvalidDocument:
        """Return the error about a field."""
        return InvalidDocument(f"{self.path}.{key}" if self.path else key, why, self.remedy)

    def text(self, key: str) -> str:
        """Return a field that must be text; empty if it is missing."""
        value = self.body.get(key)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise self.refuse(key, "it is not text")
        return value

    def needed(self, key: str) -> str:
        """Return a text that must not be missing."""
        value = self.text(key)
        if not value:
            raise self.refuse(key, "it is missing")
        return value

    def one_of(self, key: str, words: Iterable[str]) -> str:
        """Return a text that must be one of these words."""
        value = self.needed(key)
        if value not in (known := list(words)):
            raise self.refuse(key, f"it is not one of {', '.join(known)}")
        return value

    def inner(self, key: str) -> BodyReader:
        """Return a reader of the mapping in a field; of an empty one if it is missing."""
        value = self.body.get(key)
        path = f"{self.path}.{key}" if self.path else key
        return BodyReader.of({} if value is None else value, self.remedy, path)

    def first(self, *keys: str) -> str | None:
        """Return the first of these texts that is not missing."""
        return next((value for key in keys if (value := self.text(key))), None)

    def kept(self, *keys: str) -> dict[str, Any]:
        """Return those of these fields that exist."""
        return {key: self.body[key] for key in keys if key in self.body}


def sources() -> Mapping[str, AlarmSource]:
    """Return the kinds of alarms by name, in the order in which they are asked."""
    return dict(sorted(installed(SOURCES).items(), key=lambda found: found[1].last))


def _shapes() -> str:
    told = "; ".join(f"{kind}: {source.shape}" for kind, source in sources().items())
    return f"Give kind, or a body that has the form of one kind ({told})."


def read(
    body: Any,
    kind: str | None = None,
    *,
    group: str | None = None,
    member: str | None = None,
    because: str | None = None,
) -> list[Alarm]:
    """Return the alarms in a body, at least one, without secrets in their sentences.

    ``group`` and ``member`` are what the sender says beside the body, and count more than what the
    body names. ``because``: the reason of the operator who reports them, None if no operator does.

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
            "Send fewer at once (Alertmanager: a finer group_by of the route; max_alerts would cut "
            "alerts off).",
        )
    return [_heard(alarm, group, member, because) for alarm in alarms]


def _heard(alarm: Alarm, group: str | None, member: str | None, because: str | None) -> Alarm:
    """Return an alarm with what is said beside its body."""
    sentence = plain(f"{alarm.sentence} ({because})") if because else alarm.sentence
    return replace(
        alarm,
        sentence=masked(sentence),
        group=group or alarm.group,
        member=member or alarm.member,
        because=masked(because) if because else "",
    )


def occasion_of(source: str, payload: Mapping[str, Any]) -> str:
    """Return the occasion of an alarm, as of its source's `AlarmSource.occasion`; empty if the
    source is not installed or cannot tell."""
    return str(_asked(source, lambda known: known.occasion(payload)) or "")


def is_of_server(source: str, payload: Mapping[str, Any]) -> bool:
    """Return whether an alarm of a source reports that a server or its host failed; False if the
    source is not installed or cannot tell."""
    return bool(_asked(source, lambda known: known.of_server(payload)))


def _asked(source: str, question: Callable[[AlarmSource], str | bool]) -> str | bool | None:
    """Return what a source says of one of its alarms; None if it is not installed or cannot
    tell."""
    known = sources().get(source)
    try:
        return None if known is None else question(known)
    except Exception as error:  # one source's error must not stop the alarms of others
        caught(error, f"asking the alarm source {source} about an alarm")
        return None


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
