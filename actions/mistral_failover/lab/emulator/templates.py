# SPDX-License-Identifier: Apache-2.0
"""The part of HOT that the emulated Heat understands.

Resource types: OS::Nova::Server, OS::Cinder::Volume, OS::Heat::AutoScalingGroup,
OS::Heat::ResourceGroup, a template of the request's files by its name, OS::Heat::TestResource, and
some that only get an id (`INERT`). An environment may map other names to these.
Functions: get_param, get_resource, get_attr (`refs` and `refs_map` of a group, `networks` of a
server, `name` of anything). Parameters with type, default, hidden. Outputs.
"""

import json
import secrets
import string
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from oslo_utils import strutils

from mistral_failover.lab.emulator.state import Project, Stack, StackResource
from mistral_failover.model.documents import load_json, load_yaml_1_1
from mistral_failover.model.errors import InvalidDocument

SERVER = "OS::Nova::Server"
VOLUME = "OS::Cinder::Volume"
GROUP = "OS::Heat::AutoScalingGroup"
RESOURCE_GROUP = "OS::Heat::ResourceGroup"
GROUPS = (GROUP, RESOURCE_GROUP)
TEST = "OS::Heat::TestResource"
PORT = "OS::Neutron::Port"
FLOATING_IP = "OS::Neutron::FloatingIP"
LOAD_BALANCER = "OS::Octavia::LoadBalancer"
POOL = "OS::Octavia::Pool"
POOL_MEMBER = "OS::Octavia::PoolMember"
INERT = (
    "OS::Heat::None",
    "OS::Heat::Value",
    "OS::Heat::ScalingPolicy",
    "OS::Mistral::Workflow",
    "OS::Aodh::EventAlarm",
    "OS::Neutron::Net",
    "OS::Neutron::Subnet",
    PORT,
    FLOATING_IP,
    LOAD_BALANCER,
    POOL,
    POOL_MEMBER,
    "OS::Neutron::SecurityGroup",
    "OS::Nova::ServerGroup",
)
HIDDEN = "******"


class TemplateError(Exception):
    """A template or its parameters are wrong; `kind` is Heat's exception name."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def is_template(kind: str) -> bool:
    """Whether a resource type is the name of a template."""
    return kind.endswith((".yaml", ".template"))


def behind(kind: str, registry: Mapping[str, str]) -> str:
    """The type, or the name of the template, that an environment has behind a resource type."""
    return behind(registry[kind], without(registry, kind)) if kind in registry else kind


def without(registry: Mapping[str, str], kind: str) -> dict[str, str]:
    """What an environment maps within the template behind a type: there the type is Heat's own."""
    return {name: target for name, target in registry.items() if name != kind}


def parse(
    given: Any,
    files: Mapping[str, str] | None = None,
    registry: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """A template from text (YAML or JSON) or an object.

    :param files: the templates that its resource types may name.
    :param registry: what its environment has behind resource types.

    :raises TemplateError: it is no template, or uses an unknown type or reference.
    """
    if isinstance(given, str):
        try:
            given = load_yaml_1_1(given, "template")
        except InvalidDocument as error:
            raise TemplateError(
                "StackValidationFailed", f"Error parsing template: {error}"
            ) from None
    if not isinstance(given, dict) or "heat_template_version" not in given:
        raise TemplateError("StackValidationFailed", "Template format version not found.")
    # A copy, without the dates that an object may have.
    template: dict[str, Any] = load_json(json.dumps(given, default=str), "template")
    for name, definition in (template.get("resources") or {}).items():
        _check_resource(name, definition, files or {}, registry or {})
        for other in dependencies(definition):
            if other not in template["resources"]:
                raise TemplateError(
                    "InvalidTemplateReference",
                    f'The specified reference "{other}" (in {name}) is incorrect.',
                )
    return template


def _check_resource(
    name: str, definition: Any, files: Mapping[str, str], registry: Mapping[str, str]
) -> None:
    if not isinstance(definition, dict) or not isinstance(definition.get("type"), str):
        raise TemplateError(
            "StackValidationFailed", f"Each Resource must contain a type key: resources.{name}"
        )
    kind = behind(definition["type"], registry)
    if is_template(kind) and kind in files:
        parse(files[kind], files, without(registry, definition["type"]))
    elif kind not in (SERVER, VOLUME, *GROUPS, TEST, *INERT):
        raise TemplateError(
            "StackValidationFailed", f"The Resource Type ({kind}) could not be found."
        )
    properties = definition.get("properties") or {}
    needs = {
        SERVER: ("flavor",),
        VOLUME: ("size",),
        GROUP: ("resource", "min_size", "max_size"),
        RESOURCE_GROUP: ("resource_def",),
    }
    for needed in needs.get(kind, ()):
        if needed not in properties:
            raise TemplateError(
                "StackValidationFailed",
                f"Property error: : resources.{name}.properties: : Property {needed} not assigned",
            )
    if kind in GROUPS:
        member = "resource" if kind == GROUP else "resource_def"
        _check_resource(f"{name}.{member}", properties[member], files, registry)


def dependencies(definition: dict[str, Any]) -> set[str]:
    """The resources that a definition refers to or depends on."""
    depends = definition.get("depends_on") or []
    found = {depends} if isinstance(depends, str) else set(depends)
    return found | _references(definition.get("properties"))


def _references(value: Any) -> set[str]:
    if isinstance(value, dict):
        if len(value) == 1:
            function, argument = next(iter(value.items()))
            if function == "get_resource":
                return {str(argument)}
            if function == "get_attr" and isinstance(argument, list) and argument:
                return {str(argument[0])}
        return set().union(*(_references(v) for v in value.values()))
    if isinstance(value, list):
        return set().union(*(_references(v) for v in value))
    return set()


def check_parameters(template: dict[str, Any], given: dict[str, Any]) -> None:
    """Refuses parameters that the template does not know, missing ones, and values that are no
    numbers or not allowed. Other constraints are not emulated.

    :raises TemplateError: UnknownUserParameter, UserParameterMissing or StackValidationFailed.
    """
    declared = template.get("parameters") or {}
    for name in given:
        if name not in declared:
            raise TemplateError(
                "UnknownUserParameter",
                f"The Parameter ({name}) was not defined in template.",
            )
    for name, schema in declared.items():
        if name not in given and "default" not in (schema or {}):
            raise TemplateError("UserParameterMissing", f"The Parameter ({name}) was not provided.")
        if name in given and (schema or {}).get("type") == "number":
            try:
                float(given[name])
            except (TypeError, ValueError) as error:
                raise TemplateError(
                    "StackValidationFailed", f"Parameter '{name}' is invalid: {error}"
                ) from None
        for constraint in (schema or {}).get("constraints") or ():
            allowed = constraint.get("allowed_values")
            if allowed is not None and name in given and given[name] not in allowed:
                raise TemplateError(
                    "StackValidationFailed",
                    f"Parameter '{name}' is invalid: {given[name]!r} is not an allowed value "
                    f"{allowed}",
                )


def parameters(stack: Stack, project: Project) -> dict[str, Any]:
    """Every parameter's value, pseudo parameters included."""
    declared = stack.template.get("parameters") or {}
    values = {name: stack.parameters.get(name, s.get("default")) for name, s in declared.items()}
    values["OS::stack_id"] = stack.id
    values["OS::stack_name"] = stack.name
    values["OS::project_id"] = project.id
    return values


def shown_parameters(stack: Stack, project: Project) -> dict[str, str]:
    """The parameters as Heat shows them: text, hidden ones masked."""
    declared = stack.template.get("parameters") or {}
    shown = {}
    for name, value in parameters(stack, project).items():
        if (declared.get(name) or {}).get("hidden"):
            shown[name] = HIDDEN
        else:
            shown[name] = _shown(value, str((declared.get(name) or {}).get("type")))
    return shown


def _shown(value: Any, kind: str) -> str:
    if kind == "comma_delimited_list" and isinstance(value, list):
        return ",".join(map(str, value))
    if kind == "boolean":
        return str(strutils.bool_from_string(value))
    return json.dumps(value) if isinstance(value, dict | list) else str(value)


@dataclass(frozen=True)
class Scope:
    """Where functions find what they name.

    :ivar values: the parameters.
    :ivar physical_id: a resource's physical id, None when it has none yet.
    :ivar attribute: a resource's attribute.
    """

    values: dict[str, Any]
    physical_id: Callable[[str], str | None]
    attribute: Callable[[str, str], Any]


def resolve(value: Any, scope: Scope) -> Any:
    """Replaces the functions in a value.

    :raises TemplateError: an unknown parameter.
    """
    if isinstance(value, list):
        return [resolve(v, scope) for v in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        function, argument = next(iter(value.items()))
        if function == "get_param":
            name, *path = argument if isinstance(argument, list) else [argument]
            if name not in scope.values:
                raise TemplateError(
                    "UserParameterMissing", f"The Parameter ({name}) was not provided."
                )
            return _walk(scope.values[name], path)
        if function == "get_resource":
            return scope.physical_id(str(argument))
        if function == "get_attr" and isinstance(argument, list) and len(argument) > 1:
            name, attribute, *path = argument
            return _walk(scope.attribute(str(name), str(attribute)), path)
    return {k: resolve(v, scope) for k, v in value.items()}


def _walk(found: Any, path: list[Any]) -> Any:
    for step in path:
        if isinstance(found, list):
            index = int(step)
            found = found[index] if index < len(found) else None
        else:
            found = (found or {}).get(step)
    return found


# -- the template of a group's nested stack


def short_id() -> str:
    """A name as Heat makes them for members and nested stacks."""
    letters = string.ascii_lowercase + string.digits
    return "".join(secrets.choice(letters) for _ in range(12))


def members_template(resource: StackResource, nested: Stack | None) -> dict[str, Any]:
    """The template of a group's nested stack; ``nested``: its present template, None before there
    is one.

    An autoscaling group has ``desired_capacity`` members, else as many as have not failed, within
    ``min_size`` and ``max_size``; if there are too many, failed ones are removed first, then the
    oldest. A resource group has ``count``, called by their numbers.
    """
    asked = resource.properties
    if resource.type == GROUP:
        definition = asked["resource"]
        members = dict.fromkeys(_scaled(asked, nested), definition)
    else:
        definition = asked["resource_def"]
        count = int(asked.get("count") or 1)
        members = {str(n): _numbered(definition, str(n)) for n in range(count)}
    return {"heat_template_version": "2015-04-30", "resources": members}


def _scaled(asked: dict[str, Any], nested: Stack | None) -> list[str]:
    present = sorted(
        nested.resources.values() if nested else (),
        key=lambda member: (member.status != "FAILED", member.created, member.name),
    )
    healthy = sum(1 for member in present if member.status != "FAILED")
    size = int(asked.get("desired_capacity") or (healthy if nested else asked["min_size"]))
    size = max(int(asked["min_size"]), min(int(asked["max_size"]), size))
    names = [member.name for member in present[max(0, len(present) - size) :]]
    return names + [short_id() for _ in range(size - len(names))]


def _numbered(definition: Any, number: str) -> Any:
    if isinstance(definition, dict):
        return {key: _numbered(value, number) for key, value in definition.items()}
    if isinstance(definition, list):
        return [_numbered(value, number) for value in definition]
    return definition.replace("%index%", number) if isinstance(definition, str) else definition


def group_attributes(nested: Stack | None) -> dict[str, Any]:
    """A group's attributes, by its nested stack."""
    members = nested.resources.values() if nested else ()
    ids = {member.name: member.physical_id for member in members if member.physical_id}
    return {"refs": list(ids.values()), "refs_map": ids, "current_size": len(ids)}
