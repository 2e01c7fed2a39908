# SPDX-License-Identifier: Apache-2.0
"""Group files: what is protected, and how.

A group file looks like a Heat template::

    failover_template_version: 2026-11-21
    description: PostgreSQL on one shared volume
    stack: payments
    members:
      servers: [db_a, db_b]           # or  autoscaling_group: db_servers
      choose: oldest                  # who is next: oldest (default), newest, or a member
      priority: {db_b: 80}            # 0 to 100, default 50; 0: takes no role by itself
    roles: [active]                   # the default; each is a parameter whose value is a member
    resources:
      data:
        type: volume_attachment
        properties: {volume: data_volume, server: {get_param: active}}
        depends_on: []                # a name, or a list of names
    fence: [{kind: quiesce, limit: 10}, stop, confirm]
    limits: {cooldown: 60, per_hour: 3, patience: 3600, boot: 300}
    on_failure: stop                  # stop (default) or rollback
    heal: repair                      # report, repair (default) or failover
    workflow: house.failover          # your own chain; default failover.converge
    on_event: {workflow: house.tell}  # and events: [blocked, failed]; default: all of them
    rehearsal: {checks: [newest-row]}  # see model.rehearsals

A group may have no ``stack``. Then the file names servers and volumes of the project, by name, id
or tag (``model.named``), and the group::

    name: payments
    members:
      servers: {db_a: {tag: role=db-a}, db_b: {id: 5f0c...}}   # or a list of names
    resources:
      data:
        type: volume_attachment
        properties: {volume: {name: data}, server: {get_param: active}}

A rung of the fence is the name of a kind (``model.rungs``), or a mapping of ``kind``, ``limit`` in
seconds and the fields of the kind; ``{workflow: name}`` needs no ``kind``. Roles may also be a
mapping of each name to ``prefer``, a list of members, and ``weight`` (see ``model.roles``).
``cooldown``, ``patience`` and ``boot`` are in seconds. Every check that needs no cloud is made
here.
"""

import graphlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from mistral_failover.model import rehearsals
from mistral_failover.model.documents import read_document
from mistral_failover.model.errors import InvalidDocument, UnknownMember, UnknownResource
from mistral_failover.model.named import WAYS, Identity, Named, Thing, read_named
from mistral_failover.model.references import Reference, find_references, holds_reference
from mistral_failover.model.rehearsals import RehearsalSpec, read_rehearsal
from mistral_failover.model.restarts import ANOTHER_SERVER, USUAL, read_restart
from mistral_failover.model.roles import RoleSpec, check_preferences, read_roles
from mistral_failover.model.rungs import Rung, read_rung, rung_kind
from mistral_failover.model.schemas import EVENTS, MAX_SECONDS
from mistral_failover.model.types import (
    ResourceType,
    check_properties,
    ignored_types,
    installed_types,
    load_type,
)
from mistral_failover.model.validation import check_grammar, did_you_mean, distinct

DEFAULT_LADDER = ("quiesce", "stop", "confirm")
PRIVATE_WORKFLOWS = "failover._"
"""The prefix of workflow names that only the engine may use."""
SHIPPED_WORKFLOWS = "failover."
SHIPPED_CHAIN = "failover.converge"
"""The workflow that carries out traversals, unless a group file names another one."""
INTERNAL_TYPES = frozenset({"fence", "group_member"}) | rehearsals.TYPES
"""Types that only the engine may use."""


@dataclass(frozen=True)
class MembersSpec:
    """The members of the group: named servers, or those of an autoscaling group of the stack."""

    servers: tuple[str, ...] = ()
    autoscaling_group: str | None = None
    choose: str = "oldest"
    """Which member takes a vacant role: ``oldest``, ``newest`` or a member's name."""
    priority: Mapping[str, int] = field(default_factory=dict)
    """The preference for a member when roles are assigned, 0 to 100; see ``model.roles``."""
    replace: Literal["never", "lost"] = "never"
    """``lost``: a member that an alarm declares lost is brought back."""
    when_no_standby: Literal["replace", "wait"] = "wait"
    """What happens to a role that no member can take. ``replace``: a lost member is brought back
    and takes it. ``wait``: it waits for a member."""
    restart: tuple[str, ...] = USUAL
    """The ways to bring a lost member back, tried in order; see ``model.restarts``."""
    known: Mapping[str, Identity] = field(default_factory=dict)
    """Without a stack, the server that was found behind each member when the file was accepted."""

    @property
    def cold(self) -> bool:
        """Whether a lost member is brought back if no other can take its role."""
        return self.when_no_standby == "replace"

    @property
    def makes_servers(self) -> bool:
        """Whether a lost member may get another server without an order."""
        return (self.cold or self.replace == "lost") and ANOTHER_SERVER in self.restart


@dataclass(frozen=True)
class ResourceSpec:
    """One resource as in the group file, with unresolved intrinsic functions."""

    name: str
    type: str
    properties: Mapping[str, Any]
    depends_on: tuple[str, ...] = ()


@dataclass(frozen=True)
class Hook:
    """A user's workflow that is started once for each of these events."""

    workflow: str
    events: tuple[str, ...] = EVENTS


@dataclass(frozen=True)
class Limits:
    """How often a group may fail over by itself, and how long it waits for a service."""

    cooldown: float = 60.0
    """Seconds after an admitted alarm during which further alarms are held."""
    per_hour: int = 3
    """Alarms that are admitted, and attempts to bring a member back, at most."""
    patience: float = 3600.0
    """Seconds for which an operation is retried while a service does not answer; 0: no retry."""
    boot: float = 300.0
    """Seconds in which a server that is started again has to be ACTIVE and its agent heard."""


@dataclass(frozen=True)
class Group:
    """A group file that has passed every check."""

    name: str
    description: str
    stack: str | None
    """The stack that has the members, by name or id. None: the group has none, and ``named`` says
    what it has."""
    members: MembersSpec
    roles: tuple[str, ...]
    role_specs: Mapping[str, RoleSpec]
    resources: Mapping[str, ResourceSpec]
    fence: tuple[Rung, ...]
    limits: Limits
    on_failure: Literal["stop", "rollback"]
    priority: int
    """Of several groups that fail at once, those with a higher priority start first."""
    heal: Literal["report", "repair", "failover"]
    """What happens after an observation. ``report``: nothing. ``repair``: safe repairs are made.
    ``failover``: in addition, the loss of an active server starts a failover."""
    workflow: str | None
    """The chain that carries out its traversals; None: failover.converge."""
    on_event: Hook | None
    types: Mapping[str, ResourceType] = field(repr=False)
    """Every type by name: installed types and the user's."""
    definition: dict[str, Any] = field(repr=False)
    """The group file as given; this is stored."""
    rehearsal: RehearsalSpec = RehearsalSpec()
    """How its failover is rehearsed."""
    named: tuple[Named, ...] = ()
    """Without a stack, what the file names and the cloud has to find."""
    identities: Mapping[str, Identity] = field(default_factory=dict)
    """By path, what was found of that; stored with the definition."""
    version: str = ""
    """The version of the stored definition; empty: it is not stored."""

    @property
    def place(self) -> str:
        """Return in words where its members and volumes come from."""
        return "the group file" if self.stack is None else f"stack {self.stack}"

    def role_of(self, resource: str) -> str | None:
        """Return the role whose holder has a resource of the group file; None if it belongs to
        none."""
        spec = self.resources.get(resource)
        name = self.types[spec.type].member_property if spec else None
        said = spec.properties.get(name) if spec and name else None
        return said.get("get_param") if isinstance(said, dict) else None


def parse_group(
    source: str | bytes | Mapping[str, Any],
    *,
    name: str | None = None,
    types: Iterable[str | bytes | Mapping[str, Any] | ResourceType] = (),
    identities: Mapping[str, Identity] = MappingProxyType({}),
) -> Group:
    """Read a group file: its YAML text, or the mapping parsed from it.

    :param name: the group's name; default: the file's ``name``, else the name of the stack.
    :param types: the user's type files, in addition to the installed types.
    :param identities: by path, what was found behind what a group without a stack names. What is
        missing stays as it is named, for checks of the file alone.
    :raises InvalidDocument: when it breaks the grammar or is inconsistent.
    """
    definition = read_document(source, "group file")
    check_grammar("group", definition)
    if name is not None:
        check_grammar("name", name, "name")
    roles = read_roles(definition.get("roles", ["active"]))
    stack, known_types = definition.get("stack"), _types(types)
    called = definition.get("name", stack) if name is None else name
    if called is None:
        raise InvalidDocument(
            "name",
            "a group without a stack needs a name of its own",
            "Write name: NAME in the group file, or give it: --name NAME. With a Heat stack, name "
            "the stack.",
        )
    named = [] if stack is not None else _named_servers(definition["members"])
    group = Group(
        name=called,
        description=definition.get("description", ""),
        stack=stack,
        members=_members(definition["members"], stack, named, identities),
        roles=tuple(roles),
        role_specs=roles,
        resources={
            resource: _resource(resource, given, stack, known_types, named, identities)
            for resource, given in definition["resources"].items()
        },
        fence=_fence(definition.get("fence", DEFAULT_LADDER)),
        limits=_limits(definition.get("limits", {})),
        on_failure=definition.get("on_failure", "stop"),
        priority=definition.get("priority", 0),
        heal=definition.get("heal", "repair"),
        workflow=_chain(definition.get("workflow")),
        on_event=_hook(definition.get("on_event")),
        types=known_types,
        rehearsal=read_rehearsal(definition.get("rehearsal", {}), list(roles)),
        named=tuple(named),
        identities={each.path: identities[each.path] for each in named if each.path in identities},
        definition=definition,
    )
    members = group.members
    if stack is None:
        _refuse_what_needs_a_stack(group)
    check_preferences(roles, members.priority, members.choose, members.servers)
    for spec in group.resources.values():
        _check_resource(group, spec)
    _check_cycles(group)
    return group


def _named_servers(given: Mapping[str, Any]) -> list[Named]:
    """Return how a file without a stack names its members' servers."""
    servers = given.get("servers", ())
    if isinstance(servers, Mapping):
        return [
            read_named(name if said is None else said, f"members.servers.{name}", Thing.SERVER)
            for name, said in servers.items()
        ]
    return [
        read_named(name, f"members.servers[{number}]", Thing.SERVER)
        for number, name in enumerate(servers)
    ]


def _refuse_what_needs_a_stack(group: Group) -> None:
    """Refuse what only Heat does, in a group without a stack. What Nova does by itself stays."""
    members = group.definition["members"]
    if group.members.autoscaling_group is not None:
        raise InvalidDocument(
            "members.autoscaling_group",
            "an autoscaling group belongs to a stack, and the group has none",
            "Name the servers instead (members.servers), or the stack.",
        )
    ways = "Write restart: [start], or [start, evacuate] if Nova may move the server; or name the "
    if ANOTHER_SERVER in members.get("restart", ()):
        raise InvalidDocument(
            f"members.restart[{members['restart'].index(ANOTHER_SERVER)}]",
            f"by {ANOTHER_SERVER} Heat makes another server, and the group has no stack",
            f"{ways}stack.",
        )
    for key, wish in (("replace", "lost"), ("when_no_standby", "replace")):
        if members.get(key) == wish and "restart" not in members:
            raise InvalidDocument(
                f"members.{key}",
                "a lost member would be brought back by another server, which Heat makes, and the "
                "group has no stack",
                f"{ways}stack.",
            )
    for spec in group.resources.values():
        if spec.type in group.types and group.types[spec.type].of_stack:
            raise InvalidDocument(
                f"resources.{spec.name}.type",
                f"a {spec.type} changes the group's stack, and the group has none",
                "Name the stack; or lead clients by a floating_ip, virtual_ip, port, "
                "load_balancer_member or dns_record.",
            )


def _members(
    given: Mapping[str, Any],
    stack: str | None,
    named: Iterable[Named],
    identities: Mapping[str, Identity],
) -> MembersSpec:
    if stack is not None and isinstance(given.get("servers"), Mapping):
        raise InvalidDocument(
            "members.servers",
            "with a stack the members are resources of it, which have a name only",
            "Write a list of names; or leave out the stack.",
        )
    if ("servers" in given) == ("autoscaling_group" in given):
        raise InvalidDocument(
            "members",
            "it takes either servers or autoscaling_group",
            "Name the servers, or the autoscaling group that creates them.",
        )
    servers = distinct(list(given.get("servers", [])), "members.servers")
    choose = given.get("choose", "oldest")
    if servers and choose not in ("oldest", "newest", *servers):
        remedy = did_you_mean(choose, ["oldest", "newest", *servers])
        raise UnknownMember("members.choose", choose, remedy)
    replaced = given.get("replace", "never")
    return MembersSpec(
        servers,
        given.get("autoscaling_group"),
        choose,
        dict(given.get("priority", {})),
        replaced,
        given.get("when_no_standby", "replace" if replaced == "lost" else "wait"),
        _restart(given, stack),
        {
            name: identities[each.path]
            for name, each in zip(servers, named, strict=stack is None)
            if each.path in identities
        },
    )


def _restart(given: Mapping[str, Any], stack: str | None) -> tuple[str, ...]:
    if "restart" in given:
        return read_restart(given["restart"], "members.restart")
    return tuple(way for way in USUAL if stack is not None or way != ANOTHER_SERVER)


def _resource(
    name: str,
    given: Mapping[str, Any],
    stack: str | None,
    types: Mapping[str, ResourceType],
    named: list[Named],
    identities: Mapping[str, Identity],
) -> ResourceSpec:
    """Return a resource. Without a stack, what it names is added to ``named``, and its properties
    have the ids."""
    depends_on, properties = given.get("depends_on", []), given.get("properties", {})
    names = [depends_on] if isinstance(depends_on, str) else depends_on
    things = types[given["type"]].names if given["type"] in types else {}
    for key in sorted(things.keys() & properties.keys()):
        value, path = properties[key], f"resources.{name}.properties.{key}"
        mapped = isinstance(value, Mapping) and not WAYS.isdisjoint(value)
        if stack is not None or (holds_reference(value) and not mapped):
            continue
        one = read_named(value, path, things[key])
        if one.by != "id":
            named.append(one)
        found = identities[path]["id"] if path in identities else one.value
        properties = {**properties, key: found}
    return ResourceSpec(name, given["type"], properties, tuple(dict.fromkeys(names)))


def _chain(given: str | None) -> str | None:
    """Return the group's own chain, or None. The only shipped chain is failover.converge."""
    if given is None or given == SHIPPED_CHAIN:
        return None
    if given.startswith(SHIPPED_WORKFLOWS):
        raise InvalidDocument(
            "workflow",
            f'"{given}" is not a workflow for failovers',
            f"Name a workflow of your own that calls the stages, or {SHIPPED_CHAIN}.",
        )
    return given


def _hook(given: Mapping[str, Any] | None) -> Hook | None:
    if given is None:
        return None
    if given["workflow"].startswith(PRIVATE_WORKFLOWS):
        raise InvalidDocument(
            "on_event.workflow",
            f'"{given["workflow"]}" is private',
            "Name a workflow of your own.",
        )
    return Hook(given["workflow"], tuple(given.get("events", EVENTS)))


def _fence(given: Iterable[Any]) -> tuple[Rung, ...]:
    rungs: list[Rung] = []
    names: set[tuple[str, str]] = set()
    for index, entry in enumerate(given):
        rung = read_rung(entry, f"fence[{index}]")
        name = rung_kind(rung["kind"]).name(rung)
        if (rung["kind"], name) in names:
            raise InvalidDocument(
                f"fence[{index}]", f"{name} occurs twice on the ladder", "Keep one of them."
            )
        names.add((rung["kind"], name))
        rungs.append(rung)
    if sum(rung_kind(rung["kind"]).longest(rung) for rung in rungs) > MAX_SECONDS:
        raise InvalidDocument(
            "fence", f"the limits add up to more than {MAX_SECONDS} seconds", "Lower some of them."
        )
    return tuple(rungs)


def _limits(given: Mapping[str, Any]) -> Limits:
    return Limits(
        float(given.get("cooldown", Limits.cooldown)),
        int(given.get("per_hour", Limits.per_hour)),
        float(given.get("patience", Limits.patience)),
        float(given.get("boot", Limits.boot)),
    )


def _types(given: Iterable[Any]) -> dict[str, ResourceType]:
    known = installed_types()
    for source in given:
        resource_type = source if isinstance(source, ResourceType) else load_type(source)
        if resource_type.name in known:
            raise InvalidDocument(
                "name",
                f'a type named "{resource_type.name}" already exists',
                "Choose another name.",
            )
        known[resource_type.name] = resource_type
    return known


def _check_resource(group: Group, spec: ResourceSpec) -> None:
    path = f"resources.{spec.name}"
    usable = group.types.keys() - INTERNAL_TYPES
    if spec.type not in usable:
        remedy = " ".join((did_you_mean(spec.type, usable), *ignored_types()))
        raise InvalidDocument(f"{path}.type", f'unknown type "{spec.type}"', remedy)
    for name in spec.depends_on:
        _check_known(group, name, f"{path}.depends_on")
    resource_type = group.types[spec.type]
    properties = f"{path}.properties"
    for key, value in spec.properties.items():
        for reference in _references(value, f"{properties}.{key}"):
            _check_reference(group, reference)
            if (
                reference.kind != "get_param"
                and key in resource_type.immutable
                and resource_type.replace == "delete_first"
            ):
                raise InvalidDocument(
                    reference.where,
                    f'"{key}" cannot use {reference.kind}: a change of it replaces the '
                    "resource, and the old resource is removed before the new value is known",
                    "Write the value, or use get_param.",
                )
    check_properties(resource_type, spec.properties, properties)
    _check_member(group, resource_type, spec)


def _check_member(group: Group, resource_type: ResourceType, spec: ResourceSpec) -> None:
    """Check that a resource follows a role. A resource that is fixed to one member could not leave
    it if that member is lost. A server outside the group would never be fenced."""
    key = resource_type.member_property
    if key is None or key not in spec.properties:
        return
    value = spec.properties[key]
    if isinstance(value, Mapping) and set(value) == {"get_param"}:
        return
    raise InvalidDocument(
        f"resources.{spec.name}.properties.{key}",
        "it names the member that has the resource, which must follow a role",
        f"Write {{get_param: {group.roles[0]}}}.",
    )


def _references(value: Any, path: str) -> list[Reference]:
    try:
        found = find_references(value)
    except InvalidDocument as error:
        raise InvalidDocument(_below(path, error.path), error.message, error.remedy) from None
    return [
        Reference(each.kind, each.target, each.path, _below(path, each.where)) for each in found
    ]


def _below(path: str, rest: str) -> str:
    return f"{path}{rest}" if not rest or rest.startswith("[") else f"{path}.{rest}"


def _check_reference(group: Group, reference: Reference) -> None:
    where, target = reference.where, reference.target
    if reference.kind == "get_param":
        if target not in group.roles:
            raise InvalidDocument(
                where,
                f'unknown parameter "{target}": the parameters are the roles',
                did_you_mean(target, group.roles),
            )
        return
    _check_known(group, target, where)
    if reference.kind == "get_attr":
        resource_type = group.types.get(group.resources[target].type)
        attribute = str(reference.path[0])
        if resource_type is not None and attribute not in resource_type.attributes:
            raise InvalidDocument(
                where,
                f'a {resource_type.name} has no attribute "{attribute}"',
                did_you_mean(attribute, resource_type.attributes),
            )


def _check_known(group: Group, name: str, path: str) -> None:
    if name not in group.resources:
        raise UnknownResource(path, name, did_you_mean(name, group.resources))


def _check_cycles(group: Group) -> None:
    needs: dict[str, set[str]] = {
        spec.name: {
            *spec.depends_on,
            *(each.target for each in find_references(spec.properties) if each.kind != "get_param"),
        }
        for spec in group.resources.values()
    }
    try:
        # Not networkx.find_cycle: it takes quadratic time if there is no cycle.
        graphlib.TopologicalSorter(needs).prepare()
    except graphlib.CycleError as error:
        # In this list each name is needed by the next one, and the last is the first again.
        cycle = error.args[1][:0:-1]
    else:
        return
    start = cycle.index(min(cycle))
    names = [*cycle[start:], *cycle[:start], cycle[start]]
    raise InvalidDocument(
        f"resources.{names[0]}",
        f"resources depend on each other in a circle: {' -> '.join(names)}",
        "Remove one of their depends_on, get_attr or get_resource.",
    )
