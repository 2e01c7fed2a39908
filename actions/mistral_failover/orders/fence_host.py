# SPDX-License-Identifier: Apache-2.0
"""An operator of the cloud fences a compute host by hand, with the configured fence devices.

A host serves many projects, so a role in one of them is not enough: only a user to whom Nova shows
compute services may look, and only one who may change them may fence.
"""

from __future__ import annotations

import logging
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from mistral_failover.cloud import hosts
from mistral_failover.cloud.clients import Cloud
from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.hosts import ComputeService
from mistral_failover.groups.snapshot import group_snapshot
from mistral_failover.resources.fence import agents, devices, power
from mistral_failover.resources.fence.devices import Devices, Levels
from mistral_failover.runtime.deadlines import DeadlineGuard
from mistral_failover.runtime.errors import ActionError
from mistral_failover.runtime.request import Request
from mistral_failover.store import groups

LOG = logging.getLogger(__name__)

LOOK = 10.0
"""Seconds in which a device tells the power in a dry run."""
LIMIT = 50.0
"""Seconds for all of it: Mistral gives an action that is waited for 60 by default."""


@dataclass(frozen=True)
class FenceRequest:
    """Either ``host``, or ``group`` and ``member``. ``because``: the reason; None: only show what
    would be done. ``even_if_up``: also if Nova reports the compute service up."""

    host: str | None
    group: str | None
    member: str | None
    because: str | None
    even_if_up: bool = False


def fence_host(request: Request, asked: FenceRequest) -> dict[str, Any]:
    """Switch a host off, prove it, and tell Nova; or, without a reason, show what would be done.

    Returns ``host``, ``compute_service`` (up, down or null), ``levels`` (each a list of ``agent``
    and ``power``: on, off or unknown; asked in a dry run only), ``fenced``, ``proof`` (null in a
    dry run) and ``sentence``. Raises ActionError BAD_INPUT, CONFIG, FENCE_UNPROVEN, UNKNOWN_MEMBER;
    UnknownGroup; CloudError FORBIDDEN if Nova does not show compute services to the caller, or does
    not let the caller change them.
    """
    guard = DeadlineGuard(time.monotonic() + LIMIT, request.runtime.settings.http_timeout)
    own = request.cloud(guard)
    hosts.compute_services(own)
    if asked.because is not None:
        hosts.require_right_to_force_down(own)
    try:
        known = devices.load(request.runtime.settings)
    except devices.NoDevices as error:
        raise ActionError("CONFIG", error.detail, error.remedy) from None
    host = host_of(request, own, asked.host, asked.group, asked.member)
    service = hosts.compute_service(own, host)
    facts: dict[str, Any] = {
        "host": host,
        "compute_service": service and ("down" if service.down else "up"),
        "levels": _levels(known.hosts.get(host, ()), guard if asked.because is None else None),
    }
    if not facts["levels"]:
        raise ActionError(
            "CONFIG",
            f"no fence device is configured for host {host}",
            f"Add {host} to hosts of the file in {devices.OPTION}.",
        )
    if asked.because is None:
        return {**facts, "fenced": False, "proof": None, "sentence": _plan(facts, known, service)}
    proof = _fenced(request, known, own, asked, host)
    return {**facts, "fenced": True, "proof": proof, "sentence": f"Fenced {host}: {proof}"}


def _levels(levels: Levels, guard: DeadlineGuard | None) -> list[list[dict[str, str]]]:
    """Return the devices of each level. If a guard is given, ask them all at once for the power."""

    def permit(seconds: float) -> float:
        assert guard is not None
        return min(seconds, LOOK, guard.permit("GET"))

    def shown(device: devices.Device) -> dict[str, str]:
        said = agents.status(device, permit).power if guard is not None else agents.Power.UNKNOWN
        return {"agent": device.agent, "power": str(said)}

    with ThreadPoolExecutor(16) as pool:
        asked = [[pool.submit(shown, device) for device in level] for level in levels]
        return [[each.result() for each in level] for level in asked]


def _plan(facts: dict[str, Any], known: Devices, service: ComputeService | None) -> str:
    """Return what a fence would do, in a sentence."""
    tried = "; ".join(power.described(known, facts["host"]))
    would = f"would switch {facts['host']} off ({tried})"
    if service is not None and not service.down and known.compute_must_be_down:
        return f"Refused as long as Nova reports its compute service up; then it {would}"
    return f"It {would}, verify it, and tell Nova"


def _fenced(request: Request, known: Devices, own: Cloud, asked: FenceRequest, host: str) -> str:
    """Switch the host off; return the proof."""
    store = request.runtime.database  # a host serves many projects
    LOG.warning("An operator fences host %s: %s", host, asked.because)
    switch = power.Switch(
        devices=replace(known, compute_must_be_down=False) if asked.even_if_up else known,
        nova=own,
        store=store,
        guard=own.guard,
        deadline=time.monotonic() + LIMIT - 10,
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


def host_of(
    request: Request, own: Cloud, host: str | None, group: str | None, member: str | None
) -> str:
    """Return the host that an operator means: by its name, or by a member of a group that is there.
    Raises ActionError BAD_INPUT, UNKNOWN_MEMBER; UnknownGroup; CloudError."""
    if host is not None and group is None and member is None:
        return host
    if host is not None or group is None or member is None:
        raise ActionError(
            "BAD_INPUT", "host: either a host, or a group and a member", "Give one of them."
        )
    snapshot = group_snapshot(request, group)
    members = request.store.reading(lambda tx: groups.members_of(tx, snapshot.state.id))
    row = members.get(member)
    if row is None or row.server_id is None:
        raise ActionError(
            "UNKNOWN_MEMBER",
            f"{member} is not a member of {group} with a server",
            f"List the members: failover member list {group}",
        )
    place = hosts.location_of(own, row.server_id)
    if place.host is None or place.moving:
        raise CloudError(
            "CONFLICT",
            f"The host of server {row.server_id} of {member} is not certain"
            f"{f' ({place.moving})' if place.moving else ''}.",
        )
    return place.host
