# SPDX-License-Identifier: Apache-2.0
"""Find which servers of a Heat stack are a group's members, and where Heat has them.

A member is a server, or a stack in which there is one server, at any level. The name of a
resource's type does not tell whether it is a server: an environment may have a server behind any
name, and a stack behind the name of servers. So a resource is a server if

- it is of Heat's type for servers, or of an alias that the stack's environment explains, and no
  stack is behind it (``cloud.stacks``); or
- nothing explains its type, so the operator of the cloud has defined it, and the group file names
  it or its group, or Nova knows its id. Without this rule a group would lose a member of such a
  type when Nova loses the server, and could not fail over.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from oslo_utils import uuidutils

from mistral_failover.cloud.clients import Cloud
from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.servers import server_state
from mistral_failover.cloud.stacks import (
    DEPTH,
    StackResource,
    find,
    is_in_stack_itself,
    latest,
    listing,
    no_such_resource,
    owner_of,
    wrong_type,
)

_GROUPS = ("OS::Heat::AutoScalingGroup", "OS::Heat::ResourceGroup", "OS::Heat::InstanceGroup")
_SHOWN = 12
"""The resources that an error lists at most."""
_REMEDY = (
    "A member is an OS::Nova::Server, an alias of it, or a stack with one server: correct members "
    "in the group file, or the stack's template."
)


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


@dataclass(frozen=True, slots=True)
class StackLocation:
    """A member's place in Heat, or that of a resource of the member's own stack.

    ``stack``: name or id of the stack that has the resource ``name``, whose latest state is
    ``resource``; ``server_id``: the member's server, "" while it has none; ``beside``: the
    resources of the stack that the member is in, itself included, by name.
    """

    stack: str
    name: str
    resource: StackResource
    server_id: str
    beside: dict[str, StackResource]


def members(
    cloud: Cloud,
    stack: str,
    *,
    servers: Sequence[str] | None = None,
    autoscaling_group: str | None = None,
) -> list[Member]:
    """Return the group's members, oldest first (of the same second: by name).

    Either ``servers``, names of resources of the stack, or ``autoscaling_group``, the name of a
    group resource, whose members are in its nested stack. Members without a server yet, or whose
    resource is being deleted, are left out.

    Raises `CloudError` NOT_FOUND for an unknown stack or name, and BAD_REQUEST, with what the stack
    has, for a resource of the wrong type, a member with several servers, and a group whose complete
    members are no servers.
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


def locate(
    cloud: Cloud,
    stack: str,
    member: str,
    *,
    autoscaling_group: str | None = None,
    resource: str | None = None,
) -> StackLocation:
    """Find a member in Heat: a resource of the stack itself, or what is in its group.

    ``resource``: a resource in the member's own stack, instead of the whole member.

    Raises `CloudError` NOT_FOUND for an unknown stack or name, BAD_REQUEST as `members`, and for a
    ``resource`` of a member that is not a stack.
    """
    tree = _read(cloud, stack, [member] if autoscaling_group is None else None)
    if autoscaling_group is None:
        owner, inside = stack, tree.own
        one = find(inside, stack, member)
        _refuse_other_types(stack, member, one)
    else:
        group, inside = _in_group(tree, autoscaling_group)
        owner = group.physical_id
        one = find(inside, f"{stack}, group {autoscaling_group},", member)
    server_id = tree.server_of(member, one)
    if resource is None:
        return StackLocation(owner, member, one, server_id, inside)
    if not one.nested:
        raise CloudError(
            "BAD_REQUEST",
            f"Member {member} of stack {stack} is a single server, not a stack, so it has no "
            f"resource {resource}.",
            remedy="Replace the whole member.",
        )
    part = find(tree.within(one), f"of member {member} of {stack}", resource)
    return StackLocation(one.physical_id, resource, part, server_id, inside)


class _Tree:
    """The resources of a stack, and of the stacks in it. ``own``: those of the stack itself, by
    name."""

    def __init__(self, cloud: Cloud, stack: str, listed: Sequence[dict[str, Any]]) -> None:
        self.stack = stack
        self.own = latest(item for item in listed if is_in_stack_itself(item))
        self._cloud = cloud
        self._listed = listed

    def within(self, one: StackResource) -> dict[str, StackResource]:
        """Return the resources of the stack behind a resource, by name.

        It uses that stack's id: while a member is replaced, two stacks have the same parent's name.
        """
        inside = (i for i in self._listed if one.physical_id and owner_of(i) == one.physical_id)
        return latest(inside)

    def server_of(self, name: str, one: StackResource) -> str:
        """Return the id of the server that a member is or contains, at the first level that has
        one; "" while there is none. Raises `CloudError` BAD_REQUEST for several."""
        if one.is_server or one.unresolved:
            return one.physical_id
        level = [part for part in self._parts(one) if _stays(part)]
        while level:
            servers = [part.physical_id for part in level if part.is_server]
            servers = servers or [p.physical_id for p in level if p.unresolved and self._known(p)]
            if len(servers) > 1:
                raise CloudError(
                    "BAD_REQUEST",
                    f"Member {name} of stack {self.stack} has {len(servers)} servers "
                    f"({', '.join(servers)}), so it is unclear which of them is the member.",
                    remedy="Give each member a stack with one server.",
                )
            if servers:
                return servers[0]
            level = [part for each in level for part in self._parts(each) if _stays(part)]
        return ""

    def described(self, resources: Iterable[tuple[str, StackResource]]) -> str:
        """Return in words what there is, with what is in it."""
        words = []
        for name, one in resources:
            inside = ", ".join(f"{n} ({p.type})" for n, p in self.within(one).items())
            words.append(f"{name} ({one.type}{f' with {inside}' if inside else ''})")
        more = [f"{len(words) - _SHOWN} more"] if len(words) > _SHOWN else []
        return ", ".join(words[:_SHOWN] + more)

    def names_below(self, one: StackResource) -> set[str]:
        """Return the names of everything in the stacks behind a resource."""
        inside = self.within(one) if one.nested else {}
        return set(inside).union(*(self.names_below(part) for part in inside.values()))

    def _parts(self, one: StackResource) -> Iterable[StackResource]:
        return self.within(one).values() if one.nested else ()

    def _known(self, one: StackResource) -> bool:
        """Return whether Nova has a server with the id of a resource."""
        identity = one.physical_id
        return uuidutils.is_uuid_like(identity) and server_state(self._cloud, identity).exists


def _read(cloud: Cloud, stack: str, names: Sequence[str] | None) -> _Tree:
    """Return what is needed of a stack to find these of its resources, or the members of a
    group."""
    if names is not None:
        tree = _Tree(cloud, stack, listing(cloud, stack, depth=0))
        if not any(tree.own[name].nested for name in names if name in tree.own):
            return tree
    return _Tree(cloud, stack, listing(cloud, stack, DEPTH))


def _stays(one: StackResource) -> bool:
    return not one.status.startswith("DELETE")


def _named_servers(cloud: Cloud, stack: str, names: Sequence[str]) -> list[Member]:
    tree = _read(cloud, stack, names)
    found = []
    for name in names:
        if name not in tree.own:
            raise _not_in_itself(cloud, tree, name)
        one = tree.own[name]
        _refuse_other_types(stack, name, one)
        server_id = tree.server_of(name, one)
        if not server_id and one.nested and _is_complete(one):
            raise CloudError(
                "BAD_REQUEST",
                f"Resource {name} of stack {stack} has no server in {DEPTH} levels of stacks: it "
                f"is {tree.described([(name, one)])}.",
                remedy=_REMEDY,
            )
        found.append(Member(name, server_id, one.created_at, one.status))
    return found


def _not_in_itself(cloud: Cloud, tree: _Tree, name: str) -> CloudError:
    """Return the error for a name that the stack itself lacks. It also says in which of its stacks
    there is such a resource."""
    deep = _read(cloud, tree.stack, None)
    around = [n for n, one in deep.own.items() if one.nested and name in deep.names_below(one)]
    if not around:
        return no_such_resource(tree.own, tree.stack, name)
    return no_such_resource(
        tree.own,
        tree.stack,
        name,
        f". A resource {name} is in the stack behind {', '.join(around)}",
        f"Name {around[0]} in the group file: a stack with one server is a member.",
    )


def _refuse_other_types(stack: str, name: str, one: StackResource) -> None:
    if not (one.is_server or one.nested or one.unresolved):
        raise wrong_type(stack, name, one.type, "a server")


def _group_servers(cloud: Cloud, stack: str, group: str) -> list[Member]:
    tree = _read(cloud, stack, None)
    inside = _in_group(tree, group)[1]
    found = [
        Member(name, tree.server_of(name, one), one.created_at, one.status)
        for name, one in inside.items()
    ]
    complete = [(name, one) for name, one in inside.items() if _is_complete(one)]
    if complete and not any(member.server_id for member in found):
        raise CloudError(
            "BAD_REQUEST",
            f"Group {group} of stack {stack} has no server in {DEPTH} levels of stacks. Its "
            f"members are {tree.described(complete)}.",
            remedy=_REMEDY,
        )
    return found


def _is_complete(one: StackResource) -> bool:
    return _stays(one) and one.status.endswith("_COMPLETE") and not one.status.startswith("INIT")


def _in_group(tree: _Tree, group: str) -> tuple[StackResource, dict[str, StackResource]]:
    """Return the resource of a group, and its members by name."""
    one = find(tree.own, tree.stack, group)
    if one.type not in _GROUPS:
        raise wrong_type(tree.stack, group, one.type, "an autoscaling group")
    return one, tree.within(one)
