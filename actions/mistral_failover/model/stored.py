# SPDX-License-Identifier: Apache-2.0
"""Types of the model that are stored as one JSON object: their fields, without the defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self


@dataclass(frozen=True)
class Stored:
    """A type whose fields are words, numbers, tuples of words, or None. Every field that may be
    left out has a default."""

    def document(self) -> dict[str, Any]:
        """Return the fields that differ from their defaults, as JSON."""
        return {
            field.name: list(value) if isinstance(value, tuple) else value
            for field in fields(self)
            if (value := getattr(self, field.name)) != field.default
        }

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Self:
        """Return what a :meth:`document` holds."""
        return cls(
            **{
                name: tuple(value) if isinstance(value, list) else value
                for name, value in document.items()
            }
        )
