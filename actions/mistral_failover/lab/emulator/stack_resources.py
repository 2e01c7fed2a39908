# SPDX-License-Identifier: Apache-2.0
"""Heat's API of what is in a stack: its resources and its events."""

from typing import Any

from starlette.routing import Route

from mistral_failover.lab.emulator import stacks
from mistral_failover.lab.emulator.core import Emulation
from mistral_failover.lab.emulator.orchestration import SERVICE, address, find, refused
from mistral_failover.lab.emulator.state import Stack, StackResource
from mistral_failover.lab.emulator.templates import dependencies
from mistral_failover.lab.emulator.web import Call, endpoint, utc
from mistral_failover.lab.emulator.wire import paged


def _resource_view(emulation: Emulation, stack: Stack, resource: StackResource) -> dict[str, Any]:
    href = address(emulation, stack)
    links = [
        {"href": f"{href}/resources/{resource.name}", "rel": "self"},
        {"href": href, "rel": "stack"},
    ]
    nested = emulation.state.stacks.get(resource.physical_id)
    if nested is not None:
        links.append({"href": address(emulation, nested), "rel": "nested"})
    definitions = stack.template.get("resources") or {}
    view: dict[str, Any] = {
        "resource_name": resource.name,
        "logical_resource_id": resource.name,
        "physical_resource_id": resource.physical_id,
        "resource_type": resource.type,
        "resource_status": f"{resource.action}_{resource.status}",
        "resource_status_reason": resource.reason,
        "creation_time": utc(resource.created),
        "updated_time": utc(resource.updated),
        "required_by": [
            name for name, other in definitions.items() if resource.name in dependencies(other)
        ],
        "links": links,
    }
    if stack.parent is not None:
        view["parent_resource"] = stack.parent[1]
    return view


def _resources_of(call: Call, stack: Stack, depth: int) -> list[dict[str, Any]]:
    rows = []
    for resource in stack.resources.values():
        rows.append(_resource_view(call.emulation, stack, resource))
        nested = call.emulation.state.stacks.get(resource.physical_id)
        if depth > 0 and nested is not None:
            rows += _resources_of(call, nested, depth - 1)
    return rows


def _list_resources(call: Call) -> Any:
    depth = call.query("nested_depth") or "0"
    if not depth.isdigit():
        raise refused(400, f"Only integer is allowed by 'nested_depth': {depth}", "HTTPBadRequest")
    return {"resources": _resources_of(call, find(call), int(depth))}


def _find_resource(call: Call) -> tuple[Stack, StackResource]:
    stack = find(call)
    name = call.path("resource_name")
    for resource in stack.resources.values():
        if name in (resource.name, resource.physical_id):
            return stack, resource
    raise refused(
        404,
        f"The Resource ({name}) could not be found in Stack {stack.name}.",
        "ResourceNotFound",
    )


def _show_resource(call: Call) -> Any:
    stack, resource = _find_resource(call)
    view = _resource_view(call.emulation, stack, resource)
    return {
        "resource": {
            **view,
            "description": "",
            "attributes": stacks.attributes(call.emulation, resource),
        }
    }


async def _mark_resource(call: Call) -> Any:
    stack, resource = _find_resource(call)
    unhealthy = call.body.get("mark_unhealthy")
    if not isinstance(unhealthy, bool):
        raise refused(
            400,
            "Missing mandatory (mark_unhealthy) key from mark unhealthy request",
            "HTTPBadRequest",
        )
    reason = str(
        call.body.get("resource_status_reason") or "state changed by resource_mark_unhealthy api"
    )
    await call.emulation.pause("mark_unhealthy")
    if resource.status == "IN_PROGRESS":
        words = f"Stack {stack.name} already has an action ({stack.action}) in progress."
        raise refused(409, words, "ActionInProgress")
    stacks.mark(call.emulation, stack, resource, unhealthy, reason)
    return 200, None


def _events(call: Call) -> Any:
    stack = find(call)
    name = call.request.path_params.get("resource_name")
    href = address(call.emulation, stack)
    rows = [
        {
            "id": event["id"],
            "event_time": utc(event["t"]),
            "resource_name": event["name"],
            "logical_resource_id": event["name"],
            "physical_resource_id": event["physical_id"],
            "resource_type": event["type"],
            "resource_status": event["status"],
            "resource_status_reason": event["reason"],
            "links": [{"href": href, "rel": "stack"}],
        }
        for event in stack.events
        if name in (None, event["name"])
    ]
    if call.query("sort_dir") == "desc":
        rows.reverse()
    return {"events": paged(call, rows, key=lambda row: row["id"])}


def routes() -> list[Route]:
    """The routes under a stack."""
    stack = "/orchestration/v1/{project_id}/stacks/{stack_name}/{stack_id}"
    resource = f"{stack}/resources/{{resource_name}}"
    return [
        endpoint(SERVICE, f"{stack}/resources", _list_resources, "resource_list"),
        endpoint(SERVICE, resource, _show_resource, "resource_show"),
        endpoint(SERVICE, resource, _mark_resource, "mark_unhealthy", ["PATCH"]),
        endpoint(SERVICE, f"{resource}/events", _events, "event_list"),
        endpoint(SERVICE, f"{stack}/events", _events, "event_list"),
    ]
