# SPDX-License-Identifier: Apache-2.0
"""What differs between two goals, for people to read."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from mistral_failover.model.goal import Goal

ABSENT: Any = object()
"""Stands for what one of two goals does not have at all."""


@dataclass(frozen=True)
class Difference:
    """One place, named by the keys that lead to it, where two goals differ.

    ``before`` or ``after`` is :data:`ABSENT` where one of them has nothing there.
    """

    path: tuple[str, ...]
    before: Any
    after: Any

    def __str__(self) -> str:
        """One line: ``~ roles.active: db_a -> db_b``, or with ``+`` and ``-``."""
        where = ".".join(self.path)
        if self.before is ABSENT:
            return f"+ {where}: {_shown(self.after)}"
        if self.after is ABSENT:
            return f"- {where}: {_shown(self.before)}"
        return f"~ {where}: {_shown(self.before)} -> {_shown(self.after)}"

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON: path (keys joined by dots), and before and after where there are any."""
        sides = {"before": self.before, "after": self.after}
        return {
            "path": ".".join(self.path),
            **{side: value for side, value in sides.items() if value is not ABSENT},
        }


def differences(before: Goal, after: Goal) -> list[Difference]:
    """Return every difference: roles first, then who is lost, then the rest by its path.

    A resource that only one of them has is one difference; one that both have is compared key by
    key, lists as a whole.
    """
    found = list(_compared((), before.document, after.document))
    return sorted(found, key=lambda d: (_RANK.get(d.path[0], len(_RANK)), d.path))


def in_documents(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Difference]:
    """Return every difference between two documents of any kind, by its path; as
    :func:`differences` compares."""
    return sorted(_compared((), before, after), key=lambda found: found.path)


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
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)
