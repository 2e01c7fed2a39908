# SPDX-License-Identifier: Apache-2.0
"""The operation of ``stack_parameters``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mistral_failover.cloud import stack_updates
from mistral_failover.cloud.errors import CloudError
from mistral_failover.convergence.records import Record
from mistral_failover.groups import kept_parts
from mistral_failover.groups.project_view import ProjectView, shorter, unknown
from mistral_failover.mistral.operation_documents import OperationDocument
from mistral_failover.model.documents import load_yaml_1_1
from mistral_failover.model.goal import STACK_TEMPLATE
from mistral_failover.model.observation import AS_RECORDED, ObservedPresence, Presence
from mistral_failover.model.references import find_references, resolve_params
from mistral_failover.resources.modules import ExaminedResource, about
from mistral_failover.resources.operation_context import OperationContext
from mistral_failover.runtime.errors import own_stack, says_how_to_continue

_MOST_MEMBERS = 5
"""The members whose names Heat is asked to check as values, at most: each takes a preview."""


def patch_stack(context: OperationContext, operation: OperationDocument) -> dict[str, Any]:
    """PATCH the stack's parameters and follow the update to its end; refuse it if it would remove
    a server or volume that belongs to the group's service."""
    keep = kept_parts.parts_to_keep(context.request, operation["group_id"], operation["group"])
    with says_how_to_continue(operation["group"]):
        patched = stack_updates.patch_parameters(
            context.cloud,
            own_stack(operation["stack"], operation["group"]),
            operation["properties"]["parameters"],
            operation["timeout"],
            keep,
        )
    return {"physical_id": patched.stack, "attributes": {"status": patched.status}}


OPERATIONS = (patch_stack,)


def examine(subject: ExaminedResource) -> str:
    """Return what is right about parameters. Raises an ExceptionGroup with a CloudError for each
    that the stack's template and the group's templates do not declare, or CloudError if Heat does
    not accept the values. Those that depend on another resource are not known yet."""
    cloud, stack = subject.cloud, own_stack(subject.stack, subject.group)
    given = subject.spec.properties["parameters"]
    of_stack = set(stack_updates.declared_parameters(cloud, stack))
    declared = of_stack | _of_templates(subject)
    unknown = [
        _about_one(name, stack_updates.unknown_parameter(stack, name, declared))
        for name in given
        if name not in declared
    ]
    if unknown:
        raise ExceptionGroup("parameters", unknown)
    known = {
        name: value
        for name, value in given.items()
        if name in of_stack and all(each.kind == "get_param" for each in find_references(value))
    }
    said = f"stack {stack} has {', '.join(sorted(given))}"
    try:
        with about("parameters"):
            for values in _with_each_member(known, list(subject.members.values())):
                stack_updates.refuse_update(cloud, stack, parameters=values)
    except CloudError as error:
        if error.code != "FORBIDDEN":  # of a user who may only read
            raise
        return f"{said}; this user may not ask Heat whether it accepts their values"
    return said


def _about_one(name: str, error: CloudError) -> CloudError:
    error.field = f"parameters.{name}"
    return error


def _of_templates(subject: ExaminedResource) -> set[str]:
    """Return the parameters of the templates that the group gives its stack."""
    found: set[str] = set()
    for spec in subject.beside.values():
        if spec.type == STACK_TEMPLATE:
            for text in spec.properties["templates"].values():
                template = load_yaml_1_1(text, "template")
                found.update(template.get("parameters") or template.get("Parameters") or ())
    return found


def _with_each_member(values: Mapping[str, Any], members: Sequence[str]) -> list[dict[str, Any]]:
    """Return the values for each of the first members that may hold the roles."""
    roles = {each.target for each in find_references(values)}
    found: list[dict[str, Any]] = []
    for member in members[:_MOST_MEMBERS] if roles else ("",):
        resolved = resolve_params(values, dict.fromkeys(roles, member))
        if resolved and resolved not in found:
            found.append(resolved)
    return found


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
