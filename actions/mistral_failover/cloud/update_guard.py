# SPDX-License-Identifier: Apache-2.0
"""What a group must not lose to an update of its stack; such updates are refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from shlex import quote
from typing import Any

from mistral_failover.cloud.clients import Cloud
from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.heat_replacements import (
    ListedResource,
    PredictedReplacement,
    predicted_replacements,
    rows_of,
    template_replacements,
)
from mistral_failover.cloud.stacks import VOLUME


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
    stack: str,
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
                "what Heat would do. Or first move what it carries: failover switchover "
                f"{quote(keep.group)}."
            ),
            retryable=False,
        )


def _refuse_replaced(rows: Sequence[ListedResource], keep: KeptParts) -> None:
    """Heat deletes a volume that it has replaced as soon as an update finds it free, and need not
    show it until then."""
    behind = {row.resource.physical_id for row in rows if row.nested}
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
    unmark = f"; or, if it is healthy: {why.unmark}" if why.marked else ""
    return CloudError(
        "MEMBER_MARKED",
        f"{_said(why)} would replace server {server_id} of {member}, which carries resources of "
        "the group.",
        remedy=f"Have it fenced and replaced first: failover replace {quote(keep.group)} "
        f"{quote(member)}{unmark}.",
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
    unmark = f"If it is healthy: {why.unmark}." if why.marked else "Find the cause and correct it."
    return CloudError(
        "VOLUME_MARKED",
        f"{_said(why)} would make a new, empty volume for {name} and delete {volume_id}, which "
        "has the group's data.",
        remedy=unmark,
        retryable=False,
    )


def _beside(keep: KeptParts, identity: str, why: PredictedReplacement) -> CloudError:
    return CloudError(
        "CONFLICT",
        f"Replacing {why.cause.name} of stack {why.cause.stack} would also replace "
        f"{_kept(keep, identity)}, whose properties depend on it.",
        remedy=(
            f"First move what it carries: failover switchover {quote(keep.group)}. Copy a volume's "
            "data to a volume that does not depend on it."
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
