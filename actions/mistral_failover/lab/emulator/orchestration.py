# SPDX-License-Identifier: Apache-2.0
"""Heat's API v1: stacks.

A PATCH (or PUT) of a stack whose action is in progress is accepted and the newest wins, as in
convergence Heat; only a stack that is being deleted refuses it.
"""

from collections.abc import Mapping
from typing import Any

from oslo_utils import strutils
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from mistral_failover.lab.emulator import stacks
from mistral_failover.lab.emulator.core import Emulation
from mistral_failover.lab.emulator.hot_functions import TemplateError
from mistral_failover.lab.emulator.state import Stack, StackResource
from mistral_failover.lab.emulator.templates import (
    check_parameters,
    dependencies,
    parse,
    shown_parameters,
)
from mistral_failover.lab.emulator.web import Call, Handler, Service, endpoint, paged, utc

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


def _prepare(call: Call) -> dict[str, str]:
    wanted = call.request.path_params.get("project_id")
    if wanted is not None and wanted != call.project_id and not call.admin:
        raise refused(403, "Access was denied to this resource.", "HTTPForbidden")
    return {}


SERVICE = Service("orchestration", error_body, prepare=_prepare)
refused = SERVICE.refused


def lookup(call: Call, name: str, called: str = "") -> Stack:
    """The stack of that name or id; one that was deleted is found by id only.

    :param called: its name in the error, where it was looked for by its id.
    """
    project_id = call.path("project_id")
    for stack in call.emulation.state.stacks.values():
        by_name = stack.name == name and stack.deleted is None
        if stack.project_id == project_id and (by_name or stack.id == name):
            return stack
    raise refused(404, f"The Stack ({called or name}) could not be found.", "EntityNotFound")


def find(call: Call) -> Stack:
    """The stack that the path names, by its name and its id."""
    stack = lookup(call, call.path("stack_id"), call.path("stack_name"))
    if stack.name != call.path("stack_name"):
        name = call.path("stack_name")
        raise refused(404, f"The Stack ({name}) could not be found.", "EntityNotFound")
    return stack


def address(emulation: Emulation, stack: Stack) -> str:
    """Where a stack is."""
    base = f"{emulation.url}/orchestration/v1/{stack.project_id}"
    return f"{base}/stacks/{stack.name}/{stack.id}"


def _redirect_to(rest: str) -> Handler:
    def redirect(call: Call) -> Response:
        location = address(call.emulation, lookup(call, call.path("stack_name"))) + rest
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
        "stack_owner": emulation.state.users[stack.user_id].name,
        "parent": stack.parent[0] if stack.parent else None,
        "stack_user_project_id": stack.project_id,
        "tags": [],
        "links": [{"href": address(emulation, stack), "rel": "self"}],
    }


def _list(call: Call) -> Any:
    found = [
        stack
        for stack in call.emulation.state.stacks.values()
        if stack.project_id == call.path("project_id")
        and stack.deleted is None
        and stack.parent is None
        and call.query("id") in (None, stack.id)
        and call.query("name") in (None, stack.name)
        and call.query("status") in (None, stack.status)
    ]
    found.sort(key=lambda stack: stack.created, reverse=True)
    return {
        "stacks": [
            {**_brief(call.emulation, stack), "project": stack.project_id, "tags": None}
            for stack in paged(call, found)
        ]
    }


def _show(call: Call) -> Any:
    stack = find(call)
    emulation = call.emulation
    definitions = stack.template.get("outputs") or {}
    outputs = [
        {
            "output_key": key,
            "description": definitions[key].get("description", "No description given"),
            "output_value": value,
            **({"output_error": why} if why else {}),
        }
        for key, (value, why) in stacks.told_outputs(emulation, stack).items()
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
            "disable_rollback": stack.disable_rollback,
        }
    }


def _given(body: dict[str, Any]) -> dict[str, Any]:
    """The parameters of a request, its environment's included."""
    environment = body.get("environment") or {}
    from_environment = environment.get("parameters") if isinstance(environment, dict) else None
    return {**(from_environment or {}), **(body.get("parameters") or {})}


def _registry(call: Call, stack: Stack | None = None) -> dict[str, str]:
    """What the environment has behind resource types, the operator's and that of before included.
    Rules for single resources and for patterns of types are not emulated."""
    environment = call.body.get("environment") or {}
    given = environment.get("resource_registry") if isinstance(environment, dict) else None
    rules = {name: kind for name, kind in (given or {}).items() if isinstance(kind, str)}
    known = stack.registry if stack else call.emulation.state.config["resource_registry"]
    return {**known, **rules}


def _files(call: Call, stack: Stack | None = None) -> dict[str, str]:
    """The templates that resource types name, those of before included."""
    return {**(stack.files if stack else {}), **(call.body.get("files") or {})}


def _parsed(template: Any, files: dict[str, str], registry: dict[str, str]) -> dict[str, Any]:
    try:
        return parse(template, files, registry)
    except TemplateError as error:
        raise refused(400, str(error), error.kind) from None


def _check(template: dict[str, Any], given: dict[str, Any]) -> None:
    try:
        check_parameters(template, given)
    except TemplateError as error:
        raise refused(400, str(error), error.kind) from None


def _create(call: Call) -> Any:
    name = call.body.get("stack_name")
    if not isinstance(name, str) or not name:
        raise refused(400, "No stack_name specified", "HTTPBadRequest")
    for stack in call.emulation.state.stacks.values():
        taken = stack.name == name and stack.project_id == call.path("project_id")
        if taken and stack.deleted is None:
            raise refused(409, f"The Stack ({name}) already exists.", "StackExists")
    given = _given(call.body)
    template = _parsed(call.body.get("template"), _files(call), _registry(call))
    _check(template, given)
    stack = stacks.create(
        call.emulation,
        project_id=call.path("project_id"),
        name=name,
        template=template,
        given=given,
        user_id=call.user_id,
        files=_files(call),
        registry=_registry(call),
    )
    stack.disable_rollback = _rollback_disabled(call, True)
    href = address(call.emulation, stack)
    return 201, {"stack": {"id": stack.id, "links": [{"href": href, "rel": "self"}]}}


def _living(call: Call) -> Stack:
    """A deleted stack can be read, but not changed."""
    stack = find(call)
    if stack.deleted is not None:
        raise refused(404, f"The Stack ({stack.name}) could not be found.", "EntityNotFound")
    return stack


def _updatable(call: Call) -> Stack:
    stack = _living(call)
    if stack.action == "DELETE":
        message = "Updating a stack when it is deleting is not supported."
        raise refused(400, message, "NotSupported")
    return stack


def _patch(call: Call) -> Any:
    """PATCH: parameters that the request omits stay as they are; parameters that the template does
    not have are ignored silently."""
    stack = _updatable(call)
    stack.files, stack.registry, wanted, given = _patched(call, stack)
    stack.disable_rollback = _rollback_disabled(call, stack.disable_rollback)
    stacks.update(call.emulation, stack, wanted, given)
    return 202, None


def _patched(
    call: Call, stack: Stack
) -> tuple[dict[str, Any], dict[str, str], dict[str, Any], dict[str, Any]]:
    """Files, environment, template and parameters that a stack has after a PATCH. Raises what Heat
    refuses."""
    dropped = call.body.get("clear_parameters") or []
    kept = {k: v for k, v in stack.parameters.items() if k not in dropped}
    template = call.body.get("template")
    files, registry = _files(call, stack), _registry(call, stack)
    wanted = stack.template if template is None else _parsed(template, files, registry)
    declared = wanted.get("parameters") or {}
    given = {k: v for k, v in {**kept, **_given(call.body)}.items() if k in declared}
    _check(wanted, given)
    return files, registry, wanted, given


def _rollback_disabled(call: Call, so_far: bool) -> bool:
    """What a request says of it; without a word a stack keeps its own."""
    return strutils.bool_from_string(call.body.get("disable_rollback", so_far))


def _preview(call: Call) -> Any:
    """PATCH .../preview: what a PATCH would do to each resource. As in Heat, what would be
    replaced is shown without the id that it has now."""
    stack = _updatable(call)
    _, _, wanted, given = _patched(call, stack)
    try:
        changes = stacks.preview(call.emulation, stack, wanted, given)
    except TemplateError as error:
        raise refused(400, str(error), error.kind) from None
    return {
        "resource_changes": {
            what: [
                {
                    "resource_name": name,
                    "resource_type": kind,
                    "physical_resource_id": "" if what in ("replaced", "added") else physical_id,
                }
                for name, kind, physical_id in rows
            ]
            for what, rows in changes.items()
        }
    }


def _put(call: Call) -> Any:
    """PUT: the request replaces everything."""
    stack = _updatable(call)
    given = _given(call.body)
    files, registry = _files(call, stack), _registry(call, stack)
    template = _parsed(call.body.get("template"), files, registry)
    _check(template, given)
    stack.files, stack.registry = files, registry
    stack.disable_rollback = _rollback_disabled(call, stack.disable_rollback)
    stacks.update(call.emulation, stack, template, given)
    return 202, None


def _delete(call: Call) -> Any:
    stack = _living(call)
    if stack.action != "DELETE" or stack.status == "FAILED":
        stacks.begin(call.emulation, stack, "DELETE")
    return 204, None


def _template(call: Call) -> Any:
    return find(call).template


def _environment(call: Call) -> Any:
    """The environment that users gave; what the operator has configured is not in it."""
    stack, configured = find(call), call.emulation.state.config["resource_registry"]
    given = {name: k for name, k in stack.registry.items() if configured.get(name) != k}
    return {
        "parameters": stack.parameters,
        "resource_registry": {**given, "resources": {}},
        "parameter_defaults": {},
        "encrypted_param_names": [],
        "event_sinks": [],
    }


def _versions(call: Call) -> Any:
    href = f"{call.emulation.url}/orchestration/v1/"
    version = {"id": "v1.0", "status": "CURRENT", "links": [{"href": href, "rel": "self"}]}
    return 300, {"versions": [version]}


# -- what is in a stack: its resources and its events


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
        "resource_type": resource.alias,
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
    given = call.request.query_params
    if unknown := sorted(given.keys() - _FILTERS.keys() - {"nested_depth", "with_detail"}):
        raise refused(400, f"Invalid filter parameters {unknown}", "HTTPBadRequest")
    wanted = {
        name: values
        for key, name in _FILTERS.items()
        if (values := [value for value in given.getlist(key) if value])
    }
    rows = _resources_of(call, find(call), int(depth))
    return {"resources": [row for row in rows if _has(row, wanted)]}


_FILTERS = {
    "name": "resource_name",
    "type": "resource_type",
    "id": "id",
    "physical_resource_id": "physical_resource_id",
    "action": "action",
    "status": "status",
}
"""By the filter of Heat's list of resources, what of a row it compares. A filter that is given
twice has both values."""


def _has(row: Mapping[str, Any], wanted: Mapping[str, list[str]]) -> bool:
    action, _, status = row["resource_status"].partition("_")
    # A number of Heat's database, which Heat shows to nobody.
    values = {**row, "action": action, "status": status, "id": None}
    return all(values[name] in among for name, among in wanted.items())


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
    return JSONResponse(None)


def _events(call: Call) -> Any:
    stack = find(call)
    name = call.request.path_params.get("resource_name")
    depth = call.query("nested_depth") or "0"
    rows = [
        {
            "id": event["id"],
            "event_time": utc(event["t"]),
            "resource_name": event["name"],
            "logical_resource_id": event["name"],
            "physical_resource_id": event["physical_id"],
            "resource_status": event["status"],
            "resource_status_reason": event["reason"],
            "links": [{"href": address(call.emulation, owner), "rel": "stack"}],
        }
        for event, owner in _events_of(call.emulation, stack, int(depth))
        if name in (None, event["name"])
    ]
    if call.query("sort_dir") == "desc":
        rows.reverse()
    return {"events": paged(call, rows, key=lambda row: row["id"])}


def _events_of(
    emulation: Emulation, stack: Stack, depth: int
) -> list[tuple[dict[str, Any], Stack]]:
    """The events of a stack and of the stacks in it, the oldest first."""
    found = [(event, stack) for event in stack.events]
    for resource in stack.resources.values():
        nested = emulation.state.stacks.get(resource.physical_id)
        if depth > 0 and nested is not None:
            found += _events_of(emulation, nested, depth - 1)
    return sorted(found, key=lambda pair: pair[0]["t"])


def _resource_routes() -> list[Route]:
    """The routes of resources and events."""
    stack = "/orchestration/v1/{project_id}/stacks/{stack_name}/{stack_id}"
    resource = f"{stack}/resources/{{resource_name}}"
    return [
        endpoint(SERVICE, f"{stack}/resources", _list_resources, "resource_list"),
        endpoint(SERVICE, resource, _show_resource, "resource_show"),
        endpoint(SERVICE, resource, _mark_resource, "mark_unhealthy", ["PATCH"]),
        endpoint(SERVICE, f"{resource}/events", _events, "event_list"),
        endpoint(SERVICE, f"{stack}/events", _events, "event_list"),
    ]


def routes() -> list[Route]:
    """Heat's routes; the ones by name alone redirect, so they come last."""
    base = "/orchestration/v1/{project_id}/stacks"
    by_name = f"{base}/{{stack_name}}"
    stack = f"{by_name}/{{stack_id}}"
    every = ["GET", "PATCH", "PUT", "DELETE"]
    return [
        *_resource_routes(),
        endpoint(SERVICE, "/orchestration", _versions, "versions", public=True),
        endpoint(SERVICE, "/orchestration/", _versions, "versions", public=True),
        endpoint(SERVICE, base, _list, "stack_list"),
        endpoint(SERVICE, base, _create, "stack_create", ["POST"]),
        *(
            endpoint(SERVICE, by_name + rest, _redirect_to(rest), "stack_lookup")
            for rest in ("/resources", "/events", "/template", "/environment")
        ),
        endpoint(SERVICE, f"{stack}/template", _template, "stack_template"),
        endpoint(SERVICE, f"{stack}/environment", _environment, "stack_environment"),
        endpoint(SERVICE, f"{stack}/preview", _preview, "stack_preview", ["PATCH"]),
        endpoint(SERVICE, stack, _show, "stack_show"),
        endpoint(SERVICE, stack, _patch, "stack_patch", ["PATCH"]),
        endpoint(SERVICE, stack, _put, "stack_patch", ["PUT"]),
        endpoint(SERVICE, stack, _delete, "stack_delete", ["DELETE"]),
        endpoint(SERVICE, by_name, _redirect_to(""), "stack_lookup", every),
    ]
