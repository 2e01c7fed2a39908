# SPDX-License-Identifier: Apache-2.0
"""Read a Heat stack: its resources, of the types that Heat has behind their names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from oslo_utils import uuidutils

from mistral_failover.cloud.absence import STACK, refuse_listed
from mistral_failover.cloud.clients import Cloud
from mistral_failover.cloud.errors import CloudError, translated
from mistral_failover.cloud.fields import Field
from mistral_failover.cloud.url_paths import stack_segments
from mistral_failover.model.validation import nearest

SERVER = "OS::Nova::Server"
VOLUME = "OS::Cinder::Volume"
DEPTH = 5
"""The levels of stacks in a stack that are read: as many as Heat allows by default
(``max_nested_stack_depth``)."""
_PHYSICAL_ID, _CREATED = Field("Heat", "physical_resource_id"), Field("Heat", "creation_time")
_REGISTRY = Field("Heat", "resource_registry")  # of a stack's environment
_PARENT = Field("Heat", "parent_resource")  # not of the stack's own resources
_SERVICES = (
    "Aodh Barbican Blazar Cinder Designate Glance Heat Ironic Keystone Magnum Manila Mistral "
    "Monasca Neutron Nova Octavia Sahara Senlin Swift Trove Vitrage Zaqar Zun"
)
_OF_HEAT = ("AWS::", *(f"OS::{service}::" for service in _SERVICES.split()))
"""How the names of Heat's own types begin."""
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
    ``status`` is action and status in one, such as CREATE_COMPLETE or CHECK_FAILED (unhealthy);
    ``nested``: a stack is behind it, so ``physical_id`` is the stack's, whatever its ``type`` is.
    """

    physical_id: str
    type: str
    created_at: str
    status: str
    nested: bool = False

    @property
    def is_server(self) -> bool:
        """Return whether it is certainly a server. An environment may have a stack behind the type
        of servers."""
        return self.type == SERVER and not self.nested

    @property
    def unresolved(self) -> bool:
        """Return whether its type is an alias that neither the stack's environment nor a stack
        explains: the operator of the cloud has defined it, so it may be a server."""
        return not self.nested and _may_be_alias(self.type)


def stack_map(cloud: Cloud, stack: str | None) -> dict[str, StackResource]:
    """Return the stack's own resources by name, with one listing.

    ``stack`` is a name, an id, or "name/id" (which saves Heat's redirect). While Heat replaces a
    resource, two of one name may exist: this returns the one that stays.

    Raises `CloudError` NOT_FOUND when the project has no such stack.
    """
    return latest(listing(cloud, stack, depth=0))


def owner_of(item: dict[str, Any]) -> str:
    """Return the id of the stack that a listed resource is in."""
    return _href(item).rpartition("/")[2]


def _href(item: dict[str, Any]) -> str:
    return str(next((link["href"] for link in item["links"] if link["rel"] == "stack"), ""))


def _address(items: Sequence[dict[str, Any]]) -> str | None:
    """Return "name/id" of the stack whose resources were listed."""
    own = next((item for item in items if is_in_stack_itself(item)), None)
    parts = _href(own).rsplit("/", 2)[1:] if own else []
    return "/".join(parts) if len(parts) == 2 else None


def find(resources: dict[str, StackResource], stack: str, name: str) -> StackResource:
    """Return the resource of that name, or raise `CloudError` NOT_FOUND that lists the names."""
    if name not in resources:
        raise no_such_resource(resources, stack, name)
    return resources[name]


def meant(name: str, known: Iterable[str]) -> str:
    """Return the beginning of a remedy: the known name that is probably meant, or nothing."""
    near = nearest(name, known)
    return f'Did you mean "{near}"? ' if near and near != name else ""


def no_such_resource(
    resources: Iterable[str], stack: str, name: str, more: str = "", remedy: str = ""
) -> CloudError:
    """Return the error for a resource that a stack does not have, with the name that is probably
    meant. ``more``: a further sentence."""
    resources = list(resources)
    known = ", ".join(sorted(resources)) or "none"
    return CloudError(
        "NOT_FOUND",
        f"Stack {stack} has no resource {name}; its resources are: {known}{more}",
        remedy=meant(name, resources)
        + (remedy or "Name a resource of the stack in the group file."),
    )


def wrong_type(stack: str, name: str, type_: str, wanted: str) -> CloudError:
    """Return the error for a resource of another type than the group file expects."""
    return CloudError(
        "BAD_REQUEST",
        f"Resource {name} of stack {stack} is not {wanted} but {type_}.",
        remedy="Name a resource of the right type in the group file.",
    )


def of_stack(stack: str | None) -> str:
    """Return the end of a clause that says where something is to be found."""
    return " of the project" if stack is None else f" of stack {stack}"


def named_in(cloud: Cloud, stack: str | None, name: str, type_: str, words: str) -> str:
    """Return the id of what the group file names: an id, or a resource of the stack of that type.

    ``words``: the type with its article, for errors. Raises `CloudError` NOT_FOUND, or BAD_REQUEST
    if the stack's resource has another type.
    """
    if uuidutils.is_uuid_like(name):
        return name
    resource = stack_map(cloud, stack).get(name)
    if stack is not None and resource is not None and resource.type != type_:
        raise wrong_type(stack, name, resource.type, words)
    if resource is None or not resource.physical_id:
        raise CloudError(
            "NOT_FOUND",
            f"{name} is not {words}{of_stack(stack)}, and no id of one.",
            remedy=f"Name {words}{of_stack(stack)}, or the id of one, in the group file.",
        )
    return resource.physical_id


def listing(cloud: Cloud, stack: str | None, depth: int) -> list[dict[str, Any]]:
    """Return Heat's rows of the resources in a stack, and in the stacks in it so many levels below.
    The type of an alias is the type of Heat that the stack's environment has behind it. Callers
    must not change the rows: others may have got the same ones. None as the stack, as of a group
    without one, has no resources."""
    if stack is None:
        return []
    params = {"nested_depth": depth} if depth else {}

    def question(address: str) -> list[dict[str, Any]]:
        def rows() -> list[dict[str, Any]]:
            # Not as heatclient's objects: each asks the server again for an attribute that it
            # lacks, and their dicts are deep copies.
            path = f"/stacks/{stack_segments(address)}/resources"
            with translated(f"list the resources of stack {stack}", "Heat"):
                answer = cloud.heat.http_client.get(path, params=params)
                found = list(answer.json()["resources"])
            return _of_own_types(cloud, _address(found) or address, found)

        return cloud.shared(("resources", address, depth), rows)

    # A deleted stack has no resources.
    return _ask_at_full_address(
        cloud, stack, question, gone=lambda items: not items, address=_address
    )


def _of_own_types(cloud: Cloud, stack: str, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Replace the aliases in listed rows. The environment is read only if there may be one."""
    if not any(_may_be_alias(row["resource_type"]) for row in rows):
        return rows
    try:
        environment = cloud.heat.stacks.environment(stack_segments(stack))
    except CloudError as error:
        if error.code not in ("FORBIDDEN", "NOT_FOUND"):
            raise
        return rows
    registry = _REGISTRY.if_shown(environment) or {}  # without one no alias is explained
    return [
        {**row, "resource_type": own_type(row["resource_type"], row["resource_name"], registry)}
        for row in rows
    ]


def _may_be_alias(kind: str) -> bool:
    return not kind.startswith(_OF_HEAT) and not kind.endswith((".yaml", ".template"))


def own_type(kind: str, name: str, registry: Mapping[str, Any]) -> str:
    """Return the type of Heat that is behind a resource's type; the same type if it is none, or if
    there is a template behind it. Heat: ``heat.engine.environment``."""
    of_name = (registry.get("resources") or {}).get(name) or {}
    found, seen = kind, set[str]()
    while _may_be_alias(found) and found not in seen:
        seen.add(found)
        target = of_name.get(found) or registry.get(found) or _by_pattern(found, registry)
        if not isinstance(target, str):
            break
        found = target
    return found if found.startswith(_OF_HEAT) else kind


def _by_pattern(kind: str, registry: Mapping[str, Any]) -> str | None:
    """Return what a rule for all types that begin alike has behind a type: ``OS::My::*``."""
    for pattern, target in registry.items():
        if pattern.endswith("*") and kind.startswith(pattern[:-1]) and str(target).endswith("*"):
            return str(target)[:-1] + kind[len(pattern) - 1 :]
    return None


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
        nested=any(link["rel"] == "nested" for link in item["links"]),
    )


def latest(items: Iterable[dict[str, Any]]) -> dict[str, StackResource]:
    """Return listed resources by name; of two with one name, the one that stays."""
    found: dict[str, StackResource] = {}
    for item in items:
        one = resource_of(item)
        old = found.get(item["resource_name"])
        if old is None or rank(old) < rank(one):
            found[item["resource_name"]] = one
    return found


def is_in_stack_itself(item: dict[str, Any]) -> bool:
    """Return whether a listed resource is in the stack itself, not in a stack in it."""
    return not _PARENT.if_shown(item)


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
