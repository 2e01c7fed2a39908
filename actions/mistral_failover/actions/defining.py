# SPDX-License-Identifier: Apache-2.0
"""Defining groups."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mistral_failover.actions.errors import ActionError
from mistral_failover.actions.runtime import Request
from mistral_failover.convergence.errors import UnknownGroup
from mistral_failover.model.differences import in_documents
from mistral_failover.model.group import parse_group
from mistral_failover.model.ids import group_id
from mistral_failover.model.types import load_type
from mistral_failover.store import groups


def define(
    request: Request, definition: Any, name: str | None, types: Any, *, dry_run: bool = False
) -> dict[str, Any]:
    """Check a group file and its types and store them, unless it is a ``dry_run``.

    Returns ``group``, ``id``, ``stack``, ``roles``, ``resources``, ``created`` (the group was not
    defined before), ``differences`` and ``lines``: what changes of it, for machines and for people,
    as for two goals. Raises InvalidDocument.
    """
    given = [] if types is None else types
    if not isinstance(given, list):
        raise ActionError("BAD_INPUT", "types: a list of type files is expected", "Correct types.")
    loaded = [load_type(document) for document in given]
    group = parse_group(definition, name=name, types=loaded)
    stored = {"document": group.definition, "types": [t.to_dict() for t in loaded]}

    def store(tx: Any) -> tuple[str, Any]:
        identity = group_id(request.project_id, group.name)
        known = tx.definition(identity) if groups.get(tx, identity) else None
        if not dry_run:
            groups.define(tx, request.project_id, group.name, stored)
        return identity, known

    database = request.runtime.database
    identity, known = database.reading(store) if dry_run else database.atomically(store)
    changed = in_documents(_named(known), _named(stored)) if known else []
    return {
        "group": group.name,
        "id": identity,
        "stack": group.stack,
        "roles": list(group.roles),
        "resources": sorted(group.resources),
        "created": known is None,
        "differences": [each.as_dict() for each in changed],
        "lines": [str(each) for each in changed],
    }


def _named(stored: Mapping[str, Any]) -> dict[str, Any]:
    """A stored definition with its types by name, to be compared."""
    types = {each["name"]: each for each in stored["types"]}
    return {**stored["document"], "types": types}


def definition(request: Request, name: str) -> dict[str, Any]:
    """A group's definition as it was given: ``document``, the group file, and ``types``. Raises
    UnknownGroup."""

    def read(tx: Any) -> Any:
        identity = group_id(request.project_id, name)
        if groups.get(tx, identity) is None:
            raise UnknownGroup(name, groups.names(tx, request.project_id))
        return tx.definition(identity)

    found = request.runtime.database.reading(read)
    return {"document": found["document"], "types": found["types"]}
