# SPDX-License-Identifier: Apache-2.0
"""The contents of an alarm, whatever its source, and how bodies from outside are read."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from mistral_failover.model.errors import InvalidDocument


@dataclass(frozen=True)
class Alarm:
    """One alarm.

    ``key`` is the same for every delivery of the same occurrence. ``firing``: it is a transition
    into alarm. ``unique``: the key is the source's own id of the occurrence, and no other
    occurrence can have it. ``servers`` are the ids of servers that it names, ``others`` other names
    in it. ``host`` is the compute host that failed, with all its guests, or ``zone`` the
    availability zone; ``parent`` is the incident of that host event, in the alarm about one group;
    ``also`` are further members that are lost with ``member``. ``group`` and ``member`` are those
    that its body names. ``at`` is when it happened, in seconds since the epoch by the source's
    clock, None if unknown. ``series`` is the same whenever the same alarm fires or clears; empty if
    there is none. ``still``: no transition, but the source reports that the alarm continues, for
    receivers that missed the transition. ``routine``: the source reports everything that happens,
    and this asks for nothing, so it is answered and not recorded. ``because``: the reason of the
    operator who reports it, empty if no operator does; then no evidence takes it back. No body
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
    still: bool = False
    routine: bool = False
    host: str | None = None
    zone: str | None = None
    parent: str | None = None
    also: tuple[str, ...] = ()
    because: str = ""

    @property
    def is_host_event(self) -> bool:
        """Whether it is about whatever runs on a compute host, or in an availability zone."""
        return self.host is not None or self.zone is not None


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
