# SPDX-License-Identifier: Apache-2.0
"""The volume that a member boots from and that its stack gives to the member's next server, too.

It belongs to the member, not to one server. Nova detaches no boot disk, so only the deletion of the
server releases it, and Heat makes the new server before it deletes the old one: so the old one has
to be deleted before Heat is asked. That fences nothing. It needs a proof, and a boot disk that
Nova would delete with the server (``delete_on_termination``) must be kept first.

A disk that Nova makes from an image or a snapshot for each server is none of these: the next
server gets a new one, as the template says.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from mistral_failover.cloud import servers
from mistral_failover.cloud.absence import SERVER, unless_absent
from mistral_failover.cloud.clients import Cloud
from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.fields import Field
from mistral_failover.cloud.heat_replacements import (
    ListedResource,
    definitions,
    names_in,
    rows_of,
)
from mistral_failover.cloud.stacks import VOLUME, template_of
from mistral_failover.cloud.url_paths import url_path
from mistral_failover.cloud.volume_holders import goes_along, volumes_of_server
from mistral_failover.cloud.volumes import VolumeMove
from mistral_failover.cloud.waits import ProbeResult

LOG = logging.getLogger(__name__)
_SERVER = Field("Nova", "server")
_KEYS = ("block_device_mapping_v2", "block_device_mapping")
_IN_TEMPLATE = "delete_on_termination: false in block_device_mapping_v2"
_MADE_ANEW = ("image", "image_id", "snapshot_id")
"""The properties of a ``block_device_mapping_v2`` from which Nova makes a volume per server."""


def kept_boot_disk(cloud: Cloud, stack: str | None, server_id: str) -> str | None:
    """Return the volume that a server of the stack boots from and that the next server gets, too.

    None if it boots from a disk of its own, or does not exist. Raises `CloudError` VOLUME_WOULD_GO,
    blocked, if Nova would delete the volume with the server, or by the template with the next one:
    Heat deletes a server that did not come up before it tries again. NOT_OFFERED if Nova does not
    show it.
    """
    found = _boot_disk(cloud, stack, server_id)
    if found is None:
        return None
    if found.goes:
        error = goes_along(server_id, [found.volume_id], newest=cloud.newest("Nova"))
        raise error if stack is None else _and_in_template(error)
    if found.let_go_by is not None:
        raise CloudError(
            "VOLUME_WOULD_GO",
            f"The template of stack {stack} lets a volume be deleted with the next server of "
            f"{found.let_go_by} (delete_on_termination), which boots from {found.volume_id}",
            remedy=f"Correct the template: {_IN_TEMPLATE}. Then update the stack.",
            blocked=True,
        )
    return found.volume_id


def must_stay(cloud: Cloud, stack: str | None, server_id: str) -> bool:
    """Return whether the disk that a server boots from must not be deleted with it: if it is the
    stack's, or not known to be none of the stack's. Raises `CloudError`."""
    return _boot_disk(cloud, stack, server_id) is not None


class _BootDisk(NamedTuple):
    """A volume that a server boots from, which Nova does not make for each server. ``goes``: Nova
    would delete it with the server; ``let_go_by``: the resource whose template would let it go with
    the next one, None if it does not."""

    volume_id: str
    goes: bool
    let_go_by: str | None


def _boot_disk(cloud: Cloud, stack: str | None, server_id: str) -> _BootDisk | None:
    path = url_path("servers", server_id)
    shown = unless_absent(cloud, SERVER, server_id, lambda: cloud.read("Nova", path))
    if shown is None:
        return None
    server = _SERVER.of(shown)
    # Nova names the devices of a server when it runs first. Until then any of its volumes, which
    # are all from its start, waits for the same deletion.
    none = servers.state_of(server).never_ran
    for volume in servers.VOLUMES.of(server):
        volume_id = str(volume["id"])
        if none or servers.is_root(cloud, server_id, volume_id):
            break
    else:
        return None
    defined = _definition(cloud, stack, server_id)
    if defined is not None and _makes_disks(defined.properties):
        return None
    let_go_by = defined.name if defined is not None and _lets_go(defined.properties) else None
    return _BootDisk(volume_id, bool(servers.DELETE_ON_TERMINATION.of(volume)), let_go_by)


def disks_in_stack(cloud: Cloud, stack: str | None, server_id: str) -> dict[str, str]:
    """Return the names, by id, of the stack's volumes that the template gives to this server from
    its start, such as its boot disk: what no update may replace while it replaces the server. The
    server need not exist any longer. Raises `CloudError`."""
    rows = rows_of(cloud, stack)
    defined = _definition(cloud, stack, server_id, rows)
    if defined is None:
        return {}
    used = {name for disk in _KEYS for name in names_in(defined.properties.get(disk))}
    return {
        row.resource.physical_id: row.name
        for row in rows
        if row.stack == defined.stack and row.name in used and row.resource.type == VOLUME
        if row.resource.physical_id and not row.retired
    }


class _Definition(NamedTuple):
    """A server in the template of the stack, given by its id, that has it."""

    stack: str
    name: str
    properties: Mapping[str, Any]


def _definition(
    cloud: Cloud, stack: str | None, server_id: str, rows: Sequence[ListedResource] | None = None
) -> _Definition | None:
    """Return what the template says of a server. ``rows``: those of the stack, if just read."""
    for row in rows_of(cloud, stack) if rows is None else rows:
        if row.resource.physical_id == server_id and not row.retired:
            _, properties = definitions(template_of(cloud, row.stack)).get(row.name, ("", {}))
            return _Definition(row.stack, row.name, properties)
    return None


def _makes_disks(properties: Mapping[str, Any]) -> bool:
    """Return whether Nova makes the boot disk for the server; False where that is not known."""
    if "block_device_mapping" in properties:
        return False
    disks = properties.get("block_device_mapping_v2")
    if not isinstance(disks, list) or not all(isinstance(disk, Mapping) for disk in disks):
        return False
    first = [disk for disk in disks if "boot_index" in disk and str(disk["boot_index"]) == "0"]
    return bool(first) and all(_is_made(disk) for disk in first)


def _is_made(disk: Mapping[str, Any]) -> bool:
    """Return whether Nova makes this disk for each server."""
    return any(key in disk for key in _MADE_ANEW)


def _lets_go(properties: Mapping[str, Any]) -> bool:
    """Return whether a disk that the stack has would go with a server, or that is not known, as by
    a parameter. Nova keeps a volume of which nothing is said."""
    for key in _KEYS:
        disks = properties.get(key, [])
        if not isinstance(disks, list):
            return True
        for disk in disks:
            if not isinstance(disk, Mapping):
                return True
            said = "delete_on_termination" in disk and not _is_made(disk)
            if said and str(disk["delete_on_termination"]).lower() != "false":
                return True
    return False


def release_boot_disk(
    cloud: Cloud, volume_id: str, server_id: str, *, off: Callable[[], str], limit: float
) -> None:
    """Delete the server, so that its boot disk is free for the next one. ``off``: returns what
    proves that the server is off, as a sentence, and raises if nothing does; it is called right
    before each request. ``limit``: seconds in total.

    Safe to repeat. Raises `CloudError`, VOLUME_WOULD_GO if Nova would delete any volume with the
    server; TIMEOUT; VOLUME_DISPUTED if Cinder does not let go of the volume.
    """
    step = _Release(cloud, volume_id, server_id, off)
    step.carry_out(f"boot disk {volume_id} to be free of server {server_id}", limit)


def release_of_deleted(
    cloud: Cloud, server_id: str, *, off: Callable[[], str], limit: float
) -> None:
    """Free what Cinder still shows on a server that is gone, as a deletion that was interrupted
    leaves it. Arguments and errors as for `release_boot_disk`."""
    until = time.monotonic() + limit
    for volume_id in volumes_of_server(cloud, server_id):
        left = max(until - time.monotonic(), 1.0)
        release_boot_disk(cloud, volume_id, server_id, off=off, limit=left)


class _Release(VolumeMove):
    """Continue until the server is gone and its boot disk free."""

    def __init__(
        self, cloud: Cloud, volume_id: str, server_id: str, off: Callable[[], str]
    ) -> None:
        super().__init__(cloud, volume_id, server_id)
        self._off = off

    def step(self) -> ProbeResult:
        """See :meth:`VolumeMove.step`."""
        volume, mine, state = self.look()
        if servers.server_state(self.cloud, self.server_id).exists:
            return self._delete()
        if mine is None and volume.status == "available":
            return ProbeResult(state, done=True)
        if not self.is_time_to_ask_why():
            return ProbeResult(state)
        return ProbeResult(self.give_back_orphans(self.server_id, self._off()) or state)

    def _delete(self) -> ProbeResult:
        if along := servers.volumes_deleted_with(self.cloud, self.server_id, root=True):
            newest = self.cloud.newest("Nova")
            raise _and_in_template(goes_along(self.server_id, along, newest=newest))
        self._off()
        LOG.warning("Deleting server %s: the next one boots from its disk", self.server_id)
        left = max(self.deadline - time.monotonic(), 1.0)
        evidence = servers.delete_server(self.cloud, self.server_id, left, root=True)
        return ProbeResult(evidence.observed)


def _and_in_template(error: CloudError) -> CloudError:
    error.remedy += f" And in the stack's template, for the servers that follow: {_IN_TEMPLATE}."
    return error
