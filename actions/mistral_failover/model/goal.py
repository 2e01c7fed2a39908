# SPDX-License-Identifier: Apache-2.0
"""Goals: the desired state of a group, as one document with a version.

The document::

    {"format": 1, "group": name, "stack": stack, "roles": {role: member}, "lost": [member, ...],
     "vacant": [role, ...], "on_failure": "stop" | "rollback", "returns": true,
     "resources": {name: {"type": type, "properties": {...}, "requires": [name, ...]}}}

``get_param`` is already resolved; ``get_attr`` and ``get_resource`` are not. ``requires`` is
sorted; it contains ``depends_on`` and the resources that the properties refer to. Each lost member
has a resource ``fence:<member>``. Each member whose server must be replaced has a resource
``replace:<member>``. It names the server that must go, so that a repeat replaces nothing twice. A
group file cannot use such names. Only the goal of a planned move has ``returns``: if a step of the
move fails or needs an operator, the group returns to the goal that it reached last. Only a goal
that makes room has ``vacant``: no member can take these roles, so what belongs to them is released
and a lost member gets another server. Such a goal is never reached: a goal follows in which
members hold the roles.
"""

import copy
import functools
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from mistral_failover.model.canonical import version_of
from mistral_failover.model.errors import InvalidDocument
from mistral_failover.model.group import Group, ResourceSpec
from mistral_failover.model.references import find_references, resolve_params
from mistral_failover.model.types import check_properties

ACTIVATION = "activation"
ALARM = "alarm"
ATTACHMENT = "volume_attachment"
STACK_TEMPLATE = "stack_template"

FORMAT = 1
FENCE_TYPE = "fence"
FENCE_PREFIX = "fence:"
REPLACE_TYPE = "group_member"
REPLACE_PREFIX = "replace:"
RETURNS = "returns"
VACANT = "vacant"


@dataclass(frozen=True)
class Goal:
    """A desired state. Two goals with the same document are the same goal."""

    document: Mapping[str, Any]
    """Plain JSON, see the module. It never changes after construction."""
    passed_over: Mapping[str, str] = field(default_factory=dict, compare=False)
    """Why these members were not chosen for a role, in words. Not stored with the goal."""
    definition: str = field(default="", compare=False)
    """The version of the definition that it is derived from; empty: that of the group's current
    traversal. Stored with the traversal, because two definitions may have the same goal."""

    @functools.cached_property
    def version(self) -> str:
        """The SHA-256 of the document's canonical JSON, 64 hex digits."""
        return version_of(self.document)

    def __hash__(self) -> int:
        return hash(self.version)


@dataclass(frozen=True)
class WantedResource:
    """One resource of a goal."""

    name: str
    type: str
    properties: Mapping[str, Any]
    requires: tuple[str, ...]
    """Names of resources that must exist first, sorted."""


def render_goal(
    group: Group,
    roles: Mapping[str, str],
    lost: Iterable[str],
    *,
    returns: bool = False,
    replaced: Mapping[str, Mapping[str, Any]] | None = None,
    vacant: Iterable[str] = (),
) -> Goal:
    """Render the goal in which these members hold the ``roles`` and the ``lost`` members are
    fenced.

    :param roles: a member for each role of the group that is not ``vacant``.
    :param returns: whether the goal belongs to a planned move, see the module.
    :param replaced: by member, the properties of its replacement without ``member``: ``server_id``,
        the server that must go, and optionally ``resource`` and ``order``.
    :param vacant: the roles that no member holds. The goal has none of their resources, see the
        module.
    :raises InvalidDocument: when a role is missing or unknown; when a role is given to a lost
        member, to one that is replaced or to one that the group does not have; or when a property
        breaks its type's schema.
    """
    gone, free = sorted(set(lost)), sorted(set(vacant))
    _check_roles(group, roles, gone, free)
    without = _of_roles(group, free)
    resources = {
        name: _rendered(group, spec, roles)
        for name, spec in sorted(group.resources.items())
        if name not in without
    }
    for member, properties in sorted((replaced or {}).items()):
        _check_without_role(roles, member)
        resources[replace_name(member)] = _replacement(group, member, properties)
    document = _document(group, roles, gone, resources)
    said = {**({RETURNS: True} if returns else {}), **({VACANT: free} if free else {})}
    return Goal({**document, **said}, definition=group.version)


def empty_goal(group: Group, lost: Iterable[str] = ()) -> Goal:
    """Return the goal for removing the group: it only fences the ``lost`` members."""
    return Goal(_document(group, {}, sorted(set(lost)), {}), definition=group.version)


def restored_goal(target: Goal, present: Goal, recovered: Iterable[str] = ()) -> Goal:
    """Return the goal that restores ``target`` under the current facts of ``present``.

    A rollback does not change which members are lost. It never lifts a fence, and it never
    fences a member that has recovered since. So if the lost members differ, the result is a new
    goal. If they do not, it is ``target`` without two things: without ``returns``, because coming
    back is not a planned move, and without replacements, because an old goal must not replace a
    server. Instead it keeps the replacements of lost members from ``present``. Its definition is
    that of ``target``.

    :param recovered: members that are lost in ``present`` and that an operator confirms as
        recovered.
    :raises InvalidDocument: when a role of ``target`` was held by a member that is lost now.
    """
    lost = sorted(set(present.document["lost"]).difference(recovered))
    for role, member in sorted(target.document["roles"].items()):
        if member in lost:
            raise InvalidDocument(
                f"roles.{role}",
                f'"{member}" held it in that goal, but is now declared lost',
                f"If {member} is healthy again, add --recovered {member}; otherwise choose "
                "another goal.",
            )
    present_resources = present.document["resources"]
    resources = {
        name: entry
        for name, entry in target.document["resources"].items()
        if not name.startswith((FENCE_PREFIX, REPLACE_PREFIX))
    }
    fences = {
        name: present_resources[name]
        for member in lost
        for name in (fence_name(member), replace_name(member))
        if name in present_resources
    }
    document = {key: value for key, value in target.document.items() if key != RETURNS}
    restored = {**document, "lost": lost, "resources": {**resources, **fences}}
    return Goal(restored, definition=target.definition)


def vacant_roles(goal: Goal) -> tuple[str, ...]:
    """Return the roles that no member holds, see the module; of most goals none."""
    return tuple(goal.document.get(VACANT, ()))


def returns(goal: Goal) -> bool:
    """Return whether the goal belongs to a planned move, see the module."""
    return goal.document.get(RETURNS) is True


def resource_names(goal: Goal) -> frozenset[str]:
    """Return the names of the resources of a goal."""
    return frozenset(goal.document["resources"])


def goal_resources(goal: Goal, of_type: str | None = None) -> list[WantedResource]:
    """Return the resources of a goal, or those of a type, sorted by name."""
    return [
        WantedResource(
            name, entry["type"], copy.deepcopy(entry["properties"]), tuple(entry["requires"])
        )
        for name, entry in sorted(goal.document["resources"].items())
        if of_type is None or entry["type"] == of_type
    ]


def application_roles(group: Group) -> list[str]:
    """Return the roles of a group whose holder starts an application, in the group's order."""
    named = {
        group.role_of(each.name) for each in group.resources.values() if each.type == ACTIVATION
    }
    return [role for role in group.roles if role in named]


def goal_members(goal: Goal) -> frozenset[str]:
    """Return the members that a goal names: they hold a role, are lost, or have a resource that
    says its ``member``."""
    of = (entry["properties"].get("member") for entry in goal.document["resources"].values())
    named = {member for member in of if isinstance(member, str)}
    return frozenset({*goal.document["roles"].values(), *goal.document["lost"], *named})


def fence_name(member: str) -> str:
    """Return the name of the resource that fences a member."""
    return f"{FENCE_PREFIX}{member}"


def replace_name(member: str) -> str:
    """Return the name of the resource that replaces a member's server."""
    return f"{REPLACE_PREFIX}{member}"


def _document(
    group: Group, roles: Mapping[str, str], lost: list[str], resources: dict[str, Any]
) -> dict[str, Any]:
    fences = {fence_name(member): _fence(group, member) for member in lost}
    return {
        "format": FORMAT,
        "group": group.name,
        "stack": group.stack,
        "roles": dict(sorted(roles.items())),
        "lost": lost,
        "on_failure": group.on_failure,
        "resources": {**resources, **fences},
    }


def _rendered(group: Group, spec: ResourceSpec, roles: Mapping[str, str]) -> dict[str, Any]:
    properties = resolve_params(spec.properties, roles)
    check_properties(group.types[spec.type], properties, f"resources.{spec.name}.properties")
    referred = {ref.target for ref in find_references(properties)}
    return {
        "type": spec.type,
        "properties": properties,
        "requires": sorted(referred.union(spec.depends_on)),
    }


def _fence(group: Group, member: str) -> dict[str, Any]:
    ladder = [dict(rung) for rung in group.fence]
    return {
        "type": FENCE_TYPE,
        "properties": {"member": member, "ladder": ladder},
        "requires": [],
    }


def _replacement(group: Group, member: str, properties: Mapping[str, Any]) -> dict[str, Any]:
    stated = {"member": member, "resource": None, **properties}
    path = f"resources.{replace_name(member)}.properties"
    check_properties(group.types[REPLACE_TYPE], stated, path)
    return {"type": REPLACE_TYPE, "properties": stated, "requires": []}


def _check_without_role(roles: Mapping[str, str], member: str) -> None:
    for role, holder in sorted(roles.items()):
        if holder == member:
            raise InvalidDocument(
                f"roles.{role}",
                f'"{member}" will be replaced',
                "Assign the role to another member.",
            )


def _of_roles(group: Group, roles: Collection[str]) -> frozenset[str]:
    """Return the resources of a group file that cannot be without these roles: they name one, or
    require a resource that does."""
    found: set[str] = set()
    known = -1
    while roles and known < len(found):
        known = len(found)
        for name, spec in group.resources.items():
            said = find_references(spec.properties)
            named = any(ref.kind == "get_param" and ref.target in roles for ref in said)
            if named or found.intersection([*spec.depends_on, *(ref.target for ref in said)]):
                found.add(name)
    return frozenset(found)


def _check_roles(
    group: Group, roles: Mapping[str, str], lost: list[str], vacant: list[str]
) -> None:
    for role in sorted({*roles, *vacant} ^ set(group.roles) | roles.keys() & set(vacant)):
        problem = "has no member" if role in group.roles else "is not a role of the group"
        raise InvalidDocument(
            f"roles.{role}", f'"{role}" {problem}', f"Roles: {', '.join(group.roles)}."
        )
    for role, member in sorted(roles.items()):
        if member in lost:
            raise InvalidDocument(
                f"roles.{role}", f'"{member}" is lost', "Assign the role to another member."
            )
        if group.members.servers and member not in group.members.servers:
            raise InvalidDocument(
                f"roles.{role}",
                f'"{member}" is not a member',
                f"Members: {', '.join(group.members.servers)}.",
            )
