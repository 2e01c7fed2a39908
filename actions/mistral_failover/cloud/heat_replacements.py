# SPDX-License-Identifier: Apache-2.0
"""What Heat's next update of a stack would replace, and refusing the updates by which a group would
lose what it needs.

At any update Heat replaces every resource that is CHECK_FAILED (by a check of the stack, an alarm,
or a manual mark), and those that failed otherwise, with exceptions: no stack behind a resource; a
server only if Nova has it in ERROR, deleted, or not at all; a volume only if Cinder has it in
error, deleting, or not at all; and no healthy Neutron resource, server group or workflow. A stack
behind a resource that is CHECK_FAILED is replaced as a whole, unless resources in it are
CHECK_FAILED, too: then a check of the stack set the status, and each resource in it counts. All of
that is in heat.engine.resource and its resources' ``needs_replace_failed``.

A replacement has another id, so a resource takes along those that have it, or an attribute of it,
among their properties. Heat changes some properties in place, but a group that serves must not rely
on that.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mistral_failover.cloud.clients import Cloud
from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.servers import server_state
from mistral_failover.cloud.stacks import (
    DEPTH,
    SERVER,
    VOLUME,
    StackResource,
    listing,
    owner_of,
    rank,
    resource_of,
    stack_shown,
    template_of,
)
from mistral_failover.cloud.url_paths import stack_segments
from mistral_failover.cloud.volume_holders import volume_if_there
from mistral_failover.model import remedies
from mistral_failover.model.remedies import Need, need

MARKED = "CHECK_FAILED"
_REFERENCES = ("get_resource", "get_attr", "Ref", "Fn::GetAtt")
# Replaced after a failure by what their own service reports, which is not asked here.
_LOOKED_AFTER = ("OS::Neutron::", "OS::Nova::ServerGroup", "OS::Mistral::Workflow")
_VOLUME_GOES = ("error", "deleting")


@dataclass(frozen=True, slots=True)
class ListedResource:
    """A resource and its place. ``stack``: the id of the stack that has it under this ``name``;
    ``retired``: another resource of this name has replaced it."""

    stack: str
    name: str
    resource: StackResource
    retired: bool = False


@dataclass(frozen=True, slots=True)
class PredictedReplacement:
    """Why a resource would go: ``cause`` is the resource itself, a stack around it, or one that it
    uses."""

    link: ListedResource
    cause: ListedResource

    @property
    def by_itself(self) -> bool:
        """Return whether it goes by itself, not with another resource."""
        return self.link == self.cause

    @property
    def marked(self) -> bool:
        """Return whether the cause was marked by a user or by a check of the stack, so that the
        mark can be removed."""
        return self.cause.resource.status == MARKED

    @property
    def unmark(self) -> tuple[Need, ...]:
        """Return the remedy that removes the mark; empty if there is none."""
        where = {"stack": self.cause.stack, "resource": self.cause.name}
        return (need("UNMARK", **where),) if self.marked else ()

    @property
    def words(self) -> str:
        """Return the cause's status in Heat."""
        cause = self.cause
        return f"Heat has {cause.name} of stack {cause.stack} as {cause.resource.status}"


def rows_of(cloud: Cloud, stack: str | None) -> list[ListedResource]:
    """Return all resources of a stack, and of the stacks in it. Raises `CloudError` NOT_FOUND for
    an unknown stack."""
    items = listing(cloud, stack, DEPTH)
    latest: dict[tuple[str, str], StackResource] = {}
    for item in items:
        where, one = (owner_of(item), item["resource_name"]), resource_of(item)
        if where not in latest or rank(latest[where]) < rank(one):
            latest[where] = one
    links = []
    for item in items:
        where, one = (owner_of(item), item["resource_name"]), resource_of(item)
        links.append(ListedResource(*where, one, retired=latest[where] != one))
    return links


def predicted_replacements(
    cloud: Cloud,
    rows: Collection[ListedResource],
    ids: Collection[str],
    *,
    marking: tuple[str, str] | None = None,
) -> dict[str, PredictedReplacement]:
    """Return which of these servers and volumes would go, by id. ``rows``: as of `rows_of`;
    ``marking``: stack and name of a resource to treat as already marked.

    Raises `CloudError`.
    """
    causes = [
        row
        for row in rows
        if (not row.retired and (row.stack, row.name) == marking) or _goes(cloud, row)
    ]
    return _lost(cloud, rows, ids, causes)


def template_replacements(
    cloud: Cloud,
    rows: Collection[ListedResource],
    ids: Collection[str],
    stack: str,
    template: Mapping[str, Any],
) -> dict[str, PredictedReplacement]:
    """Return which of these servers and volumes another template would replace or delete, by id:
    what Heat's preview of the update says, and what goes with it. ``stack``: "name/id".

    A stack behind a resource that would be updated counts as a whole, because Heat's preview does
    not show what becomes of each of its parts. Raises `CloudError`.
    """
    update = cloud.heat.stacks.preview_update
    try:
        said = update(stack_segments(stack), existing=True, template=template)
    except CloudError as error:
        error.unknown = False  # a PATCH by its method, which changes nothing
        raise
    changes = said["resource_changes"]
    gone = {row["resource_name"] for key in ("replaced", "deleted") for row in changes[key]}
    updated = {row["resource_name"] for row in changes["updated"]}
    own = stack.rpartition("/")[2]
    causes = [
        row
        for row in rows
        if row.stack == own and (row.name in gone or (row.resource.nested and row.name in updated))
    ]
    return _lost(cloud, rows, ids, causes)


def _lost(
    cloud: Cloud,
    rows: Collection[ListedResource],
    ids: Collection[str],
    causes: Collection[ListedResource],
) -> dict[str, PredictedReplacement]:
    """Return what goes with the causes, the outermost cause first."""
    found: dict[str, PredictedReplacement] = {}
    users = _Users(cloud)
    seen: set[tuple[str, str, str]] = set()
    for cause in sorted(causes, key=lambda row: _depth(rows, row)):
        queue = deque([cause])
        while queue:
            link = queue.popleft()
            identity = link.resource.physical_id
            if (key := (link.stack, link.name, identity)) in seen:
                continue
            seen.add(key)
            if identity in ids and _to_lose(cloud, link):
                found.setdefault(identity, PredictedReplacement(link, cause))
            queue.extend(_taken_along(rows, link, users))
    return found


def _depth(rows: Collection[ListedResource], row: ListedResource) -> int:
    """Return in how many stacks a resource is nested: the outermost cause is the one to report."""
    around = next(
        (each for each in rows if each.resource.nested and each.resource.physical_id == row.stack),
        None,
    )
    return 0 if around is None else 1 + _depth(rows, around)


def _taken_along(
    rows: Collection[ListedResource], gone: ListedResource, users: _Users
) -> Iterator[ListedResource]:
    """Return what goes with a resource: the content of the stack behind it, and what uses it."""
    using = () if gone.retired else users.of(gone.stack, gone.name)
    for row in rows:
        inside = gone.resource.nested and row.stack == gone.resource.physical_id
        if inside or (row.stack == gone.stack and row.name in using and not row.retired):
            yield row


def _to_lose(cloud: Cloud, link: ListedResource) -> bool:
    """Return whether there is anything to lose: not if a server is being deleted, or failed and is
    gone."""
    one = link.resource
    if one.type != SERVER or one.status == MARKED:
        return True
    if one.status.startswith("DELETE"):
        return False
    return not one.status.endswith("FAILED") or server_state(cloud, one.physical_id).exists


def _goes(cloud: Cloud, link: ListedResource) -> bool:
    """Return whether the next update replaces or deletes it by itself."""
    one = link.resource
    if one.type == VOLUME and one.physical_id and (link.retired or one.status.startswith("DELETE")):
        return True
    if one.status.startswith("DELETE") or not one.status.endswith("FAILED"):
        return False
    if one.nested:
        if one.status != MARKED:
            return False
        return bool(stack_shown(cloud, one.physical_id).stack_status != MARKED)
    if one.status == MARKED or not one.physical_id:
        return True
    if one.type == SERVER:
        state = server_state(cloud, one.physical_id)
        return not state.exists or state.status in ("ERROR", "SOFT_DELETED")
    if one.type == VOLUME:
        volume = volume_if_there(cloud, one.physical_id)
        return volume is None or volume.status in _VOLUME_GOES
    return not one.type.startswith(_LOOKED_AFTER)


class _Users:
    """Return which resources have another one among their properties, by their stacks' templates. A
    mere ``depends_on`` does not count: a replacement changes nothing for it."""

    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud
        self._known: dict[str, dict[str, frozenset[str]]] = {}

    def of(self, stack: str, name: str) -> frozenset[str]:
        """Return the names of those that use a resource of a stack, given by its id."""
        if stack not in self._known:
            self._known[stack] = _used(template_of(self._cloud, stack))
        used = self._known[stack]
        return frozenset(user for user, names in used.items() if name in names)


def _used(template: Mapping[str, Any]) -> dict[str, frozenset[str]]:
    """Return, by resource, the names of those that its properties refer to; HOT or
    CloudFormation."""
    return {
        name: frozenset(names_in(properties))
        for name, (_, properties) in definitions(template).items()
    }


def definitions(template: Mapping[str, Any]) -> dict[str, tuple[str, Mapping[str, Any]]]:
    """Return type and properties of each resource in a template; HOT or CloudFormation."""
    resources = template.get("resources") or template.get("Resources") or {}
    return {
        name: (
            str(one.get("type") or one.get("Type")),
            one.get("properties") or one.get("Properties") or {},
        )
        for name, one in resources.items()
    }


def names_in(value: Any) -> Iterator[str]:
    """Return the names of the resources that a value of a template refers to."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if key in _REFERENCES:
                first = inner[0] if isinstance(inner, list) and inner else inner
                if isinstance(first, str):
                    yield first if key != "Fn::GetAtt" else first.partition(".")[0]
            yield from names_in(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from names_in(inner)


@dataclass(frozen=True, slots=True)
class KeptParts:
    """What no update may take away. ``members``: the members' names by server id; ``volumes``: by
    id, as the group file names them; ``addresses``: the names of the group's resources by the id of
    their port or floating IP; ``group``: the name of the group that owns them, for the remedy."""

    group: str = ""
    members: Mapping[str, str] = field(default_factory=dict)
    volumes: Mapping[str, str] = field(default_factory=dict)
    addresses: Mapping[str, str] = field(default_factory=dict)


def refuse_marked(
    cloud: Cloud,
    stack: str | None,
    keep: KeptParts,
    *,
    marking: tuple[str, str] | None = None,
    rows: Sequence[ListedResource] | None = None,
) -> None:
    """Refuse an update of the stack that would replace one of these servers or volumes
    (``predicted_replacements``).

    Call it right before the update is sent; a mark that is set in between goes unnoticed.
    ``marking``: the stack's name or id, and the name, of a resource that is about to be marked.
    ``rows``: those of the stack, if they have just been read.

    Raises `CloudError` MEMBER_MARKED and VOLUME_MARKED with the commands that help; VOLUME_REPLACED
    if another volume has replaced one of these in the stack; CONFLICT if only the resource that is
    about to be marked would take one along; NOT_FOUND for an unknown stack.
    """
    ids = {*keep.members, *keep.volumes}
    if not ids:
        return
    rows = rows_of(cloud, stack) if rows is None else rows
    for identity, why in predicted_replacements(cloud, rows, ids).items():
        if identity in keep.volumes:
            raise _volume(keep, identity, why)
        raise _member(keep, identity, why)
    _refuse_replaced(rows, keep)
    if marking is not None:
        where = (marking[0].rpartition("/")[2], marking[1])
        for identity, why in predicted_replacements(cloud, rows, ids, marking=where).items():
            raise _beside(keep, identity, why)


def refuse_template(cloud: Cloud, stack: str, template: Mapping[str, Any], keep: KeptParts) -> None:
    """Refuse another template for the stack ("name/id") that would replace or delete one of these
    servers, volumes or addresses.

    Raises `CloudError` TEMPLATE_REPLACES, and whatever Heat says of a wrong template.
    """
    ids = {*keep.members, *keep.volumes, *keep.addresses}
    if not ids:
        return
    found = template_replacements(cloud, rows_of(cloud, stack), ids, stack, template)
    for identity, why in found.items():
        via = "" if why.by_itself else f", with {why.cause.name}"
        raise CloudError(
            "TEMPLATE_REPLACES",
            f"The new template of stack {why.cause.stack} could replace or delete "
            f"{_kept(keep, identity)}{via}.",
            remedy=(
                "Correct the template in the group file: openstack stack update --dry-run shows "
                "what Heat would do. Or first move what it carries to another member."
            ),
            retryable=False,
        )


def _refuse_replaced(rows: Sequence[ListedResource], keep: KeptParts) -> None:
    """Heat deletes a volume that it has replaced as soon as an update finds it free, and need not
    show it until then."""
    behind = {row.resource.physical_id for row in rows if row.resource.nested}
    own = {
        row.name: row.resource
        for row in rows
        if row.resource.type == VOLUME and row.stack not in behind and not row.retired
    }
    for volume_id, name in keep.volumes.items():
        now = own.get(name)
        if now is not None and now.physical_id not in ("", volume_id):
            raise replaced_volume(keep.group, name, volume_id, now.physical_id)


def replaced_volume(group: str, name: str, former: str, now: str) -> CloudError:
    """Return the error for a name that refers to another volume than the group's."""
    return CloudError(
        "VOLUME_REPLACED",
        f"{name} is volume {now} in the stack now, but the data of {group} is on volume {former}, "
        "which the stack's next update may delete.",
        remedy=(
            f"First save the data if it still exists: openstack volume create --source {former} "
            "COPY. Then set volume in the group file to the id of the volume to use, that copy or "
            f"{now}, and run: failover group update FILE."
        ),
        retryable=False,
    )


def _member(keep: KeptParts, server_id: str, why: PredictedReplacement) -> CloudError:
    member = keep.members[server_id]
    replaced = need("REPLACE", member=member)
    unmark = f" {remedies.sentence(why.unmark, keep.group)}." if why.marked else ""
    return CloudError(
        "MEMBER_MARKED",
        f"{_said(why)} would replace server {server_id} of {member}, which carries resources of "
        "the group.",
        remedy=f"Have it fenced and replaced first: {replaced.command(keep.group)}.{unmark}",
        needs=why.unmark or (replaced,),
        retryable=False,
    )


def _volume(keep: KeptParts, volume_id: str, why: PredictedReplacement) -> CloudError:
    name = keep.volumes[volume_id]
    if why.link.retired or why.link.resource.status.startswith("DELETE"):
        return CloudError(
            "VOLUME_MARKED",
            f"Heat deletes volume {volume_id} ({name}), which has the group's data, as soon as an "
            "update of the stack finds it free.",
            remedy=(
                f"Copy it: openstack volume create --source {volume_id} COPY. Set volume in the "
                "group file to the id of the copy, and run: failover group update FILE."
            ),
            retryable=False,
        )
    unmark = f"{remedies.sentence(why.unmark, keep.group)}." if why.marked else ""
    return CloudError(
        "VOLUME_MARKED",
        f"{_said(why)} would make a new, empty volume for {name} and delete {volume_id}, which "
        "has the group's data.",
        remedy=unmark or "Find the cause and correct it.",
        needs=why.unmark,
        retryable=False,
    )


def _beside(keep: KeptParts, identity: str, why: PredictedReplacement) -> CloudError:
    return CloudError(
        "CONFLICT",
        f"Replacing {why.cause.name} of stack {why.cause.stack} would also replace "
        f"{_kept(keep, identity)}, whose properties depend on it.",
        remedy=(
            "First move what it carries to another member. Copy a volume's data to a volume that "
            "does not depend on it."
        ),
        retryable=False,
    )


def _kept(keep: KeptParts, identity: str) -> str:
    if identity in keep.members:
        member = keep.members[identity]
        return f"server {identity} of {member}, which carries resources of the group"
    if identity in keep.addresses:
        return f"the address of {keep.addresses[identity]} ({identity}), which the group moves"
    return f"volume {identity} ({keep.volumes[identity]}), which has the group's data"


def _said(why: PredictedReplacement) -> str:
    via = "" if why.by_itself else f", and with {why.cause.name}"
    return f"{why.words}, so any update of the stack{via}"
