# SPDX-License-Identifier: Apache-2.0
"""Defining groups."""

from __future__ import annotations

from typing import Any

from mistral_failover.actions.errors import ActionError
from mistral_failover.actions.runtime import Request
from mistral_failover.model.group import parse_group
from mistral_failover.model.types import load_type
from mistral_failover.store import groups


def define(request: Request, definition: Any, name: str | None, types: Any) -> dict[str, Any]:
    """Check a group file and its types and store them. Raises InvalidDocument."""
    given = [] if types is None else types
    if not isinstance(given, list):
        raise ActionError("BAD_INPUT", "types: a list of type files is expected", "Correct types.")
    loaded = [load_type(document) for document in given]
    group = parse_group(definition, name=name, types=loaded)
    stored = {"document": group.definition, "types": [t.to_dict() for t in loaded]}
    identity = request.runtime.database.atomically(
        lambda tx: groups.define(tx, request.project_id, group.name, stored)
    )
    return {
        "group": group.name,
        "id": identity,
        "stack": group.stack,
        "roles": list(group.roles),
        "resources": sorted(group.resources),
    }


def listed(request: Request) -> dict[str, Any]:
    """The project's groups."""
    return {
        "groups": request.runtime.database.reading(lambda tx: groups.names(tx, request.project_id))
    }
