# SPDX-License-Identifier: Apache-2.0
"""Define groups."""

from __future__ import annotations

import time
from collections.abc import Mapping
from shlex import quote
from typing import Any

from mistral_failover.cloud.errors import CloudError
from mistral_failover.convergence.errors import UnknownGroup
from mistral_failover.mistral.api import mistral_of
from mistral_failover.model.differences import in_documents
from mistral_failover.model.errors import InvalidDocument
from mistral_failover.model.group import Group, parse_group
from mistral_failover.model.ids import group_id
from mistral_failover.model.problems import template_problems
from mistral_failover.model.types import load_type
from mistral_failover.runtime.deadlines import DeadlineGuard
from mistral_failover.runtime.errors import ActionError
from mistral_failover.runtime.request import Request
from mistral_failover.store import groups, observations
from mistral_failover.store.transaction import ProjectTransaction

ASK = 3.0
"""The limit for questions to Mistral, in seconds."""


def define(
    request: Request, definition: Any, name: str | None, types: Any, *, dry_run: bool = False
) -> dict[str, Any]:
    """Check a group file and its types and store them, unless it is a ``dry_run``.

    Return ``group``, ``id``, ``stack``, ``roles``, ``resources``, ``created`` (the group was not
    defined before), ``differences`` and ``lines`` (its changes, for machines and for people, as for
    two goals), and ``missing``: the workflows that it names and Mistral does not have, sorted, as
    far as Mistral answered. Raises InvalidDocument, also if the file names servers that belong to
    another group of the project.
    """
    given = [] if types is None else types
    if not isinstance(given, list):
        raise ActionError("BAD_INPUT", "types: a list of type files is expected", "Correct types.")
    loaded = [load_type(document) for document in given]
    group = parse_group(definition, name=name, types=loaded)
    for problem in template_problems(group):
        raise problem
    stored = {"document": group.definition, "types": [t.to_dict() for t in loaded]}

    def store(tx: ProjectTransaction) -> tuple[str, Any]:
        identity = group_id(request.project_id, group.name)
        known = tx.definition(identity) if groups.get(tx, identity) else None
        _refuse_shared(tx, group, known["document"] if known else None)
        if not dry_run:
            groups.define(tx, group.name, stored)
            observations.forget_alarms(tx, identity)
        return identity, known

    database = request.store
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
        "missing": _missing_workflows(request, group),
    }


def _refuse_shared(tx: ProjectTransaction, group: Group, known: Mapping[str, Any] | None) -> None:
    """Refuse members that another group of the project has: both would start and stop what runs on
    these servers, and fence them under each other. A group keeps those that it shares already,
    because it has to be operated. Raises InvalidDocument."""
    wanted = _members(group.definition) - (_members(known) if known is not None else set())
    if not wanted:
        return
    for name, document in groups.documents(tx).items():
        shared = wanted & _members(document) if name != group.name else None
        if shared:
            raise InvalidDocument(
                "members",
                f"{', '.join(sorted(member for _, member in shared))} of stack {group.stack} "
                f"belong to the group {name}",
                f"Add the resources to {name}, with a role of their own if they move alone; or "
                f"delete that group first: failover group delete {quote(name)}",
            )


def _members(document: Mapping[str, Any]) -> set[tuple[str, str]]:
    """Return what a group file names as its members, each as (stack, resource)."""
    of = document["members"]
    named = [*of.get("servers", ()), of.get("autoscaling_group")]
    return {(str(document["stack"]), str(each)) for each in named if each}


def _missing_workflows(request: Request, group: Group) -> list[str]:
    """Return the workflows that a group names and Mistral does not show to this project. Return
    none if Mistral does not answer in time."""
    rungs = {rung.get("workflow") for rung in group.fence}
    hook = {group.on_event.workflow} if group.on_event else set()
    named = {name for name in {group.workflow, *rungs, *hook} if name}
    if not named:
        return []
    try:
        mistral = mistral_of(request, DeadlineGuard(time.monotonic() + ASK, ASK))
        if mistral is None:
            return []
        return sorted(mistral.lacking(named))
    except CloudError:  # the doctor reports it too
        return []


def _named(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return a stored definition for comparison, with its types by name."""
    types = {each["name"]: each for each in stored["types"]}
    return {**stored["document"], "types": types}


def definition(request: Request, name: str) -> dict[str, Any]:
    """Return a group's definition as it was given: ``document``, the group file, and ``types``.
    Raises UnknownGroup."""

    def read(tx: ProjectTransaction) -> Any:
        identity = group_id(request.project_id, name)
        if groups.get(tx, identity) is None:
            raise UnknownGroup(name, groups.names(tx))
        return tx.definition(identity)

    found = request.store.reading(read)
    return {"document": found["document"], "types": found["types"]}
