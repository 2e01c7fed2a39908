# SPDX-License-Identifier: Apache-2.0
"""An operator of the cloud fences a compute host by hand, with the configured fence devices."""

from __future__ import annotations

import logging
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TypedDict

from mistral_failover.cloud.guard import Guard
from mistral_failover.orders import host_orders
from mistral_failover.orders.host_orders import HostOrder, HostRequest
from mistral_failover.resources.fence import agents, devices, power
from mistral_failover.resources.fence.devices import Levels
from mistral_failover.runtime.errors import ActionError
from mistral_failover.runtime.request import Request

LOG = logging.getLogger(__name__)

LOOK = 10.0
"""Seconds in which a device tells the power in a dry run."""


class FenceDevice(TypedDict):
    """A fence device. ``power``: on, off or unknown; asked in a dry run only."""

    agent: str
    power: str


class Fenced(TypedDict):
    """What was found and done. ``compute_service``: up or down, None if Nova knows none there;
    ``proof``: None in a dry run."""

    host: str
    compute_service: str | None
    levels: list[list[FenceDevice]]
    fenced: bool
    proof: str | None
    sentence: str


def fence_host(request: Request, asked: HostRequest, *, even_if_up: bool) -> Fenced:
    """Switch a host off, prove it, and tell Nova; or, without a reason, show what would be done.

    ``even_if_up``: also if Nova reports the compute service up. Raises as
    :func:`host_orders.permitted`; ActionError CONFIG if the host has no fence device,
    FENCE_UNPROVEN.
    """
    order = host_orders.permitted(request, asked)
    host = order.host
    facts: Fenced = {
        "host": host,
        "compute_service": order.compute_service(),
        "levels": _levels(
            order.devices.hosts.get(host, ()), order.guard if asked.because is None else None
        ),
        "fenced": False,
        "proof": None,
        "sentence": "",
    }
    if not facts["levels"]:
        raise ActionError(
            "CONFIG",
            f"no fence device is configured for host {host}",
            f"Add {host} to hosts of the file in {devices.OPTION}.",
        )
    if asked.because is None:
        return {**facts, "sentence": _plan(order, up=facts["compute_service"] == "up")}
    proof = _fenced(request, order, asked.because, even_if_up=even_if_up)
    return {**facts, "fenced": True, "proof": proof, "sentence": f"Fenced {host}: {proof}"}


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


def _plan(order: HostOrder, *, up: bool) -> str:
    """Return what a fence would do, in a sentence. ``up``: Nova reports the compute service up."""
    tried = "; ".join(power.described(order.devices, order.host))
    would = f"would switch {order.host} off ({tried})"
    if up and order.devices.compute_must_be_down:
        return f"Refused as long as Nova reports its compute service up; then it {would}"
    return f"It {would}, verify it, and tell Nova"


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
    )
    try:
        proof = power.switch_off(switch, host, store.reading(lambda tx: tx.now()))
    except power.Unproven as error:
        raise ActionError(
            "FENCE_UNPROVEN",
            f"host {host} is not proven off: {error.detail}",
            "Check the fence devices: failover doctor. Or switch the host off by hand.",
        ) from None
    return f"{proof}; {power.tell_nova(switch, host)}"
