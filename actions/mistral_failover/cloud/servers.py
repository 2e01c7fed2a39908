# SPDX-License-Identifier: Apache-2.0
"""Servers: their state, the two rungs of the fence that use Nova, stop and delete, and the start.

Only an action of a compute service proves that a guest no longer writes: that of the host on which
the guest runs. A deletion leaves an event of it in the server's list of actions (which its owner
may read, also after the deletion). If the service is dead, Nova deletes the server at once in its
database only, and the guest may continue to write: no proof.

After an evacuation, whatever Nova shows of a server is about its new host; since microversion 2.95
it arrives there SHUTOFF. On the old host, of which Nova knew only that its compute service was
silent, the guest may run on. The project cannot see when Nova removes it there. So an evacuation
takes the worth of every later stop and deletion, unless the guest was stopped before it
(`left_behind`). A server's other moves leave no second guest: a migration and a resize need the
compute service of the old host, which ends the guest there, or keeps it paused, before the server
is without a task; shelving does the same; a rebuild stays on the host.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from math import floor
from typing import Any

from mistral_failover.cloud.absence import SERVER, unless_absent, volume_on
from mistral_failover.cloud.clients import Cloud
from mistral_failover.cloud.errors import CloudError, if_there
from mistral_failover.cloud.fields import Feature, Field
from mistral_failover.cloud.server_states import (
    LOCKED,
    STOPPED,
    Hindrance,
    hindrance_of,
    keeps_ports,
    keeps_volumes,
)
from mistral_failover.cloud.url_paths import segment, url_path
from mistral_failover.cloud.waits import ProbeResult, ResendPolicy
from mistral_failover.fault_points import reach
from mistral_failover.model.remedies import Need

ROOT_DEVICES = ("/dev/vda", "/dev/sda", "/dev/xvda", "/dev/hda")
STATUS = Field("Nova", "status")
TASK_STATE = Field("Nova", "OS-EXT-STS:task_state")
POWER_STATE = Field("Nova", "OS-EXT-STS:power_state")
VOLUMES = Field("Nova", "os-extended-volumes:volumes_attached")
HOST_NAME = Field("Nova", "OS-EXT-SRV-ATTR:host")
HOST_ID = Field("Nova", "hostId")
DELETE_ON_TERMINATION = Field("Nova", "delete_on_termination", since="2.3")
"""Of a server's volumes. In the rows of ``os-volume_attachments`` Nova has it since 2.79 only."""
EVENTS = Field("Nova", "events", since="2.51")
"""Of a server's action: what a compute service recorded, as the server's owner may read it."""
DELETION = (DELETE_ON_TERMINATION, EVENTS)
"""What the deletion of a server needs: that no data goes with it, and that it proves something."""
EVACUATION = Feature("Nova", "evacuated servers that stay off", since="2.95")
_HOST_STATUS = Field("Nova", "host_status", since="2.16")
_ZONE = Field("Nova", "OS-EXT-AZ:availability_zone")
_LAUNCHED_AT = Field("Nova", "OS-SRV-USG:launched_at")
_LOCKED = Field("Nova", "locked", since="2.9")
_UPDATED = Field("Nova", "updated")
_DEVICE = Field("Nova", "device")
_RESULT = Field("Nova", "result")
_MESSAGE = Field("Nova", "message")  # of an action: "Error" if an event of it failed, else None
_LINKS = Field("Nova", "links", since="2.58")
_FINISH_TIME = Field("Nova", "finish_time")
_AWAY = "UNKNOWN"  # status of a server whose cell is away (since 2.69): Nova shows little else
_OFF = (0, 4, 6)  # nova.compute.power_state: NOSTATE, SHUTDOWN, CRASHED
_LIVE = ("UP", "MAINTENANCE")  # host_status; MAINTENANCE: disabled for scheduling, but alive
_DELETIONS = ("compute_terminate_instance", "compute_soft_delete_instance")
_AGAIN = 10.0  # seconds after which a stalled deletion is requested again
# Actions that neither start nor move a guest.
_BESIDE = frozenset(
    {"attach_volume", "detach_volume", "attach_interface", "detach_interface", "lock", "unlock"}
)
_NO_START = _BESIDE | {"create", "stop", "pause", "suspend", "shelve"}
_STOP = "compute_stop_instance"
_ACTIONS = "os-instance-actions"
_LATEST = 8  # detaches of a server that are looked at, the newest first
_GONE = ("DELETED", "SOFT_DELETED")
_HIDDEN = (
    "the project may not read its list of actions, so it may have been evacuated and its guest may "
    "run on another host: the operator of the cloud can allow "
    "os_compute_api:os-instance-actions:list, :show and :events"
)
_STARTS = 2
_SKEW = 300.0  # seconds by which Nova's clock may differ from that of the state store
_WAITING = 900.0  # seconds before the proof of a fence in which its host may have been dead already
_WHOLE = 2.0  # seconds that its records of requests may be early: they have whole ones
_RECORD = 5.0  # seconds between a server's disappearance and the end of the event that records it
# Failures that mean "this rung yields no proof", as opposed to "try again".
_NO_PROOF = ("CONFLICT", "HOST_DOWN", "FORBIDDEN", "BAD_REQUEST")


@dataclass(frozen=True, slots=True)
class ServerState:
    """A server as Nova shows it.

    ``status``: ACTIVE, SHUTOFF, ...; UNKNOWN if its cell of Nova is away, and then the rest is not
    known; ``task_state``: what Nova is doing with it, or None;
    ``host_status``: UP, DOWN, MAINTENANCE or UNKNOWN of its compute service, None if the policy
    hides it (by default from all but administrators). ``host_id``: the same for two servers of a
    project that are on one host; it tells no more. ``host``: the host's name, which is
    hidden like ``host_status``. ``zone``: its availability zone, which everyone may read.
    ``locked``: Nova refuses changes to all but administrators. ``never_ran``: no host has it,
    and it was never launched, so it has no guest. ``server_id``: whose state it is.
    When ``exists`` is false the rest is empty.
    """

    status: str
    task_state: str | None
    host_status: str | None
    exists: bool
    power_state: int | None = None
    host_id: str | None = None
    host: str | None = None
    zone: str | None = None
    locked: bool = False
    never_ran: bool = False
    server_id: str = ""

    def __str__(self) -> str:
        """Return it as part of a sentence."""
        if not self.exists:
            return "gone"
        task = f" ({self.task_state})" if self.task_state else ""
        host = f", its compute service {self.host_status}" if self.host_status else ""
        locked = ", locked" if self.locked else ""
        return f"{self.status}{task}{locked}{host}"

    @property
    def host_silent(self) -> bool:
        """Return whether Nova shows that the compute service of its host does not report or was
        forced down. False if the policy hides that."""
        return bool(self.host_status) and self.host_status not in _LIVE

    @property
    def unfit(self) -> str | None:
        """Return why the server can take nothing, in words; None if it can."""
        if not self.exists:
            return "its server does not exist"
        if self.hindrance is not None and not self.hindrance.runs:
            return self._hindered(self.hindrance)
        if self.host_silent:
            return f"its host {self.host or ''}".rstrip() + f" is {self.host_status}"
        return None

    @property
    def hindrance(self) -> Hindrance | None:
        """Return what its state hinders; None if nothing does."""
        return hindrance_of(self.status, self.task_state, locked=self.locked)

    @property
    def waits_for_a_person(self) -> bool:
        """Return whether its guest does not run until a person ends its state."""
        by = self.hindrance if self.exists else None
        return by is not None and bool(by.needs(self.server_id)) and not by.runs

    @property
    def keeping(self) -> Hindrance | None:
        """Return because of what it gives no volume away; None if it does, or does not exist."""
        if not self.exists:
            return None
        return keeps_volumes(self.status, self.task_state, locked=self.locked)

    @property
    def on_no_host(self) -> bool:
        """Return whether the server has no guest on any host until it is unshelved."""
        return self.status == "SHELVED_OFFLOADED" and self.task_state is None

    @property
    def keeping_ports(self) -> Hindrance | None:
        """Return because of what it gives no port away; None if it does, or does not exist."""
        if not self.exists:
            return None
        return keeps_ports(self.status, self.task_state, locked=self.locked)

    @property
    def hindered(self) -> str | None:
        """Return why the server may not get or give a volume now, though its guest runs, with what
        ends that, in words; None if nothing hinders, or if it is `unfit`."""
        if not self.exists or self.hindrance is None or not self.hindrance.runs:
            return None
        return self._hindered(self.hindrance)

    def _hindered(self, by: Hindrance) -> str:
        ending = by.words(self.server_id)
        return f"its server is {self}" + (f" ({ending})" if ending else "")

    @property
    def needs(self) -> tuple[Need, ...]:
        """Return what a person does so that its guest runs and Nova changes it; empty if it needs
        nothing, or if that depends."""
        return self._ended(self.hindrance)

    @property
    def freeing(self) -> tuple[Need, ...]:
        """Return what a person does so that Nova stops it and takes volumes and ports from it, in
        order; empty if Nova does, or if that depends."""
        status = "ACTIVE" if self.status in STOPPED else self.status
        return self._ended(hindrance_of(status, None, locked=self.locked))

    def _ended(self, by: Hindrance | None) -> tuple[Need, ...]:
        if by is None or not self.exists:
            return ()
        unlocked = LOCKED.needs(self.server_id) if self.locked and by is not LOCKED else ()
        return (*unlocked, *by.needs(self.server_id))

    @property
    def off(self) -> bool:
        """Return whether the server is powered off on the host on which Nova has it. That proves
        nothing about a host that it was evacuated from: see `off_proof`."""
        return (
            self.status in ("SHUTOFF", "SHELVED_OFFLOADED")
            and self.task_state is None
            and self.power_state in _OFF
        )


@dataclass(frozen=True, slots=True)
class ServerHost:
    """Where a server runs, as far as Nova says it.

    ``host_id``: the SHA-224 of project and host name, which everyone may read. ``name``: the host's
    name, empty unless the policy shows it (by default only to administrators).
    """

    host_id: str
    project_id: str
    name: str = ""

    def is_called(self, host: str) -> bool:
        """Return whether the server runs on the host of this name. A name without a domain also
        means the host with a domain, and the other way round."""
        names = {host, host.partition(".")[0]}
        if self.name:
            return self.name in names or self.name.partition(".")[0] == host
        return self.host_id == host or self.host_id in {_host_id(self.project_id, n) for n in names}


def _host_id(project_id: str, host: str) -> str:
    """Nova: ``nova.utils.generate_hostid``."""
    return hashlib.sha224((project_id + host).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Evidence:
    """The result of a rung: whether it is proven that the guest does not write, and by what.
    ``needs``: what a person does so that Nova does what it refused, in order. ``disks``: of a rung
    that is ``of_disks``, those that the guest does not write to any more; see `system_disk`."""

    proven: bool
    rung: str
    observed: str
    needs: tuple[Need, ...] = ()
    disks: tuple[str, ...] = ()


def server_state(cloud: Cloud, server_id: str) -> ServerState:
    """Return a server's state; a server that does not exist (any more) is no error, if Nova does
    not list it either (`unless_absent`)."""
    path = url_path("servers", server_id)
    found = unless_absent(cloud, SERVER, server_id, lambda: cloud.read_nova(path))
    if found is None:
        return ServerState("", None, None, exists=False)
    return state_of(found["server"])


def changed_at(cloud: Cloud, server_id: str) -> str | None:
    """Return when Nova last changed what it has of a server, in ISO 8601; None if there is none."""
    path = url_path("servers", server_id)
    found = unless_absent(cloud, SERVER, server_id, lambda: cloud.read_nova(path))
    return None if found is None else _UPDATED.if_shown(found["server"])


def state_of(row: Mapping[str, Any]) -> ServerState:
    """Return the state of a server as it is in the body of Nova's answer. Raises `CloudError`
    NOT_OFFERED."""
    away = STATUS.of(row) == _AWAY
    return ServerState(
        status=STATUS.of(row),
        task_state=None if away else TASK_STATE.of(row),
        host_status=_HOST_STATUS.if_shown(row) or None,
        exists=True,
        power_state=None if away else POWER_STATE.of(row),
        host_id=HOST_ID.if_shown(row) or None,
        host=HOST_NAME.if_shown(row) or None,
        zone=_ZONE.if_shown(row) or None,
        locked=bool(_LOCKED.if_shown(row)),
        never_ran=_never_ran(row),
        server_id=str(row["id"]),
    )


def _never_ran(row: Mapping[str, Any]) -> bool:
    """Return whether a server never had a guest. Its host is empty also once it was shelved, so it
    must not have been launched either. A field that Nova does not show proves nothing."""
    if STATUS.of(row) != "ERROR" or TASK_STATE.of(row) is not None:
        return False
    nowhere = HOST_ID.if_shown(row) == "" and not HOST_NAME.if_shown(row)
    return nowhere and _LAUNCHED_AT.is_shown(row) and _LAUNCHED_AT.of(row) is None


def stop(cloud: Cloud, server_id: str, limit: float) -> Evidence:
    """Power the server off, and return whether that is proven; ``limit``: seconds.

    A server that is already off is proven off, by `off_proof`, and so is one that never ran. One
    that is gone is judged as by `delete_server`. One that stays ``powering-off`` is not proven off:
    if its compute service is dead, nothing carries out the request. Safe to repeat.

    Raises `CloudError` when Nova cannot be asked (UNREACHABLE, TOKEN_EXPIRED, ...), `LeaseLost`.
    """

    repeats = ResendPolicy(cloud, harmless=True)

    def step() -> ProbeResult:
        seen = server_state(cloud, server_id)
        if not seen.exists or seen.status in _GONE:
            return ProbeResult("gone", done=True, result=_deletion(cloud, server_id, "stop"))
        if seen.off:
            if (proof := off_proof(cloud, server_id, seen)) is None:
                return ProbeResult(f"it is {seen}, and is being started")
            return ProbeResult(str(seen), done=True, result=proof)
        if seen.never_ran:
            words = f"Nova shows that server {server_id} never ran, and that no host has it."
            return ProbeResult(str(seen), done=True, result=Evidence(True, "stop", words))
        if seen.host_status == "DOWN":
            words = (
                f"Server {server_id} is {seen}: it cannot be stopped, and the guest may be running."
            )
            return ProbeResult(str(seen), done=True, result=Evidence(False, "stop", words))
        if seen.task_state is not None:
            repeats.answered()
        elif not repeats.allow():
            return repeats.no_effect_yet(f"it is {seen}")
        else:
            reach("stop.before")
            with repeats.sending(f"stop server {server_id}"):
                path = url_path("servers", server_id, "action")
                cloud.send("Nova", "POST", path, {"os-stop": None})
            reach("stop.after")
        return ProbeResult(f"it is {seen}")

    return _climb(cloud, step, "stop", server_id, f"server {server_id} to be SHUTOFF", limit)


def start(cloud: Cloud, server_id: str, limit: float) -> Evidence:
    """Start a server that is off, and return whether Nova then shows it ACTIVE; ``limit``: seconds.

    One that is ACTIVE already counts as started. Any other state is left as it is: what Nova can do
    with it is a person's choice. Nova's compute service may accept a start and fail at it; so it is
    requested `_STARTS` times at most. Safe to repeat.

    Raises `CloudError` when Nova cannot be asked (UNREACHABLE, TOKEN_EXPIRED, ...), `LeaseLost`.
    """
    repeats = ResendPolicy(cloud, harmless=True)
    left = _STARTS

    def ended(seen: ServerState, *, proven: bool = False) -> ProbeResult:
        words = f"Nova shows server {server_id} {seen}"
        return ProbeResult(str(seen), done=True, result=Evidence(proven, "start", words))

    def step() -> ProbeResult:
        nonlocal left
        seen = server_state(cloud, server_id)
        if not seen.exists or seen.host_status == "DOWN":
            return ended(seen)
        if seen.task_state is not None:
            repeats.answered()
            return ProbeResult(f"it is {seen}")
        if seen.status != "SHUTOFF" or left == 0:
            return ended(seen, proven=seen.status == "ACTIVE")
        if not repeats.allow():
            return repeats.no_effect_yet(f"it is {seen}")
        reach("restart.before")
        left -= 1
        with repeats.sending(f"start server {server_id}"):
            path = url_path("servers", server_id, "action")
            cloud.send("Nova", "POST", path, {"os-start": None})
        reach("restart.after")
        return ProbeResult(f"it is {seen}")

    return _climb(cloud, step, "start", server_id, f"server {server_id} to be ACTIVE", limit)


def may_have_started_since(cloud: Cloud, server_id: str, since: float) -> bool:
    """Return whether Nova may have been asked to start a server, or to make it run otherwise, after
    ``since``, in seconds since 1970; True also if Nova hides what it was asked for.

    Raises `CloudError` when Nova cannot be asked, `LeaseLost`.
    """
    actions = _actions(cloud, server_id)
    if actions is None:
        return True
    begun = (_began(each) for each in actions if each["action"] not in _NO_START)
    return any(at >= since - _SKEW for at in begun)


def evacuate(cloud: Cloud, server_id: str, limit: float, *, fenced_at: float) -> Evidence:
    """Have Nova make the server again on another host, and return whether it has: then the server
    is off there, or was started since. ``limit``: seconds; ``fenced_at``: when its host was proven
    off, in seconds since 1970.

    Call it only with such a proof: Nova itself knows only that the host is silent. It is requested
    once for each proof, since that says nothing about the next host, and a second one would run
    beside the first. Not at all if the server was asked to stop shortly before: the dead host gets
    that request when it comes back, and Nova then stops the server where it is. Safe to repeat.

    Raises `CloudError` when Nova cannot be asked (UNREACHABLE, TOKEN_EXPIRED, ...), `LeaseLost`.
    """
    repeats = ResendPolicy(cloud)
    newest = cloud.newest("Nova")

    def ended(seen: ServerState, why: str, *, proven: bool = False) -> ProbeResult:
        return ProbeResult(str(seen), done=True, result=Evidence(proven, "evacuate", why))

    def step() -> ProbeResult:
        seen = server_state(cloud, server_id)
        if not EVACUATION.offered_by(newest):
            return ended(seen, f"Nova offers up to {newest}, and keeps it off since 2.95 only")
        if seen.exists and seen.host_status is None:
            return ended(seen, "Nova does not show this user the state of its host")
        if (actions := _actions(cloud, server_id)) is None:
            return ended(seen, "Nova does not show this user its list of actions")
        evacuations = [each for each in actions if each["action"] == "evacuate"]
        asked = max(evacuations, key=_began, default={})
        begun = _began(asked) if asked else 0.0
        if begun >= fenced_at - _SKEW:
            repeats.answered()
            # Nova makes it ACTIVE, then SHUTOFF, and only then gives it its new host and power
            # state; if it fails before, it leaves the server as it was (`rebuild_instance`).
            made = seen.status in ("ACTIVE", "SHUTOFF") and not _MESSAGE.of(asked)
            arriving = made and (seen.host_silent or (seen.status == "SHUTOFF" and not seen.off))
            if seen.task_state is not None or arriving:
                return ProbeResult(f"it is {seen}")
            there = seen.off or (seen.status == "ACTIVE" and begun >= fenced_at - _WHOLE)
            proven = seen.exists and there and not seen.host_silent
            did = "has evacuated" if proven else "was asked to evacuate"
            return ended(seen, f"Nova {did} server {server_id}, and shows it {seen}", proven=proven)
        if not seen.host_silent:
            return ended(seen, f"Nova shows it {seen}" if seen.exists else "its server is gone")
        stop = max((_began(each) for each in actions if each["action"] == "stop"), default=0.0)
        if stop >= fenced_at - _WAITING:
            return ended(seen, "a request to stop it may wait for the dead host, and come later")
        if not repeats.allow():
            return repeats.no_effect_yet(f"it is {seen}")
        reach("evacuate.before")
        with repeats.sending(f"evacuate server {server_id}"):
            path = url_path("servers", server_id, "action")
            since = EVACUATION.since
            cloud.send("Nova", "POST", path, {"evacuate": {}}, microversion=since)
        reach("evacuate.after")
        return ProbeResult(f"it is {seen}")

    return _climb(cloud, step, "evacuate", server_id, f"server {server_id} to be evacuated", limit)


def _began(action: Mapping[str, Any]) -> float:
    """Return when Nova accepted a request for a server, in seconds since 1970."""
    return datetime.fromisoformat(str(action["start_time"])).replace(tzinfo=UTC).timestamp()


def off_proof(cloud: Cloud, server_id: str, seen: ServerState) -> Evidence | None:
    """Return whether the guest of a server that was ``seen`` off is proven to be off; None if Nova
    was asked to start it since then.

    It is not if an evacuation may have left a guest behind, or if the project may not see that.

    Raises `CloudError` when Nova cannot be asked, `LeaseLost`.
    """
    # Read after the state: Nova records an evacuation before it changes the server.
    actions = _actions(cloud, server_id)
    if elsewhere := _elsewhere(cloud, server_id, actions):
        return Evidence(False, "stop", f"Server {server_id} is {seen.status}, but {elsewhere}.")
    # Nova records a task before its action. So if the latest action may start a server, and is an
    # old one, a second look shows the server as it was.
    latest = next((each["action"] for each in actions or () if each["action"] not in _BESIDE), None)
    if latest not in (None, *_NO_START) and not server_state(cloud, server_id).off:
        return None
    words = f"Nova's compute service reports server {server_id} {seen.status}."
    return Evidence(True, "stop", words)


def left_behind(cloud: Cloud, server_id: str) -> str | None:
    """Return why a guest of the server may run on a host that it was evacuated from, as a clause;
    None if Nova shows no such evacuation, or hides the server's actions.

    Raises `CloudError` when Nova cannot be asked, `LeaseLost`.
    """
    actions = _actions(cloud, server_id)
    return None if actions is None else _left_behind(cloud, server_id, actions)


def may_be_elsewhere(cloud: Cloud, server_id: str) -> str | None:
    """As `left_behind`, but also return why if Nova hides the server's actions from the project:
    then an evacuation cannot be ruled out."""
    return _elsewhere(cloud, server_id, _actions(cloud, server_id))


def _elsewhere(
    cloud: Cloud, server_id: str, actions: Sequence[Mapping[str, Any]] | None
) -> str | None:
    return _HIDDEN if actions is None else _left_behind(cloud, server_id, actions)


def delete_server(cloud: Cloud, server_id: str, limit: float, *, root: bool = False) -> Evidence:
    """Delete the server, and return whether its guest is proven to be gone; ``limit``: seconds;
    ``root``: not if the disk that it boots from would go with it.

    The proof is the compute service's own record of the deletion. If the records are not readable,
    there is none. A deletion in Nova's database alone, as for a dead host, is no proof, and neither
    is one on the new host of a server that was evacuated while its guest ran. Safe to repeat; the
    records also show a server deleted earlier.

    A stalled deletion is requested again now and then: Nova sent the first request to a compute
    service that it believed alive, and a request only has an effect once Nova knows better. A live
    service receives no second request (Nova ignores the repeat).

    Raises `CloudError` when Nova cannot be asked (UNREACHABLE, TOKEN_EXPIRED, ...), `LeaseLost`.
    """
    asked: float | None = None
    repeats = ResendPolicy(cloud, harmless=True)

    def step() -> ProbeResult:
        nonlocal asked
        seen = server_state(cloud, server_id)
        if not seen.exists or seen.status in _GONE:
            evidence = _deletion(cloud, server_id, "delete")
            return ProbeResult("gone", done=True, result=evidence)
        if not repeats.allow():
            return repeats.no_effect_yet(f"it is {seen}")
        if asked is None or time.monotonic() - asked >= _AGAIN:
            if along := volumes_deleted_with(cloud, server_id, root=root):
                words = f"deleting server {server_id} would delete {' and '.join(along)} with it"
                return ProbeResult(words, done=True, result=Evidence(False, "delete", words))
            reach("delete.before")
            with repeats.sending(f"delete server {server_id}"):
                path = url_path("servers", server_id)
                if_there(lambda: cloud.send("Nova", "DELETE", path))
            reach("delete.after")
            asked = time.monotonic()
        return ProbeResult(f"it is {seen}")

    return _climb(cloud, step, "delete", server_id, f"server {server_id} to be deleted", limit)


def volumes_deleted_with(cloud: Cloud, server_id: str, *, root: bool = False) -> list[str]:
    """Return the volumes that would be deleted with the server (delete_on_termination); ``root``:
    also the disk that it boots from.

    Raises `CloudError` when Nova cannot be asked, NOT_OFFERED if it does not show that;
    `LeaseLost`.
    """
    path = url_path("servers", server_id)
    shown = unless_absent(cloud, SERVER, server_id, lambda: cloud.read("Nova", path))
    if shown is None:
        return []
    # By the server, since a list of its attachments ends at Nova's ``[api] max_limit``.
    volumes = VOLUMES.of(shown["server"])
    along = [str(each["id"]) for each in volumes if DELETE_ON_TERMINATION.of(each)]
    return [each for each in along if root or not is_root(cloud, server_id, each)]


def volumes_on(cloud: Cloud, server_id: str) -> list[str]:
    """Return the volumes that Nova has on a server; none if it is gone. Raises `CloudError`."""
    path = url_path("servers", server_id)
    shown = unless_absent(cloud, SERVER, server_id, lambda: cloud.read("Nova", path))
    return [] if shown is None else [str(each["id"]) for each in VOLUMES.of(shown["server"])]


def system_disk(server_id: str) -> str:
    """Return what the disk is called that Nova makes for a server that boots from no volume. In a
    Ceph pool (``images_type = rbd``) it has this name."""
    return f"{server_id}_disk"


def is_root(cloud: Cloud, server_id: str, volume_id: str) -> bool:
    """Return whether a volume is the disk that the server boots from."""
    shown = attachment_shown(cloud, server_id, volume_id)
    return shown is not None and _DEVICE.of(shown) in ROOT_DEVICES


def attachment_shown(cloud: Cloud, server_id: str, volume_id: str) -> dict[str, Any] | None:
    """Return what Nova shows of a volume on a server, None if it shows none. What may lead to a
    deletion is asked for in this way: a list ends at Nova's ``[api] max_limit``. Raises
    `CloudError`."""
    path = url_path("servers", server_id, "os-volume_attachments", volume_id)
    there = volume_on(server_id)
    shown = unless_absent(cloud, there, volume_id, lambda: cloud.read("Nova", path))
    return None if shown is None else dict(shown["volumeAttachment"])


def deletion_proof(cloud: Cloud, server_id: str) -> Evidence:
    """Return whether the guest of a server that is gone is proven to be gone with it.

    Raises `CloudError` when Nova cannot be asked, `LeaseLost`.
    """
    return _deletion(cloud, server_id, "delete")


def server_fingerprint(cloud: Cloud, server_id: str) -> str:
    """Describe a server in words that change when its state changes."""
    return f"server {server_id} is {server_state(cloud, server_id)}"


def has_a_task(error: CloudError) -> bool:
    """Return whether Nova refuses only until the server's present task has ended."""
    return error.code == "CONFLICT" and "task_state" in error.message


def _climb(
    cloud: Cloud,
    step: Callable[[], ProbeResult],
    rung: str,
    server_id: str,
    what: str,
    limit: float,
) -> Evidence:
    """Wait for the step's evidence; the finding that this rung is useless is evidence, too."""
    conflicts: list[str] = []

    def tolerant() -> ProbeResult:
        try:
            return step()
        except CloudError as error:
            if has_a_task(error):
                return ProbeResult(error.message)
            if error.code in _NO_PROOF:
                conflicts.append(error.message)
                # An earlier attempt may have overtaken this request, which is then refused: the
                # next look shows that.
                done = error.code != "CONFLICT" or len(conflicts) > 1
                return ProbeResult(f"refused: {error.message}", done=done)
            raise

    # Our own deadline separates our time limit from a single call that timed out.
    deadline = time.monotonic() + limit
    try:
        evidence: Evidence | None = cloud.wait(tolerant, what=what, limit=limit)
    except CloudError as error:
        if error.code == "TIMEOUT" and not error.transient and time.monotonic() >= deadline:
            return Evidence(False, rung, error.message)
        raise
    return evidence or _refused(cloud, server_id, rung, conflicts[-1])


def _refused(cloud: Cloud, server_id: str, rung: str, refusal: str) -> Evidence:
    """Return a refusal with what ends the state of the server, if that is its cause."""
    state = server_state(cloud, server_id)
    by = state.hindrance
    remedy = by.sentence(server_id) if by is not None else ""
    words = f"{refusal.rstrip('.')}. {remedy}" if remedy else refusal
    return Evidence(False, rung, words, state.freeing)


def _deletion(cloud: Cloud, server_id: str, rung: str) -> Evidence:
    """Judge the deletion of a server that is gone."""
    actions, events = _deletion_events(cloud, server_id)
    if actions is not None and (left := _left_behind(cloud, server_id, actions)):
        return Evidence(False, rung, f"Server {server_id} is gone, but {left}.")
    if actions is None or events is None:
        why = _HIDDEN if actions is None else "the project may not read the events of its actions"
        words = (
            f"Server {server_id} is gone, but nothing shows that a compute service deleted it, and "
            f"the guest may be running: {why}."
        )
        return Evidence(False, rung, words)
    event = events[-1] if events else None
    if event is not None and _RESULT.of(event) == "Success":
        words = f"Nova's compute service recorded {event['event']} of server {server_id}: Success."
        return Evidence(True, rung, words)
    found = f"{event['event']}: {_RESULT.of(event) or 'unfinished'}" if event else "no event"
    words = (
        f"Server {server_id} is gone from Nova's database, but its compute service recorded "
        f"{found}; the guest may be running."
    )
    return Evidence(False, rung, words)


def _left_behind(cloud: Cloud, server_id: str, actions: Sequence[Mapping[str, Any]]) -> str | None:
    """As `left_behind`, by the server's actions, the newest first.

    An evacuation leaves nothing behind only if the last thing that happened to the guest before was
    a stop, which the compute service carried out. A failed evacuation counts, too: how far it got
    is not certain. Only an administrator can evacuate, and Nova's API records it (as ``evacuate``,
    not as ``rebuild``) before it changes the server.
    """
    for number, action in enumerate(actions):
        if action["action"] != "evacuate":
            continue
        older = (each for each in actions[number + 1 :] if each["action"] not in _BESIDE)
        before = next(older, None)
        if before is not None and before["action"] == "stop":
            events = _events(cloud, server_id, before["request_id"]) or ()
            if any(each["event"] == _STOP and _RESULT.of(each) == "Success" for each in events):
                continue
        when = str(action["start_time"]).partition(".")[0]
        return (
            f"Nova evacuated it at {when} UTC, and on the host that it left its guest may be "
            "running"
        )
    return None


def is_taken_up(cloud: Cloud, server_id: str, request_id: str) -> bool:
    """Return whether a compute service has begun what Nova's API accepted by this request, or may
    have: where the project may not see that, the answer is True.

    A compute service records an event as soon as it has the message. Nova API: os-instance-actions.
    """
    return _events(cloud, server_id, request_id) != []


def is_detaching(cloud: Cloud, server_id: str) -> bool:
    """Return whether a compute service detaches a volume from the server, or may do so: where the
    project may not see that, the answer is True. Only the latest requests are looked at.

    Nova API: os-instance-actions.
    """
    if (actions := _actions(cloud, server_id)) is None:
        return True
    detaches = (each for each in actions if each["action"] == "detach_volume")
    for detach in islice(detaches, _LATEST):
        events = _events(cloud, server_id, detach["request_id"])
        if events is None or any(not _FINISH_TIME.of(event) for event in events):
            return True
    return False


def detached_since(cloud: Cloud, server_id: str, since: float) -> float | None:
    """Return when Nova last accepted to detach a volume from the server, in seconds since 1970;
    None if it has not ``since``, or where the project may not see that.

    Nova records whole seconds. Nova API: os-instance-actions.
    """
    actions = _actions(cloud, server_id) or ()
    begun = (_began(each) for each in actions if each["action"] == "detach_volume")
    return max((each for each in begun if each >= floor(since)), default=None)


def _events(cloud: Cloud, server_id: str, request_id: str) -> list[dict[str, Any]] | None:
    """Return what a compute service recorded of a request; None where the project may not see it,
    as below the microversion of `EVENTS`."""
    shown = _recorded(cloud, url_path("servers", server_id, _ACTIONS, request_id))
    events = None if shown is None else EVENTS.if_shown(shown["instanceAction"])
    return None if events is None else list(events)


def _actions(cloud: Cloud, server_id: str) -> list[dict[str, Any]] | None:
    """Return all of a server's actions, the newest first; None where the project may not see them.

    Nova API: os-instance-actions, readable by the owner, also for deleted servers (since 2.21), in
    pages (since 2.58).
    """
    path = url_path("servers", server_id, _ACTIONS)
    found: list[dict[str, Any]] = []
    page = path
    while True:
        if (shown := _recorded(cloud, page)) is None:
            return None
        rows = shown["instanceActions"]
        found += rows
        if not rows or not any(link["rel"] == "next" for link in _LINKS.if_shown(shown) or ()):
            return found
        page = f"{path}?marker={segment(rows[-1]['request_id'])}"


def _recorded(cloud: Cloud, path: str) -> dict[str, Any] | None:
    """Return what a path below a server's actions shows; None where the project may not see it."""
    try:
        return dict(cloud.read("Nova", path))
    except CloudError as error:
        if error.code not in ("NOT_FOUND", "FORBIDDEN", "BAD_REQUEST"):
            raise
        return None


_Events = Sequence[dict[str, Any]]


def _deletion_events(cloud: Cloud, server_id: str) -> tuple[_Events | None, _Events | None]:
    """Return the server's actions, and what compute services recorded of deleting it, the one that
    counts at the end, after it finished, if it finishes. None where the project may not see that.

    The event ends a moment after the server has disappeared.
    """
    actions: _Events | None = None
    last: _Events | None = None

    def step() -> ProbeResult:
        nonlocal actions, last
        actions = _actions(cloud, server_id)
        last = None if actions is None else _deletions(cloud, server_id, actions)
        unfinished = last is not None and len(last) > 0 and not _RESULT.of(last[-1])
        return ProbeResult("unfinished" if unfinished else "finished", done=not unfinished)

    try:
        cloud.wait(step, what=f"the end of the deletion of server {server_id}", limit=_RECORD)
    except CloudError as error:
        if error.code != "TIMEOUT" or error.transient:
            raise
    return actions, last


def _deletions(cloud: Cloud, server_id: str, actions: _Events) -> _Events | None:
    found: list[dict[str, Any]] = []
    for action in actions:
        if action["action"] not in ("delete", "forceDelete"):
            continue
        if (events := _events(cloud, server_id, action["request_id"])) is None:
            return None
        found += (event for event in events if event["event"] in _DELETIONS)
    # Success last: a later repeat of the request records nothing that would undo it.
    return sorted(found, key=lambda event: (_RESULT.of(event) == "Success", event["start_time"]))
