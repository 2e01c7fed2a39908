# SPDX-License-Identifier: Apache-2.0
"""Heat's engine: it converges a stack to its template, one step whenever a part has settled.

As in convergence Heat, an update that fails is rolled back to what the stack had before it, if the
stack allows that; a creation is not, here. A newer update is accepted at any time: it raises the
stack's generation, and parts that an older one was changing are checked again when they have
settled. A resource whose
check failed (marked unhealthy) is replaced: the new one is created first, then the old one is
deleted. An old volume that is in use is not deleted: the update fails, and the next one tries
again.
"""

import time
from dataclasses import replace
from typing import Any

from mistral_failover.lab.emulator import stack_backing
from mistral_failover.lab.emulator.core import Emulation, transition
from mistral_failover.lab.emulator.hot_functions import Scope, TemplateError, holds, resolve, walk
from mistral_failover.lab.emulator.state import Stack, StackResource, new_id
from mistral_failover.lab.emulator.templates import (
    GROUPS,
    VOLUME,
    VOLUME_ATTACHMENT,
    behind,
    dependencies,
    is_template,
    members_template,
    parameters,
    parse,
    short_id,
    wanted,
    without,
)
from mistral_failover.lab.emulator.web import take_fault

_OVERHEAD = {
    "CREATE": "stack_create",
    "UPDATE": "stack_patch",
    "ROLLBACK": "stack_patch",
    "DELETE": "stack_delete",
}
_AGAIN = 0.1  # seconds
_KINDS = {
    "CREATE": "stack_create",
    "UPDATE": "patch",
    "ROLLBACK": "rollback",
    "DELETE": "stack_delete",
}


def create(
    emulation: Emulation,
    *,
    project_id: str,
    name: str,
    template: dict[str, Any],
    given: dict[str, Any],
    user_id: str,
    files: dict[str, str],
    registry: dict[str, str],
    parent: list[str] | None = None,
) -> Stack:
    """Starts the creation of a stack.

    :param files: the templates that its resource types may name.
    :param registry: what its environment has behind resource types.
    :param parent: [stack id, resource name] of a nested one.
    """
    stack = Stack(
        new_id(),
        project_id,
        name,
        time.time(),
        template,
        parameters=given,
        parent=parent,
        generation=0,
        user_id=user_id,
        files=files,
        registry=registry,
    )
    emulation.state.stacks[stack.id] = stack
    begin(emulation, stack, "CREATE")
    return stack


def update(
    emulation: Emulation, stack: Stack, template: dict[str, Any], given: dict[str, Any]
) -> None:
    """Starts an update; the newest wins. `updated_time` grows with each, by a second at least."""
    stack.previous = [stack.template, stack.parameters]
    _converge(emulation, stack, template, given, "UPDATE")


def _converge(
    emulation: Emulation,
    stack: Stack,
    template: dict[str, Any],
    given: dict[str, Any],
    action: str,
) -> None:
    stack.template, stack.parameters = template, given
    stack.updated = max(time.time(), (stack.updated or stack.created) + 1)
    begin(emulation, stack, action)


def preview(
    emulation: Emulation, stack: Stack, template: dict[str, Any], given: dict[str, Any]
) -> dict[str, list[tuple[str, str, str]]]:
    """What an update to a template and parameters would do: name, type and physical id of each
    resource, by what becomes of it.

    :raises TemplateError: an unknown parameter.
    """
    changes: dict[str, list[tuple[str, str, str]]] = {
        what: [] for what in ("unchanged", "updated", "replaced", "added", "deleted")
    }
    updated = replace(stack, template=template, parameters=given)
    new = scope(emulation, updated)
    definitions = wanted(template, new)
    for name, definition in definitions.items():
        resource, alias = stack.resources.get(name), definition["type"]
        asked = resolve(definition.get("properties") or {}, new)
        if resource is None:
            changes["added"].append((name, alias, ""))
            continue
        kind = behind(alias, stack.registry)
        what = "unchanged" if resource.properties == asked else "updated"
        if resource.type != kind or stack_backing.needs_replacement(kind, resource, asked):
            what = "replaced"
        changes[what].append((name, alias, resource.physical_id))
    for name, resource in stack.resources.items():
        if name not in definitions:
            changes["deleted"].append((name, resource.alias, resource.physical_id))
    return changes


def begin(emulation: Emulation, stack: Stack, action: str) -> None:
    """Starts CREATE, UPDATE, ROLLBACK or DELETE, in place of a running action."""
    stack.generation += 1
    for name, definition in _definitions(emulation, stack).items():
        if name not in stack.resources and action != "DELETE":
            now, alias = time.time(), definition["type"]
            kind = behind(alias, stack.registry)
            stack.resources[name] = StackResource(
                name, kind, alias, now, now, action="INIT", status="COMPLETE", reason=""
            )
    _set_stack(stack, action, "IN_PROGRESS", f"Stack {action} started")
    if stack.parent is None:
        emulation.finish(stack.operation, "superseded")
        stack.operation = emulation.begin(_KINDS[action], stack=stack.id)
    emulation.after(
        _half(emulation, stack), "stack.walk", stack_id=stack.id, generation=stack.generation
    )


def _definitions(emulation: Emulation, stack: Stack) -> dict[str, Any]:
    """The definitions of the resources that a stack is to have."""
    if not any("condition" in each for each in (stack.template.get("resources") or {}).values()):
        return stack.template.get("resources") or {}
    return wanted(stack.template, scope(emulation, stack))


def _half(emulation: Emulation, stack: Stack) -> float:
    """Half of what Heat itself needs, before and again after the stack's parts."""
    name = "stack_nested" if stack.parent else _OVERHEAD[stack.action]
    return emulation.latency.of(name) / 2


@transition("stack.walk")
def _walk(emulation: Emulation, stack_id: str, generation: int) -> None:
    stack = emulation.state.stacks.get(stack_id)
    if stack is None or generation != stack.generation or stack.status != "IN_PROGRESS":
        return
    goal = {} if stack.action == "DELETE" else _definitions(emulation, stack)
    moved = True
    while moved:
        moved = sum(_advance(emulation, stack, name, goal) for name in goal) > 0
    busy = any(
        r.status == "IN_PROGRESS" or (_retires(r) and not r.retired_reason)
        for r in stack.resources.values()
    )
    failed = [r for r in stack.resources.values() if _failed_now(stack, r)]
    if failed and not busy:
        reason = f"Resource {failed[0].action} failed: {failed[0].reason}"
        _finish(emulation, stack, "FAILED", reason)
        return
    stuck = [r.retired_reason for r in stack.resources.values() if r.retired_reason]
    if stuck and not busy and all(_ready(stack, name) for name in goal):
        _finish(emulation, stack, "FAILED", f"Resource DELETE failed: {stuck[0]}")
        return
    if failed or busy or any(not _ready(stack, name) for name in goal):
        return
    surplus = [r for name, r in stack.resources.items() if name not in goal]
    # Volumes go last: until the servers are gone they may still be attached.
    last = [r for r in surplus if r.type == VOLUME]
    for resource in [r for r in surplus if r.type != VOLUME] or last:
        _remove(emulation, stack, resource)
    if surplus:
        emulation.after(0, "stack.walk", stack_id=stack.id, generation=generation)
    elif stack.settling != generation:
        stack.settling = generation
        emulation.after(
            _half(emulation, stack), "stack.finish", stack_id=stack.id, generation=generation
        )


def _retires(resource: StackResource) -> bool:
    """Whether what it replaced is to be deleted, now that it is complete."""
    return bool(resource.retired_id) and resource.status == "COMPLETE"


def _failed_now(stack: Stack, resource: StackResource) -> bool:
    return resource.status == "FAILED" and resource.generation == stack.generation


def _ready(stack: Stack, name: str) -> bool:
    resource = stack.resources.get(name)
    return (
        resource is not None
        and resource.generation == stack.generation
        and resource.status == "COMPLETE"
    )


def _advance(emulation: Emulation, stack: Stack, name: str, goal: dict[str, Any]) -> bool:
    """Checks one resource if its turn has come; False when there was nothing to do."""
    resource, definition = stack.resources[name], goal[name]
    if resource.status == "IN_PROGRESS" or resource.generation == stack.generation:
        return False
    if not all(_ready(stack, other) for other in dependencies(definition) if other in goal):
        return False
    try:
        asked = resolve(definition.get("properties") or {}, scope(emulation, stack))
    except TemplateError as error:
        resource.generation = stack.generation
        _set_resource(stack, resource, stack.action, "FAILED", f"{error.kind}: {error}")
        return True
    kind = behind(definition["type"], stack.registry)
    resource.alias = definition["type"]
    resource.generation = stack.generation
    if resource.external or (external := definition.get("external_id")) is not None:
        if not resource.external:
            resource.type, resource.external = kind, True
            resource.physical_id = str(resolve(external, scope(emulation, stack)))
            _set_resource(stack, resource, "CHECK", "COMPLETE")
            emulation.after(0, "stack.part_settled", stack_id=stack.id, name=name)
        return True
    if resource.action == "INIT":
        resource.type, resource.properties = kind, asked
        _make(emulation, stack, resource)
        return True
    # A nested stack that failed is updated, unless it was marked unhealthy as a whole.
    failed = resource.status == "FAILED"
    unhealthy = failed and (resource.action == "CHECK" or not _nests(kind))
    if unhealthy or resource.type != kind or stack_backing.needs_replacement(kind, resource, asked):
        if resource.retired_id:
            # Its last replacement failed: that goes at once, the first one when there is another.
            _unmake(emulation, resource.physical_id)
        else:
            resource.retired_id = resource.physical_id
        resource.type, resource.properties, resource.created = kind, asked, time.time()
        resource.retired_reason = ""
        _make(emulation, stack, resource)
    elif _nests(kind):
        resource.properties = asked
        _set_resource(stack, resource, "UPDATE", "IN_PROGRESS")
        nested = emulation.state.stacks[resource.physical_id]
        nested.files, nested.registry = stack.files, _registry_within(stack, resource)
        update(emulation, nested, *_nested(stack, resource, nested))
    elif resource.properties != asked:
        under_way = stack_backing.change(emulation, stack, resource, asked)
        _set_resource(stack, resource, "UPDATE", "IN_PROGRESS" if under_way else "COMPLETE")
    if _retires(resource):
        resource.retired_reason = ""
        emulation.after(0, "stack.part_settled", stack_id=stack.id, name=name)
    return True


def _nests(kind: str) -> bool:
    return kind in GROUPS or is_template(kind)


def _nested(
    stack: Stack, resource: StackResource, nested: Stack | None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Template and parameters of the stack behind a resource."""
    if resource.type in GROUPS:
        return members_template(resource, nested), {}
    template = parse(stack.files[resource.type], stack.files, _registry_within(stack, resource))
    return template, dict(resource.properties)


def _registry_within(stack: Stack, resource: StackResource) -> dict[str, str]:
    """What is behind resource types in the stack behind a resource."""
    return stack.registry if resource.type in GROUPS else without(stack.registry, resource.alias)


def scope(emulation: Emulation, stack: Stack) -> Scope:
    """What a stack's functions refer to."""

    def physical_id(name: str) -> str | None:
        resource = stack.resources.get(name)
        return _reference(emulation, resource) if resource else None

    def attribute(name: str, path: list[Any]) -> Any:
        resource = stack.resources.get(name)
        return _attribute(emulation, resource, path) if resource and path else None

    project = emulation.state.projects[stack.project_id]
    conditions = stack.template.get("conditions") or {}
    return Scope(parameters(stack, project), physical_id, attribute, stack.files, conditions)


def outputs(emulation: Emulation, stack: Stack) -> dict[str, Any]:
    """The outputs of a stack; of one that cannot be told, None."""
    return {name: value for name, (value, _why) in told_outputs(emulation, stack).items()}


def told_outputs(emulation: Emulation, stack: Stack) -> dict[str, tuple[Any, str]]:
    """The outputs of a stack, each with why it cannot be told; empty if it can."""
    within, found = scope(emulation, stack), {}
    missing: list[str] = []

    def attribute(name: str, path: list[Any]) -> Any:
        resource = stack.resources.get(name)
        if resource and path and not _has(emulation, resource, str(path[0])):
            missing.append(f"the attribute {path[0]} of {resource.alias}")
        return within.attribute(name, path)

    watched = replace(within, attribute=attribute)
    for name, definition in (stack.template.get("outputs") or {}).items():
        missing.clear()
        value, why = None, ""
        try:
            if holds(definition.get("condition", True), within):
                value = resolve(definition.get("value"), watched)
        except TemplateError as error:
            why = f"{error.kind}: {error}"
        if missing:
            why = f"The emulated cloud does not have {', '.join(dict.fromkeys(missing))}."
        found[name] = value, why
    return found


def _has(emulation: Emulation, resource: StackResource, attribute: str) -> bool:
    """Whether a resource has an attribute; a group has those of its members."""
    return resource.type in GROUPS or attribute in attributes(emulation, resource)


def _reference(emulation: Emulation, resource: StackResource) -> str | None:
    """What ``get_resource`` is: the physical id, unless the template behind it has another one."""
    nested = emulation.state.stacks.get(resource.physical_id)
    named = (nested.template.get("outputs") or {}) if nested else {}
    if nested is not None and "OS::stack_id" in named:
        return str(outputs(emulation, nested)["OS::stack_id"] or resource.physical_id)
    return resource.physical_id


def _attribute(emulation: Emulation, resource: StackResource, path: list[Any]) -> Any:
    """What ``get_attr`` is: an attribute, and the way into it."""
    if resource.type in GROUPS:
        return _group_attribute(emulation, resource, path)
    return walk(attributes(emulation, resource), path)


def _group_attribute(emulation: Emulation, group: StackResource, path: list[Any]) -> Any:
    """An attribute of a group: of its own, of one member (``resource.NAME``), or of all members as
    a list (``outputs_list``; any other word of a resource group) or a map (``outputs``,
    ``attributes``)."""
    name, *rest = str(path[0]), *path[1:]
    own = attributes(emulation, group)
    nested = emulation.state.stacks.get(group.physical_id)
    members = nested.resources if nested else {}
    if name in own:
        return walk(own[name], rest)
    if name.startswith("resource."):
        _, member, *inner = name.split(".", 2)
        found = members.get(member)
        if found is None:
            return None
        way = [*inner, *rest]
        return _attribute(emulation, found, way) if way else _reference(emulation, found)
    way = rest if name in ("outputs", "outputs_list", "attributes") else path
    values = {each.name: _attribute(emulation, each, way) for each in members.values() if way}
    return values if name in ("outputs", "attributes") else [*values.values()]


def attributes(emulation: Emulation, resource: StackResource) -> dict[str, Any]:
    """A resource's own attributes."""
    nested = emulation.state.stacks.get(resource.physical_id)
    if resource.type in GROUPS:
        members = nested.resources.values() if nested else ()
        ids = {each.name: _reference(emulation, each) for each in members if each.physical_id}
        return {"refs": list(ids.values()), "refs_map": ids, "current_size": len(ids)}
    if nested is not None:
        told = outputs(emulation, nested)
        return {**told, "outputs": told}
    return stack_backing.attributes(emulation, resource)


def _make(emulation: Emulation, stack: Stack, resource: StackResource) -> None:
    """Creates the object behind a resource."""
    _set_resource(stack, resource, "CREATE", "IN_PROGRESS")
    if _nests(resource.type):
        template, given = _nested(stack, resource, None)
        nested = create(
            emulation,
            project_id=stack.project_id,
            name=f"{stack.name}-{resource.name}-{short_id()}",
            template=template,
            given=given,
            user_id=stack.user_id,
            files=stack.files,
            registry=_registry_within(stack, resource),
            parent=[stack.id, resource.name],
        )
        resource.physical_id = nested.id
    elif not stack_backing.make(emulation, stack, resource):
        _set_resource(stack, resource, "CREATE", "COMPLETE")
        emulation.after(0, "stack.part_settled", stack_id=stack.id, name=resource.name)


def _remove(emulation: Emulation, stack: Stack, resource: StackResource) -> None:
    if resource.action == "DELETE" and resource.status == "IN_PROGRESS":
        return
    resource.generation = stack.generation
    _set_resource(stack, resource, "DELETE", "IN_PROGRESS")
    if stack_backing.lingers(emulation, stack, resource):
        return
    if resource.external or _is_retained(stack, resource):
        _drop(stack, resource)
        return
    trouble = _unmake(emulation, resource.physical_id)
    _look_again(emulation, stack, resource)
    if trouble:
        _set_resource(stack, resource, "DELETE", "FAILED", trouble)
    elif not _exists(emulation, resource.physical_id):
        _drop(stack, resource)


def _is_retained(stack: Stack, resource: StackResource) -> bool:
    """Whether what is behind a resource stays. Only of a stack that goes as a whole: of what an
    update leaves out, the template does not say it any more."""
    definition = (stack.template.get("resources") or {}).get(resource.name) or {}
    return stack.action == "DELETE" and definition.get("deletion_policy") == "Retain"


def _unmake(emulation: Emulation, physical_id: str) -> str:
    nested = emulation.state.stacks.get(physical_id)
    if nested is None:
        return stack_backing.unmake(emulation, physical_id)
    if nested.action != "DELETE":
        begin(emulation, nested, "DELETE")
    return ""


def _exists(emulation: Emulation, physical_id: str) -> bool:
    nested = emulation.state.stacks.get(physical_id)
    if nested is None:
        return stack_backing.exists(emulation, physical_id)
    return nested.deleted is None


def _drop(stack: Stack, resource: StackResource) -> None:
    _set_resource(stack, resource, "DELETE", "COMPLETE")
    del stack.resources[resource.name]


@transition("stack.part_settled")
def _part_settled(emulation: Emulation, stack_id: str, name: str) -> None:
    """Takes note that the object behind a resource has settled, and continues."""
    stack = emulation.state.stacks.get(stack_id)
    resource = stack.resources.get(name) if stack else None
    if stack is None or resource is None:
        return
    stack_backing.pursue(emulation, resource)
    state, reason = _state_of(emulation, resource)
    if resource.status == "IN_PROGRESS":
        _look_again(emulation, stack, resource)
        if resource.action == "DELETE":
            if state == "gone":
                _drop(stack, resource)
        elif state == "ready":
            _set_resource(stack, resource, resource.action, "COMPLETE")
        elif state in ("failed", "gone"):
            _set_resource(stack, resource, resource.action, "FAILED", reason)
    if _retires(resource):
        trouble = _unmake(emulation, resource.retired_id)
        resource.retired_reason = f"Error: resources.{name}: {trouble}" if trouble else ""
        if not trouble and _exists(emulation, resource.retired_id):
            return
        resource.retired_id = resource.retired_id if trouble else ""
    _walk(emulation, stack_id, stack.generation)


def _look_again(emulation: Emulation, stack: Stack, resource: StackResource) -> None:
    """Looks at a resource again soon, if nothing tells when the object behind it has settled."""
    if resource.type == VOLUME_ATTACHMENT:
        emulation.after(_AGAIN, "stack.part_settled", stack_id=stack.id, name=resource.name)


def _state_of(emulation: Emulation, resource: StackResource) -> tuple[str, str]:
    if not _nests(resource.type):
        return stack_backing.state_of(emulation, resource)
    nested = emulation.state.stacks.get(resource.physical_id)
    if nested is None or nested.deleted is not None:
        return "gone", "The nested stack is gone."
    states = {"COMPLETE": "ready", "FAILED": "failed", "IN_PROGRESS": "busy"}
    return states[nested.status], nested.reason


@transition("stack.finish")
def _finish_in_time(emulation: Emulation, stack_id: str, generation: int) -> None:
    stack = emulation.state.stacks.get(stack_id)
    if stack is None or stack.generation != generation or stack.status != "IN_PROGRESS":
        return
    kinds = ("fail", "cancel", "stuck")
    fault = None if stack.parent else take_fault(emulation, _OVERHEAD[stack.action], kinds)
    if fault is not None and fault.fault == "stuck":
        return  # as if its engine had died: it stays IN_PROGRESS until the next update
    if fault is not None:
        words = fault.says or f"Injected failure of {stack.action}."
        if fault.fault == "cancel":
            name = next(iter(stack.resources), "nothing")
            words = f"Resource {stack.action} failed: resources.{name}: Stack UPDATE cancelled"
        _finish(emulation, stack, "FAILED", words)
    else:
        reason = f"Stack {stack.action} completed successfully"
        _finish(emulation, stack, "COMPLETE", reason)


def _finish(emulation: Emulation, stack: Stack, status: str, reason: str) -> None:
    _set_stack(stack, stack.action, status, reason)
    if stack.action == "DELETE" and status == "COMPLETE":
        stack.deleted = time.time()
    emulation.finish(stack.operation, "done" if status == "COMPLETE" else "failed")
    stack.operation = None
    emulation.changed()
    if stack.parent is not None:
        parent_id, name = stack.parent
        emulation.fire("stack.part_settled", stack_id=parent_id, name=name)
    elif (stack.action, status) == ("UPDATE", "FAILED") and not stack.disable_rollback:
        template, given = stack.previous
        _converge(emulation, stack, template, given, "ROLLBACK")


def mark(
    emulation: Emulation, stack: Stack, resource: StackResource, unhealthy: bool, reason: str
) -> None:
    """Sets a resource CHECK_FAILED, so that the next update replaces it, or takes that back."""
    operation = emulation.begin("mark_unhealthy", stack=stack.id, resource=resource.name)
    if unhealthy:
        _set_resource(stack, resource, "CHECK", "FAILED", reason)
    elif (resource.action, resource.status) == ("CHECK", "FAILED"):
        _set_resource(stack, resource, "CHECK", "COMPLETE", reason)
    emulation.finish(operation)


def _set_stack(stack: Stack, action: str, status: str, reason: str) -> None:
    stack.action, stack.status, stack.reason = action, status, reason
    _event(stack, stack.name, stack.id, "OS::Heat::Stack", f"{action}_{status}", reason)


def _set_resource(
    stack: Stack, resource: StackResource, action: str, status: str, reason: str = "state changed"
) -> None:
    resource.action, resource.status, resource.reason = action, status, reason
    resource.updated = time.time()
    status = f"{action}_{status}"
    _event(stack, resource.name, resource.physical_id, resource.alias, status, reason)


def _event(stack: Stack, name: str, physical_id: str, kind: str, status: str, reason: str) -> None:
    stack.events.append(
        {
            "id": new_id(),
            "t": time.time(),
            "name": name,
            "physical_id": physical_id,
            "type": kind,
            "status": status,
            "reason": reason,
        }
    )
