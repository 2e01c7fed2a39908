# SPDX-License-Identifier: Apache-2.0
"""Heat's API v1: stacks, resources, events.

A PATCH (or PUT) of a stack whose action is in progress is accepted and the newest wins, as in
convergence Heat; only a stack that is being deleted refuses it.
"""

from typing import Any

from starlette.responses import Response
from starlette.routing import Route

from mistral_failover.emulator import stacks
from mistral_failover.emulator.core import Emulation
from mistral_failover.emulator.state import Stack, StackResource
from mistral_failover.emulator.templates import (
    GROUP,
    TemplateError,
    check_parameters,
    dependencies,
    parse,
    resolve,
    shown_parameters,
)
from mistral_failover.emulator.web import ApiError, Call, Handler, Service, endpoint, utc
from mistral_failover.emulator.wire import paged

_TITLES = {
    400: (
        "Bad Request",
        "The server could not comply with the request since it is either malformed or otherwise "
        "incorrect.",
    ),
    403: ("Forbidden", "Access was denied to this resource."),
    404: ("Not Found", "The resource could not be found."),
    409: ("Conflict", "There was a conflict when trying to complete your request."),
    500: (
        "Internal Server Error",
        "The server has either erred or is incapable of performing the requested operation.",
    ),
    503: (
        "Service Unavailable",
        "The server is currently unavailable. Please try again at a later time.",
    ),
}


def error_body(status: int, message: str, kind: str = "") -> dict[str, Any]:
    """Heat's error body; `kind` is the name of its exception."""
    title, explanation = _TITLES.get(status, ("Error", "The request failed."))
    kind = kind or f"HTTP{title.replace(' ', '')}"
    return {
        "code": status,
        "error": {"message": message, "traceback": None, "type": kind},
        "explanation": explanation,
        "title": title,
    }


def _refused(status: int, message: str, kind: str) -> ApiError:
    return ApiError(status, error_body(status, message, kind))


def _prepare(call: Call) -> dict[str, str]:
    wanted = call.request.path_params.get("project_id")
    if wanted is not None and wanted != call.project_id and not call.admin:
        raise _refused(403, "You are not authorized to complete this action.", "Forbidden")
    return {}


SERVICE = Service("orchestration", error_body, prepare=_prepare)


def _lookup(call: Call, name: str) -> Stack:
    """The stack of that name or id; one that was deleted is found by id only."""
    project_id = call.path("project_id")
    for stack in call.emulation.state.stacks.values():
        by_name = stack.name == name and stack.deleted is None
        if stack.project_id == project_id and (by_name or stack.id == name):
            return stack
    raise _refused(404, f"The Stack ({name}) could not be found.", "EntityNotFound")


def _find(call: Call) -> Stack:
    stack = _lookup(call, call.path("stack_id"))
    if stack.name != call.path("stack_name"):
        name = call.path("stack_name")
        raise _refused(404, f"The Stack ({name}) could not be found.", "EntityNotFound")
    return stack


def _href(emulation: Emulation, stack: Stack) -> str:
    base = f"{emulation.url}/orchestration/v1/{stack.project_id}"
    return f"{base}/stacks/{stack.name}/{stack.id}"


def _redirect_to(rest: str) -> Handler:
    def redirect(call: Call) -> Response:
        location = _href(call.emulation, _lookup(call, call.path("stack_name"))) + rest
        query = call.request.url.query
        return Response(
            status_code=302, headers={"Location": f"{location}?{query}" if query else location}
        )

    return redirect


def _brief(emulation: Emulation, stack: Stack) -> dict[str, Any]:
    return {
        "id": stack.id,
        "stack_name": stack.name,
        "description": str(stack.template.get("description") or "No description"),
        "creation_time": utc(stack.created),
        "updated_time": utc(stack.updated),
        "deletion_time": utc(stack.deleted),
        "stack_status": f"{stack.action}_{stack.status}",
        "stack_status_reason": stack.reason,
        "stack_owner": None,
        "parent": stack.parent[0] if stack.parent else None,
        "project": stack.project_id,
        "stack_user_project_id": stack.project_id,
        "tags": None,
        "links": [{"href": _href(emulation, stack), "rel": "self"}],
    }


def _list(call: Call) -> Any:
    found = [
        stack
        for stack in call.emulation.state.stacks.values()
        if stack.project_id == call.path("project_id")
        and stack.deleted is None
        and stack.parent is None
        and call.query("name") in (None, stack.name)
        and call.query("status") in (None, stack.status)
    ]
    found.sort(key=lambda stack: stack.created, reverse=True)
    return {"stacks": [_brief(call.emulation, stack) for stack in paged(call, found)]}


def _show(call: Call) -> Any:
    stack = _find(call)
    emulation = call.emulation
    scope = stacks.scope(emulation, stack)
    outputs = [
        {
            "output_key": key,
            "description": definition.get("description", "No description given"),
            "output_value": resolve(definition.get("value"), scope),
        }
        for key, definition in (stack.template.get("outputs") or {}).items()
    ]
    return {
        "stack": {
            **_brief(emulation, stack),
            "parameters": shown_parameters(stack, emulation.state.projects[stack.project_id]),
            "outputs": outputs,
            "capabilities": [],
            "notification_topics": [],
            "template_description": str(stack.template.get("description") or "No description"),
            "timeout_mins": None,
            "disable_rollback": True,
        }
    }


def _given(body: dict[str, Any]) -> dict[str, Any]:
    """The parameters of a request, its environment's included."""
    environment = body.get("environment") or {}
    from_environment = environment.get("parameters") if isinstance(environment, dict) else None
    return {**(from_environment or {}), **(body.get("parameters") or {})}


def _checked(template: Any, given: dict[str, Any]) -> dict[str, Any]:
    try:
        parsed = parse(template)
        check_parameters(parsed, given)
    except TemplateError as error:
        raise _refused(400, str(error), error.kind) from None
    return parsed


def _create(call: Call) -> Any:
    name = call.body.get("stack_name")
    if not isinstance(name, str) or not name:
        raise _refused(400, "No stack_name specified", "HTTPBadRequest")
    for stack in call.emulation.state.stacks.values():
        taken = stack.name == name and stack.project_id == call.path("project_id")
        if taken and stack.deleted is None:
            raise _refused(409, f"The Stack ({name}) already exists.", "StackExists")
    given = _given(call.body)
    stack = stacks.create(
        call.emulation,
        project_id=call.path("project_id"),
        name=name,
        template=_checked(call.body.get("template"), given),
        given=given,
        user_id=call.user_id,
    )
    href = _href(call.emulation, stack)
    return 201, {"stack": {"id": stack.id, "links": [{"href": href, "rel": "self"}]}}


def _updatable(call: Call) -> Stack:
    stack = _find(call)
    if stack.action == "DELETE":
        message = "Updating a stack when it is deleting is not supported."
        raise _refused(400, message, "NotSupported")
    return stack


def _patch(call: Call) -> Any:
    """PATCH: what the request leaves out stays as it is."""
    stack = _updatable(call)
    dropped = call.body.get("clear_parameters") or []
    kept = {k: v for k, v in stack.parameters.items() if k not in dropped}
    given = {**kept, **_given(call.body)}
    template = _checked(call.body.get("template") or stack.template, given)
    stacks.update(call.emulation, stack, template, given)
    return 202, None


def _put(call: Call) -> Any:
    """PUT: the request says everything."""
    stack = _updatable(call)
    given = _given(call.body)
    stacks.update(call.emulation, stack, _checked(call.body.get("template"), given), given)
    return 202, None


def _delete(call: Call) -> Any:
    stack = _find(call)
    if stack.deleted is None and stack.action != "DELETE" or stack.status == "FAILED":
        stacks.begin(call.emulation, stack, "DELETE")
    return 204, None


def _resource_view(emulation: Emulation, stack: Stack, resource: StackResource) -> dict[str, Any]:
    href = _href(emulation, stack)
    links = [
        {"href": f"{href}/resources/{resource.name}", "rel": "self"},
        {"href": href, "rel": "stack"},
    ]
    nested = emulation.state.stacks.get(resource.physical_id) if resource.type == GROUP else None
    if nested is not None:
        links.append({"href": _href(emulation, nested), "rel": "nested"})
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
        raise _refused(400, f"Only integer is allowed by 'nested_depth': {depth}", "HTTPBadRequest")
    return {"resources": _resources_of(call, _find(call), int(depth))}


def _find_resource(call: Call) -> tuple[Stack, StackResource]:
    stack = _find(call)
    name = call.path("resource_name")
    for resource in stack.resources.values():
        if name in (resource.name, resource.physical_id):
            return stack, resource
    raise _refused(
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
        raise _refused(
            400,
            "Missing mandatory (mark_unhealthy) key from mark unhealthy request",
            "HTTPBadRequest",
        )
    reason = str(call.body.get("resource_status_reason") or "state changed by user request")
    await call.emulation.pause("mark_unhealthy")
    stacks.mark(call.emulation, stack, resource, unhealthy, reason)
    return 200, None


def _events(call: Call) -> Any:
    stack = _find(call)
    name = call.request.path_params.get("resource_name")
    href = _href(call.emulation, stack)
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


def _template(call: Call) -> Any:
    return _find(call).template


def _versions(call: Call) -> Any:
    href = f"{call.emulation.url}/orchestration/v1/"
    version = {"id": "v1.0", "status": "CURRENT", "links": [{"href": href, "rel": "self"}]}
    return 300, {"versions": [version]}


def routes() -> list[Route]:
    """Heat's routes; the ones by name alone redirect, so they come last."""
    base = "/orchestration/v1/{project_id}/stacks"
    by_name = f"{base}/{{stack_name}}"
    stack = f"{by_name}/{{stack_id}}"
    resource = f"{stack}/resources/{{resource_name}}"
    every = ["GET", "PATCH", "PUT", "DELETE"]
    return [
        endpoint(SERVICE, "/orchestration", _versions, "versions", public=True),
        endpoint(SERVICE, "/orchestration/", _versions, "versions", public=True),
        endpoint(SERVICE, base, _list, "stack_list"),
        endpoint(SERVICE, base, _create, "stack_create", ["POST"]),
        *(
            endpoint(SERVICE, by_name + rest, _redirect_to(rest), "stack_lookup")
            for rest in ("/resources", "/events", "/template")
        ),
        endpoint(SERVICE, f"{stack}/resources", _list_resources, "resource_list"),
        endpoint(SERVICE, resource, _show_resource, "resource_show"),
        endpoint(SERVICE, resource, _mark_resource, "mark_unhealthy", ["PATCH"]),
        endpoint(SERVICE, f"{resource}/events", _events, "event_list"),
        endpoint(SERVICE, f"{stack}/events", _events, "event_list"),
        endpoint(SERVICE, f"{stack}/template", _template, "stack_template"),
        endpoint(SERVICE, stack, _show, "stack_show"),
        endpoint(SERVICE, stack, _patch, "stack_patch", ["PATCH"]),
        endpoint(SERVICE, stack, _put, "stack_patch", ["PUT"]),
        endpoint(SERVICE, stack, _delete, "stack_delete", ["DELETE"]),
        endpoint(SERVICE, by_name, _redirect_to(""), "stack_lookup", every),
    ]
