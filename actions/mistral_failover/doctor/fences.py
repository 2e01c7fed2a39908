# SPDX-License-Identifier: Apache-2.0
"""Checks of the operator's fence devices. Only an operator gets to see them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, wait
from shlex import quote

from mistral_failover.cloud import hosts
from mistral_failover.cloud.errors import CloudError
from mistral_failover.doctor.checks import Examination, Finding, error, ok, warn
from mistral_failover.resources.fence import agents, ceph, devices, lifting, power
from mistral_failover.resources.fence.devices import Device, Devices
from mistral_failover.store import host_fences

LIMIT = 10.0
"""Seconds for one device."""
_TOGETHER = 32
_RESERVE = 3.0  # seconds that the other checks keep
_NAMED = 10


def fences(examination: Examination) -> Iterable[Finding]:
    """Check that every fence device answers and accepts its credential, all of them side by side,
    and that every compute host has one. Nothing is switched. For a caller to whom Nova does not
    show compute services, check nothing."""
    if not examination.settings.fence_devices_file:
        return
    try:
        services = hosts.compute_services(examination.cloud)
    except CloudError as refusal:
        if refusal.code == "FORBIDDEN":
            return
        raise
    try:
        known = devices.load(examination.settings)
    except devices.NoDevices as broken:
        yield error(f"{broken.message}: {broken.detail}", "Correct the file.")
        return
    for path, unclear in known.unclear():
        yield warn(
            f"{path}: {unclear}", f"State systems_uri in options, in the file of {devices.OPTION}."
        )
    yield from _tried(examination, known)
    yield from _blocks(examination, known)
    for host in examination.request.runtime.database.reading(host_fences.not_back):
        yield warn(
            f"{host}: {lifting.NOT_BACK}",
            "After its repair start nova-compute there; the sweep tells Nova when it reports. To "
            f"switch it off again: failover fence {quote(host)} --because '...'.",
        )
    missing = sorted({service.host for service in services} - known.hosts.keys())
    if missing and known.hosts:
        more = ", ..." if len(missing) > _NAMED else ""
        yield warn(
            f"compute hosts without a fence device: {', '.join(missing[:_NAMED])}{more}",
            f"Add them to hosts of the file in {devices.OPTION}.",
        )


def _tried(examination: Examination, known: Devices) -> Iterable[Finding]:
    """Try all devices at once. A device that does not answer delays no other one."""
    end = max(0.0, examination.left - _RESERVE)
    remedy = f"Check the device, and its options in the file of {devices.OPTION}."

    def permit(seconds: float) -> float:
        return min(seconds, LIMIT, end)

    jobs: list[tuple[str, Callable[[], str]]] = [
        (f"level {number} of {host}", _monitor(device, permit))
        for host, levels in sorted(known.hosts.items())
        for number, level in enumerate(levels, 1)
        for device in level
    ]
    if known.ceph is not None:
        jobs.append(("Ceph", _cluster(known.ceph, permit)))
    pool = ThreadPoolExecutor(_TOGETHER, thread_name_prefix="fences")
    tried = [(what, pool.submit(job)) for what, job in jobs]
    wait([future for _, future in tried], timeout=end)
    pool.shutdown(wait=False, cancel_futures=True)
    good = 0
    for what, future in tried:
        if not future.done() or future.cancelled():
            yield warn(f"{what}: not tried: out of time", "Run it again.")
        elif wrong := future.result():
            yield error(f"{what}: {wrong}", remedy)
        else:
            good += 1
    if good:
        yield ok(f"{good} of {len(tried)} fence devices answer")


def _blocks(examination: Examination, known: Devices) -> Iterable[Finding]:
    """Check that Ceph still blocks what fences have blocked. If it cannot be asked, its own check
    says so."""
    if known.ceph is None:
        return
    guard = examination.guard
    cluster = ceph.Cluster(known.ceph, lambda seconds: min(seconds, LIMIT, guard.permit("GET")))
    database = examination.request.runtime.database  # a client belongs to no project
    try:
        found = lifting.lapses(database, known, cluster)
    except power.Unproven:
        return
    for lapse in found:
        client, volume = lapse.client.client, lapse.client.volume_id
        if lapse.left is None:
            yield error(
                f"Ceph does not block client {client} of volume {volume} any more, and its host "
                "was not off since a fence blocked it: its guest may write",
                "The sweep blocks it again (failover.sweep). Switch its host off: failover fence "
                "HOST --because '...'",
            )
        else:
            yield warn(
                f"the entry of client {client} of volume {volume} on Ceph's blocklist ends in "
                f"{lapse.left / 3600:.1f} h; a fence relies on it",
                "Switch its host off before: failover fence HOST --because '...'. Otherwise the "
                "sweep replaces the entry, and the client may write for about a second.",
            )


def _monitor(device: Device, permit: agents.Permit) -> Callable[[], str]:
    """Return a job that tells what is wrong with a device; empty if nothing is."""

    def job() -> str:
        answer = agents.monitor(device, permit)
        return "" if answer.ok else answer.detail

    return job


def _cluster(cluster: devices.Ceph, permit: ceph.Permit) -> Callable[[], str]:
    def job() -> str:
        try:
            ceph.Cluster(cluster, permit).check()
        except power.Unproven as found:
            return found.detail
        return ""

    return job
