# SPDX-License-Identifier: Apache-2.0
"""Volumes: find, attach, detach. Each call looks first, so a repeat continues at any point.

Cinder's volume shows where it is attached; Nova's list of a server shows what is already on its way
there. The work of a process that died is visible in one of the two. If the two disagree, or nothing
moves, ``cloud.volume_holders`` finds out which server has the volume and ``cloud.volume_errors``
says what helps. A volume is never taken from a guest that may be writing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from oslo_utils import uuidutils

from mistral_failover.cloud import volume_errors
from mistral_failover.cloud.attaching import Attach
from mistral_failover.cloud.clients import Cloud
from mistral_failover.cloud.detaching import Detach, Release
from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.fields import Field
from mistral_failover.cloud.servers import ServerState
from mistral_failover.cloud.stacks import VOLUME, StackResource, stack_map, wrong_type
from mistral_failover.cloud.volume_holders import ANOTHER, MULTIATTACH, volume_of
from mistral_failover.cloud.volume_move import refuse_root

_UNPROVEN = Release()
_OWNER = "os-vol-tenant-attr:tenant_id"
_NAME_ID = Field("Cinder", "os-vol-mig-status-attr:name_id")


def resolve_volume(cloud: Cloud, stack: str, name: str) -> str:
    """Return the id of a volume: a volume resource of the stack, or a volume id of the project.

    Raises `CloudError` NOT_FOUND, FORBIDDEN for a volume of another project, or BAD_REQUEST if the
    stack's resource is not a volume.
    """
    return _resolved(cloud, stack, stack_map(cloud, stack), name)


def resolve_volumes(cloud: Cloud, stack: str, names: Iterable[str]) -> dict[str, str | None]:
    """As :func:`resolve_volume` for several; None for a volume that does not exist."""
    resources = stack_map(cloud, stack)
    found: dict[str, str | None] = {}
    for name in names:
        try:
            found[name] = _resolved(cloud, stack, resources, name)
        except CloudError as error:
            if error.code not in ("NOT_FOUND", "BAD_REQUEST"):
                raise
            found[name] = None
    return found


def exists(cloud: Cloud, volume_id: str) -> bool:
    """Return whether there is such a volume. Only Cinder's word that there is none shows that."""
    try:
        volume_of(cloud, volume_id)
    except CloudError as error:
        return error.code != "NOT_FOUND"
    return True


def name_id(cloud: Cloud, volume_id: str) -> str:
    """Return the id in the name that a volume has in its backend. It is another one than the
    volume's own if Cinder has migrated the volume in use. Cinder shows that only to operators; for
    others this is the volume's own id. Raises `CloudError`."""
    try:
        volume = volume_of(cloud, volume_id)
    except CloudError as error:
        if error.code not in ("FORBIDDEN", "NOT_FOUND"):
            raise
        return volume_id
    return _NAME_ID.if_shown(volume) or volume_id


def refuse_unmovable(cloud: Cloud, stack: str, wanted: Mapping[str, Collection[str]]) -> None:
    """Refuse volumes that cannot do what a group needs; nothing is changed.

    ``wanted``: by volume (as for :func:`resolve_volume`) the members that hold it at the same time.
    A missing volume is not refused here: attaching it will fail.

    Raises `CloudError` VOLUME_IS_ROOT for the disk that a server boots from, VOLUME_NOT_SHARED for
    one that is not multi-attach and is needed on several members.
    """
    resources = stack_map(cloud, stack)
    for name, members in sorted(wanted.items()):
        try:
            volume = volume_of(cloud, _resolved(cloud, stack, resources, name))
        except CloudError as error:
            if error.code not in ("NOT_FOUND", "BAD_REQUEST"):
                raise
            continue
        for held in volume.attachments:
            refuse_root(volume, held)
        if len(members) > 1 and not MULTIATTACH.of(volume):
            raise volume_errors.not_shared(volume, sorted(members))


def _resolved(cloud: Cloud, stack: str, resources: Mapping[str, StackResource], name: str) -> str:
    if name in resources:
        resource = resources[name]
        if resource.type != VOLUME:
            raise wrong_type(stack, name, resource.type, "a volume")
        if resource.physical_id:
            return resource.physical_id
    elif uuidutils.is_uuid_like(name):
        volume = volume_of(cloud, name)
        # Cinder shows an administrator the volumes of all projects.
        if getattr(volume, _OWNER, cloud.project_id) != cloud.project_id:
            raise CloudError(
                "FORBIDDEN", f"Volume {name} belongs to another project.", remedy=ANOTHER
            )
        return str(volume.id)
    raise CloudError(
        "NOT_FOUND",
        f"{name} is neither a volume of stack {stack} nor the id of a volume.",
        remedy=ANOTHER,
    )


def attach(
    cloud: Cloud,
    volume_id: str,
    server_id: str,
    limit: float,
    *,
    unknown: bool = False,
    silence: Callable[[], str] = lambda: "",
    server: Callable[[], ServerState] | None = None,
) -> dict[str, str]:
    """Attach the volume to the server and wait until it is attached.

    A volume that is attached there already, or on its way there, is adopted. An attachment that
    Nova does not know is deleted if certainly nothing is written through it. ``limit``: seconds in
    total; ``unknown``: an earlier attempt may have requested it.
    ``silence``: why the server's agent counts as silent, in words; empty if it does not.
    ``server``: returns the server's state, if it has just been asked for. Returns ``device``,
    ``server_id`` and ``attachment_id``.

    Raises `CloudError` VOLUME_IN_USE that names the holder (a multi-attach volume may have others),
    VOLUME_IS_ROOT for the disk that a server boots from, ATTACH_FAILED when the compute service
    gives up, NOT_FOUND; transient: TARGET_DOWN when the server can take nothing now; blocked:
    VOLUME_DISPUTED, VOLUME_ERROR, VOLUME_STUCK.
    """
    steps = Attach(cloud, volume_id, server_id, unknown=unknown, silence=silence, server=server)
    what = f"volume {volume_id} to be attached to server {server_id}"
    attachment: dict[str, str] = steps.carry_out(what, limit)
    return attachment


def detach(
    cloud: Cloud,
    volume_id: str,
    server_id: str,
    limit: float,
    release: Release = _UNPROVEN,
) -> None:
    """Detach the volume from the server, also if it is still on its way there.

    A volume that is not attached is left alone; a server that is gone is no error. ``limit``:
    seconds in total. Other servers keep a multi-attach volume.

    Raises `CloudError` HOST_DOWN when the server's compute service is dead (blocked if the member
    is fenced), VOLUME_IS_ROOT for the disk that the server boots from, DETACH_FAILED when the guest
    does not release it, NOT_FOUND when the volume does not exist; blocked: VOLUME_DISPUTED,
    VOLUME_ERROR, VOLUME_STUCK, VOLUME_WOULD_GO.
    """
    steps = Detach(cloud, volume_id, server_id, release)
    steps.carry_out(f"volume {volume_id} to be free of server {server_id}", limit)
