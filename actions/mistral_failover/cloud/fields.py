# SPDX-License-Identifier: Apache-2.0
"""Fields of answers on which something is decided, and the microversions that show them.

A service leaves a field out below its microversion, and where a policy hides it. So a missing field
is not "no", "none" or "empty". Each field is declared once, beside the code that reads it, and is
read by `Field.of`, which raises an error if it is missing. What a rung or a resource type needs is
checked before a failover, by the same declarations (`resources.offered`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mistral_failover.cloud.errors import CloudError


@dataclass(frozen=True)
class Feature:
    """What a service must offer. ``service``: Nova, Cinder, ...; ``since``: the least microversion
    that has it, such as "2.51"; empty if every version has it."""

    service: str
    name: str
    since: str = ""

    def offered_by(self, newest: str) -> bool:
        """Return whether a service whose newest microversion is ``newest`` has it."""
        return not self.since or microversion(newest) >= microversion(self.since)


@dataclass(frozen=True)
class Field(Feature):
    """A field of an answer. ``name``: its key in the body."""

    def of(self, row: Any) -> Any:
        """Return the field of a row: a mapping, or the object of a client library. It may be None
        or empty, if the service says so.

        Raises `CloudError` NOT_OFFERED if the row does not have it.
        """
        found = _fields_of(row)
        if self.name not in found:
            whose = f" of {found['id']}" if "id" in found else ""
            since = f" since microversion {self.since}" if self.since else ""
            raise CloudError(
                "NOT_OFFERED",
                f"{self.service} does not show {self.name}{whose}, so what it means is not known.",
                remedy=f"Ask the cloud's administrator: {self.service} shows it{since}, unless a "
                "policy hides it.",
                service=self.service,
            )
        return found[self.name]

    def is_shown(self, row: Any) -> bool:
        """Return whether the row has the field."""
        return self.name in _fields_of(row)

    def if_shown(self, row: Any) -> Any:
        """Return the field, or None if the row does not have it. Only where the caller takes None
        for "not known", as for a field that a policy hides by default."""
        return _fields_of(row).get(self.name)


def _fields_of(row: Any) -> Mapping[str, Any]:
    return row if isinstance(row, Mapping) else vars(row)


def microversion(text: str) -> tuple[int, ...]:
    """Return a microversion such as "2.96" in a form that compares."""
    return tuple(map(int, text.split(".")))
