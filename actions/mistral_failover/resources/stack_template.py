# SPDX-License-Identifier: Apache-2.0
"""The operation of ``stack_template``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mistral_failover.cloud import stack_updates
from mistral_failover.cloud.errors import CloudError
from mistral_failover.convergence.records import Record
from mistral_failover.groups import kept_parts
from mistral_failover.groups.project_view import ProjectView, unknown
from mistral_failover.mistral.operation_documents import OperationDocument
from mistral_failover.model.documents import load_yaml_1_1
from mistral_failover.model.errors import InvalidDocument
from mistral_failover.model.observation import AS_RECORDED, ObservedPresence, Presence
from mistral_failover.model.text import counted
from mistral_failover.resources.modules import ExaminedResource, about
from mistral_failover.resources.operation_context import OperationContext
from mistral_failover.runtime.errors import ActionError, own_stack, says_how_to_continue

_AGAIN = (
    "give it again: failover group update FILE, or failover group create FILE if there is no such "
    "group yet"
)


def patch_template(context: OperationContext, operation: OperationDocument) -> dict[str, Any]:
    """PATCH the stack to the chosen template and follow the update to its end; refuse it if it
    would remove a server or volume that belongs to the group's service."""
    keep = kept_parts.parts_to_keep(context.request, operation["group_id"], operation["group"])
    template = _chosen(operation["properties"])
    with says_how_to_continue(operation["group"]):
        patched = stack_updates.patch_template(
            context.cloud,
            own_stack(operation["stack"], operation["group"]),
            template,
            operation["timeout"],
            keep,
        )
    return {"physical_id": patched.stack, "attributes": {"status": patched.status}}


def _chosen(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return the template that the properties choose. Raises ActionError INVALID_DOCUMENT."""
    name, templates = properties["use"], properties["templates"]
    if name not in templates:
        known = ", ".join(sorted(templates))
        raise ActionError(
            "INVALID_DOCUMENT",
            f"there is no template {name}; there are: {known}",
            f"Correct use or templates in the group file, and {_AGAIN}.",
        )
    try:
        return load_yaml_1_1(templates[name], f"template {name}")
    except InvalidDocument as error:
        raise ActionError(
            "INVALID_DOCUMENT",
            f"template {name} cannot be read: {error.message}",
            f"Correct it in the group file, and {_AGAIN}.",
        ) from None


OPERATIONS = (patch_template,)


def examine(subject: ExaminedResource) -> str:
    """Return what is right about templates. Raises an ExceptionGroup with a CloudError for each
    that Heat does not accept for the stack."""
    templates: Mapping[str, str] = subject.spec.properties["templates"]
    stack = own_stack(subject.stack, subject.group)
    refused: list[CloudError] = []
    for name, text in templates.items():
        try:
            with about(f"templates.{name}"):
                template = load_yaml_1_1(text, f"template {name}")
                stack_updates.refuse_update(subject.cloud, stack, template=template)
        except CloudError as error:
            refused.append(error)
    if refused:
        raise ExceptionGroup("templates", refused)
    return f"Heat accepts {counted(len(templates), 'template')} for stack {stack}"


def observe(view: ProjectView, record: Record, group: str) -> ObservedPresence:
    """Return whether the stack still has the chosen template. It is read only if the stack was
    updated since it last matched."""
    stack = (record.physical_id or "").partition("/")[0]
    try:
        version = view.stack_version(record)
        if isinstance(version, ObservedPresence):
            return version
        shown = view.listing.template(stack)
        wanted = _chosen(record.properties or {})
    except CloudError as error:
        return unknown(error)
    except (ActionError, KeyError):
        return ObservedPresence(Presence.UNKNOWN, f"no template of stack {stack} is recorded")
    if stack_updates.same_template(wanted, shown):
        view.found_well(record.id, version)
        return AS_RECORDED
    return ObservedPresence(
        Presence.CHANGED, f"stack {stack} has another template than the group chose"
    )
