# SPDX-License-Identifier: Apache-2.0
"""Detaching a volume: the looks and requests of `cloud.volumes.detach`."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import Any

from mistral_failover.cloud import servers, volume_errors
from mistral_failover.cloud.clients import Cloud
from mistral_failover.cloud.errors import CloudError, translated
from mistral_failover.cloud.url_paths import segment, url_path
from mistral_failover.cloud.volume_holders import leftover_device
from mistral_failover.cloud.volume_move import (
    ATTEMPTS,
    MOVING,
    TAKEN,
    VolumeMove,
    refuse_root,
)
from mistral_failover.cloud.waits import ProbeResult
from mistral_failover.fault_points import reach

LOG = logging.getLogger(__name__)
_STOPPING = "task_state powering-off"
UNPLUG = 200.0
"""Seconds after which Nova has ended a detach: a guest that ignores it keeps Nova for 160 s."""
_DEAD = 1.0
"""Seconds between two questions whether Nova has found out that a host is dead."""
_TASK_ENDS = 6  # after so many patiences a live compute service has ended a server's task
_TAKES_UP = 2  # after so many patiences a live compute service has taken up what Nova accepted


@dataclass(frozen=True, slots=True)
class Release:
    """The conditions under which a volume may leave a server.

    ``off``: the sentence that proves that the server's guest is off, or None. ``fenced``: the
    member is fenced, by that proof or by a weaker one. ``delete_server``: the group allows deleting
    the server if it is proven off and its host is down. ``cut_off``: by the proof the guest may run
    on, but reaches nothing any more, so nothing is lost if its server is stopped. ``stopped``: by
    the proof the compute service of its host has stopped the server, so the host worked then.
    """

    off: str | None = None
    fenced: bool = False
    delete_server: bool = False
    cut_off: bool = False
    stopped: bool = False


class Detach(VolumeMove):
    """Continue until the server no longer has the volume."""

    def __init__(
        self,
        cloud: Cloud,
        volume_id: str,
        server_id: str,
        release: Release,
    ) -> None:
        super().__init__(cloud, volume_id, server_id)
        self._release = release
        self._seen = False
        self._detaching = False
        self._failure: CloudError | None = None  # of the last request, if Nova may have begun it
        self._busy_since: float | None = None
        self._stopped = False
        self._asked = 0.0
        self._request_id: str | None = None  # of the last request, if Nova accepted it

    def step(self) -> ProbeResult:
        """See :meth:`VolumeMove.step`."""
        volume, mine, state = self.look()
        self._detaching = volume.status == "detaching"
        if mine is None:
            # If Cinder's attachment went, Nova has carried out the detach, once it removes its own
            # record: a compute service that stops in between never does.
            if self._seen and not self.is_listed():
                return ProbeResult(state, done=True)
            return self._unless_listed(volume, state)
        self._seen = True
        refuse_root(volume, mine)
        if volume.status == "in-use":
            if self.is_begun(mine):
                return self.clear_left(self.server_id, begun=True) or ProbeResult(state)
            if self.accepted and self._release.cut_off and not self._stopped:
                return self._stop_guest()
            return self._delete(state)
        if volume.status in MOVING:
            if self._detaching:
                self.repeats.answered()
            # If asked again, Nova refuses; it says so if the cause is a missing compute service.
            return self._delete(state) if self._may_host_be_down() else ProbeResult(state)
        return self._look_why(volume, state)

    def _may_host_be_down(self) -> bool:
        """Return whether it is time to ask that. A server that is off may be deleted as soon as
        Nova counts its host as dead, and the failover waits for nothing else."""
        if self._release.off is None or not self._release.delete_server:
            return self.is_time_to_ask_why()
        now = time.monotonic()
        if now - max(self.since, self._asked) < min(self.patience, _DEAD):
            return False
        self._asked = now
        return True

    def _unless_listed(self, volume: Any, state: str) -> ProbeResult:
        """Cinder shows no attachment. A volume on its way would still arrive, and Nova may list one
        whose attachment Cinder has lost."""
        if self.is_listed():
            listed = f"{state}, but Nova lists it on the server"
            if not self.is_time_to_ask_why():
                return ProbeResult(listed)
            if (cleared := self.clear_left(self.server_id)) is not None:
                return cleared
            if volume.status == "available" and leftover_device(
                self.cloud, self.server_id, self.volume_id
            ):
                return ProbeResult(listed)  # too early to conclude that no request is running
            if volume.status in (*TAKEN, "in-use"):
                return self._delete(f"{state}, on its way to the server")
            raise volume_errors.unknown_to_cinder(
                self.volume_id, self.server_id, released=self._seen
            )
        if volume.status in TAKEN or volume.status.startswith("error"):
            said = self.give_back_orphans(self.server_id, self._release.off)
            if said is not None:
                return ProbeResult(said)
        # An attach of an earlier attempt would otherwise take effect after this detach.
        return (
            ProbeResult(state, done=True)
            if self.repeats.allow()
            else self.repeats.no_effect_yet(state)
        )

    def _look_why(self, volume: Any, state: str) -> ProbeResult:
        """Cinder shows it neither in use nor on its way, but Nova lists it on the server."""
        if not self.is_time_to_ask_why():
            return ProbeResult(state)
        said = self.give_back_orphans(self.server_id, self._release.off)
        if said is not None:
            return ProbeResult(said)
        if volume.status.startswith("error"):
            raise volume_errors.broken(volume)
        if volume.status == "available":
            raise volume_errors.called_free(volume)
        raise volume_errors.not_usable(volume)

    def _delete(self, state: str) -> ProbeResult:
        if self.accepted >= ATTEMPTS:
            raise CloudError(
                "DETACH_FAILED",
                f"Nova accepted the request to detach volume {self.volume_id} from server "
                f"{self.server_id} {ATTEMPTS} times and the guest kept it each time.",
                remedy="In the guest, stop what uses the device, or stop the server.",
                retryable=True,
            )
        if not self.repeats.allow():
            return self.repeats.no_effect_yet(state)
        try:
            reach("detach.before")
            with self.repeats.sending(
                f"detach volume {self.volume_id} from server {self.server_id}"
            ):
                answer = self.cloud.send_nova(
                    "DELETE",
                    url_path("servers", self.server_id, "os-volume_attachments", self.volume_id),
                )
        except CloudError as error:
            if error.unknown:
                self._failure, self._request_id = error, None
            return self._refused(error, state)
        reach("detach.after")
        self.accepted += 1
        self._failure, self._request_id = None, answer.headers.get("x-openstack-request-id")
        return ProbeResult("Nova has just accepted the request")

    def _refused(self, error: CloudError, state: str) -> ProbeResult:
        if error.code == "NOT_FOUND":  # the server is gone; Cinder will follow
            said = None
            if self.is_time_to_ask_why():
                said = self.give_back_orphans(self.server_id, self._release.off)
            return ProbeResult(said or f"{state}, though Nova does not know of it")
        if error.code == "HOST_DOWN":
            return self._without_its_host("the compute service of its host is down")
        if servers.has_a_task(error):
            return self._while_busy(error, state)
        if "vm_state error" in error.message:
            raise volume_errors.server_in_error(self.volume_id, self.server_id)
        if "root device" in error.message:
            raise volume_errors.is_root(self.volume_id, self.server_id)
        # A detach is under way, perhaps another client's: the next looks show that.
        if "status must be" in error.message:
            return self._take_back() or ProbeResult(f"{state}, and {error.message}")
        raise error

    def _stop_guest(self) -> ProbeResult:
        """The guest has kept the device once: it hangs, or waits for a disk that refuses it. Its
        host lives, because it has ended the detach. Stopped, the server keeps nothing."""
        LOG.warning("Stopping server %s: its cut-off guest keeps a volume", self.server_id)
        evidence = servers.stop(self.cloud, self.server_id, self.deadline - time.monotonic())
        self._stopped = True
        return ProbeResult(evidence.observed)

    def _take_back(self) -> ProbeResult | None:
        """Let a detach be requested again that no compute service works on; return None if one may,
        or if the project may not do that.

        Nova's API marks the volume in Cinder before it tells the compute service. If its broker is
        away or loses the message, the mark stays, and Nova refuses every further request. Without
        the mark it accepts the next one. If a compute service does work on the first one, it ends
        that, and finds nothing to do for the second one.
        """
        if not self._detaching or not self._is_lost():
            return None
        try:
            with translated(f"take the detach of volume {self.volume_id} back", changes=True):
                self.cloud.volumes.volumes.roll_detaching(segment(self.volume_id))
        except CloudError as error:
            if error.code != "FORBIDDEN":
                raise
            self._failure = self._request_id = None
            return None
        self.accepted, self._request_id = 0, None  # no guest was asked
        LOG.warning("Volume %s: retrying a stalled detach", self.volume_id)
        return ProbeResult("a detach that no compute service works on: retrying")

    def _is_lost(self) -> bool:
        """Return whether it is certain, or likely enough, that no compute service works on the last
        request."""
        since, repeat_after = time.monotonic() - self.since, self.cloud.settings.repeat_after
        if since >= (repeat_after if self._failure else max(UNPLUG, repeat_after)):
            return True
        if since < self.patience * _TAKES_UP:
            return False
        if self._request_id is not None:
            return not servers.is_taken_up(self.cloud, self.server_id, self._request_id)
        # Another client's, or one of an earlier try, which may not have heard that it was accepted.
        return not servers.is_detaching(self.cloud, self.server_id)

    def _why_it_stands_still(self) -> CloudError | None:
        """Return why nothing moves: Nova's own failure, as long as the package can repeat the
        request."""
        return self._failure or super()._why_it_stands_still()

    def _while_busy(self, error: CloudError, state: str) -> ProbeResult:
        """Nova does not report a dead host while a server waits for a stop that the host never
        received. A server that is proven off has no task worth waiting for."""
        if self._release.off is None or _STOPPING not in error.message:
            self._busy_since = (
                None  # another task belongs to another client, and its host may be alive
            )
            return ProbeResult(f"{state}, and {error.message}")
        now = time.monotonic()
        self._busy_since = self._busy_since or now
        if now - self._busy_since < self.patience * _TASK_ENDS:
            return ProbeResult(f"{state}, and {error.message}")
        return self._without_its_host(f"its task on the dead host will not end ({error.message})")

    def _without_its_host(self, why: str) -> ProbeResult:
        """Nova detaches nothing there. Deleted in Nova's database, the server releases the volume
        at once. That fences nothing, so it needs a proof and the group's permission."""
        release = self._release
        if release.off is None or not release.delete_server:
            raise volume_errors.host_down(
                self.volume_id,
                self.server_id,
                why,
                release.off,
                fenced=release.fenced,
                returns=release.stopped,
            )
        try:
            volumes = servers.volumes_deleted_with(self.cloud, self.server_id)
        except CloudError as error:
            error.blocked = error.code == "NOT_OFFERED"
            raise
        if volumes:
            newest = self.cloud.newest("Nova")
            raise volume_errors.goes_along(self.server_id, volumes, newest=newest)
        LOG.warning("Deleting server %s: it is off and its host is down", self.server_id)
        servers.delete_server(self.cloud, self.server_id, self.patience)
        return ProbeResult("its server, whose host is down, was deleted")
