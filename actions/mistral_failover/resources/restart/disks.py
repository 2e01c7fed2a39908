# SPDX-License-Identifier: Apache-2.0
"""Which disks of a lost server its guest may still write to, as far as its fence says.

A fence whose proof is about disks alone (``RungKind.of_disks``) leaves a guest that may run on
behind a partition. So none of its other disks may get another guest before an operator has
confirmed that it is off.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from mistral_failover.model.rungs import rung_kind

if TYPE_CHECKING:
    from mistral_failover.cloud.clients import Cloud
    from mistral_failover.resources.operation_context import OperationContext


def disks_of(cloud: Cloud, server: str) -> list[str]:
    """Return the disks that a server has on whatever host it is: its volumes, and the disk of its
    system if that is on none of them. Raises `CloudError`."""
    from mistral_failover.cloud import servers

    volumes = servers.volumes_on(cloud, server)
    if any(servers.is_root(cloud, server, each) for each in volumes):
        return volumes
    return [*volumes, servers.system_disk(server)]


def may_still_write(
    tools: OperationContext,
    group_id: str,
    member: str,
    fence: Mapping[str, Any],
    disks: Iterable[str],
) -> str:
    """Return, as a clause, which of these disks the guest of a lost member may still write to.
    ``fence``: the rung that fenced it, and the disks that its proof is about; one that names none
    is about none. Empty if its proof is about the guest or its host, or about all of these disks,
    or if an operator has confirmed since that the member is off."""
    from mistral_failover.store import groups
    from mistral_failover.store.transaction import ProjectTransaction

    rung = str(fence.get("rung", ""))
    if not rung_kind(rung).of_disks:
        return ""
    kept: Collection[str] = fence.get("disks", ())
    left = sorted(set(disks) - set(kept))
    if not left:
        return ""

    def confirmed(tx: ProjectTransaction) -> bool:
        return groups.members_of(tx, group_id)[member].confirmed_because is not None

    if tools.request.store.reading(confirmed):
        return ""
    disks = " and ".join(in_words(each) for each in left)
    return f"its fence ({rung}) does not keep its guest from {disks}"


def in_words(disk: str) -> str:
    """Return what a disk (see `disks_of`) is called in a sentence."""
    made = disk.endswith("_disk")  # see `servers.system_disk`
    return "the disk of its system, which is on no volume" if made else f"volume {disk}"
