# SPDX-License-Identifier: Apache-2.0
"""An operator of the cloud lifts what fences left behind on a compute host, by hand.

The sweep does the same by itself for what is certain.
"""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from shlex import quote
from typing import TypedDict

from mistral_failover.model.text import counted
from mistral_failover.orders import host_orders
from mistral_failover.orders.host_orders import HostOrder, HostRequest
from mistral_failover.resources.fence import devices, lifting, power
from mistral_failover.resources.fence.ceph import Cluster
from mistral_failover.resources.fence.lifting import Leftovers
from mistral_failover.runtime.errors import ActionError
from mistral_failover.runtime.request import Request

LOG = logging.getLogger(__name__)

REPORTS = lifting.BACKLOG + 12.0
"""Seconds in which a compute service that lives shows that it is back, even if this is the first
look: the next report after the backlog counts, and it reports every 10 s by default."""
_PAUSE = 1.0


class BlockedRow(TypedDict):
    """A client that Ceph blocks. ``safe``: it is certainly dead."""

    client: str
    volume: str
    blocked_at: float
    safe: bool


class Unfenced(TypedDict):
    """What was found and done. ``clients``: what Ceph blocked before. ``down_in_nova``: whether
    Nova still counts the host as down because of a fence."""

    host: str
    compute_service: str | None
    clients: list[BlockedRow]
    lifted: int
    down_in_nova: bool
    sentence: str


def unfence_host(request: Request, asked: HostRequest, *, power_cycled: bool) -> Unfenced:
    """Lift what fences left behind on a host; or, without a reason, show what would be lifted.

    ``power_cycled``: the operator says that the host was off since its clients were blocked. Raises
    as :func:`host_orders.permitted`; ActionError CONFIG if Ceph does not lift a block,
    FENCE_UNPROVEN if a blocked client may be alive.
    """
    order = host_orders.permitted(request, asked)
    found = lifting.leftovers(request.runtime.database, order.devices, order.host)
    if power_cycled:
        found = replace(found, safe=found.clients)
    facts: Unfenced = {
        "host": order.host,
        "compute_service": order.compute_service(),
        "clients": [
            {
                "client": each.client,
                "volume": each.volume_id,
                "blocked_at": each.blocked_at,
                "safe": each in found.safe,
            }
            for each in found.clients
        ],
        "lifted": 0,
        "down_in_nova": found.down_in_nova,
        "sentence": "",
    }
    unknown = lifting.without_host(request.runtime.database, order.devices)
    note = _note(len(unknown))
    if asked.because is None:
        return {**facts, "sentence": _plan(found) + note}
    if found.safe != found.clients:
        raise _unsafe(found)
    LOG.warning("An operator lifts the fence of host %s: %s", order.host, asked.because)
    _unblock(request, order, found)
    back = _told_back(request, order, found)
    return {
        **facts,
        "compute_service": order.compute_service(),
        "lifted": len(found.clients),
        "down_in_nova": found.down_in_nova and not back,
        "sentence": _done(found, back) + note,
    }


def _unblock(request: Request, order: HostOrder, found: Leftovers) -> None:
    """Have Ceph accept the clients again."""
    if not found.clients:
        return
    ceph = order.devices.ceph
    assert ceph is not None  # it has the address of each of them
    cluster = Cluster(ceph, lambda seconds: min(seconds, order.guard.permit("POST")))
    try:
        lifting.unblock(request.runtime.database, cluster, found.clients)
    except power.Unproven as error:
        raise ActionError(
            "CONFIG",
            f"not every block of {found.host} is lifted: {error.message}",
            f"The executor's log says why. Correct ceph in the file of {devices.OPTION}, then: "
            f"failover unfence {quote(found.host)} --because '...'",
        ) from None


def _told_back(request: Request, order: HostOrder, found: Leftovers) -> bool:
    """Tell Nova that the host is back, as soon as it reports, within `REPORTS` seconds."""
    end = time.monotonic() + REPORTS
    while found.down_in_nova:
        if lifting.tell_nova_back(request.runtime.database, order.cloud, found.host):
            return True
        if time.monotonic() >= end:
            return False
        time.sleep(_PAUSE)
    return True


def _unsafe(found: Leftovers) -> ActionError:
    number = len(found.clients) - len(found.safe)
    return ActionError(
        "FENCE_UNPROVEN",
        f"{counted(number, 'client')} of {found.host} may still be alive: host {found.host} is not "
        "proven off since Ceph blocked them",
        f"Switch it off: failover fence {found.host} --because '...'. Or, if you have switched it "
        "off and on yourself since, repeat the command with --power-cycled.",
    )


def _note(unknown: int) -> str:
    if not unknown:
        return ""
    return (
        f". Ceph also blocks {counted(unknown, 'client')} at an address of no host: add it to "
        f"ceph.addresses of the file in {devices.OPTION}"
    )


def _plan(found: Leftovers) -> str:
    """Return what would be lifted, in a sentence."""
    if not found.clients and not found.down_in_nova:
        return f"Nothing to lift on {found.host}"
    if found.safe != found.clients:
        return f"Refused: {_unsafe(found).message}"
    would = []
    if found.clients:
        would.append(f"have Ceph accept {counted(len(found.clients), 'client')} again")
    if found.down_in_nova:
        would.append("tell Nova that the host is back once its compute service reports")
    return f"It would {' and '.join(would)}"


def _done(found: Leftovers, back: bool) -> str:
    done = []
    if found.clients:
        done.append(f"Ceph accepts {counted(len(found.clients), 'client')} again")
    if found.down_in_nova and back:
        done.append("Nova no longer counts the host as down because of a fence")
    elif found.down_in_nova:
        done.append(
            "Nova counts the host as down until its compute service reports; the sweep tells Nova"
        )
    return f"{found.host}: {'; '.join(done)}" if done else f"Nothing to lift on {found.host}"
