# SPDX-License-Identifier: Apache-2.0
"""Heat's groups: their size, the names of their members, and which member is removed first."""

from __future__ import annotations

import secrets
import string
from typing import Any

from mistral_failover.lab.emulator.state import Stack, StackResource
from mistral_failover.lab.emulator.templates import GROUP


def short_id() -> str:
    """A name as Heat makes them for members and nested stacks."""
    letters = string.ascii_lowercase + string.digits
    return "".join(secrets.choice(letters) for _ in range(12))


def members_template(resource: StackResource, nested: Stack | None) -> dict[str, Any]:
    """The template of a group's nested stack; ``nested``: its present template, None before there
    is one.

    An autoscaling group has ``desired_capacity`` members, else as many as have not failed, within
    ``min_size`` and ``max_size``; if there are too many, failed ones are removed first, then the
    oldest. A resource group has ``count``, called by their numbers.
    """
    asked = resource.properties
    if resource.type == GROUP:
        definition = asked["resource"]
        members = dict.fromkeys(_scaled(asked, nested), definition)
    else:
        definition = asked["resource_def"]
        count = int(asked.get("count") or 1)
        members = {str(n): _numbered(definition, str(n)) for n in range(count)}
    return {"heat_template_version": "2015-04-30", "resources": members}


def _scaled(asked: dict[str, Any], nested: Stack | None) -> list[str]:
    present = sorted(
        nested.resources.values() if nested else (),
        key=lambda member: (member.status != "FAILED", member.created, member.name),
    )
    healthy = sum(1 for member in present if member.status != "FAILED")
    size = int(asked.get("desired_capacity") or (healthy if nested else asked["min_size"]))
    size = max(int(asked["min_size"]), min(int(asked["max_size"]), size))
    names = [member.name for member in present[max(0, len(present) - size) :]]
    return names + [short_id() for _ in range(size - len(names))]


def _numbered(definition: Any, number: str) -> Any:
    if isinstance(definition, dict):
        return {key: _numbered(value, number) for key, value in definition.items()}
    if isinstance(definition, list):
        return [_numbered(value, number) for value in definition]
    return definition.replace("%index%", number) if isinstance(definition, str) else definition


def attributes(nested: Stack | None) -> dict[str, Any]:
    """A group's attributes, by its nested stack."""
    members = nested.resources.values() if nested else ()
    ids = {member.name: member.physical_id for member in members if member.physical_id}
    return {"refs": list(ids.values()), "refs_map": ids, "current_size": len(ids)}
