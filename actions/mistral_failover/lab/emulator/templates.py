# SPDX-License-Identifier: Apache-2.0
"""The part of HOT that the emulated Heat understands.

Resource types: those below, and a template of the request's files by its name. An environment may
map other names to these. Of `INERT` ones a stack only has an id and their properties; nothing runs
in emulated guests that would answer a software deployment or a wait condition, so these are
complete at once. Parameters with type, default, hidden, constraints. Conditions. Outputs. The
functions are in `hot_functions`.
"""

import json
import re
import secrets
import string
from collections.abc import Iterator, Mapping
from typing import Any

from oslo_utils import strutils

from mistral_failover.lab.emulator.hot_functions import (
    Scope,
    TemplateError,
    holds,
    unknown_functions,
)
from mistral_failover.lab.emulator.state import Project, Stack, StackResource
from mistral_failover.model.documents import load_json, load_yaml_1_1
from mistral_failover.model.errors import InvalidDocument

SERVER = "OS::Nova::Server"
VOLUME = "OS::Cinder::Volume"
VOLUME_ATTACHMENT = "OS::Cinder::VolumeAttachment"
GROUP = "OS::Heat::AutoScalingGroup"
RESOURCE_GROUP = "OS::Heat::ResourceGroup"
GROUPS = (GROUP, RESOURCE_GROUP)
TEST = "OS::Heat::TestResource"
RANDOM = "OS::Heat::RandomString"
NET = "OS::Neutron::Net"
SUBNET = "OS::Neutron::Subnet"
ROUTER = "OS::Neutron::Router"
ROUTER_INTERFACE = "OS::Neutron::RouterInterface"
PORT = "OS::Neutron::Port"
FLOATING_IP = "OS::Neutron::FloatingIP"
FLOATING_IP_ASSOCIATION = "OS::Neutron::FloatingIPAssociation"
LOAD_BALANCER = "OS::Octavia::LoadBalancer"
LISTENER = "OS::Octavia::Listener"
POOL = "OS::Octavia::Pool"
POOL_MEMBER = "OS::Octavia::PoolMember"
INERT = (
    "OS::Aodh::CompositeAlarm",
    "OS::Aodh::EventAlarm",
    "OS::Aodh::GnocchiAggregationByMetricsAlarm",
    "OS::Aodh::GnocchiAggregationByResourcesAlarm",
    "OS::Aodh::GnocchiResourcesAlarm",
    "OS::Heat::CloudConfig",
    "OS::Heat::MultipartMime",
    "OS::Heat::None",
    "OS::Heat::ScalingPolicy",
    "OS::Heat::SoftwareConfig",
    "OS::Heat::SoftwareDeployment",
    "OS::Heat::SoftwareDeploymentGroup",
    "OS::Heat::StructuredConfig",
    "OS::Heat::StructuredDeployment",
    "OS::Heat::Value",
    "OS::Heat::WaitCondition",
    "OS::Heat::WaitConditionHandle",
    "OS::Mistral::Workflow",
    "OS::Neutron::SecurityGroup",
    "OS::Neutron::SecurityGroupRule",
    "OS::Neutron::Trunk",
    "OS::Nova::KeyPair",
    "OS::Nova::ServerGroup",
    "OS::Octavia::HealthMonitor",
)
_TYPES = frozenset(
    {SERVER, VOLUME, VOLUME_ATTACHMENT, *GROUPS, TEST, RANDOM, NET, SUBNET, ROUTER}
    | {ROUTER_INTERFACE, PORT, FLOATING_IP, FLOATING_IP_ASSOCIATION, LOAD_BALANCER, LISTENER}
    | {POOL, POOL_MEMBER, *INERT}
)
_NEEDED = {
    SERVER: ("flavor",),
    VOLUME: ("size",),
    VOLUME_ATTACHMENT: ("instance_uuid", "volume_id"),
    GROUP: ("resource", "min_size", "max_size"),
    RESOURCE_GROUP: ("resource_def",),
    SUBNET: ("cidr",),
}
HIDDEN = "******"


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
    missing = [*dict.fromkeys(_missing_types(template, files or {}, registry or {}))]
    if missing:
        raise TemplateError(
            "StackValidationFailed",
            f"The Resource Type ({missing[0]}) could not be found. The emulated cloud does not "
            f"have {', '.join(missing)}.",
        )
    if without_one := [*dict.fromkeys(unknown_functions(template))]:
        raise TemplateError(
            "StackValidationFailed", f"The emulated Heat does not have {', '.join(without_one)}."
        )
    for name, definition in (template.get("resources") or {}).items():
        _check_resource(name, definition, files or {}, registry or {})
        condition = definition.get("condition")
        if isinstance(condition, str) and condition not in (template.get("conditions") or {}):
            raise TemplateError(
                "StackValidationFailed", f'resources.{name}: Invalid condition "{condition}"'
            )
        for other in dependencies(definition):
            if other not in template["resources"]:
                raise TemplateError(
                    "InvalidTemplateReference",
                    f'The specified reference "{other}" (in {name}) is incorrect.',
                )
    return template


def _missing_types(
    template: dict[str, Any], files: Mapping[str, str], registry: Mapping[str, str]
) -> Iterator[str]:
    """The resource types of a template that are not emulated, those in groups included."""
    for definition in (template.get("resources") or {}).values():
        while isinstance(definition, dict) and isinstance(definition.get("type"), str):
            kind = behind(definition["type"], registry)
            if kind not in _TYPES and not (is_template(kind) and kind in files):
                yield kind
            properties = definition.get("properties")
            member = {GROUP: "resource", RESOURCE_GROUP: "resource_def"}.get(kind, "")
            definition = properties.get(member) if isinstance(properties, dict) else None


def _check_resource(
    name: str, definition: Any, files: Mapping[str, str], registry: Mapping[str, str]
) -> None:
    if not isinstance(definition, dict) or not isinstance(definition.get("type"), str):
        raise TemplateError(
            "StackValidationFailed", f"Each Resource must contain a type key: resources.{name}"
        )
    kind = behind(definition["type"], registry)
    if is_template(kind):
        parse(files[kind], files, without(registry, definition["type"]))
    if definition.get("external_id") is not None:
        return
    properties = definition.get("properties") or {}
    for needed in _NEEDED.get(kind, ()):
        if needed not in properties:
            raise TemplateError(
                "StackValidationFailed",
                f"Property error: : resources.{name}.properties: : Property {needed} not assigned",
            )
    if kind in GROUPS:
        member = "resource" if kind == GROUP else "resource_def"
        _check_resource(f"{name}.{member}", properties[member], files, registry)


def wanted(template: dict[str, Any], scope: Scope) -> dict[str, Any]:
    """The definitions of the resources that a template has in this scope: without those whose
    condition does not hold.

    :raises TemplateError: there is no such condition.
    """
    return {
        name: definition
        for name, definition in (template.get("resources") or {}).items()
        if holds(definition.get("condition", True), scope)
    }


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
    numbers or not allowed. What must exist in the cloud (``custom_constraint``) is not looked up.

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
        if name not in given:
            continue
        if (schema or {}).get("type") == "number":
            try:
                float(given[name])
            except (TypeError, ValueError) as error:
                raise _wrong_value(name, str(error)) from None
        for constraint in (schema or {}).get("constraints") or ():
            if trouble := _trouble(given[name], constraint):
                raise _wrong_value(name, constraint.get("description") or trouble)


def _wrong_value(name: str, why: str) -> TemplateError:
    return TemplateError("StackValidationFailed", f"Parameter '{name}' is invalid: {why}")


def _trouble(value: Any, constraint: Mapping[str, Any]) -> str:
    """Why a value is not within a constraint; empty if it is."""
    allowed, pattern = constraint.get("allowed_values"), constraint.get("allowed_pattern")
    if allowed is not None and value not in allowed:
        return f"{value!r} is not an allowed value {allowed}"
    if pattern is not None and not re.fullmatch(str(pattern), str(value)):
        return f'"{value}" does not match pattern "{pattern}"'
    for key in ("range", "length"):
        limits = constraint.get(key) or {}
        size = (len(value) if key == "length" else float(value)) if limits else 0
        low, high = limits.get("min"), limits.get("max")
        if (low is not None and size < low) or (high is not None and size > high):
            return f"{key} of {value!r} is out of range (min: {low}, max: {high})"
    return ""


def parameters(stack: Stack, project: Project) -> dict[str, Any]:
    """Every parameter's value, pseudo parameters included."""
    declared = stack.template.get("parameters") or {}
    values = {
        name: _typed(
            stack.parameters.get(name, (s or {}).get("default")), str((s or {}).get("type"))
        )
        for name, s in declared.items()
    }
    values["OS::stack_id"] = stack.id
    values["OS::stack_name"] = stack.name
    values["OS::project_id"] = project.id
    return values


def _typed(value: Any, kind: str) -> Any:
    """A parameter's value as functions see it."""
    if kind == "comma_delimited_list" and isinstance(value, str):
        return [each.strip() for each in value.split(",")] if value else []
    if kind == "json" and isinstance(value, str):
        return load_json(value, "parameter") if value else {}
    if kind == "number" and isinstance(value, str):
        return int(value) if value.lstrip("-").isdigit() else float(value)
    if kind == "boolean" and value is not None:
        return strutils.bool_from_string(value)
    return value


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
        word = str(asked.get("index_var") or "%index%")
        members = {str(n): _numbered(definition, word, str(n)) for n in range(count)}
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


def _numbered(definition: Any, word: str, number: str) -> Any:
    """A member's definition, with its number in place of a word."""
    if isinstance(definition, dict):
        return {key: _numbered(value, word, number) for key, value in definition.items()}
    if isinstance(definition, list):
        return [_numbered(value, word, number) for value in definition]
    return definition.replace(word, number) if isinstance(definition, str) else definition
