# SPDX-License-Identifier: Apache-2.0
"""Snapshots of volumes, and volumes made from them, for a rehearsal.

A snapshot of an attached volume is what a loss of power leaves behind: Cinder takes it without
asking the guest (``force``). Everything made here has a name that only it has, so a repeat finds
what an earlier attempt made, and it can be found and removed without any record of it. Each call
looks first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from oslo_utils import timeutils

from mistral_failover.cloud.absence import SNAPSHOT, VOLUME, Kind, unless_absent
from mistral_failover.cloud.clients import Cloud
from mistral_failover.cloud.errors import CloudError, if_there
from mistral_failover.cloud.fields import Field
from mistral_failover.cloud.url_paths import url_path
from mistral_failover.cloud.volume_holders import MULTIATTACH, volume_of
from mistral_failover.cloud.volume_states import USABLE
from mistral_failover.cloud.waits import ProbeResult, ResendPolicy
from mistral_failover.fault_points import reach

_ID, _NAME = Field("Cinder", "id"), Field("Cinder", "name")
_STATUS, _SIZE = Field("Cinder", "status"), Field("Cinder", "size")
_CREATED, _UPDATED = Field("Cinder", "created_at"), Field("Cinder", "updated_at")
_ENCRYPTED = Field("Cinder", "encrypted")
_LIMITS, _ABSOLUTE = Field("Cinder", "limits"), Field("Cinder", "absolute")
_UNLIMITED = -1
_CUT = 1.0
"""Seconds by which a time stamp of Cinder, which has whole seconds, may be too early."""
_SEE_WHY = (
    "See Cinder's messages of the project, and cinder-volume's log. Its backend may have no room, "
    "or take no snapshots of volumes in use."
)
_ROOM = (
    ("volumes", Field("Cinder", "maxTotalVolumes"), Field("Cinder", "totalVolumesUsed")),
    ("snapshots", Field("Cinder", "maxTotalSnapshots"), Field("Cinder", "totalSnapshotsUsed")),
    (
        "GiB of volumes and snapshots",
        Field("Cinder", "maxTotalVolumeGigabytes"),
        Field("Cinder", "totalGigabytesUsed"),
    ),
)


@dataclass(frozen=True)
class CopiedVolume:
    """A volume that can be copied. ``size``: in GiB."""

    id: str
    size: int


def refuse_uncopyable(cloud: Cloud, volume_ids: Iterable[str]) -> list[CopiedVolume]:
    """Return the volumes, in the given order, if each can be copied; nothing is changed.

    Raises `CloudError` CANNOT_COPY for one that is encrypted, because its copy needs a key that the
    rights of a failover need not reach; for one that several servers may hold, because two writers
    of a copy say nothing about the original; and for one in a state in which Cinder takes no
    snapshot. QUOTA if the project has no room for the copies and their snapshots; NOT_FOUND.
    """
    found = []
    for volume_id in volume_ids:
        volume = volume_of(cloud, volume_id)
        if _ENCRYPTED.of(volume):
            raise _uncopyable(volume_id, "is encrypted, and its copy needs a key of its own")
        if MULTIATTACH.of(volume):
            raise _uncopyable(volume_id, "may be attached to several servers at once")
        if volume.status not in USABLE:
            raise _uncopyable(volume_id, f"is {volume.status}")
        found.append(CopiedVolume(volume_id, int(_SIZE.of(volume))))
    _refuse_without_room(cloud, found)
    return found


def _uncopyable(volume_id: str, why: str) -> CloudError:
    return CloudError(
        "CANNOT_COPY",
        f"Volume {volume_id} cannot be copied for a rehearsal: it {why}.",
        remedy="Try the failover of such a group by a planned move, when its users can wait.",
    )


def _refuse_without_room(cloud: Cloud, volumes: Iterable[CopiedVolume]) -> None:
    """Raise QUOTA unless the project has room for a snapshot and a copy of each volume. Snapshots
    count with their volume's size, unless the cloud is configured otherwise (``no_snapshot_gb_
    quota``, which it does not show)."""
    sizes = [each.size for each in volumes]
    limits: Mapping[str, Any] = _ABSOLUTE.of(_LIMITS.of(cloud.read_cinder("/limits")))
    needs = (len(sizes), len(sizes), 2 * sum(sizes))
    for (kind, most_field, used_field), needed in zip(_ROOM, needs, strict=True):
        most, used = int(most_field.of(limits)), int(used_field.of(limits))
        if most != _UNLIMITED and used + needed > most:
            raise CloudError(
                "QUOTA",
                f"The project has no room for the copies of a rehearsal: {kind}: {used} of {most} "
                f"are used, and {needed} more are needed.",
                service="Cinder",
            )


@dataclass(frozen=True)
class Snapshots:
    """Snapshots that were taken. ``ids``: by volume. ``first``: when Cinder accepted the first
    request; ``last``: when the last one was available, at the latest, both in seconds since the
    epoch by Cinder's clock. A backend takes each at an instant between them, which Cinder does not
    show."""

    ids: Mapping[str, str]
    first: float
    last: float


def take_snapshots(
    cloud: Cloud, names: Mapping[str, str], metadata: dict[str, str], limit: float
) -> Snapshots:
    """Take a snapshot of each volume, all requested at once; one that an earlier attempt took is
    kept, with its time.

    ``names``: by the volume's id, the snapshot's name, which only it has. ``limit``: seconds in
    total. Raises `CloudError` SNAPSHOT_FAILED, QUOTA, TIMEOUT.
    """
    waits = {volume_id: ResendPolicy(cloud) for volume_id in names}

    def step() -> ProbeResult:
        done: dict[str, Mapping[str, Any]] = {}
        states = []
        for volume_id, name in names.items():
            row = _only(_SNAPSHOTS.named(cloud, name))
            if row is None:
                states.append(_request_snapshot(cloud, waits[volume_id], volume_id, name, metadata))
                continue
            waits[volume_id].answered()
            status = str(_STATUS.of(row))
            if status == "available":
                done[volume_id] = row
            elif status != "creating":
                raise CloudError(
                    "SNAPSHOT_FAILED",
                    _failed(f"a snapshot of volume {volume_id}", status),
                    remedy=_SEE_WHY,
                    service="Cinder",
                )
            states.append(status)
        return ProbeResult(
            ", ".join(sorted(set(states))), done=len(done) == len(names), result=done
        )

    what = f"snapshots of {len(names)} volumes"
    found: dict[str, Mapping[str, Any]] = _carried_out(cloud, waits.values(), step, what, limit)
    return Snapshots(
        ids={volume_id: str(_ID.of(row)) for volume_id, row in found.items()},
        first=min(_time(_CREATED.of(row)) for row in found.values()),
        last=max(_time(_UPDATED.of(row) or _CREATED.of(row)) for row in found.values()) + _CUT,
    )


def _time(text: str) -> float:
    """Return a time stamp of Cinder, which is in UTC, as seconds since the epoch."""
    return float(timeutils.parse_isotime(text).timestamp())


def _request_snapshot(
    cloud: Cloud, repeats: ResendPolicy, volume_id: str, name: str, metadata: dict[str, str]
) -> str:
    """Request a snapshot unless an earlier request may still take effect; return the state."""
    if not repeats.allow():
        return repeats.no_effect_yet("no snapshot yet").state
    reach("snapshot.before")
    with repeats.sending(f"take a snapshot of volume {volume_id}"):
        snapshot = {"volume_id": volume_id, "force": True, "name": name, "metadata": metadata}
        cloud.volumes.client.post("/snapshots", body={"snapshot": snapshot})
    reach("snapshot.after")
    return "requested"


def copy_of_snapshot(
    cloud: Cloud, snapshot_id: str, size: int, name: str, metadata: dict[str, str], limit: float
) -> str:
    """Make a volume from a snapshot; return its id once it can be attached. ``size``: in GiB;
    ``name``: the volume's, which only it has. Raises `CloudError` COPY_FAILED, QUOTA, TIMEOUT."""
    repeats = ResendPolicy(cloud)

    def step() -> ProbeResult:
        row = _only(_VOLUMES.named(cloud, name))
        if row is not None:
            repeats.answered()
            status = str(_STATUS.of(row))
            if status in USABLE:
                return ProbeResult(status, done=True, result=str(_ID.of(row)))
            if status.startswith("error"):
                raise CloudError(
                    "COPY_FAILED",
                    _failed(f"the copy {name}", status),
                    remedy=_SEE_WHY,
                    service="Cinder",
                )
            return ProbeResult(status)
        if not repeats.allow():
            return repeats.no_effect_yet("no copy yet")
        reach("copy.before")
        with repeats.sending(f"make a volume from snapshot {snapshot_id}"):
            copy = {"snapshot_id": snapshot_id, "size": size, "name": name, "metadata": metadata}
            cloud.volumes.client.post("/volumes", body={"volume": copy})
        reach("copy.after")
        return ProbeResult("requested")

    return str(_carried_out(cloud, [repeats], step, f"the copy {name}", limit))


@dataclass(frozen=True)
class _Things:
    """What is made here. ``word``: what it is; ``rows``: where Cinder lists it; ``kind``: how its
    absence is asked for."""

    word: str
    rows: str
    kind: Kind

    def named(self, cloud: Cloud, name: str) -> list[Mapping[str, Any]]:
        """Return those of the project with this name."""
        rows = cloud.cinder_rows(self.rows, url_path(self.rows, "detail"), name=name)
        return [row for row in rows if _NAME.of(row) == name]

    def is_gone(self, cloud: Cloud, identity: str) -> bool:
        """Return whether Cinder neither shows it nor lists it."""
        path = url_path(self.rows, identity)
        return unless_absent(cloud, self.kind, identity, lambda: cloud.read_cinder(path)) is None

    def delete(self, cloud: Cloud, identity: str) -> None:
        """Request its deletion."""
        path = url_path(self.rows, identity)
        if_there(lambda: cloud.volumes.client.delete(path))


_SNAPSHOTS = _Things("snapshot", "snapshots", SNAPSHOT)
_VOLUMES = _Things("volume", "volumes", VOLUME)


def delete_copy(cloud: Cloud, name: str, limit: float) -> None:
    """Delete every volume of this name, which only a copy has. One that is attached is not deleted.
    Raises `CloudError` COPY_LEFT, TIMEOUT."""
    _delete_all(cloud, _VOLUMES, name, limit)


def delete_snapshots(cloud: Cloud, names: Iterable[str], limit: float) -> None:
    """Delete every snapshot of these names, which only rehearsals give. Raises `CloudError`
    COPY_LEFT, TIMEOUT."""
    for name in names:
        _delete_all(cloud, _SNAPSHOTS, name, limit)


def _delete_all(cloud: Cloud, things: _Things, name: str, limit: float) -> None:
    """Delete what has this name until Cinder lists nothing, and each that was seen is absent by a
    second way, too."""
    repeats = ResendPolicy(cloud)
    seen: set[str] = set()

    def step() -> ProbeResult:
        rows = things.named(cloud, name)
        seen.update(str(_ID.of(row)) for row in rows)
        if not rows:
            if not all(things.is_gone(cloud, identity) for identity in sorted(seen)):
                return ProbeResult("Cinder does not list it, but shows it")
            return repeats.settled("it is gone")  # a creation may still take effect
        for row in rows:
            identity, status = str(_ID.of(row)), str(_STATUS.of(row))
            if status == "error_deleting":
                raise CloudError(
                    "COPY_LEFT",
                    f"Cinder could not delete {things.word} {identity} ({name}): it is {status}.",
                    remedy="See cinder-volume's log. Then an administrator deletes the "
                    f"{things.word} {identity} by force.",
                    service="Cinder",
                )
            if status in ("available", "error") and repeats.allow():
                reach("uncopy.before")
                with repeats.sending(f"delete {things.word} {name}"):
                    things.delete(cloud, identity)
                reach("uncopy.after")
        return ProbeResult("it is " + ", ".join(sorted({str(_STATUS.of(row)) for row in rows})))

    _carried_out(cloud, [repeats], step, f"{things.word} {name} to be deleted", limit)


def _carried_out(
    cloud: Cloud,
    repeats: Iterable[ResendPolicy],
    step: Callable[[], ProbeResult],
    what: str,
    limit: float,
) -> Any:
    """Wait until a step is done; an error says if a request may still take effect."""
    try:
        return cloud.wait(step, what=what, limit=limit)
    except CloudError as error:
        error.unknown = error.unknown or any(each.unanswered for each in repeats)
        raise


def _failed(what: str, status: str) -> str:
    return f"Cinder did not make {what}: it is {status}."


def _only(rows: list[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Return the first of the things of one name: a request that was sent twice may have made
    two."""
    return min(rows, key=lambda row: str(_ID.of(row)), default=None)
