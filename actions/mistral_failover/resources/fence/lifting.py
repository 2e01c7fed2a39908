# SPDX-License-Identifier: Apache-2.0
"""What a fence leaves behind on a compute host: it is kept, and lifted once that is safe.

`storage` leaves clients on Ceph's blocklist. Lifting the block lets such a client write again, so
its host must have been proven off after it was blocked: then the client is dead. Which host a
client is on follows from its address alone, by the operator's file: Nova may name another one
after an evacuation. Until it is lifted here, each recorded client stays blocked: a standby may have
its volume. So one that is not on the list any more is added again, and an entry that is about to
end is replaced, also one of others.

`host_power` tells Nova that the host is down. From then on Nova shows it down whatever it reports:
that is our own mark, and says nothing about the host. Nova is told otherwise when the compute
service there has reported again. If Nova shows it up then, it is back, and may be switched off
again. A host that an operator has forced down stays so.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial

from oslo_utils import timeutils

from mistral_failover.cloud import hosts
from mistral_failover.cloud.clients import Cloud
from mistral_failover.cloud.errors import CloudError
from mistral_failover.resources.fence import ceph
from mistral_failover.resources.fence.ceph import Cluster
from mistral_failover.resources.fence.devices import Devices
from mistral_failover.store import host_fences
from mistral_failover.store.database import Database
from mistral_failover.store.host_fences import BlockedClient

LOG = logging.getLogger(__name__)

BACKLOG = 12.0
"""Seconds in which a report of a compute service may be one from before its fence: of a host that
was cut off, reports wait in the broker."""

OUTDATED = 180.0
"""Seconds after a proof in which Nova may count a host as up by a report from before its fence:
three times the default of Nova's `service_down_time`."""


NOT_BACK = (
    "Nova has not shown it up since it was fenced: no project has it switched off again before that"
)
"""What is said to the operator of a host that was fenced and is not back."""

RENEW = 900.0
"""Seconds before its end at which an entry of the blocklist is replaced. Not earlier: the client
may be proven dead before, and a replacement has a gap in which it may write (`Cluster.renew`). Not
later: the sweep may not run for some minutes."""


@dataclass(frozen=True)
class Lapse:
    """A client that must stay blocked and is not on the blocklist (``left`` is None), or whose
    entry ends in ``left`` seconds, too soon to rely on."""

    client: BlockedClient
    left: float | None


@dataclass(frozen=True)
class Leftovers:
    """What fences left behind on a host. ``clients``: those that Ceph blocks. ``safe``: of them
    those that are certainly dead. ``down_in_nova``: whether a fence told Nova that it is down,
    or could not. ``back``: whether Nova has shown it up since it was fenced."""

    host: str
    clients: tuple[BlockedClient, ...]
    safe: tuple[BlockedClient, ...]
    down_in_nova: bool
    back: bool


def leftovers(store: Database, known: Devices, host: str) -> Leftovers:
    """Return what fences left behind on a host."""
    blocked, fence = store.reading(
        lambda tx: (host_fences.all_blocked(tx), host_fences.of_host(tx, host))
    )
    addresses = known.ceph.addresses.get(host, ()) if known.ceph else ()
    here = tuple(each for each in blocked if ceph.address_of(each.client) in addresses)
    # Not by the time of the proof: a client may have been blocked while the fence was under way.
    off = fence.claimed_at if fence.proof is not None else None
    safe = tuple(each for each in here if off is not None and each.blocked_at < off)
    return Leftovers(host, here, safe, fence.told, fence.back)


def hosts_with_leftovers(store: Database, known: Devices) -> list[str]:
    """Return the hosts on which fences left something behind."""
    blocked, down = store.reading(
        lambda tx: (host_fences.all_blocked(tx), host_fences.not_back(tx))
    )
    by_address = {
        address: host
        for host, addresses in (known.ceph.addresses if known.ceph else {}).items()
        for address in addresses
    }
    found = {by_address.get(ceph.address_of(each.client)) for each in blocked}
    return sorted({*down, *(host for host in found if host is not None)})


def without_host(store: Database, known: Devices) -> list[BlockedClient]:
    """Return the blocked clients at an address that the operator's file has for no host."""
    named = known.ceph.addresses.values() if known.ceph else ()
    addresses = {address for each in named for address in each}
    blocked = store.reading(host_fences.all_blocked)
    return [each for each in blocked if ceph.address_of(each.client) not in addresses]


def lapses(store: Database, known: Devices, cluster: Cluster) -> list[Lapse]:
    """Return the recorded clients, except those that are certainly dead, that Ceph does not block
    for as long as it takes. Raises Unproven if Ceph cannot be asked."""
    safe = {
        each.client
        for host in hosts_with_leftovers(store, known)
        for each in leftovers(store, known, host).safe
    }
    recorded = [each for each in store.reading(host_fences.all_blocked) if each.client not in safe]
    listed = cluster.blocked() if recorded else {}
    found = [Lapse(each, listed.get(each.client)) for each in recorded]
    return [each for each in found if each.left is None or each.left < ceph.ENOUGH]


def keep(store: Database, cluster: Cluster, lapse: Lapse) -> None:
    """Have Ceph block a client that it does not block any more, or that it soon would not. Raises
    Unproven if Ceph refuses; a repeat continues."""
    client, volume = lapse.client.client, lapse.client.volume_id
    if lapse.left is None:
        cluster.block(client)
        LOG.error(
            "Ceph did not block client %s of volume %s any more; now it does again. Until then the "
            "old guest may have written. To lift a block use failover unfence",
            *(client, volume),
        )
    elif lapse.left < RENEW:
        cluster.renew(client)
        LOG.error(
            "The block of client %s of volume %s would have ended in %.0f s; now it lasts",
            *(client, volume, lapse.left),
        )
    else:
        return
    if not any(each.client == client for each in store.reading(host_fences.all_blocked)):
        cluster.unblock(client)  # it was lifted in the meantime


def unblock(store: Database, cluster: Cluster, clients: tuple[BlockedClient, ...]) -> None:
    """Have Ceph accept these clients again: only those that are certainly dead. Raises Unproven if
    Ceph refuses; a repeat continues."""
    for each in clients:
        cluster.unblock(each.client)
        if not store.atomically(partial(host_fences.forget_blocked, lifted=each)):
            cluster.block(each.client)  # a fence has blocked it again meanwhile, and relies on it
            continue
        LOG.warning("Ceph no longer blocks client %s of volume %s", each.client, each.volume_id)


def tell_nova_back(store: Database, nova: Cloud, host: str) -> bool:
    """Tell Nova that a fenced host is back, if its compute service has reported since and no fence
    of it is under way; record it as back if Nova then shows it up. Return whether Nova no longer
    counts the host as down because of us; False at the first look, which has nothing to compare.
    Raises CloudError."""
    fence, now = store.reading(lambda tx: (host_fences.of_host(tx, host), tx.now()))
    seen = fence.nova_seen
    if seen is None:
        return True
    if fence.owner is not None:
        return False
    service = hosts.compute_service(nova, host)
    if service is None:
        return not fence.told

    def record(report: str | None) -> bool:
        return store.atomically(lambda tx: host_fences.record_nova_report(tx, host, seen, report))

    if not service.forced_down:
        # The fence could not tell Nova, or an operator, or a sweep that died, told it of a return.
        off = fence.proven_at or fence.claimed_at
        back = service.up and off is not None and now - off >= OUTDATED
        if seen in ("", host_fences.NOT_TOLD):
            # If the host is back by now, the next look ends it, unless it was fenced again.
            if record(service.seen if back else "") and not back:
                hosts.force_down(nova, service)
            return False
        if back:
            record(None if seen != host_fences.BY_OPERATOR else service.seen)
        return True
    if seen in (host_fences.NOT_TOLD, host_fences.BY_OPERATOR):
        record(host_fences.BY_OPERATOR)
        return True
    if not seen:
        record(service.seen)
        return False
    if _later(service.seen, seen) < BACKLOG:
        return False
    try:
        hosts.force_down(nova, service, down=False)
    except CloudError as error:
        if error.code != "BAD_REQUEST":
            raise
        # After an evacuation Nova refuses until nova-compute has tidied up.
        LOG.info("Nova still counts host %s as down: %s", host, error.message)
        return False
    shown = hosts.compute_service(nova, host)
    if shown is None or not shown.up:
        # An operator has changed the service (that is no report), or the host died again.
        record("")
    elif record(None):
        LOG.warning("Nova no longer counts host %s as down: its compute service reports", host)
        return True
    # Or it was fenced in the meantime: Nova must not forget that.
    if not store.reading(lambda tx: host_fences.of_host(tx, host)).back:
        hosts.force_down(nova, service)
    return False


def _later(report: str, first: str) -> float:
    """Return by how many seconds a report that Nova shows is later than the first one seen."""
    if not report or report == first:
        return 0.0
    return (timeutils.parse_isotime(report) - timeutils.parse_isotime(first)).total_seconds()
