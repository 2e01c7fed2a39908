# SPDX-License-Identifier: Apache-2.0
"""Attaching a volume: the looks and requests of `cloud.volumes.attach`."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

from mistral_failover.alongside import alongside
from mistral_failover.cloud import volume_errors
from mistral_failover.cloud.clients import Cloud
from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.fields import Field
from mistral_failover.cloud.servers import ServerState, has_a_task, server_state
from mistral_failover.cloud.url_paths import url_path
from mistral_failover.cloud.volume_holders import (
    DEVICE,
    MULTIATTACH,
    SERVER_ID,
    holders_of,
    leftover_device,
    volume_of,
)
from mistral_failover.cloud.volume_move import (
    ATTEMPTS,
    MOVING,
    TAKEN,
    VolumeMove,
    refuse_root,
)
from mistral_failover.cloud.waits import ProbeResult
from mistral_failover.fault_points import reach

_NAMED_HOLDER = re.compile(r"attached to instances: ([0-9a-f-]{36})")
GONE = "gone"
"""The evidence of a TARGET_DOWN that never ends: Nova says that the server does not exist."""
UNANSWERED = "requests"
"""The evidence of a TARGET_DOWN that nothing but the unanswered requests shows."""
_ATTACHMENT_ID = Field("Cinder", "attachment_id")
_IGNORED = 2  # requests without an answer after which the compute service counts as dead


class Attach(VolumeMove):
    """Continue until the server has the volume.

    ``unknown``: an earlier attempt may have requested it. ``silence`` returns why the server's
    agent counts as silent, or an empty text. ``server`` returns the server's state, if another
    check has just read it.
    """

    def __init__(
        self,
        cloud: Cloud,
        volume_id: str,
        server_id: str,
        *,
        unknown: bool = False,
        silence: Callable[[], str] = lambda: "",
        server: Callable[[], ServerState] | None = None,
    ) -> None:
        super().__init__(cloud, volume_id, server_id)
        self._silence = silence
        self._server = server
        self._looked = False
        self._asked = unknown
        self._ignored = 0
        self._looked_at_target = self.since

    def step(self) -> ProbeResult:
        """See :meth:`VolumeMove.step`."""
        look = self._look_and_ask() if self._looked else self._first_look()
        now = time.monotonic()
        if not look.done and now - max(self.since, self._looked_at_target) >= self.patience:
            self._looked_at_target = now
            self._refuse_dead_target()
        return look

    def _first_look(self) -> ProbeResult:
        """The volume is mostly free, and only the server has to be able to take it."""
        self._looked = True
        if self._server is not None:
            return self._look_and_ask(self._server)
        with alongside(lambda: server_state(self.cloud, self.server_id)) as server:
            return self._look_and_ask(server)

    def _look_and_ask(self, server: Callable[[], ServerState] | None = None) -> ProbeResult:
        """``server``: returns the server's state, if it has just been asked for."""
        volume, mine, state = self.look()
        for held in volume.attachments:
            refuse_root(volume, held)
        shared = bool(MULTIATTACH.of(volume))
        if mine is not None and volume.status == "in-use":
            if self.is_begun(mine):
                return self.clear_left(self.server_id, begun=True) or ProbeResult(state)
            # Nova knows what it carried out for us; what was found may be known to Cinder alone.
            if self.accepted or self.is_listed():
                return ProbeResult(state, done=True, result=_attachment(mine))
            return self._repair_mine(state)
        if volume.status == "available" and not volume.attachments:
            return self._post(state, server)
        if volume.status == "available":
            if self.is_time_to_ask_why():
                raise volume_errors.called_free(volume)
            return ProbeResult(state)
        if volume.status == "in-use":
            if shared:
                return self._post(state, server)
            return self._look_at_the_holder(volume, state)
        if volume.status.startswith("error"):
            raise volume_errors.broken(volume)
        if volume.status not in MOVING:
            raise volume_errors.not_usable(volume)
        return self._look_why(volume, state)

    def _repair_mine(self, state: str) -> ProbeResult:
        """Cinder shows it as attached here, but Nova does not list it. No other guest can have it,
        and this one gets it again."""
        if not self.is_time_to_ask_why():
            return ProbeResult(f"{state}, but Nova does not list it there")
        why = f"server {self.server_id} is to have it anyway"
        said = self.give_back_orphans(self.server_id, why)
        return ProbeResult(said or state)

    def _look_at_the_holder(self, volume: Any, state: str) -> ProbeResult:
        """Another server has it. That counts only if Nova says so too."""
        said = self.give_back_orphans(None, None)
        if said is None:
            raise volume_errors.in_use(volume)
        return ProbeResult(said)

    def _look_why(self, volume: Any, state: str) -> ProbeResult:
        if volume.status not in TAKEN or not self.is_time_to_ask_why():
            return ProbeResult(state)
        if (cleared := self.clear_left(self.server_id)) is not None:
            return cleared
        if holders_of(self.cloud, self.volume_id):
            return ProbeResult(self.give_back_orphans(None, None) or state)
        if volume_of(self.cloud, self.volume_id).status != volume.status:
            return ProbeResult(state)  # the other server has released it between the two looks
        raise volume_errors.stuck(volume, [], time.monotonic() - self.since)

    def _refuse_dead_target(self, state: Callable[[], ServerState] | None = None) -> None:
        """Raise TARGET_DOWN if something shows that the server can take nothing now.

        Not while a request may still take effect unseen: another server must not get the volume
        before that is certain.
        """
        server = state() if state else server_state(self.cloud, self.server_id)
        why, evidence = None, "server"
        if server.host_silent or (self._asked and server.task_state is None):
            why = server.unfit
            evidence = "server" if server.exists else GONE
        if not why and self._asked:
            why, evidence = self._silence(), "agent"
        if not why and self._ignored >= _IGNORED:
            why = f"its compute service did not answer {self._ignored} requests"
            evidence = UNANSWERED
        if not why:
            return
        held = self.is_listed() or self.server_id in {
            each.server_id for each in holders_of(self.cloud, self.volume_id)
        }
        if held or self.repeats.open:
            raise volume_errors.target_down(
                self.volume_id, self.server_id, why, evidence, host=server.host, held=held
            )

    def _post(self, state: str, server: Callable[[], ServerState] | None) -> ProbeResult:
        if (self.accepted or not self.repeats.open) and self.is_listed():
            self.repeats.answered()
            return self.clear_left(self.server_id) or ProbeResult(
                f"{state}, but the server lists it"
            )
        if not self.repeats.allow():
            return self.repeats.no_effect_yet(state)
        if not self._repair.allow():
            return self._repair.no_effect_yet(state)
        self._refuse_dead_target(server)
        if self.accepted >= ATTEMPTS:
            raise CloudError(
                "ATTACH_FAILED",
                f"Nova accepted the request to attach volume {self.volume_id} to server "
                f"{self.server_id} {ATTEMPTS} times and gave up each time.",
                remedy="Check the log of nova-compute on the server's host.",
                retryable=True,
            )
        try:
            reach("attach.before")
            with self.repeats.sending(f"attach volume {self.volume_id} to server {self.server_id}"):
                path = url_path("servers", self.server_id, "os-volume_attachments")
                self.cloud.nova("POST", path, {"volumeAttachment": {"volumeId": self.volume_id}})
        except CloudError as error:
            return self._refused(error, state)
        reach("attach.after")
        self.accepted += 1
        self._asked = True
        self._looked_at_target = time.monotonic()
        return ProbeResult("Nova has just accepted the request")

    def _refused(self, error: CloudError, state: str) -> ProbeResult:
        if has_a_task(error):
            return ProbeResult(f"{state}, and {error.message}")
        self._asked = True
        if error.code == "TIMEOUT":
            self._ignored += 1
        if error.code in ("NOT_FOUND", "CONFLICT"):
            self._refuse_dead_target()
        if error.code != "VOLUME_IN_USE":
            raise error
        # The request lost a race, perhaps to our own earlier one: the next looks show that. Or Nova
        # lists the volume on a server whose attachment Cinder has lost.
        holder = _NAMED_HOLDER.search(error.message)
        if not self.is_time_to_ask_why():
            return ProbeResult(f"{state}, and {error.message}")
        if holder and not holders_of(self.cloud, self.volume_id):
            if not leftover_device(self.cloud, holder[1], self.volume_id):
                raise volume_errors.unknown_to_cinder(
                    self.volume_id, holder[1], serves=holder[1] == self.server_id
                )
            waits = (
                f"{state}, and Nova keeps a device on server {holder[1]} that belongs to no "
                "attachment"
            )
            return self.clear_left(holder[1]) or ProbeResult(waits)
        if holder and holder[1] == self.server_id:
            return ProbeResult(f"{state}, and Nova is already attaching it to this server")
        raise error


def _attachment(held: dict[str, Any]) -> dict[str, str]:
    return {
        "device": DEVICE.of(held) or "",
        "server_id": SERVER_ID.of(held),
        "attachment_id": _ATTACHMENT_ID.of(held),
    }
