# SPDX-License-Identifier: Apache-2.0
"""Decide whether changed properties need an update or a replacement."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from mistral_failover.model.canonical import canonical_json
from mistral_failover.model.types import ResourceType, Verb


@dataclass(frozen=True)
class Change:
    """The action that new properties require, and the properties that cause it."""

    action: Literal["none", "update", "replace"]
    keys: tuple[str, ...] = ()
    """Sorted. For ``replace`` the immutable properties that differ, otherwise all that differ."""


def compare(
    resource_type: ResourceType,
    old_properties: Mapping[str, Any],
    new_properties: Mapping[str, Any],
) -> Change:
    """Compare two sets of properties of one resource.

    If an immutable property differs, the resource must be replaced, whatever else differs. If the
    type has no update, any difference requires a replacement. Values are equal if their canonical
    JSON is equal, so 3 equals 3.0 but not ``true``. An absent property differs from one that is
    null.
    """
    differing = tuple(
        sorted(
            key
            for key in old_properties.keys() | new_properties.keys()
            if not _same(key, old_properties, new_properties)
        )
    )
    if not differing:
        return Change("none")
    immutable = tuple(key for key in differing if key in resource_type.immutable)
    if immutable:
        return Change("replace", immutable)
    if Verb.UPDATE not in resource_type.operations:
        return Change("replace", differing)
    return Change("update", differing)


def _same(key: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    if key not in old or key not in new:
        return False
    return canonical_json(old[key]) == canonical_json(new[key])
