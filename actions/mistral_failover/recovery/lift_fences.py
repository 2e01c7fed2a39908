# SPDX-License-Identifier: Apache-2.0
"""Lift what fences left behind on compute hosts, now and then, as far as that is certainly safe.
Until then, see that it is still there.

Hosts belong to the operator of the cloud, whose configuration and credential count. What is found
goes to the log of the executor and not to the project whose sweep it is.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from weakref import WeakKeyDictionary

from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.hosts import operator_cloud
from mistral_failover.cloud.transport import Guard
from mistral_failover.resources.fence import devices, lifting, power
from mistral_failover.resources.fence.ceph import Cluster
from mistral_failover.resources.fence.devices import Devices
from mistral_failover.resources.fence.lifting import Leftovers
from mistral_failover.runtime.deadlines import DeadlineGuard
from mistral_failover.runtime.request import Request
from mistral_failover.store.database import Database

LOG = logging.getLogger(__name__)
EVERY = 60.0
"""Seconds between two times that a process looks, for whatever project."""
LIMIT = 10.0
"""Seconds each for lifting in Ceph, for Nova, and for keeping in Ceph, of all hosts; the next sweep
continues."""

_looked: WeakKeyDictionary[Database, float] = WeakKeyDictionary()
_last: WeakKeyDictionary[Database, str] = WeakKeyDictionary()
"""The host that was looked at last."""


def lift_fences(request: Request) -> None:
    """Lift what is safe, if it is due. A failure is logged, and tried again."""
    database, began = request.runtime.database, time.monotonic()
    if began - _looked.get(database, float("-inf")) < EVERY:
        return
    settings = request.runtime.settings
    if not settings.fence_devices_file:
        return
    try:
        known = devices.for_project(settings, request.project_id)
    except devices.NoDevices:
        return
    _looked[database] = began
    found = _from_the_next_one(database, lifting.hosts_with_leftovers(database, known))
    # The storage first: then Nova may use the host. A Ceph that hangs does not keep Nova waiting.
    for lift in (_unblock, _tell_nova_back):
        guard = DeadlineGuard(time.monotonic() + LIMIT, settings.http_timeout)
        for host in found:
            _last[database] = host
            try:
                lift(request, known, lifting.leftovers(database, known, host), guard)
            except (CloudError, power.Unproven) as error:
                LOG.warning("The fence of host %s is not lifted: %s", host, error)
    if known.ceph is not None:
        guard = DeadlineGuard(time.monotonic() + LIMIT, settings.http_timeout)
        _keep(database, known, Cluster(known.ceph, _permitted(guard)))


def _from_the_next_one(database: Database, found: Sequence[str]) -> list[str]:
    """Return the hosts from that on which the last sweep did not come to: some stay dead for long,
    and the time of one sweep may not be enough for all."""
    last = _last.get(database, "")
    return [host for host in found if host >= last] + [host for host in found if host < last]


def _keep(database: Database, known: Devices, cluster: Cluster) -> None:
    """Have Ceph go on blocking what must stay blocked."""
    try:
        for lapse in lifting.lapses(database, known, cluster):
            try:
                lifting.keep(database, cluster, lapse)
            except power.Unproven as error:
                LOG.error("The block of client %s may end: %s", lapse.client.client, error.detail)
    except (CloudError, power.Unproven) as error:
        LOG.error("It is not known whether Ceph still blocks what fences blocked: %s", error)


def _permitted(guard: Guard) -> Callable[[float], float]:
    return lambda limit: min(limit, guard.permit("POST"))


def _tell_nova_back(request: Request, known: Devices, found: Leftovers, guard: Guard) -> None:
    runtime = request.runtime
    if not found.back:
        nova = operator_cloud(known.cloud, guard, runtime.settings)
        lifting.tell_nova_back(runtime.database, nova, found.host)


def _unblock(request: Request, known: Devices, found: Leftovers, guard: Guard) -> None:
    if found.safe and known.ceph is not None:
        cluster = Cluster(known.ceph, _permitted(guard))
        lifting.unblock(request.runtime.database, cluster, found.safe)
