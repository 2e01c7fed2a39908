# SPDX-License-Identifier: Apache-2.0
"""The rung ``host_power``: the operator's fence devices switch the host of the member off."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from mistral_failover.model.rungs import Rung
from mistral_failover.resources.fence.rung import DeviceRung, FenceAttempt

if TYPE_CHECKING:
    from mistral_failover.cloud.servers import Evidence
    from mistral_failover.resources.fence.agents import Permit
    from mistral_failover.resources.fence.devices import Devices
    from mistral_failover.resources.fence.power import Switch

LOG = logging.getLogger(__name__)


class HostPower(DeviceRung):
    """It needs no word of the member or its host. Which host a server is on comes from Nova with
    the operator's credential, before and after: a server that is elsewhere by then is not fenced.
    A host that it was evacuated from is switched off, too, unless Nova has removed the guest there.
    """

    proof = "the operator's fence devices report the power of its host off"
    limit = 180.0
    for_dead_host = True
    needs = "hosts"
    without = "no fence device of a host is configured"

    def proven(self, attempt: FenceAttempt, rung: Rung, devices: Devices) -> Evidence:
        """Switch off the hosts of all the member's servers, and look at Nova before and after."""
        from mistral_failover.cloud.servers import Evidence

        switch = _switch(attempt, devices, float(rung["limit"]))
        return Evidence(True, self.kind, _fenced(attempt, switch))


def _switch(attempt: FenceAttempt, known: Devices, limit: float) -> Switch:
    from mistral_failover.agent.wire import Address
    from mistral_failover.cloud.hosts import operator_cloud
    from mistral_failover.resources.fence import power

    tools, operation, member = attempt.tools, attempt.operation, attempt.target.member.name
    runtime, guard = tools.request.runtime, tools.cloud.guard
    return power.Switch(
        devices=known,
        nova=operator_cloud(known.cloud, guard, runtime.settings),
        store=runtime.database,
        guard=guard,
        deadline=time.monotonic() + limit,
        owner=f"the fence of {member} in {operation['group']} ({operation['key']})",
        lease=runtime.settings.lease,
        channel=tools.channel,
        guests=tuple(
            Address(operation["group_id"], operation["group"], member, server)
            for server in attempt.target.servers
        ),
        watching=_watching(attempt, known),
    )


def _watching(attempt: FenceAttempt, known: Devices) -> Callable[[Permit], tuple[str, str]] | None:
    """Return what tells which of the member's volumes a live client still has open; None if the
    storage is not known. If Ceph, Cinder or Nova cannot be asked about a volume, its last answer
    counts; without any answer it contradicts nothing.

    A client that does not answer counts as gone, before its watch ends. One that was silent at the
    look before need not be silent for as long again.
    """
    from mistral_failover.cloud.errors import CloudError
    from mistral_failover.cloud.transport import LeaseLost
    from mistral_failover.resources.fence import ceph, power, storage
    from mistral_failover.resources.watch import going

    if known.ceph is None or not attempt.target.volumes:
        return None
    configured = known.ceph
    open_volumes: dict[str, tuple[str, str]] = {}
    silent: set[frozenset[str]] = set()

    def alive(cluster: ceph.Cluster, image: str, clients: frozenset[str]) -> bool:
        if not clients:
            return False
        if cluster.is_silent(image, ceph.SILENT_STILL if clients in silent else ceph.SILENT):
            silent.add(clients)
            return False
        silent.discard(clients)
        return True

    def watching(permit: Permit) -> tuple[str, str]:
        cluster = ceph.Cluster(configured, permit, going(attempt.tools.cloud.guard))
        for volume_id in attempt.target.volumes:
            try:
                own = storage.own_clients(attempt, known, volume_id)
                name_id = storage.name_id_of(attempt, known, volume_id)
                image = cluster.image_of(volume_id, name_id)
                clients = own(cluster.watchers(image.name))
            except (power.ClaimLost, power.TimeOver, LeaseLost):
                raise
            except (power.Unproven, CloudError) as unknown:
                why = unknown.message if isinstance(unknown, CloudError) else unknown.detail
                LOG.warning("It is not known who watches volume %s: %s", volume_id, why)
                continue
            open_volumes.pop(volume_id, None)
            if alive(cluster, image.name, clients):
                words = f"a client still has volume {volume_id} open"
                watched = f"{image.name} is watched by {', '.join(sorted(clients))}"
                open_volumes[volume_id] = (words, watched)
        return next(iter(open_volumes.values()), ("", ""))

    return watching


def _fenced(attempt: FenceAttempt, switch: Switch) -> str:
    """Return the proof for every server of the member. Raises Unproven, CloudError."""
    from mistral_failover.cloud import servers
    from mistral_failover.resources.fence import power
    from mistral_failover.store import host_fences

    store, traversal = switch.store, attempt.operation["ticket"]["traversal_id"]
    since = store.reading(lambda tx: host_fences.proofs_valid_from(tx, traversal))
    places = _places(attempt, switch)
    proofs = []
    for host in sorted(frozenset().union(*places.values())):
        proofs.append(f"{power.switch_off(switch, host, since)}; {power.tell_nova(switch, host)}")
    for server in (each for each, where in places.items() if not where):
        gone = servers.deletion_proof(attempt.tools.cloud, server)
        if not gone.proven:
            raise power.Unproven(gone.observed.rstrip("."))
        proofs.append(gone.observed.rstrip("."))
    after = _places(attempt, switch)
    for server, before in places.items():
        if not after[server] <= before:
            raise power.Unproven(
                f"server {server} was on another host after the fence",
                f"server {server} was on {', '.join(sorted(before))} before the fence, and on "
                f"{', '.join(sorted(after[server]))} after",
            )
    return ". ".join(proofs)


def _places(attempt: FenceAttempt, switch: Switch) -> dict[str, frozenset[str]]:
    """Return the hosts on which each server may have a guest: its own, and those that it was
    evacuated from; none for a server that is gone. Raises Unproven for one whose host is not
    certain, or that the project does not see: the operator's credential sees those of every
    project."""
    from mistral_failover.cloud import servers
    from mistral_failover.cloud.hosts import location_of
    from mistral_failover.resources.fence import power

    if not attempt.target.servers:
        raise power.Unproven(f"no server of {_member(attempt)} is known")
    found: dict[str, frozenset[str]] = {}
    for server in attempt.target.servers:
        place = location_of(switch.nova, server)
        if place.moving:
            raise power.Unproven(
                f"server {server} may be moving to another host ({place.moving.lower()})"
            )
        if place.exists and place.host is None:
            raise power.Unproven(f"Nova shows no host of server {server}")
        if place.exists and not servers.server_state(attempt.tools.cloud, server).exists:
            raise power.Unproven(f"Nova does not show server {server} to the project")
        found[server] = frozenset()
        if place.host is not None:
            found[server] = _left_hosts(attempt, switch, server) | {place.host}
    return found


def _left_hosts(attempt: FenceAttempt, switch: Switch, server: str) -> frozenset[str]:
    """Return the hosts on which an evacuation may have left a guest of the server. Raises Unproven
    if there may be one and Nova does not show the hosts to the operator."""
    from mistral_failover.cloud import servers
    from mistral_failover.cloud.errors import CloudError
    from mistral_failover.cloud.hosts import evacuated_from
    from mistral_failover.resources.fence import power

    elsewhere = servers.may_be_elsewhere(attempt.tools.cloud, server)
    if elsewhere is None:
        return frozenset()
    try:
        return evacuated_from(switch.nova, server)
    except CloudError as error:
        if error.code != "FORBIDDEN":
            raise
        raise power.Unproven(
            f"{elsewhere} (server {server})",
            f"{elsewhere} (server {server}); the operator's credential may not read which hosts "
            "that are: allow it os_compute_api:os-migrations:index",
        ) from None


def _member(attempt: FenceAttempt) -> str:
    return attempt.target.member.name
