# SPDX-License-Identifier: Apache-2.0
"""An operator of the cloud fences a compute host by hand, with the configured fence devices: they
switch it off, or the storage refuses what its guests write."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import TypedDict

from mistral_failover.cloud import hosts, volumes
from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.transport import Guard
from mistral_failover.model.rungs import HostRung
from mistral_failover.model.text import counted
from mistral_failover.orders import host_orders
from mistral_failover.orders.host_orders import HostOrder, HostRequest
from mistral_failover.resources.fence import agents, devices, lifting, power
from mistral_failover.resources.fence.ceph import Cluster, NoImage, address_of
from mistral_failover.resources.fence.devices import Levels
from mistral_failover.resources.fence.storage import Blocking, Storage
from mistral_failover.runtime.errors import ActionError
from mistral_failover.runtime.request import Request
from mistral_failover.store import host_fences

LOG = logging.getLogger(__name__)

LOOK = 10.0
"""Seconds in which a device tells the power in a dry run."""
_VOLUMES_AT_ONCE = 8


class FenceDevice(TypedDict):
    """A fence device. ``power``: on, off or unknown; asked in a dry run only."""

    agent: str
    power: str


class OpenVolume(TypedDict):
    """A client on the host that has a volume of a server open."""

    client: str
    volume: str
    server: str


class Fenced(TypedDict):
    """What was found and done. ``compute_service``: up or down, None if Nova knows none there;
    ``levels``: the devices that switch the host off, of the rung host_power; ``clients``: those
    that are blocked, of the rung storage; ``proof``: None in a dry run."""

    host: str
    rung: str
    compute_service: str | None
    levels: list[list[FenceDevice]]
    clients: list[OpenVolume]
    fenced: bool
    proof: str | None
    sentence: str


def fence_host(request: Request, asked: HostRequest, *, rung: str, even_if_up: bool) -> Fenced:
    """Fence a host and prove it; or, without a reason, show what would be done.

    ``rung``: host_power switches the host off and tells Nova; storage has Ceph block the clients of
    its guests, which may run on. ``even_if_up``: switch it off also if Nova reports its compute
    service up. Raises as :func:`host_orders.permitted`; ActionError BAD_INPUT, CONFIG if the host
    cannot be fenced in this way, FENCE_UNPROVEN.
    """
    if rung not in list(HostRung):
        raise ActionError(
            "BAD_INPUT", f"rung: {rung} fences no host", f"Give one of {', '.join(HostRung)}."
        )
    if even_if_up and rung != HostRung.HOST_POWER:
        raise ActionError(
            "BAD_INPUT",
            f"even_if_up: the rung {rung} does not ask for the compute service",
            "Leave it out.",
        )
    order = host_orders.permitted(request, asked)
    facts: Fenced = {
        "host": order.host,
        "rung": rung,
        "compute_service": order.compute_service(),
        "levels": [],
        "clients": [],
        "fenced": False,
        "proof": None,
        "sentence": "",
    }
    if rung == HostRung.STORAGE:
        return _storage(request, order, asked.because, facts)
    return _host_power(request, order, asked.because, facts, even_if_up=even_if_up)


def _host_power(
    request: Request, order: HostOrder, because: str | None, facts: Fenced, *, even_if_up: bool
) -> Fenced:
    host = order.host
    levels = order.devices.hosts.get(host, ())
    if not levels:
        raise ActionError(
            "CONFIG",
            f"no fence device is configured for host {host}",
            f"Add {host} to hosts of the file in {devices.OPTION}.",
        )
    shown: Fenced = {**facts, "levels": _levels(levels, order.guard if because is None else None)}
    if because is None:
        return {**shown, "sentence": _plan(request, order)}
    proof = _fenced(request, order, because, even_if_up=even_if_up)
    return {**shown, "fenced": True, "proof": proof, "sentence": f"Fenced {host}: {proof}"}


def _levels(levels: Levels, guard: Guard | None) -> list[list[FenceDevice]]:
    """Return the devices of each level. If a guard is given, ask them all at once for the power."""

    def permit(seconds: float) -> float:
        assert guard is not None
        return min(seconds, LOOK, guard.permit("GET"))

    def shown(device: devices.Device) -> FenceDevice:
        said = agents.status(device, permit).power if guard is not None else agents.Power.UNKNOWN
        return {"agent": device.agent, "power": str(said)}

    with ThreadPoolExecutor(16) as pool:
        asked = [[pool.submit(shown, device) for device in level] for level in levels]
        return [[each.result() for each in level] for level in asked]


def _plan(request: Request, order: HostOrder) -> str:
    """Return what a fence would do, in a sentence."""
    host = order.host
    fence = request.runtime.database.reading(lambda tx: host_fences.of_host(tx, host))
    tried = "; ".join(power.described(order.devices, host))
    would = f"would switch {host} off ({tried})"
    before = "" if fence.back else f". {lifting.NOT_BACK}"
    if order.devices.compute_must_be_down and power.up_by_itself(order.cloud, host, fence):
        return (
            f"Refused as long as Nova reports its compute service up; then it {would}{before}. "
            "To do it now: --even-if-up"
        )
    return f"It {would}, verify it, and tell Nova{before}"


def _fenced(request: Request, order: HostOrder, because: str, *, even_if_up: bool) -> str:
    """Switch the host off; return the proof."""
    store, host = request.runtime.database, order.host  # a host serves many projects
    LOG.warning("An operator fences host %s: %s", host, because)
    known = order.devices
    switch = power.Switch(
        devices=replace(known, compute_must_be_down=False) if even_if_up else known,
        nova=order.cloud,
        store=store,
        guard=order.guard,
        deadline=time.monotonic() + host_orders.LIMIT - 10,
        owner=request.owner,
        lease=request.runtime.settings.lease,
        again=True,
    )
    try:
        proof = power.switch_off(switch, host, store.reading(lambda tx: tx.now()))
    except power.Unproven as error:
        raise ActionError(
            "FENCE_UNPROVEN",
            f"host {host} is not proven off: {error.detail}",
            "Check the fence devices: failover doctor. Or switch the host off by hand, and confirm "
            "that for each group with a member there: failover confirm-fenced GROUP MEMBER "
            "--because '...'",
        ) from None
    return f"{proof}; {power.tell_nova(switch, host)}"


@dataclass(frozen=True)
class _HostClients:
    """The clients on a host that have volumes open. ``servers``: of each volume; ``images``: of
    each volume that is open; ``shared``: those that clients elsewhere have open, too, besides the
    operator's services; ``beside``: volumes in no pool of Ceph, or that no client on the host has
    open."""

    servers: Mapping[str, str]
    images: Mapping[str, str]
    clients: Mapping[str, frozenset[str]]
    shared: frozenset[str]
    beside: tuple[str, ...]

    def rows(self) -> list[OpenVolume]:
        return [
            {"client": client, "volume": volume, "server": self.servers[volume]}
            for volume, clients in sorted(self.clients.items())
            for client in sorted(clients)
        ]


def _storage(request: Request, order: HostOrder, because: str | None, facts: Fenced) -> Fenced:
    """Have Ceph block the clients on a host that have volumes of its servers open."""
    host, ceph = order.host, order.devices.ceph
    if ceph is None or not ceph.addresses.get(host):
        raise ActionError(
            "CONFIG",
            f"no address of host {host} in the storage network is configured"
            if ceph is not None
            else Storage.without,
            f"Add {host} to ceph.addresses of the file in {devices.OPTION}.",
        )
    deadline = time.monotonic() + host_orders.LIMIT - 10

    def permit(seconds: float) -> float:
        left = deadline - time.monotonic()
        if left <= 0:
            raise power.Unproven("the time is over; what was blocked stays blocked")
        return min(seconds, left, order.guard.permit("POST"))

    store = request.runtime.database  # a host serves many projects
    cluster, addresses = Cluster(ceph, permit), frozenset(ceph.addresses[host])
    services = frozenset(ceph.services)
    try:
        found = _clients_on(order, cluster, addresses, services)
        shown: Fenced = {**facts, "clients": found.rows()}
        if because is None:
            return {**shown, "sentence": _storage_plan(host, found)}
        LOG.warning("An operator blocks the clients of host %s: %s", host, because)
        recorded = store.reading(host_fences.all_blocked)
        blocking = Blocking.begun(cluster, store, order.guard, deadline, recorded)

        def block(volume: str) -> None:
            shared = volume in found.shared
            blocking.block(volume, found.clients[volume], shared=shared)
            watching = partial(_watching, cluster, found.images[volume], addresses)
            blocking.until_gone(volume, watching, shared=shared)

        with ThreadPoolExecutor(_VOLUMES_AT_ONCE) as pool:
            list(pool.map(block, found.clients))
        proof = blocking.proof()
    except power.Unproven as error:
        raise ActionError(
            "FENCE_UNPROVEN",
            f"it is not proven that Ceph blocks the clients of host {host}: {error.detail}",
            "Repeat the command. If it fails again, switch the host off: failover fence "
            f"{host} --because '...'",
        ) from None
    if not blocking.blocked:
        raise ActionError(
            "FENCE_UNPROVEN",
            f"no client on host {host} has a volume of its servers open, so Ceph can block none",
            f"Switch the host off: failover fence {host} --because '...'",
        )
    sentence = f"Fenced {host}: {proof} on it{_beside(found)}"
    return {**shown, "fenced": True, "proof": proof, "sentence": sentence}


def _clients_on(
    order: HostOrder, cluster: Cluster, addresses: frozenset[str], services: frozenset[str]
) -> _HostClients:
    """Look who has the volumes of a host's servers open. Raises Unproven, CloudError."""
    servers = hosts.volumes_on(order.cloud, order.host)
    images: dict[str, str] = {}
    clients: dict[str, frozenset[str]] = {}
    shared: set[str] = set()

    def look(volume: str) -> None:
        try:
            name_id = volumes.name_id(order.cloud, volume)
        except CloudError:  # if it was migrated in use, it is named as not covered
            name_id = volume
        try:
            image = cluster.image_of(volume, name_id)
        except NoImage:
            return
        if here := frozenset(each for each in image.clients if address_of(each) in addresses):
            images[volume], clients[volume] = image.name, here
            if {address_of(each) for each in image.clients - here} - services:
                shared.add(volume)

    with ThreadPoolExecutor(_VOLUMES_AT_ONCE) as pool:
        list(pool.map(look, servers))
    beside = tuple(sorted(servers.keys() - images))
    return _HostClients(servers, images, clients, frozenset(shared), beside)


def _watching(cluster: Cluster, image: str, addresses: frozenset[str]) -> frozenset[str]:
    return frozenset(each for each in cluster.watchers(image) if address_of(each) in addresses)


def _storage_plan(host: str, found: _HostClients) -> str:
    """Return what blocking the clients of a host would do, in a sentence."""
    number = len(found.rows())
    if not number:
        return f"Refused: no client on {host} has a volume of its servers open{_beside(found)}"
    return (
        f"It would have Ceph block {counted(number, 'client')} on {host}; the "
        f"guests run on, and failover unfence lifts it{_beside(found)}"
    )


def _beside(found: _HostClients) -> str:
    if not found.beside:
        return ""
    return f". Not open there, or not in Ceph, so not covered: volume {' and '.join(found.beside)}"
