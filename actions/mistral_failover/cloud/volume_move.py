# SPDX-License-Identifier: Apache-2.0
"""Common steps of attaching and detaching: looking, waiting, and finding out why nothing moves."""

from __future__ import annotations

import logging
import time
from typing import Any

from openstack.compute.v2.server import Server

from mistral_failover.cloud import servers, volume_errors
from mistral_failover.cloud.clients import Cloud
from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.guard import LeaseLost
from mistral_failover.cloud.url_paths import segment
from mistral_failover.cloud.volume_holders import (
    BOOTABLE,
    DEVICE,
    SERVER_ID,
    delete_orphan_attachment,
    held_by,
    holder_for,
    holders_of,
    leftover_device,
    listed_by_nova,
    orphaned,
    state_of,
    volume_fingerprint,
    volume_of,
)
from mistral_failover.cloud.waits import ATTACH, ProbeResult, ResendPolicy

LOG = logging.getLogger(__name__)
ATTEMPTS = 3  # requests of one call that Nova accepts and then does not carry out
TAKEN = ("reserved", "attaching", "detaching")  # by an attachment; without one it is stuck
_LETS_GO = 6  # after so many patiences a compute service has detached what is not there
MOVING = (
    *TAKEN,
    "creating",
    "downloading",
    "uploading",
    "backing-up",
    "restoring-backup",
    "extending",
    "maintenance",
)


class VolumeMove:
    """Looks and requests until a volume is where it must be."""

    def __init__(self, cloud: Cloud, volume_id: str, server_id: str) -> None:
        self.cloud = cloud
        self.volume_id = volume_id
        self.server_id = server_id
        self.accepted = 0
        self._repair = ResendPolicy(cloud, asks=ATTACH)
        """Of the requests by which `clear_left` removes a device."""
        self.repeats = ResendPolicy(cloud, asks=ATTACH)
        self.patience = self.repeats.soon
        self._state = ""
        self.since = self._looked_why = self.deadline = time.monotonic()

    def step(self) -> ProbeResult:
        """Look once, and send the request that is missing."""
        raise NotImplementedError

    def carry_out(self, what: str, limit: float) -> Any:
        """Wait until the volume is there; an error that only an operator can resolve says what has
        to change."""
        self.deadline = time.monotonic() + limit
        try:
            return self.cloud.wait(self.step, what=what, limit=limit, for_volume=True)
        except CloudError as error:
            failure = error
            if (
                error.code == "TIMEOUT"
                and not error.transient
                and time.monotonic() >= self.deadline
            ):
                failure = self._why_it_stands_still() or error
            # A request without an answer or a visible effect may take effect after this call.
            unanswered = self.repeats.unanswered or self._repair.unanswered
            failure.unknown = failure.unknown or unanswered is not None
            if failure.blocked:
                failure.about = self._about()
            raise failure from None

    def _about(self) -> dict[str, Any]:
        """What a look must find changed before a retry makes sense."""
        try:
            seen = volume_fingerprint(self.cloud, self.volume_id, self.server_id)
        except LeaseLost:
            raise
        except CloudError:
            seen = ""  # whatever the next sweep sees differs from this, and justifies a retry
        return {"volume": self.volume_id, "server": self.server_id, "sight": seen}

    def look(self) -> tuple[Any, dict[str, Any] | None, str]:
        """Return the volume, the server's attachment if it shows one, and its state in words."""
        volume = volume_of(self.cloud, self.volume_id)
        state = state_of(volume)
        if state != self._state:
            self._state, self.since = state, time.monotonic()
            self._looked_why = self.since
        return volume, next(held_by(volume, self.server_id), None), state

    def is_time_to_ask_why(self) -> bool:
        """Return whether nothing has changed for a while, and the cause was not examined for as
        long."""
        now = time.monotonic()
        if now - self._looked_why < self.patience:
            return False
        self._looked_why = now
        return True

    def _why_it_stands_still(self) -> CloudError | None:
        volume = volume_of(self.cloud, self.volume_id)
        if volume.status not in TAKEN:
            return None
        known = holders_of(self.cloud, self.volume_id)
        return volume_errors.stuck(volume, known, time.monotonic() - self.since)

    def is_listed(self) -> bool:
        """Return whether Nova lists the volume on the server."""
        return listed_by_nova(self.cloud, self.server_id, self.volume_id)

    def clear_left(self, server_id: str, *, begun: bool = False) -> ProbeResult | None:
        """Make Nova drop a device that belongs to no attachment, once no request can be working on
        it; return None if there is no such device, or if it is too early to tell.

        Nova detaches only what Cinder shows as attached. So Cinder gets an attachment that connects
        nothing, and Nova is asked to detach it. Nothing is written through such a device, and
        Cinder gives the volume to no other server in the meantime. If Nova fails (libvirt's driver
        finds nothing to disconnect), Cinder's attachment is deleted again, and an operator is
        needed. ``begun``: an earlier attempt has made Cinder's attachment.

        Raises `CloudError` DEVICE_LEFT, blocked.
        """
        if not begun:
            if time.monotonic() - self.since < self.cloud.settings.repeat_after:
                return None
            known = holders_of(self.cloud, self.volume_id)
            if any((c.server_id, c.status) != (server_id, "reserved") for c in known):
                return None
            if not leftover_device(self.cloud, server_id, self.volume_id):
                return None
        if not self._repair.allow():
            return self._repair.no_effect_yet(f"a device on server {server_id} is being removed")
        claim = holder_for(self.cloud, self.volume_id, server_id, self._repair)
        if not self._let_go(server_id):
            delete_orphan_attachment(self.cloud, self.volume_id, claim, "it connects nothing")
            raise volume_errors.device_left(self.volume_id, server_id)
        LOG.warning(
            "Volume %s: a device on server %s that was never connected was removed",
            self.volume_id,
            server_id,
        )
        return ProbeResult("a device that was never connected was removed")

    def is_begun(self, mine: dict[str, Any]) -> bool:
        """Return whether an attachment is the one by which `clear_left` makes Nova detach the rest:
        it is connected to nothing and has no device."""
        return not DEVICE.of(mine) and leftover_device(self.cloud, self.server_id, self.volume_id)

    def _let_go(self, server_id: str) -> bool:
        """Make Nova detach the rest; return whether it did."""
        with self._repair.sending(f"detach volume {self.volume_id} from server {server_id}"):
            self.cloud.compute.delete_volume_attachment(
                Server.new(id=segment(server_id)), segment(self.volume_id), ignore_missing=True
            )

        def step() -> ProbeResult:
            listed = listed_by_nova(self.cloud, server_id, self.volume_id)
            status = volume_of(self.cloud, self.volume_id).status
            # When Nova fails, it sets the volume back to in-use.
            over = not listed or status != "detaching"
            return ProbeResult(f"it is {status}", done=over, result=not listed)

        what = f"the device of volume {self.volume_id} on server {server_id} to go"
        try:
            return bool(self.cloud.wait(step, what=what, limit=self.patience * _LETS_GO))
        except CloudError as error:
            if error.code != "TIMEOUT" or error.transient:
                raise
            return False

    def give_back_orphans(self, whose: str | None, off: str | None) -> str | None:
        """Delete what Nova does not know of the volume (of one server, or of all) as far as that is
        safe; return what was done, or None if there was nothing.

        Raises VOLUME_DISPUTED if it is not safe, or if Cinder does not do it.
        """
        done = []
        for claim in holders_of(self.cloud, self.volume_id):
            if whose not in (None, claim.server_id):
                continue
            if not orphaned(self.cloud, self.volume_id, claim):
                continue
            try:
                said = delete_orphan_attachment(self.cloud, self.volume_id, claim, off)
            except CloudError as error:
                if error.http_status in (
                    500,
                    403,
                ):  # other errors mean that Cinder is not available
                    raise volume_errors.not_let_go(self.volume_id, claim, error) from None
                raise
            if said is None and claim.id not in {
                c.id for c in holders_of(self.cloud, self.volume_id)
            }:
                # Between the two looks Nova released it, as it was about to do.
                said = f"{claim} has gone in the meantime"
            if said is None:
                server = servers.server_state(self.cloud, str(claim.server_id))
                raise volume_errors.unknown_to_nova(self.volume_id, claim, exists=server.exists)
            LOG.warning("Volume %s: %s", self.volume_id, said)
            done.append(said)
        return " and ".join(done) or None


def refuse_root(volume: Any, held: dict[str, Any]) -> None:
    """Raise VOLUME_IS_ROOT if an attachment is that of the disk that its server boots from."""
    if boots_from(volume, held):
        raise volume_errors.is_root(volume.id, SERVER_ID.of(held))


def boots_from(volume: Any, held: dict[str, Any]) -> bool:
    """Return whether an attachment is that of the disk that its server boots from."""
    bootable = str(BOOTABLE.of(volume)).lower() == "true"
    return bootable and DEVICE.of(held) in servers.ROOT_DEVICES
