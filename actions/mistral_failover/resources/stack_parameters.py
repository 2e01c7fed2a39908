# SPDX-License-Identifier: Apache-2.0
"""The operation of ``stack_parameters``."""

from __future__ import annotations

from typing import Any

from mistral_failover.cloud import stack_updates
from mistral_failover.cloud.errors import CloudError
from mistral_failover.convergence.records import Record
from mistral_failover.groups import kept_parts
from mistral_failover.groups.project_view import ProjectView, shorter, unknown
from mistral_failover.mistral.operation_documents import OperationDocument
from mistral_failover.model.observation import AS_RECORDED, ObservedPresence, Presence
from mistral_failover.resources.operation_context import OperationContext
from mistral_failover.runtime.errors import says_how_to_continue


def patch_stack(context: OperationContext, operation: OperationDocument) -> dict[str, Any]:
    """PATCH the stack's parameters and follow the update to its end; refuse it if it would remove
    a server or volume that belongs to the group's service."""
    keep = kept_parts.parts_to_keep(context.request, operation["group_id"], operation["group"])
    with says_how_to_continue(operation["group"]):
        patched = stack_updates.patch_parameters(
            context.cloud,
            operation["stack"],
            operation["properties"]["parameters"],
            operation["timeout"],
            keep,
        )
    return {"physical_id": patched.stack, "attributes": {"status": patched.status}}


OPERATIONS = (patch_stack,)


def observe(view: ProjectView, record: Record, group: str) -> ObservedPresence:
    """Return whether the stack still has the parameters; hidden ones cannot be compared.

    The stack itself is read only if it was updated since it last matched.
    """
    stack, wanted = (record.physical_id or "").partition("/")[0], record.properties or {}
    try:
        version = view.stack_version(record)
        if isinstance(version, ObservedPresence):
            return version
        shown = view.listing.parameters(stack)
    except CloudError as error:
        return unknown(error)
    drifted = stack_updates.drifted(wanted.get("parameters", {}), shown)
    if not drifted:
        view.found_well(record.id, version)
        return AS_RECORDED
    words = ", ".join(
        f"parameter {name} is {shorter(shown.get(name))} instead of {shorter(value)}"
        for name, value in sorted(drifted.items())
    )
    return ObservedPresence(Presence.CHANGED, f"stack {stack}: {words}")
