# SPDX-License-Identifier: Apache-2.0
"""Volumes: find, attach, detach. Each call looks first, so a repeat continues at any point.

Cinder's volume shows where it is attached; Nova's list of a server shows what is already on its way
there. The work of a process that died is visible in one of the two. If the two disagree, or nothing
moves, ``cloud.volume_holders`` finds out which server has the volume, and says what helps. A volume
is never taken from a guest that may be writing.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from oslo_utils import uuidutils

from mistral_failover.alongside import alongside
from mistral_failover.cloud import servers, volume_holders
from mistral_failover.cloud.clients import Cloud
from mistral_failover.cloud.errors import REMEDIES, CloudError, if_there, translated
from mistral_failover.cloud.fields import Field
from mistral_failover.cloud.servers import ServerState, has_a_task, server_state
from mistral_failover.cloud.stacks import (
    VOLUME,
    StackResource,
    meant,
    of_stack,
    stack_map,
    wrong_type,
)
from mistral_failover.cloud.transport import LeaseLost
from mistral_failover.cloud.url_paths import segment, url_path
from mistral_failover.cloud.volume_holders import (
    ANOTHER,
    BOOTABLE,
    DEVICE,
    GONE,
    HELD_AS,
    MULTIATTACH,
    REFUSED,
    SERVER_ID,
    STATE,
    UNANSWERED,
    delete_orphan_attachment,
    held_by,
    holder_for,
    holders_of,
    leftover_device,
    listed_by_nova,
    orphaned,
    state_of,
    volume_fingerprint,
    volume_if_there,
    volume_of,
)
from mistral_failover.cloud.volume_states import TAKEN, USABLE, VolumeState, state_named
from mistral_failover.cloud.waits import ATTACH, ProbeResult, ResendPolicy
from mistral_failover.fault_points import reach

LOG = logging.getLogger(__name__)
ATTEMPTS = 3  # requests of one call that Nova accepts and then does not carry out
_LETS_GO = 6  # after so many patiences a compute service has detached what is not there
_BRIEFLY = 6  # after so many patiences it is said in which state the volume is, and what ends it
_NAMED_HOLDER = re.compile(r"attached to instances: ([0-9a-f-]{36})")
_REFUSALS = {
    "BAD_REQUEST": REFUSED,
    "CONFLICT": STATE,
    "FORBIDDEN": REFUSED,
    "QUOTA": REFUSED,
}
"""What Nova answers for one server (os-volume_attachments): 400 for a volume of another zone
(``cross_az_attach``), 403 for one disk too many (``max_disk_devices_to_attach``) or for a refusal
of the key manager's, 409 for a locked server or one that is rescued, for example."""
_IGNORED = 2  # requests without an answer after which the compute service counts as dead
_STOPPING = "task_state powering-off"
UNPLUG = 200.0
"""Seconds after which Nova has ended a detach: a guest that ignores it keeps Nova for 160 s."""
_DEAD = 1.0
"""Seconds between two questions whether Nova has found out that a host is dead."""
_TASK_ENDS = 6  # after so many patiences a live compute service has ended a server's task
_TAKES_UP = 2  # after so many patiences a live compute service has taken up what Nova accepted
_OWNER = Field("Cinder", "os-vol-tenant-attr:tenant_id")
_NAME_ID = Field("Cinder", "os-vol-mig-status-attr:name_id")


@dataclass(frozen=True, slots=True)
class Release:
    """The conditions under which a volume may leave a server.

    ``off``: the sentence that proves that the server's guest is off, or None. ``fenced``: the
    member is fenced, by that proof or by a weaker one. ``delete_server``: the group allows deleting
    the server if it is proven off and its host is down. ``cut_off``: by the proof the guest may run
    on, but reaches nothing any more, so nothing is lost if its server is stopped. ``stopped``: by
    the proof the compute service of its host has stopped the server, so the host worked then.
    ``keeps_boot_disk``: asks whether the server's boot disk must not be deleted with it.
    """

    off: str | None = None
    fenced: bool = False
    delete_server: bool = False
    cut_off: bool = False
    stopped: bool = False
    keeps_boot_disk: Callable[[], bool] = field(default=lambda: True, compare=False)


_UNPROVEN = Release()


def resolve_volume(cloud: Cloud, stack: str | None, name: str) -> str:
    """Return the id of a volume: a volume resource of the stack, or a volume id of the project.

    Raises `CloudError` NOT_FOUND, FORBIDDEN for a volume of another project, or BAD_REQUEST if the
    stack's resource is not a volume.
    """
    return _resolved(cloud, stack, stack_map(cloud, stack), name)


def resolve_volumes(cloud: Cloud, stack: str | None, names: Iterable[str]) -> dict[str, str | None]:
    """As :func:`resolve_volume` for several; None for a volume that does not exist."""
    resources = stack_map(cloud, stack)
    found: dict[str, str | None] = {}
    for name in names:
        try:
            found[name] = _resolved(cloud, stack, resources, name)
        except CloudError as error:
            if error.code not in ("NOT_FOUND", "BAD_REQUEST"):
                raise
            found[name] = None
    return found


def is_gone(cloud: Cloud, volume_id: str) -> bool:
    """Return whether Cinder says that there is no such volume; False also if it says nothing."""
    try:
        return volume_if_there(cloud, volume_id) is None
    except CloudError:
        return False


def owner_of(cloud: Cloud, volume_id: str) -> str | None:
    """Return the project that a volume belongs to; None if Cinder shows no such volume. Raises
    `CloudError`, NOT_OFFERED if Cinder does not say whose it is."""
    volume = volume_if_there(cloud, volume_id)
    return None if volume is None else str(_OWNER.of(volume))


def name_id(cloud: Cloud, volume_id: str) -> str:
    """Return the id in the name that a volume has in its backend. It is another one than the
    volume's own if Cinder has migrated the volume in use. Cinder shows that only to operators; for
    others this is the volume's own id. Raises `CloudError`."""
    try:
        volume = volume_of(cloud, volume_id)
    except CloudError as error:
        if error.code not in ("FORBIDDEN", "NOT_FOUND"):
            raise
        return volume_id
    return _NAME_ID.if_shown(volume) or volume_id


def refuse_unmovable(
    cloud: Cloud, stack: str | None, wanted: Mapping[str, Collection[str]]
) -> None:
    """Refuse volumes that cannot do what a group needs; nothing is changed.

    ``wanted``: by volume (as for :func:`resolve_volume`) the members that hold it at the same time.
    A missing volume is not refused here: attaching it will fail.

    Raises `CloudError` VOLUME_IS_ROOT for the disk that a server boots from, VOLUME_NOT_SHARED for
    one that is not multi-attach and is needed on several members.
    """
    resources = stack_map(cloud, stack)
    for name, members in sorted(wanted.items()):
        try:
            volume = volume_of(cloud, _resolved(cloud, stack, resources, name))
        except CloudError as error:
            if error.code not in ("NOT_FOUND", "BAD_REQUEST"):
                raise
            continue
        for held in volume.attachments:
            refuse_root(volume, held)
        if len(members) > 1 and not MULTIATTACH.of(volume):
            raise volume_holders.not_shared(volume, sorted(members))


def refuse_busy(cloud: Cloud, stack: str | None, names: Collection[str]) -> None:
    """Refuse volumes that Nova would not detach now, so that no application is stopped for them.

    ``names``: as for :func:`resolve_volume`; a missing volume is not refused here. Raises
    `CloudError` VOLUME_BUSY, VOLUME_ERROR.
    """
    for name, volume_id in sorted(resolve_volumes(cloud, stack, names).items()):
        volume = None if volume_id is None else volume_if_there(cloud, volume_id)
        if volume is not None and volume.status not in USABLE:
            error = volume_holders.in_state(cloud, volume)
            error.message, error.blocked = f"{name}: {error.message}", False
            raise error


def _resolved(
    cloud: Cloud, stack: str | None, resources: Mapping[str, StackResource], name: str
) -> str:
    if name in resources:
        resource = resources[name]
        if stack is not None and resource.type != VOLUME:
            raise wrong_type(stack, name, resource.type, "a volume")
        if resource.physical_id:
            return resource.physical_id
    elif uuidutils.is_uuid_like(name):
        volume = volume_of(cloud, name)
        # Cinder shows an administrator the volumes of all projects.
        if (_OWNER.if_shown(volume) or cloud.project_id) != cloud.project_id:
            raise CloudError(
                "FORBIDDEN", f"Volume {name} belongs to another project.", remedy=ANOTHER
            )
        return str(volume.id)
    mine = [each for each, resource in resources.items() if resource.type == VOLUME]
    raise CloudError(
        "NOT_FOUND",
        f"{name} is neither a volume{of_stack(stack)} nor the id of a volume.",
        remedy=meant(name, mine) + ANOTHER,
    )


def attach(
    cloud: Cloud,
    volume_id: str,
    server_id: str,
    limit: float,
    *,
    unknown: bool = False,
    silence: Callable[[], str] = lambda: "",
    server: Callable[[], ServerState] | None = None,
) -> dict[str, str]:
    """Attach the volume to the server and wait until it is attached.

    A volume that is attached there already, or on its way there, is adopted. An attachment that
    Nova does not know is deleted if certainly nothing is written through it. ``limit``: seconds in
    total; ``unknown``: an earlier attempt may have requested it.
    ``silence``: why the server's agent counts as silent, in words; empty if it does not.
    ``server``: returns the server's state, if it has just been asked for. Returns ``device``,
    ``server_id`` and ``attachment_id``.

    Raises `CloudError` VOLUME_IN_USE that names the holder (a multi-attach volume may have others),
    VOLUME_IS_ROOT for the disk that a server boots from, NOT_FOUND; transient: TARGET_DOWN when the
    server can take nothing now, or when Nova refuses this volume to it or gives the attach up;
    blocked: VOLUME_BUSY, VOLUME_DISPUTED, VOLUME_ERROR, VOLUME_STUCK.
    """
    steps = Attach(cloud, volume_id, server_id, unknown=unknown, silence=silence, server=server)
    what = f"volume {volume_id} to be attached to server {server_id}"
    attachment: dict[str, str] = steps.carry_out(what, limit)
    return attachment


def detach(
    cloud: Cloud,
    volume_id: str,
    server_id: str,
    limit: float,
    release: Release = _UNPROVEN,
) -> None:
    """Detach the volume from the server, also if it is still on its way there.

    A volume that is not attached is left alone; a server that is gone is no error. ``limit``:
    seconds in total. Other servers keep a multi-attach volume.

    Raises `CloudError` HOST_DOWN when the server's compute service is dead (blocked if the member
    is fenced), VOLUME_IS_ROOT for the disk that the server boots from, DETACH_FAILED when the guest
    does not release it, NOT_FOUND when the volume does not exist; blocked: VOLUME_BUSY,
    VOLUME_DISPUTED, VOLUME_ERROR, VOLUME_STUCK, VOLUME_WOULD_GO.
    """
    steps = Detach(cloud, volume_id, server_id, release)
    steps.carry_out(f"volume {volume_id} to be free of server {server_id}", limit)


class VolumeMove:
    """Looks and requests until a volume is where it must be."""

    def __init__(self, cloud: Cloud, volume_id: str, server_id: str) -> None:
        self.cloud = cloud
        self.volume_id = volume_id
        self.what = f"volume {volume_id}"
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

    def wait_until_usable(self, volume: Any, meaning: VolumeState, state: str) -> ProbeResult:
        """Wait for a state to pass in which Nova does nothing. ``meaning``: of that state.

        Raises `CloudError` VOLUME_BUSY or VOLUME_ERROR, blocked, at once if it does not pass by
        itself, else after a while: a backup or a retype may take hours.
        """
        waited = time.monotonic() - self.since
        if meaning.passes and waited < self.patience * _BRIEFLY:
            return ProbeResult(state)
        raise volume_holders.in_state(self.cloud, volume, self.server_id)

    def _why_it_stands_still(self) -> CloudError | None:
        volume = volume_of(self.cloud, self.volume_id)
        if volume.status in USABLE:
            return None
        if volume.status not in TAKEN:
            return volume_holders.in_state(self.cloud, volume, self.server_id)
        known = holders_of(self.cloud, self.volume_id)
        return volume_holders.stuck(volume, known, time.monotonic() - self.since)

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
            raise volume_holders.device_left(self.volume_id, server_id)
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
            path = url_path("servers", server_id, "os-volume_attachments", self.volume_id)
            if_there(lambda: self.cloud.send("Nova", "DELETE", path))

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
                    raise volume_holders.not_let_go(self.volume_id, claim, error) from None
                raise
            if said is None and claim.id not in {
                c.id for c in holders_of(self.cloud, self.volume_id)
            }:
                # Between the two looks Nova released it, as it was about to do.
                said = f"{claim} has gone in the meantime"
            if said is None:
                server = servers.server_state(self.cloud, str(claim.server_id))
                raise volume_holders.unknown_to_nova(self.volume_id, claim, exists=server.exists)
            LOG.warning("Volume %s: %s", self.volume_id, said)
            done.append(said)
        return " and ".join(done) or None


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
        self._busy_since: float | None = None
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
                raise volume_holders.called_free(volume)
            return ProbeResult(state)
        if volume.status == "in-use":
            if shared:
                return self._post(state, server)
            return self._look_at_the_holder(volume, state)
        meaning = state_named(volume.status)
        if meaning is not None and volume.status not in TAKEN:
            if mine is not None and not meaning.broken and self.is_listed():
                # The guest has it already, as it had it before: nothing needs to be requested.
                return ProbeResult(state, done=True, result=_attachment(mine))
            return self.wait_until_usable(volume, meaning, state)
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
        """Another server has it. That counts only if Nova says so too. Without any holder the state
        is left over: a backup that ends sets it back, also if the server was deleted meanwhile."""
        said = self.give_back_orphans(None, None)
        if said is None and volume.attachments:
            raise volume_holders.in_use(volume)
        if said is None and self.is_time_to_ask_why() and not holders_of(self.cloud, volume.id):
            raise volume_holders.stuck(volume, [], time.monotonic() - self.since)
        return ProbeResult(said or state)

    def _look_why(self, volume: Any, state: str) -> ProbeResult:
        if not self.is_time_to_ask_why():
            return ProbeResult(state)
        if (cleared := self.clear_left(self.server_id)) is not None:
            return cleared
        if holders_of(self.cloud, self.volume_id):
            return ProbeResult(self.give_back_orphans(None, None) or state)
        if volume_of(self.cloud, self.volume_id).status != volume.status:
            return ProbeResult(state)  # the other server has released it between the two looks
        raise volume_holders.stuck(volume, [], time.monotonic() - self.since)

    def _refuse_dead_target(self, state: Callable[[], ServerState] | None = None) -> None:
        """Raise TARGET_DOWN if something shows that the server can take nothing now.

        Not while a request may still take effect unseen: another server must not get the volume
        before that is certain.
        """
        server = state() if state else server_state(self.cloud, self.server_id)
        why, evidence = None, "server"
        if not self._asked and server.waits_for_a_person and not server.host_silent:
            raise self._refused_by_state(server, held=False)
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
            raise volume_holders.target_down(
                self.what,
                self.server_id,
                why,
                evidence,
                host=server.host,
                held=held,
                needs=server.needs if evidence == "server" else (),
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
            raise volume_holders.target_refused(
                self.what,
                self.server_id,
                f"Nova accepted the attach {ATTEMPTS} times and gave up each time",
                REFUSED,
                remedy="Check the log of nova-compute on the server's host.",
            )
        try:
            reach("attach.before")
            with self.repeats.sending(f"attach volume {self.volume_id} to server {self.server_id}"):
                path = url_path("servers", self.server_id, "os-volume_attachments")
                body = {"volumeAttachment": {"volumeId": self.volume_id}}
                self.cloud.send("Nova", "POST", path, body)
        except CloudError as error:
            return self._refused(error, state)
        reach("attach.after")
        self.accepted += 1
        self._asked = True
        self._looked_at_target = time.monotonic()
        return ProbeResult("Nova has just accepted the request")

    def _refused_by_state(self, server: ServerState, said: str = "", *, held: bool) -> CloudError:
        """Return the error for a server whose guest does not run, or to which Nova gives nothing in
        its state. ``said``: Nova's words, if the state has passed since."""
        why = server.unfit or server.hindered or said
        remedy = REMEDIES["CONFLICT"]
        if (by := server.hindrance) is not None:
            remedy = by.sentence(self.server_id) or remedy
        return volume_holders.target_refused(
            self.what, self.server_id, why, STATE, remedy=remedy, held=held
        )

    def _refused(self, error: CloudError, state: str) -> ProbeResult:
        if has_a_task(error):
            now = time.monotonic()
            self._busy_since = self._busy_since or now
            if now - self._busy_since < self.patience * _TASK_ENDS:
                return ProbeResult(f"{state}, and {error.message}")
        else:
            self._busy_since = None
        self._asked = True
        if error.code == "TIMEOUT":
            self._ignored += 1
        if error.code in ("NOT_FOUND", "CONFLICT"):
            self._refuse_dead_target()
        if (evidence := _REFUSALS.get(error.code)) is not None:
            if volume_of(self.cloud, self.volume_id).status not in USABLE:
                return ProbeResult(state)  # the volume is the cause: the next look says so
            # Nova's API refused it, so nothing of this request can arrive; an earlier one may.
            held = self.is_listed() or not self.repeats.open
            if evidence == STATE:
                seen = server_state(self.cloud, self.server_id)
                raise self._refused_by_state(seen, error.said, held=held)
            raise volume_holders.target_refused(
                self.what,
                self.server_id,
                error.said,
                evidence,
                remedy=error.remedy,
                held=held,
            )
        if error.code != "VOLUME_IN_USE":
            raise error
        # The request lost a race, perhaps to our own earlier one, or to another member's: the next
        # looks show that. Or Nova lists the volume on a server whose attachment Cinder has lost.
        holder = _NAMED_HOLDER.search(error.message)
        if holder is None or not self.is_time_to_ask_why():
            return ProbeResult(f"{state}, and {error.message}")
        if not holders_of(self.cloud, self.volume_id):
            if not leftover_device(self.cloud, holder[1], self.volume_id):
                raise volume_holders.unknown_to_cinder(
                    self.cloud, self.volume_id, holder[1], serves=holder[1] == self.server_id
                )
            waits = (
                f"{state}, and Nova keeps a device on server {holder[1]} that belongs to no "
                "attachment"
            )
            return self.clear_left(holder[1]) or ProbeResult(waits)
        if holder[1] == self.server_id:
            return ProbeResult(f"{state}, and Nova is already attaching it to this server")
        raise error


def _attachment(held: dict[str, Any]) -> dict[str, str]:
    return {
        "device": DEVICE.of(held) or "",
        "server_id": SERVER_ID.of(held),
        "attachment_id": HELD_AS.of(held),
    }


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
        if volume.status in TAKEN:
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
            raise volume_holders.unknown_to_cinder(
                self.cloud,
                self.volume_id,
                self.server_id,
                released=self._seen,
                off=self._release.off is not None,
            )
        if volume.status in TAKEN or volume.status.startswith("error"):
            said = self.give_back_orphans(self.server_id, self._release.off)
            if said is not None:
                return ProbeResult(said)
        return self.repeats.settled(state)

    def _look_why(self, volume: Any, state: str) -> ProbeResult:
        """Cinder shows it neither in use nor on its way, but Nova lists it on the server."""
        if not self.is_time_to_ask_why():
            return ProbeResult(state)
        said = self.give_back_orphans(self.server_id, self._release.off)
        if said is not None:
            return ProbeResult(said)
        meaning = state_named(volume.status)
        if meaning is None:
            raise volume_holders.called_free(volume)
        return self.wait_until_usable(volume, meaning, state)

    def _delete(self, state: str) -> ProbeResult:
        if self.accepted >= ATTEMPTS:
            raise self._kept_by_state() or CloudError(
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
            doing = f"detach volume {self.volume_id} from server {self.server_id}"
            with self.repeats.sending(doing):
                path = url_path("servers", self.server_id, "os-volume_attachments", self.volume_id)
                answer = self.cloud.send("Nova", "DELETE", path)
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
            return self._in_error()
        if error.code == "CONFLICT":
            raise self._kept_by_state() or error
        if "root device" in error.message:
            raise volume_holders.is_root(self.volume_id, self.server_id)
        # A detach is under way, perhaps another client's: the next looks show that.
        if "status must be" in error.message:
            return self._take_back() or ProbeResult(f"{state}, and {error.message}")
        raise error

    def _in_error(self) -> ProbeResult:
        """Nova detaches nothing from a server in ERROR, as a failed evacuation leaves it. On a host
        that lives it does once the server is stopped; a dead one carries no stop out."""
        off = self._release.off
        if off is not None and server_state(self.cloud, self.server_id).host_silent:
            return self._without_its_host(
                "it is in ERROR, and the compute service of its host is down"
            )
        raise volume_holders.server_in_error(self.what, self.server_id, off=off)

    def _kept_by_state(self) -> CloudError | None:
        """Return the error for a server that gives no volume away in its state; None if it does."""
        server = server_state(self.cloud, self.server_id)
        if (by := server.keeping) is None:
            return None
        return volume_holders.server_busy(self.what, self.server_id, server, by)

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
            with translated(f"take the detach of volume {self.volume_id} back"):
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
        if (error := self._failure or self._kept_by_state()) is not None:
            return error
        return super()._why_it_stands_still()

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
            raise volume_holders.host_down(
                self.volume_id,
                self.server_id,
                why,
                release.off,
                fenced=release.fenced,
                returns=release.stopped,
            )
        try:
            root = self._release.keeps_boot_disk()
            volumes = servers.volumes_deleted_with(self.cloud, self.server_id, root=root)
        except CloudError as error:
            error.blocked = error.code == "NOT_OFFERED"
            raise
        if volumes:
            newest = self.cloud.newest("Nova")
            raise volume_holders.goes_along(self.server_id, volumes, newest=newest)
        LOG.warning("Deleting server %s: it is off and its host is down", self.server_id)
        servers.delete_server(self.cloud, self.server_id, self.patience, root=root)
        return ProbeResult("its server, whose host is down, was deleted")


def refuse_root(volume: Any, held: dict[str, Any]) -> None:
    """Raise VOLUME_IS_ROOT if an attachment is that of the disk that its server boots from."""
    if boots_from(volume, held):
        raise volume_holders.is_root(volume.id, SERVER_ID.of(held))


def boots_from(volume: Any, held: dict[str, Any]) -> bool:
    """Return whether an attachment is that of the disk that its server boots from."""
    bootable = str(BOOTABLE.of(volume)).lower() == "true"
    return bootable and DEVICE.of(held) in servers.ROOT_DEVICES
