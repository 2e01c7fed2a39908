# SPDX-License-Identifier: Apache-2.0
"""Read a Heat stack: its resources, and which servers are a group's members."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from oslo_utils import uuidutils

from mistral_failover.cloud.absence import STACK, refuse_listed
from mistral_failover.cloud.clients import Cloud
from mistral_failover.cloud.errors import CloudError, translated
from mistral_failover.cloud.fields import Field
from mistral_failover.cloud.url_paths import stack_segments

SERVER = "OS::Nova::Server"
VOLUME = "OS::Cinder::Volume"
_GROUPS = ("OS::Heat::AutoScalingGroup", "OS::Heat::ResourceGroup", "OS::Heat::InstanceGroup")
_PHYSICAL_ID, _CREATED = Field("Heat", "physical_resource_id"), Field("Heat", "creation_time")
_PARENT = Field("Heat", "parent_resource")  # not of the stack's own resources
_ADDRESSES = 10_000
"""The maximum number of addresses that are kept; then all are forgotten."""
_addresses: dict[tuple[str, str], str] = {}
"""The full addresses of stacks, "name/id", that Heat has shown to this process: by Heat's endpoint,
which contains the project, and by what the stack was called. Heat answers a request that has only a
name or an id by a redirect to the full address, so it takes two requests, one after the other."""

_T = TypeVar("_T")


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


def stack_map(cloud: Cloud, stack: str) -> dict[str, StackResource]:
    """Return the stack's own resources by name, with one listing.

    ``stack`` is a name, an id, or "name/id" (which saves Heat's redirect). While Heat replaces a
    resource, two of one name may exist: this returns the one that stays.

    Raises `CloudError` NOT_FOUND when the project has no such stack.
    """
    return _latest(listing(cloud, stack, depth=0))


def _latest(items: Iterable[dict[str, Any]]) -> dict[str, StackResource]:
    """Return listed resources by name; of two with one name, the one that stays."""
    found: dict[str, StackResource] = {}
    for item in items:
        one = resource_of(item)
        old = found.get(item["resource_name"])
        if old is None or rank(old) < rank(one):
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
    listed = listing(cloud, stack, depth=2)
    found = []
    for name, one in _in_group(listed, stack, group)[1].items():
        server_id = one.physical_id if one.type == SERVER else _server_in(_within(listed, one))
        found.append(Member(name, server_id, one.created_at, one.status))
    return found


def locate(
    cloud: Cloud,
    stack: str,
    member: str,
    *,
    autoscaling_group: str | None = None,
    resource: str | None = None,
) -> StackLocation:
    """Find a member in Heat: a server of the stack itself, or what is in its group.

    ``resource``: a resource in the member's own stack, instead of the whole member.

    Raises `CloudError` NOT_FOUND for an unknown stack or name, BAD_REQUEST for a resource of the
    wrong type or a ``resource`` of a member that is not a stack.
    """
    listed = listing(cloud, stack, depth=0 if autoscaling_group is None else 2)
    if autoscaling_group is None:
        inside = _latest(listed)
        owner = stack
        one = find(inside, stack, member)
        if one.type != SERVER:
            raise wrong_type(stack, member, one.type, "a server")
    else:
        group, inside = _in_group(listed, stack, autoscaling_group)
        owner = group.physical_id
        one = find(inside, f"{stack}, group {autoscaling_group},", member)
    if one.type == SERVER:
        if resource is not None:
            raise CloudError(
                "BAD_REQUEST",
                f"Member {member} of stack {stack} is a single server, not a stack, so it has no "
                f"resource {resource}.",
                remedy="Replace the whole member.",
            )
        return StackLocation(owner, member, one, one.physical_id, inside)
    parts = _within(listed, one)
    server_id = _server_in(parts)
    if resource is None:
        return StackLocation(owner, member, one, server_id, inside)
    part = find(parts, f"of member {member} of {stack}", resource)
    return StackLocation(one.physical_id, resource, part, server_id, inside)


def _in_group(
    listed: Sequence[dict[str, Any]], stack: str, group: str
) -> tuple[StackResource, dict[str, StackResource]]:
    """Return the resource of a group, and its members by name."""
    own = _latest(item for item in listed if not _PARENT.if_shown(item))
    one = find(own, stack, group)
    if one.type not in _GROUPS:
        raise wrong_type(stack, group, one.type, "an autoscaling group")
    return one, _within(listed, one)


def _within(listed: Sequence[dict[str, Any]], one: StackResource) -> dict[str, StackResource]:
    """Return the resources of the stack behind a resource, by name.

    It uses that stack's id: while a member is replaced, two stacks have the same parent's name.
    """
    return _latest(item for item in listed if one.physical_id and owner_of(item) == one.physical_id)


def owner_of(item: dict[str, Any]) -> str:
    """Return the id of the stack that a listed resource is in."""
    return _href(item).rpartition("/")[2]


def _href(item: dict[str, Any]) -> str:
    return str(next((link["href"] for link in item["links"] if link["rel"] == "stack"), ""))


def _address(items: Sequence[dict[str, Any]]) -> str | None:
    """Return "name/id" of the stack whose resources were listed."""
    own = next((item for item in items if not _PARENT.if_shown(item)), None)
    parts = _href(own).rsplit("/", 2)[1:] if own else []
    return "/".join(parts) if len(parts) == 2 else None


def _server_in(parts: dict[str, StackResource]) -> str:
    """Return the id of the server of a member's own stack, "" while there is none."""
    return next((part.physical_id for part in parts.values() if part.type == SERVER), "")


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
    """Return the error for a resource of another type than the group file expects."""
    return CloudError(
        "BAD_REQUEST",
        f"Resource {name} of stack {stack} is not {wanted} but {type_}.",
        remedy="Name a resource of the right type in the group file.",
    )


def named_in(cloud: Cloud, stack: str, name: str, type_: str, words: str) -> str:
    """Return the id of what the group file names: an id, or a resource of the stack of that type.

    ``words``: the type with its article, for errors. Raises `CloudError` NOT_FOUND, or BAD_REQUEST
    if the stack's resource has another type.
    """
    if uuidutils.is_uuid_like(name):
        return name
    resource = stack_map(cloud, stack).get(name)
    if resource is not None and resource.type != type_:
        raise wrong_type(stack, name, resource.type, words)
    if resource is None or not resource.physical_id:
        raise CloudError(
            "NOT_FOUND",
            f"{name} is not {words} of stack {stack}, and no id of one.",
            remedy=f"Name {words} of the stack, or the id of one, in the group file.",
        )
    return resource.physical_id


def listing(cloud: Cloud, stack: str, depth: int) -> list[dict[str, Any]]:
    """Return Heat's rows of the resources in a stack, and in the stacks of its groups so many
    levels below. Callers must not change them: others may have got the same ones."""
    params = {"nested_depth": depth} if depth else {}

    def question(address: str) -> list[dict[str, Any]]:
        def rows() -> list[dict[str, Any]]:
            # Not as heatclient's objects: each asks the server again for an attribute that it
            # lacks, and their dicts are deep copies.
            path = f"/stacks/{stack_segments(address)}/resources"
            with translated(f"list the resources of stack {stack}", "Heat"):
                answer = cloud.heat.http_client.get(path, params=params)
                return list(answer.json()["resources"])

        return cloud.shared(("resources", address, depth), rows)

    # A deleted stack has no resources.
    return _ask_at_full_address(
        cloud, stack, question, gone=lambda items: not items, address=_address
    )


def stack_shown(cloud: Cloud, stack: str) -> Any:
    """Return a stack as Heat shows it, without its outputs. Raises `CloudError`."""

    def question(address: str) -> Any:
        return cloud.heat.stacks.get(stack_segments(address), resolve_outputs=False)

    return _ask_at_full_address(
        cloud,
        stack,
        question,
        gone=lambda shown: bool(shown.stack_status.startswith("DELETE")),
        address=lambda shown: str(shown.identifier),
    )


def template_of(cloud: Cloud, stack: str) -> dict[str, Any]:
    """Return a stack's template as Heat shows it. ``stack``: a name, an id, or an address. Raises
    `CloudError`."""
    return dict(cloud.heat.stacks.template(stack_segments(stack)))


def resource_of(item: dict[str, Any]) -> StackResource:
    """Convert a listed row."""
    return StackResource(
        physical_id=_PHYSICAL_ID.of(item) or "",
        type=item["resource_type"],
        created_at=_CREATED.of(item) or "",
        status=item["resource_status"],
    )


def rank(resource: StackResource) -> tuple[bool, str]:
    """Rank of a resource: of two with one name the higher one stays."""
    return not resource.status.startswith("DELETE"), resource.created_at


def _ask_at_full_address(
    cloud: Cloud,
    stack: str,
    question: Callable[[str], _T],
    *,
    gone: Callable[[_T], bool],
    address: Callable[[_T], str | None],
) -> _T:
    """Call ``question`` with the stack's address if it is known, otherwise with ``stack``.
    ``stack``: a name, an id, or an address.

    A stack that was deleted can still be read by its id, and another one may have its name by now.
    So if the answer is NOT_FOUND, or ``gone`` says that it shows a deleted stack, ``question`` is
    called again with ``stack``. ``address``: reads the address from the answer, for the next time.

    Raises what ``question`` raises, and `CloudError` if there is no Heat.
    """
    if "/" in stack:
        return _unless_listed(cloud, stack, question)
    with translated("find Heat", "Heat"):
        key = (str(cloud.heat.http_client.get_endpoint()), stack)
    if (known := _addresses.get(key)) is not None:
        try:
            answer = question(known)
        except CloudError as error:
            if error.code != "NOT_FOUND":
                raise
        else:
            if not gone(answer):
                return answer
        _addresses.pop(key, None)
    answer = _unless_listed(cloud, stack, question)
    if not gone(answer) and (found := address(answer)) is not None:
        if len(_addresses) >= _ADDRESSES:
            _addresses.clear()
        _addresses[key] = found
    return answer


def _unless_listed(cloud: Cloud, stack: str, question: Callable[[str], _T]) -> _T:
    """Return the answer to a question; NOT_FOUND only if Heat does not list the stack either."""
    try:
        return question(stack)
    except CloudError as error:
        if error.code == "NOT_FOUND":
            refuse_listed(cloud, STACK, stack.rpartition("/")[2])
        raise
