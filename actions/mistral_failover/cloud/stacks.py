# SPDX-License-Identifier: Apache-2.0
"""Reading a Heat stack: what it is made of, and which servers are a group's members."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mistral_failover.cloud.clients import Cloud
from mistral_failover.cloud.errors import CloudError, translated

SERVER = "OS::Nova::Server"
VOLUME = "OS::Cinder::Volume"
_GROUPS = ("OS::Heat::AutoScalingGroup", "OS::Heat::ResourceGroup", "OS::Heat::InstanceGroup")


@dataclass(frozen=True, slots=True)
class StackResource:
    """A resource of a stack.

    ``physical_id`` is "" until it exists; ``created_at`` is Heat's time stamp (ISO 8601, UTC);
    ``status`` is action and status in one, such as CREATE_COMPLETE or CHECK_FAILED (unhealthy).
    """

    physical_id: str
    type: str
    created_at: str
    status: str


@dataclass(frozen=True, slots=True)
class Member:
    """A server that belongs to a group.

    ``name`` is the name of its resource in the stack or in the autoscaling group; ``created_at``
    and ``status`` are those of that resource, as in `StackResource`.
    """

    name: str
    server_id: str
    created_at: str
    status: str


def stack_map(cloud: Cloud, stack: str) -> dict[str, StackResource]:
    """Return the stack's own resources by name, with one listing.

    ``stack`` is a name, an id, or "name/id" (which saves Heat's redirect). While Heat replaces a
    resource two of one name may exist: the one that stays is returned.

    Raises `CloudError` NOT_FOUND when the project has no such stack.
    """
    found: dict[str, StackResource] = {}
    for item in _list(cloud, stack, depth=0):
        one = _resource(item)
        old = found.get(item["resource_name"])
        if old is None or _rank(old) < _rank(one):
            found[item["resource_name"]] = one
    return found


def members(
    cloud: Cloud,
    stack: str,
    *,
    servers: Sequence[str] | None = None,
    autoscaling_group: str | None = None,
) -> list[Member]:
    """Return the group's members, oldest first (of the same second: by name).

    Either ``servers``, names of server resources of the stack, or ``autoscaling_group``, the name
    of a group resource, whose servers are then found in its nested stack, also when each member
    is itself a nested stack with one server. Members without a server yet, or whose resource is
    being deleted, are left out.

    Raises `CloudError` NOT_FOUND for an unknown stack or name, and BAD_REQUEST for a resource of
    the wrong type.
    """
    if (servers is None) == (autoscaling_group is None):
        raise ValueError("give either servers or autoscaling_group")
    if servers is not None:
        found = _named_servers(cloud, stack, servers)
    else:
        found = _group_servers(cloud, stack, str(autoscaling_group))
    alive = [
        member for member in found if member.server_id and not member.status.startswith("DELETE")
    ]
    return sorted(alive, key=lambda member: (member.created_at, member.name))


def _named_servers(cloud: Cloud, stack: str, names: Sequence[str]) -> list[Member]:
    resources = stack_map(cloud, stack)
    found = []
    for name in names:
        resource = find(resources, stack, name)
        if resource.type != SERVER:
            raise wrong_type(stack, name, resource.type, "a server")
        found.append(Member(name, resource.physical_id, resource.created_at, resource.status))
    return found


def _group_servers(cloud: Cloud, stack: str, group: str) -> list[Member]:
    listed = _list(cloud, stack, depth=2)
    own = {i["resource_name"]: _resource(i) for i in listed if not i.get("parent_resource")}
    if find(own, stack, group).type not in _GROUPS:
        raise wrong_type(stack, group, own[group].type, "an autoscaling group")
    direct = {i["resource_name"]: i for i in listed if i.get("parent_resource") == group}
    found = []
    for item in listed:
        if item["resource_type"] != SERVER:
            continue
        # The member is the resource in the group; its server is that, or lies one level below.
        parent = item.get("parent_resource")
        name = str(item["resource_name"] if parent == group else parent)
        if name in direct:
            one = _resource(direct[name])
            server_id = _resource(item).physical_id
            found.append(Member(name, server_id, one.created_at, one.status))
    return found


def find(resources: dict[str, StackResource], stack: str, name: str) -> StackResource:
    """Return the resource of that name, or raise `CloudError` NOT_FOUND that lists the names."""
    if name not in resources:
        known = ", ".join(sorted(resources)) or "none"
        raise CloudError(
            "NOT_FOUND",
            f"Stack {stack} has no resource {name}; its resources are: {known}",
            remedy="Name a resource of the stack in the group file.",
        )
    return resources[name]


def wrong_type(stack: str, name: str, type_: str, wanted: str) -> CloudError:
    """Make the error for a resource that is not what the group file takes it for."""
    return CloudError(
        "BAD_REQUEST",
        f"Resource {name} of stack {stack} is not {wanted} but {type_}.",
        remedy="Name a resource of the right type in the group file.",
    )


def _list(cloud: Cloud, stack: str, depth: int) -> list[dict[str, Any]]:
    nested = {"nested_depth": depth} if depth else {}
    with translated(f"list the resources of stack {stack}"):
        # As dicts: heatclient asks the server again for an attribute that an object lacks.
        return [item.to_dict() for item in cloud.heat.resources.list(stack, **nested)]


def _resource(item: dict[str, Any]) -> StackResource:
    return StackResource(
        physical_id=item.get("physical_resource_id") or "",
        type=item["resource_type"],
        created_at=item.get("creation_time") or "",
        status=item["resource_status"],
    )


def _rank(resource: StackResource) -> tuple[bool, str]:
    return not resource.status.startswith("DELETE"), resource.created_at
