# SPDX-License-Identifier: Apache-2.0
"""The rung ``storage``: the storage refuses the writes of the member's host to its volumes.

The guest may run on, behind a partition for example: nothing of it reaches the volumes. The block
is kept until it is lifted, and lifted after the host was proven off: see `lifting`.

A server has other disks, too: the one that it boots from, and volumes that are none of the group's.
The next server may get them, or the same one elsewhere. So the clients of these are blocked as
well, where that can be, and the proof names every disk that it is about.

What counts is the end of a client's entry, not that there is one: see `ceph`. An entry of others
that ends too soon is replaced, with a gap in which the client may write. That is no worse than
before the fence, as long as nothing relies on the entry: before the proof nothing of the group was
moved. Other servers may rely on it, so the entry of a client of a volume that others have open is
not replaced, and nothing is proven. The proof is read after the last change.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from mistral_failover.model.rungs import Rung
from mistral_failover.model.text import counted
from mistral_failover.resources.fence.rung import DeviceRung, Examined, FenceAttempt, Missing

if TYPE_CHECKING:
    from mistral_failover.cloud.servers import Evidence
    from mistral_failover.cloud.transport import Guard
    from mistral_failover.resources.fence.ceph import Cluster, Image
    from mistral_failover.resources.fence.devices import Devices
    from mistral_failover.resources.fence.power import Unproven
    from mistral_failover.store.database import Database
    from mistral_failover.store.host_fences import BlockedClient

LOG = logging.getLogger(__name__)
_PAUSE = 0.25
_EVACUATE = "evacuate"
_LOOK = 1.0
"""Seconds without which no further look at the watchers begins: it would not end in time."""


@dataclass(frozen=True)
class Own:
    """Tells the member's clients from the others of a volume's image. ``services``: addresses of
    the operator's services. ``addresses``: those of the member's hosts, None if only the member has
    the volume; then ``theirs``: those of the other servers' hosts."""

    services: frozenset[str]
    addresses: frozenset[str] | None = None
    theirs: frozenset[str] = frozenset()

    @property
    def shared(self) -> bool:
        """Return whether other servers have the volume, too."""
        return self.addresses is not None

    def __call__(self, clients: Iterable[str]) -> frozenset[str]:
        """Return the member's clients."""
        from mistral_failover.resources.fence.ceph import address_of

        addresses = self.addresses
        if addresses is None:
            return frozenset(each for each in clients if address_of(each) not in self.services)
        return frozenset(each for each in clients if address_of(each) in addresses)

    def require_known(self, volume_id: str, clients: Iterable[str]) -> None:
        """Raise Unproven if a client of a shared volume is at an address of none of its servers'
        hosts: it may be the member's, behind an address that the operator's file does not have, or
        on a host where Nova does not see the server any more."""
        from mistral_failover.resources.fence import power
        from mistral_failover.resources.fence.ceph import address_of

        if self.addresses is None:
            return
        known = self.addresses | self.theirs | self.services
        if unknown := sorted(each for each in clients if address_of(each) not in known):
            raise power.Unproven(
                f"volume {volume_id} is shared, and a client that has it open is on none of its "
                "servers' hosts, as far as their storage addresses are configured",
                f"volume {volume_id}: client {unknown[0]} has an address of no host of its servers "
                "in ceph.addresses",
            )


class Storage(DeviceRung):
    """It blocks the clients that have the group's volumes open. It proves nothing if no client has
    one open, and none was blocked since the failover began: a client that comes back later would
    not be blocked. Nor for a member without volumes, or for one with a resource that is not on a
    volume."""

    proof = "the storage refuses every write of its host to the group's volumes"
    limit = 60.0
    for_dead_host = True
    of_disks = True
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

    def proven(self, attempt: FenceAttempt, rung: Rung, devices: Devices) -> Evidence:
        """Block the clients of every volume of the member, and see that they are gone."""
        from mistral_failover.cloud.servers import Evidence
        from mistral_failover.resources.fence import ceph, power
        from mistral_failover.resources.fence.devices import NoDevices
        from mistral_failover.resources.watch import going

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
        cluster = ceph.Cluster(devices.ceph, permit, going(guard))
        observed, disks = _fenced(attempt, devices, cluster, deadline)
        return Evidence(True, self.kind, observed, disks=disks)


def _fenced(
    attempt: FenceAttempt, known: Devices, cluster: Cluster, deadline: float
) -> tuple[str, tuple[str, ...]]:
    """Return the proof, and the disks that it is about. Raises Unproven, CloudError."""
    from mistral_failover.resources.fence import power
    from mistral_failover.store import host_fences

    target = attempt.target
    if not target.volumes:
        raise power.Unproven(f"no volume of the group is attached to {target.member.name}")
    if target.beside_volumes:
        named = ", ".join(target.beside_volumes)
        raise power.Unproven(f"{named} of {target.member.name} is on no volume of the group")
    store, traversal = (
        attempt.tools.request.runtime.database,
        attempt.operation["ticket"]["traversal_id"],
    )
    # A process that died may have blocked them, and only a lock would still name them.
    rows = store.reading(lambda tx: host_fences.blocked_since(tx, traversal))
    owns = {volume_id: own_clients(attempt, known, volume_id) for volume_id in target.volumes}
    blocking = Blocking.begun(cluster, store, attempt.tools.cloud.guard, deadline, rows)
    cutting = _Cutting(attempt, known, blocking, rows)
    for volume_id, own in owns.items():
        cutting.cut_off(volume_id, cutting.image_of(volume_id), own)
    proof = f"{blocking.proof()} of volume {' and '.join(target.volumes)}"
    return proof, (*target.volumes, *_cut_off_from_others(cutting))


@dataclass(frozen=True)
class _Cutting:
    """A member is being cut off from its disks. ``rows``: the clients that fences have blocked
    since the failover began."""

    attempt: FenceAttempt
    known: Devices
    blocking: Blocking
    rows: Sequence[BlockedClient]

    def image_of(self, volume_id: str) -> list[Image]:
        """Return the image of a volume. Raises Unproven, CloudError."""
        name_id = name_id_of(self.attempt, self.known, volume_id)
        return [self.blocking.cluster.image_of(volume_id, name_id)]

    def cut_off(self, disk: str, images: Sequence[Image], own: Own) -> None:
        """Block the member's clients of a disk, which consists of ``images``. Raises Unproven."""
        from mistral_failover.resources.fence import power

        blocking, member = self.blocking, self.attempt.target.member.name
        before = {row.client for row in self.rows if row.volume_id == disk}
        for image in images:
            own.require_known(disk, image.clients)
            suspects = own(image.clients | before)
            if not suspects:
                raise power.Unproven(
                    f"no client of {member}'s host has volume {disk} open, so the storage can "
                    "block none"
                )
            blocking.block(disk, suspects, shared=own.shared)
            watching = partial(_watching, own, blocking.cluster, disk, image.name)
            blocking.until_gone(disk, watching, shared=own.shared)


def _cut_off_from_others(cutting: _Cutting) -> list[str]:
    """Cut the member off from those disks of its servers that the group does not move, and return
    the ones where that is proven. The fence itself needs none of them. Raises LeaseLost."""
    found: list[str] = []
    for server in cutting.attempt.target.servers:
        with _is_only_noted(f"the other disks of server {server}"):
            for disk, images, own in _others(cutting, server):
                with _is_only_noted(disk):
                    cutting.cut_off(disk, images(), own())
                    found.append(disk)
    with _is_only_noted(" and ".join(found)):
        if found:
            cutting.blocking.proof()
        return found
    return []


@contextmanager
def _is_only_noted(what: str) -> Iterator[None]:
    """Leave it at a line of the log if the member is not proven to be cut off from something."""
    from mistral_failover.cloud.errors import NO_RIGHTS, CloudError
    from mistral_failover.cloud.transport import LeaseLost, NoLongerNeeded
    from mistral_failover.resources.fence import power

    try:
        yield
    except (LeaseLost, NoLongerNeeded):
        raise
    except power.Unproven as error:
        LOG.warning("The fence does not cover %s: %s", what, error.detail)
    except CloudError as error:
        if error.code in NO_RIGHTS:
            raise
        LOG.warning("The fence does not cover %s: %s", what, error.message)


_Disk = tuple[str, Callable[[], "list[Image]"], Callable[[], Own]]
"""A disk, and what reads its images and its clients."""


def _others(cutting: _Cutting, server: str) -> Iterator[_Disk]:
    """Return the other disks of a server. The one that Nova made for it counts only if the server
    may come back with it: another one gets a new one. Raises CloudError."""
    from mistral_failover.cloud import servers

    attempt, known = cutting.attempt, cutting.known
    assert known.ceph is not None
    on_volume = False
    for volume_id in servers.volumes_on(attempt.tools.cloud, server):
        if volume_id not in attempt.target.volumes:
            on_volume = on_volume or servers.is_root(attempt.tools.cloud, server, volume_id)
            own = partial(own_clients, attempt, known, volume_id)
            yield volume_id, partial(cutting.image_of, volume_id), own
    if not on_volume and _EVACUATE in attempt.target.ways:
        disk, services = servers.system_disk(server), frozenset(known.ceph.services)
        images = partial(cutting.blocking.cluster.made_by_nova, disk)
        yield disk, images, partial(Own, services)


def _watching(own: Own, cluster: Cluster, volume_id: str, image: str) -> frozenset[str]:
    found = cluster.watchers(image)
    own.require_known(volume_id, found)
    return own(found)


@dataclass
class Blocking:
    """Clients are being blocked, by ``deadline`` on the monotonic clock. ``recorded``: those that
    fences have blocked before; ``listed``: the blocklist at the beginning. ``blocked``: those so
    far. Threads may share it."""

    cluster: Cluster
    database: Database
    guard: Guard
    deadline: float
    recorded: frozenset[str]
    listed: Mapping[str, float]
    blocked: set[str] = field(default_factory=set)

    @classmethod
    def begun(
        cls,
        cluster: Cluster,
        database: Database,
        guard: Guard,
        deadline: float,
        rows: Iterable[BlockedClient],
    ) -> Blocking:
        """Begin, with what fences have recorded before. Raises Unproven."""
        recorded = frozenset(row.client for row in rows)
        return cls(cluster, database, guard, deadline, recorded, cluster.blocked())

    def block(self, volume_id: str, clients: frozenset[str], *, shared: bool) -> None:
        """Block clients of a volume so that it lasts. What lifts the block later knows each of them
        before. One that a fence has blocked already is left alone, so a repeat continues where the
        last one ended. ``shared``: others have the volume open. Raises Unproven."""
        from mistral_failover.resources.fence import ceph
        from mistral_failover.store import host_fences

        for client in sorted(clients - self.blocked):
            left = self.listed.get(client)
            if left is not None and left < ceph.ENOUGH and shared:
                raise _ends(client, left, volume_id)
            if left is None or left < ceph.ENOUGH or client not in self.recorded:
                self.database.atomically(
                    partial(host_fences.record_blocked, client=client, volume_id=volume_id)
                )
            if left is None:
                self.cluster.block(client)
            elif left < ceph.ENOUGH:
                LOG.warning(
                    "Client %s of volume %s is on Ceph's blocklist for only %.0f s more; replacing "
                    "its entry",
                    *(client, volume_id, left),
                )
                self.cluster.renew(client)
            self.blocked.add(client)

    def until_gone(
        self, volume_id: str, watching: Callable[[], frozenset[str]], *, shared: bool
    ) -> None:
        """Wait until none of these clients watches the volume; a new one is blocked as well. Raises
        Unproven."""
        from mistral_failover.resources.fence import power

        while found := watching():
            self.block(volume_id, found, shared=shared)
            if time.monotonic() + _PAUSE + _LOOK >= self.deadline:
                raise power.Unproven(
                    "contradicted: a client that Ceph blocks still watches a volume",
                    f"volume {volume_id} is still watched by {', '.join(sorted(found))}",
                )
            self.guard.permit("GET")
            time.sleep(_PAUSE)

    def proof(self) -> str:
        """Return how many clients Ceph blocks, in words, by the map of its OSDs and for as long as
        the fence needs. Raises Unproven."""
        from mistral_failover.resources.fence import ceph, power

        listed = self.cluster.blocked()
        if not self.blocked <= listed.keys():
            raise power.Unproven("a client is missing on the blocklist after it was added")
        for client in sorted(self.blocked):
            if listed[client] < ceph.ENOUGH:
                raise power.Unproven(
                    "the entry of a client on the blocklist ends too soon",
                    f"the entry of client {client} ends in {listed[client]:.0f} s",
                )
        return f"Ceph blocks {counted(len(self.blocked), 'client')}"


def _ends(client: str, left: float, volume_id: str) -> Unproven:
    from mistral_failover.resources.fence import power

    why = "an entry of others ends too soon, and is not replaced while others have the volume open"
    return power.Unproven(
        f"a client of volume {volume_id} is on Ceph's blocklist, but {why}",
        f"client {client} of volume {volume_id} is on the blocklist for {left:.0f} s: {why}. If "
        f"nothing relies on it, remove it: ceph osd blocklist rm {client}",
    )


def name_id_of(attempt: FenceAttempt, known: Devices, volume_id: str) -> str:
    """Return the id in the name of a volume's image, as Cinder shows it to the operator; the
    volume's own id without a credential that Keystone accepts. Raises CloudError."""
    from mistral_failover.cloud.errors import NO_RIGHTS, CloudError
    from mistral_failover.cloud.hosts import operator_cloud
    from mistral_failover.cloud.volumes import name_id

    runtime = attempt.tools.request.runtime
    try:
        operator = operator_cloud(known.cloud, attempt.tools.cloud.guard, runtime.settings)
        return name_id(operator, volume_id)
    except CloudError as error:
        if error.code not in {"CONFIG", *NO_RIGHTS}:
            raise
        return volume_id


def own_clients(attempt: FenceAttempt, known: Devices, volume_id: str) -> Own:
    """Return what tells the member's clients from the others of a volume. If only the member has
    it, all are its own, wherever Nova says that the server is, except those of the operator's
    services. Of a shared one only the clients on the member's host are its own, by the operator's
    list of addresses. Raises Unproven if that does not tell them apart, or if the volume is not the
    project's; CloudError."""
    from mistral_failover.cloud import volumes
    from mistral_failover.cloud.hosts import location_of, operator_cloud
    from mistral_failover.cloud.servers import may_be_elsewhere
    from mistral_failover.cloud.volume_holders import holders_of
    from mistral_failover.resources.fence import power

    target, tools, ceph = attempt.target, attempt.tools, known.ceph
    assert ceph is not None
    configured, services = ceph.addresses, frozenset(ceph.services)
    owner = volumes.owner_of(tools.cloud, volume_id)
    if owner is None:
        raise power.Unproven(f"Cinder does not show volume {volume_id} to the project")
    if owner != tools.cloud.project_id:
        raise power.Unproven(f"volume {volume_id} belongs to another project")
    holders = {holder.server_id for holder in holders_of(tools.cloud, volume_id)}
    others = holders - {*target.servers, None}
    if not others:
        return Own(services)
    runtime = tools.request.runtime
    nova = operator_cloud(known.cloud, tools.cloud.guard, runtime.settings)
    for server in target.servers:
        if elsewhere := may_be_elsewhere(tools.cloud, server):
            raise power.Unproven(
                f"volume {volume_id} is shared, so only the clients on the host of server {server} "
                f"would be blocked, but {elsewhere}"
            )
    hosts = {location_of(nova, server).host for server in target.servers}
    theirs = {location_of(nova, str(server)).host for server in others}
    if hosts & theirs:
        raise power.Unproven(
            f"volume {volume_id} is attached to another server on the same host, and their clients "
            "cannot be told apart"
        )

    def addresses(of: Iterable[str | None]) -> frozenset[str]:
        return frozenset(each for host in of for each in configured.get(host or "", ()))

    if not addresses(hosts):
        raise power.Unproven(
            f"volume {volume_id} is shared, and the storage address of the member's host is not "
            "configured"
        )
    return Own(services, addresses(hosts), addresses(theirs))
