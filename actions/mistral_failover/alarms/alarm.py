# SPDX-License-Identifier: Apache-2.0
"""What an alarm says, whatever sent it, and how bodies from outside are read."""

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

    ``key`` is the same for every delivery of the same occasion. ``firing``: it is a transition into
    alarm. ``unique``: the key is the source's own id of the occasion, and no other occasion can
    have it. ``servers`` are the ids of servers that it names, ``others`` what it names that is no
    server (a host). ``group`` and ``member`` are those that its body names. ``at`` is when it
    happened, in seconds since the epoch by the source's clock, None where it does not say.
    ``series`` is the same whenever the same alarm goes off, or clears; empty where there is no such
    thing. ``still``: no transition, but its source says that it goes on, so that whoever missed the
    transition hears of it now. ``routine``: the source tells all that happens, and this asks for
    nothing, so it is answered and not recorded.
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


@dataclass(frozen=True)
class AlarmSource:
    """A kind of alarms: how its bodies are recognised and read.

    It is an entry point of the group ``mistral_failover.alarm_sources``, whose name is the kind and
    the ``source`` of its alarms.
    """

    shape: str
    """What a body of this kind has, in words: what a refusal of an unknown body names."""
    looks_like: Callable[[Mapping[str, Any]], bool]
    """Whether a body is of this kind. Only one kind may say so of a body."""
    read: Callable[[Mapping[str, Any]], list[Alarm]]
    """Return the alarms of a body, at least one. Raises InvalidDocument, which names the field."""
    last: bool = False
    """Whether it is asked after all others, since its words may be in the bodies of others too."""


def digest(value: Any) -> str:
    """The SHA-256 of a JSON value; of any that a JSON parser lets through, NaN and all: an alarm
    is not refused for its looks."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()


@dataclass(frozen=True)
class Reader:
    """Reads the fields of a body; ``path`` leads to it and ``remedy`` says what is expected.

    Every method raises InvalidDocument, which names the field.
    """

    body: Mapping[str, Any]
    remedy: str
    path: str = ""

    @classmethod
    def of(cls, body: Any, remedy: str, path: str = "") -> Reader:
        """A reader of something that must be a mapping."""
        if not isinstance(body, Mapping):
            raise InvalidDocument(path, "it is not a mapping", remedy)
        return cls(body, remedy, path)

    def refuse(self, key: str, why: str) -> InvalidDocument:
        """What to raise about a field."""
        return InvalidDocument(f"{self.path}.{key}" if self.path else key, why, self.remedy)

    def text(self, key: str) -> str:
        """A field that is text, or empty where it is missing."""
        value = self.body.get(key)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise self.refuse(key, "it is not text")
        return value

    def needed(self, key: str) -> str:
        """A text that must be there."""
        value = self.text(key)
        if not value:
            raise self.refuse(key, "it is missing")
        return value

    def one_of(self, key: str, words: Iterable[str]) -> str:
        """A text that is one of these words."""
        value = self.needed(key)
        if value not in (known := list(words)):
            raise self.refuse(key, f"it is none of {', '.join(known)}")
        return value

    def inner(self, key: str) -> Reader:
        """A reader of the mapping in a field; of an empty one where it is missing."""
        value = self.body.get(key)
        path = f"{self.path}.{key}" if self.path else key
        return Reader.of({} if value is None else value, self.remedy, path)

    def first(self, *keys: str) -> str | None:
        """The first of these texts that is there."""
        return next((value for key in keys if (value := self.text(key))), None)

    def kept(self, *keys: str) -> dict[str, Any]:
        """These fields, as far as they are there."""
        return {key: self.body[key] for key in keys if key in self.body}
