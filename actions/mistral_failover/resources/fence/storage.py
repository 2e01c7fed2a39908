# SPDX-License-Identifier: Apache-2.0
"""The rung ``storage``: the storage refuses the writes of the member's host to its volumes.

The guest may run on, behind a partition for example: nothing of it reaches the volumes. The block
is lifted after the host was proven off: see `lifting`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from mistral_failover.model.rungs import Rung
from mistral_failover.model.text import counted
from mistral_failover.resources.fence.rung import DeviceRung, Examined, FenceAttempt, Missing

if TYPE_CHECKING:
    from mistral_failover.cloud.guard import Guard
    from mistral_failover.resources.fence.ceph import Cluster
    from mistral_failover.resources.fence.devices import Devices
    from mistral_failover.store.blocked_clients import BlockedClient
    from mistral_failover.store.database import Database

_PAUSE = 0.25
_LOOK = 1.0
"""Seconds without which no further look at the watchers begins: it would not end in time."""
Own = Callable[[frozenset[str]], frozenset[str]]
"""Picks the member's clients from the clients of an image."""


class Storage(DeviceRung):
    """It blocks the clients that have the group's volumes open. It proves nothing if no client has
    one open, and none was blocked since the failover began: a client that comes back later would
    not be blocked. Nor for a member without volumes, or for one with a resource that is not on a
    volume."""

    proof = "the storage refuses every write of its host to the group's volumes"
    limit = 60.0
    for_dead_host = True
    needs = "ceph"
    without = "no Ceph cluster is configured"

    def also_missing(self, examined: Examined) -> Iterator[Missing]:
        """Require that all that a member has is on volumes."""
        types = examined.group.types
        beside = sorted(
            spec.name
            for spec in examined.group.resources.values()
            if types[spec.type].member_property and not types[spec.type].storage_covers
        )
        if beside:
            yield Missing(
                f"the rung storage proves nothing for a member that has {' or '.join(beside)}: its "
                "guest runs on",
                "Add host_power, or another rung that proves the server off.",
            )

    def proven(self, attempt: FenceAttempt, rung: Rung, devices: Devices) -> str:
        """Block the clients of every volume of the member, and see that they are gone."""
        from mistral_failover.resources.fence import ceph, power
        from mistral_failover.resources.fence.devices import NoDevices
        from mistral_failover.resources.fence.watch import going

        deadline = time.monotonic() + float(rung["limit"])
        guard = attempt.tools.cloud.guard

        def permit(seconds: float) -> float:
            guard.permit("POST")
            left = deadline - time.monotonic()
            if left <= 0:
                raise power.Unproven("the rung timed out")
            return min(seconds, left)

        if devices.ceph is None:
            raise NoDevices(self.without)
        return _fenced(attempt, devices, ceph.Cluster(devices.ceph, permit, going(guard)), deadline)


def _fenced(attempt: FenceAttempt, known: Devices, cluster: Cluster, deadline: float) -> str:
    """Return the proof. Raises Unproven, CloudError."""
    from mistral_failover.resources.fence import power
    from mistral_failover.store import blocked_clients

    target = attempt.target
    if not target.volumes:
        raise power.Unproven(f"no volume of the group is attached to {target.member.name}")
    if target.beside_volumes:
        named = ", ".join(target.beside_volumes)
        raise power.Unproven(f"{named} of {target.member.name} is on no volume of the group")
    assert attempt.tools.runtime is not None  # it has the devices
    store, traversal = attempt.tools.runtime.database, attempt.operation["ticket"]["traversal_id"]
    # A process that died may have blocked them, and only a lock would still name them.
    rows = store.reading(lambda tx: blocked_clients.since(tx, traversal))
    before = blocked_before(cluster, rows)
    blocking = Blocking(cluster, store, attempt.tools.cloud.guard, deadline, before)
    for volume_id in target.volumes:
        own = own_clients(attempt, known, volume_id)
        image = cluster.image_of(volume_id, name_id_of(attempt, known, volume_id))
        suspects = own(image.clients | {row.client for row in rows if row.volume_id == volume_id})
        if not suspects:
            raise power.Unproven(
                f"no client of {target.member.name}'s host has volume {volume_id} open, so the "
                "storage can block none"
            )
        blocking.block(volume_id, suspects)
        blocking.until_gone(volume_id, partial(_watching, own, cluster, image.name))
    return f"{blocking.proof()} of volume {' and '.join(target.volumes)}"


def _watching(own: Own, cluster: Cluster, image: str) -> frozenset[str]:
    return own(cluster.watchers(image))


@dataclass
class Blocking:
    """Clients are being blocked, by ``deadline`` on the monotonic clock. ``blocked``: so far.
    ``before``: those that fences have blocked before. Threads may share it."""

    cluster: Cluster
    database: Database
    guard: Guard
    deadline: float
    before: frozenset[str] = frozenset()
    blocked: set[str] = field(default_factory=set)

    def block(self, volume_id: str, clients: frozenset[str]) -> None:
        """Block clients of a volume. What lifts the block later knows each of them before. One that
        is blocked already is left alone, so a repeat continues where the last one ended. Raises
        Unproven."""
        from mistral_failover.store import blocked_clients

        for client in sorted(clients - self.blocked):
            if client not in self.before:
                self.database.atomically(
                    partial(blocked_clients.record, client=client, volume_id=volume_id)
                )
                self.cluster.block(client)
            self.blocked.add(client)

    def until_gone(self, volume_id: str, watching: Callable[[], frozenset[str]]) -> None:
        """Wait until none of these clients watches the volume; a new one is blocked as well. Raises
        Unproven."""
        from mistral_failover.resources.fence import power

        while found := watching():
            self.block(volume_id, found)
            if time.monotonic() + _PAUSE + _LOOK >= self.deadline:
                raise power.Unproven(
                    "contradicted: a client that Ceph blocks still watches a volume",
                    f"volume {volume_id} is still watched by {', '.join(sorted(found))}",
                )
            self.guard.permit("GET")
            time.sleep(_PAUSE)

    def proof(self) -> str:
        """Return how many clients Ceph blocks, in words, by the map of its OSDs. Raises
        Unproven."""
        from mistral_failover.resources.fence import power

        if not self.blocked <= self.cluster.blocked():
            raise power.Unproven("a client is missing on the blocklist after it was added")
        return f"Ceph blocks {counted(len(self.blocked), 'client')}"


def blocked_before(cluster: Cluster, rows: Iterable[BlockedClient]) -> frozenset[str]:
    """Return those of the recorded clients that Ceph blocks now. Raises Unproven."""
    recorded = {row.client for row in rows}
    return cluster.blocked() & recorded if recorded else frozenset()


def name_id_of(attempt: FenceAttempt, known: Devices, volume_id: str) -> str:
    """Return the id in the name of a volume's image, as Cinder shows it to the operator; the
    volume's own id without a credential that Keystone accepts. Raises CloudError."""
    from mistral_failover.cloud.errors import CloudError
    from mistral_failover.cloud.hosts import operator_cloud
    from mistral_failover.cloud.tokens import NO_RIGHTS
    from mistral_failover.cloud.volumes import name_id

    runtime = attempt.tools.runtime
    assert runtime is not None  # it has the devices
    try:
        operator = operator_cloud(known.cloud, attempt.tools.cloud.guard, runtime.settings)
        return name_id(operator, volume_id)
    except CloudError as error:
        if error.code not in {"CONFIG", *NO_RIGHTS}:
            raise
        return volume_id


def own_clients(attempt: FenceAttempt, known: Devices, volume_id: str) -> Own:
    """Return what picks the member's clients from those of a volume. If only the member has it, all
    are its own, wherever Nova says that the server is, except those of the operator's services. Of
    a shared one only the clients on the member's host are its own, by the operator's list of
    addresses. Raises Unproven if that does not tell them apart, or if Cinder does not show the
    volume to the project; CloudError."""
    from mistral_failover.cloud import volumes
    from mistral_failover.cloud.hosts import location_of, operator_cloud
    from mistral_failover.cloud.volume_holders import holders_of
    from mistral_failover.resources.fence import power
    from mistral_failover.resources.fence.ceph import address_of

    target, tools, ceph = attempt.target, attempt.tools, known.ceph
    assert ceph is not None
    if not volumes.exists(tools.cloud, volume_id):
        raise power.Unproven(f"Cinder does not show volume {volume_id} to the project")
    holders = {holder.server_id for holder in holders_of(tools.cloud, volume_id)}
    others = holders - {*target.servers, None}
    if not others:
        return lambda clients: frozenset(
            each for each in clients if address_of(each) not in ceph.services
        )
    runtime = tools.runtime
    assert runtime is not None
    nova = operator_cloud(known.cloud, tools.cloud.guard, runtime.settings)
    hosts = {location_of(nova, server).host for server in target.servers}
    if hosts & {location_of(nova, str(server)).host for server in others}:
        raise power.Unproven(
            f"volume {volume_id} is attached to another server on the same host, and their clients "
            "cannot be told apart"
        )
    addresses = {each for host in hosts for each in ceph.addresses.get(host or "", ())}
    if not addresses:
        raise power.Unproven(
            f"volume {volume_id} is shared, and the storage address of the member's host is not "
            "configured"
        )
    return lambda clients: frozenset(each for each in clients if address_of(each) in addresses)
