# SPDX-License-Identifier: Apache-2.0
"""Show people the differences between two goals."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NotRequired, TypedDict

from mistral_failover.model.goal import Goal

ABSENT: Any = object()
"""Marks a value that one of two goals does not have."""


class DifferenceDocument(TypedDict):
    """A place where two documents differ. ``path``: its keys, joined by dots. ``before`` or
    ``after`` is missing if that document has no value there."""

    path: str
    before: NotRequired[Any]
    after: NotRequired[Any]


@dataclass(frozen=True)
class Difference:
    """One place where two goals differ, named by the keys that lead to it.

    ``before`` or ``after`` is :data:`ABSENT` if that goal has no value there.
    """

    path: tuple[str, ...]
    before: Any
    after: Any

    def __str__(self) -> str:
        """Return one line: ``~ roles.active: db_a -> db_b``, or with ``+`` and ``-``."""
        where = ".".join(self.path)
        if self.before is ABSENT:
            return f"+ {where}: {_shown(self.after)}"
        if self.after is ABSENT:
            return f"- {where}: {_shown(self.before)}"
        return f"~ {where}: {_shown(self.before)} -> {_shown(self.after)}"

    def as_dict(self) -> DifferenceDocument:
        """Return plain JSON."""
        document: DifferenceDocument = {"path": ".".join(self.path)}
        if self.before is not ABSENT:
            document["before"] = self.before
        if self.after is not ABSENT:
            document["after"] = self.after
        return document


def differences(before: Goal, after: Goal) -> list[Difference]:
    """Return every difference: first roles, then lost members, then the rest by path.

    A resource that only one goal has is one difference. A resource that both have is compared key
    by key, and its lists as a whole.
    """
    found = list(_compared((), before.document, after.document))
    return sorted(found, key=lambda d: (_RANK.get(d.path[0], len(_RANK)), d.path))


def in_documents(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Difference]:
    """Return every difference between two documents of any kind, sorted by path. They are compared
    as in :func:`differences`."""
    return sorted(_compared((), before, after), key=lambda found: found.path)


_LONGEST = 500
_RANK = {"roles": 0, "lost": 1}


def _compared(path: tuple[str, ...], before: Any, after: Any) -> Iterator[Difference]:
    if not (isinstance(before, Mapping) and isinstance(after, Mapping)):
        if before != after:
            yield Difference(path, before, after)
        return
    for key in sorted(before.keys() | after.keys()):
        if key in before and key in after:
            yield from _compared((*path, key), before[key], after[key])
        else:
            yield Difference((*path, key), before.get(key, ABSENT), after.get(key, ABSENT))


def _shown(value: Any) -> str:
    short = _short(value)
    return short if isinstance(short, str) else json.dumps(short, sort_keys=True)


def _short(value: Any) -> Any:
    """Name long texts, such as a stack's template, by length and fingerprint."""
    if isinstance(value, Mapping):
        return {key: _short(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_short(inner) for inner in value]
    if isinstance(value, str) and ("\n" in value or len(value) > _LONGEST):
        digest = hashlib.sha256(value.encode()).hexdigest()
        return f"{len(value)} characters, SHA-256 {digest[:8]}"
    return value
