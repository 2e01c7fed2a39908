# SPDX-License-Identifier: Apache-2.0
"""What the orders about a compute host have in common: who may give them, and which host is meant.

A host serves many projects, so a role in one of them is not enough: only a user to whom Nova shows
compute services may look, and only one who may change them may act.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from mistral_failover.cloud import hosts
from mistral_failover.cloud.clients import Cloud
from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.transport import Guard
from mistral_failover.groups.snapshot import group_snapshot
from mistral_failover.model.validation import did_you_mean
from mistral_failover.resources.fence import devices
from mistral_failover.resources.fence.devices import Devices
from mistral_failover.runtime.deadlines import DeadlineGuard
from mistral_failover.runtime.errors import ActionError
from mistral_failover.runtime.request import Request
from mistral_failover.store import groups

LIMIT = 50.0
"""Seconds for an order: Mistral gives an action that is waited for 60 by default."""


@dataclass(frozen=True)
class HostRequest:
    """Either ``host``, or ``group`` and ``member``, whose host is meant. ``because``: the reason;
    None: only show what would be done."""

    host: str | None
    group: str | None
    member: str | None
    because: str | None


@dataclass(frozen=True)
class HostOrder:
    """A permitted order about ``host``. ``cloud``: with the operator's rights; ``guard`` bounds its
    calls; ``devices``: the configured fence devices."""

    host: str
    cloud: Cloud
    guard: Guard
    devices: Devices

    def compute_service(self) -> str | None:
        """Ask Nova about the host's compute service: up, down, or None without one. Raises
        CloudError."""
        service = hosts.compute_service(self.cloud, self.host)
        if service is None:
            return None
        return "down" if service.down else "up"


def permitted(request: Request, asked: HostRequest) -> HostOrder:
    """Check that the caller may give the order, and find the host.

    Raises ActionError BAD_INPUT, CONFIG without fence devices, UNKNOWN_MEMBER; UnknownGroup;
    CloudError FORBIDDEN if Nova does not show compute services to the caller, or does not let the
    caller change them although there is a reason; other CloudErrors.
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
    return HostOrder(_host(request, own, asked), own, guard, known)


def _host(request: Request, own: Cloud, asked: HostRequest) -> str:
    """Return the host that an operator means: by its name, or by a member of a group."""
    group, member = asked.group, asked.member
    if asked.host is not None and group is None and member is None:
        return asked.host
    if asked.host is not None or group is None or member is None:
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
            did_you_mean(member, members),
        )
    place = hosts.location_of(own, row.server_id)
    if place.host is None or place.moving:
        raise CloudError(
            "CONFLICT",
            f"The host of server {row.server_id} of {member} is not certain"
            f"{f' ({place.moving})' if place.moving else ''}.",
        )
    return place.host
