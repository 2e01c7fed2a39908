# SPDX-License-Identifier: Apache-2.0
"""Switching a compute host off, and proving it.

One process at a time switches a host off, and records the proof for all groups with a member there.
A device that reports the host off is contradicted by any sign of life of the host after that: an
agent's heartbeat, a report of its compute service, a client that has a volume open, another device.
A contradicted report is no proof. Each group knows other signs, so a group that uses the proof of
another one looks for its own before. What has been silent for long enough when the host is reported
off is not listened to once more: it would have been heard before, if it were alive.

After a proof the host is not switched off for a project again until Nova has shown it up: a host
that boots after its repair looks dead, and by our own mark Nova counts it as down. Until then the
proof counts for every group, as long as a device still reports the host off.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from shlex import quote

from mistral_failover.agent.channel.interface import Channel, ChannelError
from mistral_failover.agent.wire import Address
from mistral_failover.cloud import hosts
from mistral_failover.cloud.clients import Cloud
from mistral_failover.cloud.errors import NO_RIGHTS, CloudError
from mistral_failover.cloud.transport import Guard, Listener
from mistral_failover.fault_points import reach
from mistral_failover.resources.fence import agents
from mistral_failover.resources.fence.agents import Power
from mistral_failover.resources.fence.devices import Device, Devices, Levels
from mistral_failover.resources.watch import going
from mistral_failover.store import host_fences
from mistral_failover.store.database import Database
from mistral_failover.store.host_fences import Claim, HostFence
from mistral_failover.store.session import Session

LOG = logging.getLogger(__name__)

RECENT = 25.0
"""Seconds since its last heartbeat within which an agent may still be alive: one comes every 10 s.
"""
WATCH = 40.0
"""Seconds after which a client that died has certainly lost its watch of a volume: Ceph ends it
after 30 s."""
LOOK = 10.0
"""Seconds for the answer of a device that has failed before."""
_SETTLE = 1.0
"""Seconds for what was on its way when the host was switched off."""
_SKEW = 2.0
"""Seconds by which the clock of an agent may be behind ours."""
_NOTICE = 3.0
"""Seconds until a board has noticed that another device switched its host off."""
_PAUSE = 0.25


class Unproven(Exception):  # noqa: N818 - it names the finding
    """The host is not proven off. ``message`` is for the project and names no host; ``detail`` is
    for the operator."""

    def __init__(self, message: str, detail: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.detail = detail or message


class Undecided(Unproven):
    """Nothing was proven or disproven, because another process had the host: a later try may."""

    def awaited(self) -> CloudError:
        """Return it as what an operation waits for, as for a service that does not answer."""
        return CloudError(
            "FENCE_UNPROVEN",
            self.message,
            remedy="It is tried again.",
            transient=True,
            service="the fence of its host",
            detail=self.message,
        )


class Claimed(Undecided):
    """Another process fences the host."""

    def __init__(self, host: str, owner: str | None) -> None:
        super().__init__(
            "another process is fencing its host, and has no proof yet",
            f"{host} is being fenced by {owner or 'another process'}",
        )


class ClaimLost(Undecided):
    """The claim of the host ended before there was a proof."""


class NoAnswer(Undecided):
    """No device says whether the host is still off; ``why``: what the devices said, if they were
    asked."""

    def __init__(self, host: str, why: agents.Answer | None = None) -> None:
        words, detail = (f" ({why.words})", f" ({why.detail})") if why else ("", "")
        super().__init__(
            f"its host was proven off, and no fence device says whether it still is{words}",
            f"no fence device says whether {host} is still off{detail}",
        )


class NotBack(Undecided):
    """The host is on again, and Nova has not shown it up since it was proven off."""

    def __init__(self, host: str) -> None:
        super().__init__(
            "its host was fenced before and is on again, so it boots or is under repair: it is not "
            "switched off again before Nova has shown its compute service up, or the operator of "
            "the cloud does it (failover fence)",
            f"{host} is on again, and Nova has not shown its compute service up since its fence. "
            f"To switch it off again: failover fence {quote(host)} --because '...'",
        )


class TimeOver(Unproven):
    """No time is left for a call that could contradict the proof."""

    def __init__(self) -> None:
        super().__init__("the rung timed out")


@dataclass(frozen=True)
class Switch:
    """With what hosts are switched off.

    ``nova``: the cloud with the operator's credential. ``guard``: is asked before each call; it
    raises LeaseLost. ``deadline``: on the monotonic clock. ``owner``: who switches, for people.
    ``lease``: seconds that a claim lasts beyond the call for which it was renewed.
    ``again``: an operator orders it: the host is switched off also if Nova has not shown it up
    since its last fence.
    ``channel`` and ``guests``: where heartbeats of agents on the host would come from.
    ``watching``: says which volumes a live client on the host still has open, as far as the storage
    is known; for the project and for the operator, empty if none. It gets what permits its calls.
    """

    devices: Devices
    nova: Cloud
    store: Database
    guard: Guard
    deadline: float
    owner: str
    lease: float
    again: bool = False
    channel: Channel | None = None
    guests: tuple[Address, ...] = ()
    watching: Callable[[agents.Permit], tuple[str, str]] | None = None
    sleep: Callable[[float], None] = time.sleep

    @property
    def going(self) -> Callable[[], None]:
        """See `agents.Going`."""
        return going(self.guard)

    @property
    def left(self) -> float:
        """Seconds until the deadline."""
        return self.deadline - time.monotonic()


def switch_off(switch: Switch, host: str, since: float) -> str:
    """Switch a host off; return the proof, a sentence without the host's name.

    ``since``: a proof from that time on, in seconds by the database's clock, counts if a device
    still reports the host off, and nothing that this caller knows contradicts it. An earlier one
    counts in the same way, if Nova has not shown the host up since, and no operator orders the
    fence. Raises Unproven, CloudError, LeaseLost.
    """
    levels = switch.devices.hosts.get(host)
    if not levels:
        raise Unproven(
            "no fence device is configured for its host", f"{host} is not among hosts of the file"
        )
    first = _Look.of(switch, host)
    whole = switch.left  # what the waits for others are compared with
    while True:
        claim = _claim(switch, host, levels, since, first)
        granted = switch.left
        if isinstance(claim, str):
            return claim
        try:
            return _switch_off_once(switch, host, claim, levels, first)
        except ClaimLost as lost:
            if switch.left <= _PAUSE:
                raise
            LOG.warning("%s: %s", host, lost.detail)
        except Unproven as error:
            # It had only what the wait for others had left of its time.
            if switch.left <= _PAUSE and granted < whole / 2:
                raise Undecided(error.message, error.detail) from None
            raise


def _switch_off_once(switch: Switch, host: str, claim: Claim, levels: Levels, first: _Look) -> str:
    """Switch the host off and record the proof; return it. ``first``: the signs of life before
    the wait for the claim. Raises as `switch_off`."""
    proven = False
    try:
        found = switch.store.reading(lambda tx: host_fences.of_host(tx, host))
        only_asks = not found.back and not switch.again
        proof = _Fence(switch, host, claim, only_asks, first).through(levels)
        proven = switch.store.atomically(lambda tx: host_fences.prove(tx, claim, proof))
        if not proven:
            raise _lost()
        LOG.warning("Host %s is fenced: %s", host, proof)
        reach("power.proven")
        return proof
    finally:
        if not proven:
            switch.store.atomically(lambda tx: host_fences.release(tx, claim))


def _lost() -> ClaimLost:
    return ClaimLost(
        "another process may have taken over the fence of its host",
        "this process was too slow to keep the claim of the host",
    )


def tell_nova(switch: Switch, host: str) -> str:
    """Tell Nova that the host is fenced. Return the result as a clause; a refusal changes nothing
    about the proof, and what lifts fences tells Nova later."""
    try:
        switch.guard.permit("PUT")
        # Before the look at Nova: no report from before this fence may count as the host's return.
        switch.store.atomically(partial(host_fences.record_off, host=host))
        service = hosts.compute_service(switch.nova, host)
        if service is None:
            return "Nova has no compute service there"
        if service.forced_down:
            switch.store.atomically(partial(host_fences.record_forced_by_operator, host=host))
        else:
            # Recorded before, so that what lifts the fence later knows it in any case.
            switch.store.atomically(partial(host_fences.record_forced_down, host=host))
            hosts.force_down(switch.nova, service)
        return "Nova counts its compute service as down"
    except CloudError as error:
        if error.code == "LEASE_LOST" or error.code == "HANDED_BACK":
            raise
        LOG.warning("Nova did not accept that %s is fenced: %s", host, error.message)
        return f"Nova did not accept that ({error.code})"


def described(devices: Devices, host: str) -> list[str]:
    """Return the levels of a host in words, for the operator."""
    return [
        f"level {number}: {' and '.join(device.agent for device in level)}"
        for number, level in enumerate(devices.hosts.get(host, ()), 1)
    ]


def translated(error: CloudError) -> CloudError:
    """Return an error of a call with the operator's credential so that it says nothing about the
    rights of the request."""
    if error.code not in NO_RIGHTS:
        return error
    return CloudError(
        "CONFIG",
        "Keystone does not accept the operator's credential for fencing.",
        remedy="Ask the operator of the cloud to correct it.",
    )


def up_by_itself(nova: Cloud, host: str, fence: HostFence) -> Unproven | None:
    """Return why the compute service of a host counts as up; None if it is down. A mark of ours
    (``forced_down``) is no word of Nova's: then a report since we set it counts as up. Raises
    Unproven if Nova has none, CloudError."""
    service = hosts.compute_service(nova, host)
    if service is None:
        raise Unproven(
            "Nova has no compute service for its host", f"Nova has no compute service on {host}"
        )
    seen = fence.nova_seen if fence.told else None
    if service.forced_down and seen in (None, "", host_fences.NOT_TOLD, service.seen):
        return None
    if not service.forced_down and not service.up:
        return None
    shown = "reports, although a fence has forced it down" if service.forced_down else "is up"
    return Unproven(
        "Nova reports the compute service of its host up, and the operator allows only hosts that "
        "are down to be switched off",
        f"the compute service on {host} {shown} (last report {service.seen}); "
        "compute_must_be_down is true",
    )


def _waits_for(switch: Switch, what: Undecided | None) -> None:
    """Have the status show what this fence waits for; None: for nothing."""
    if isinstance(switch.guard, Listener):
        switch.guard.waits_for(None if what is None else what.awaited())


def _claim(switch: Switch, host: str, levels: Levels, since: float, first: _Look) -> Claim | str:
    """Return the right to switch the host off, or a proof that still holds. Raises Unproven."""
    asked = False
    while True:
        found = switch.store.reading(lambda tx: host_fences.of_host(tx, host))
        waits: Unproven | None = None
        pause = _PAUSE
        if found.owner is None:
            try:
                proof = _usable(switch, host, found, levels, since, first)
            except (NoAnswer, NotBack) as none:
                # A claim would void the proof for all groups, and prove nothing: a device that does
                # not answer is often only busy with the questions of the others.
                _waits_for(switch, none)
                if switch.left <= _PAUSE * 8:
                    raise
                _await_change(switch, found, host, LOOK if isinstance(none, NotBack) else 1.0)
                continue
            if proof is not None:
                if switch.store.reading(lambda tx: host_fences.of_host(tx, host)) == found:
                    _waits_for(switch, None)
                    return proof
                continue  # another process has found it contradicted meanwhile
            # Other projects have servers there too, and a host that works must not be switched off
            # for one of them.
            if switch.devices.compute_must_be_down:
                waits, pause = up_by_itself(switch.nova, host, found), _PAUSE * 4
            claim = _claimed(switch, host, found) if waits is None else None
            if claim is not None:
                _waits_for(switch, None)
                return claim
        if waits is not None and not asked:
            # Meanwhile: a client that is silent now need not be silent for as long later.
            asked = True
            _ask_clients(switch)
            continue
        if waits is None:
            waits = Claimed(host, found.owner)
            _waits_for(switch, waits)
        if switch.left <= _PAUSE:
            raise waits
        switch.guard.permit("GET")
        switch.sleep(min(pause, switch.left))


def _ask_clients(switch: Switch) -> None:
    """Ask the clients of the volumes whether they are alive, for the look after the report. Raises
    LeaseLost."""

    def permit(seconds: float) -> float:
        switch.guard.permit("GET")
        if switch.left <= 0:
            raise TimeOver
        return min(seconds, switch.left)

    if switch.watching is not None:
        with suppress(TimeOver):
            switch.watching(permit)


def _claimed(switch: Switch, host: str, found: HostFence) -> Claim | None:
    """Claim the host; None if another process has it, or has fenced it since it was looked at."""

    def claim(tx: Session) -> Claim | None:
        if host_fences.of_host(tx, host) != found:
            return None
        return host_fences.claim(tx, host, switch.owner, switch.lease)

    return switch.store.atomically(claim)


def _await_change(switch: Switch, found: HostFence, host: str, seconds: float) -> None:
    """Wait for so many seconds, or until another process changes the record of the host."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and switch.left > _PAUSE * 4:
        switch.guard.permit("GET")
        switch.sleep(_PAUSE * 4)
        if switch.store.reading(lambda tx: host_fences.of_host(tx, host)) != found:
            return


def _usable(
    switch: Switch, host: str, found: HostFence, levels: Levels, since: float, first: _Look
) -> str | None:
    """Return a proof that was recorded, if the host is still off (it may have been switched on
    again), and nothing that this process knows contradicts it. Return None if the host may be
    switched off; of one that is not back, only if it is off already: that changes nothing.

    A proof counts if it is recent enough, or if Nova has not shown the host up since. Raises
    NoAnswer, NotBack."""
    recent = found.proven_at is not None and found.proven_at >= since
    waits = not found.back and not switch.again
    if not recent and not waits:
        return None

    def hold() -> None:
        switch.guard.permit("GET")

    def permit(seconds: float) -> float:
        hold()
        if switch.left <= 0:
            raise TimeOver
        return min(seconds, switch.left)

    try:
        answer = _shared_report(switch, host, found, levels, permit)
        if answer.power is Power.ON:
            if waits:
                raise NotBack(host)
            return None
        if answer.power is Power.UNKNOWN:
            raise NoAnswer(host, answer)
        if found.proof is None or found.proven_at is None:
            return None
        age = switch.store.reading(lambda tx: tx.now()) - found.proven_at
        signs = _Signs(switch, host, first)
        _contradicted_by_storage(switch, permit, hold, max(0.0, WATCH - age))
        signs.contradict(hold)
    except (NoAnswer, NotBack):
        raise
    except Unproven as error:
        if switch.left <= _PAUSE:
            raise Undecided(error.message, error.detail) from None
        LOG.warning("%s: the proof of another process does not count: %s", host, error.detail)
        return None
    return found.proof


@dataclass
class _Report:
    """What the devices of a host last reported to this process. ``asked_at``: on the monotonic
    clock, None before the first time; ``about``: the fence whose proof was to be used."""

    turn: threading.Lock = field(default_factory=threading.Lock)
    asked_at: float | None = None
    about: HostFence | None = None
    answer: agents.Answer = agents.Answer(False, "not asked yet", "not asked yet")


_reports: dict[str, _Report] = {}


def _shared_report(
    switch: Switch, host: str, found: HostFence, levels: Levels, permit: agents.Permit
) -> agents.Answer:
    """Return what the devices of the host report. A board has few sessions, so one group of this
    process asks at a time, and those that waited take its answer. Raises TimeOver, and NoAnswer if
    this group's turn does not come."""
    began = time.monotonic()
    last = _reports.setdefault(host, _Report())
    while not last.turn.acquire(timeout=_PAUSE):
        switch.guard.permit("GET")
        if switch.left <= _PAUSE:
            raise NoAnswer(host)
    try:
        if last.asked_at is None or last.asked_at < began or last.about != found:
            asked_at = time.monotonic()
            last.answer = _reported(levels, permit, switch.going)
            last.asked_at, last.about = asked_at, found
        return last.answer
    finally:
        last.turn.release()


def _reported(levels: Levels, permit: agents.Permit, going: agents.Going) -> agents.Answer:
    """Return what the devices report: OFF if a level does, and no device of the levels before
    reports ON; UNKNOWN with the reasons of those that reported nothing."""
    silent = []
    for level in levels:
        said = [agents.status(device, permit, going) for device in level]
        if all(answer.power is Power.OFF for answer in said):
            return said[0]
        if on := [answer for answer in said if answer.power is Power.ON]:
            return on[0]
        silent += [answer for answer in said if answer.power is Power.UNKNOWN]
    words = "; ".join(dict.fromkeys(answer.words for answer in silent))
    return agents.Answer(False, words, "; ".join(answer.detail for answer in silent))


def _statuses(
    devices: Sequence[Device], seconds: float, going: agents.Going
) -> list[agents.Answer]:
    """Return what devices say about the power, asked all at once, each for at most so many
    seconds."""

    def ask(device: Device) -> agents.Answer:
        return agents.status(device, lambda limit: min(limit, seconds), going)

    with ThreadPoolExecutor(len(devices)) as pool:
        return list(pool.map(ask, devices))


def _contradicted_by_storage(
    switch: Switch, permit: agents.Permit, hold: Callable[[], None], seconds: float
) -> None:
    """Wait for so many seconds until no live client on the host has a volume open: one that died
    and cannot be asked disappears after half a minute. ``hold`` is called meanwhile. Raises
    Unproven if one has."""
    if switch.watching is None:
        return
    end = time.monotonic() + seconds
    found = switch.watching(permit)
    while found[0]:
        left = end - time.monotonic()
        if left <= 0:
            words, detail = found
            raise Unproven(f"contradicted: {words}", f"contradicted: {detail}")
        if switch.left <= 0:
            raise TimeOver
        hold()
        switch.sleep(min(4 * _PAUSE, left, switch.left))
        if switch.left > 0:
            found = switch.watching(permit)


@dataclass
class _Fence:
    """One fence of a host, by the holder of its claim. ``only_asks``: the host is not back, so its
    devices are asked and switch nothing: it may have been switched on since it was seen off."""

    switch: Switch
    host: str
    claim: Claim
    only_asks: bool
    first: _Look
    _failed: list[Device] = field(default_factory=list)

    def through(self, levels: Levels) -> str:
        """Try level by level; return the first proof. Raises Unproven."""
        signs = _Signs(self.switch, self.host, self.first)
        tried: list[str] = []
        details: list[str] = []
        for number, level in enumerate(levels, 1):
            try:
                words = self._level(level, time.monotonic() + self._share(levels[number - 1 :]))
                self._contradicted_by_devices()
                # First: the signs go on being silent meanwhile.
                _contradicted_by_storage(self.switch, self._permit, self._hold, WATCH)
                signs.contradict(self._hold)
            except ClaimLost:
                raise
            except Unproven as error:
                self._failed += level
                tried.append(f"level {number}: {error.message}")
                details.append(f"level {number}: {error.detail}")
                continue
            return words
        raise Unproven("; ".join(tried), f"{self.host}: {'; '.join(details)}")

    def _share(self, levels: Sequence[Sequence[Device]]) -> float:
        """Return the seconds for the first of these levels: all that are left if they are enough
        for the limits of all devices, and otherwise its part of them. So a device that hangs leaves
        time for the next level."""
        limits = [sum(device.limit for device in level) for level in levels]
        left = self.switch.left
        return left if sum(limits) <= left else left * limits[0] / sum(limits)

    def _level(self, level: Sequence[Device], until: float) -> str:
        """Switch off by every device of a level, then ask each one separately."""

        def permit(seconds: float) -> float:
            return self._permit(min(seconds, until - time.monotonic()))

        for device in () if self.only_asks else level:
            reach("power.before")
            answer = agents.off(device, permit, self.switch.going)
            reach("power.after")
            if not answer.ok:
                raise Unproven(answer.words, answer.detail)
        said = []
        for device in level:
            answer = agents.status(device, permit, self.switch.going)
            if answer.power is Power.ON and not self.only_asks:
                raise Unproven(f"{answer.words}, although it reported success for off")
            if answer.power is not Power.OFF:
                raise Unproven(answer.words, answer.detail)
            LOG.info("Host %s: %s", self.host, answer.detail)
            said.append(answer.words)
        return f"{' and '.join(said)} of its host"

    def _contradicted_by_devices(self) -> None:
        """Ask the devices of the levels that failed, all at once. One that reports the host on
        contradicts the level that reported it off, if it still does so after a moment. One that
        does not answer contradicts nothing: it may have died with the host."""
        end = time.monotonic() + _NOTICE
        asked = self._failed
        while asked:
            answers = _statuses(asked, self._permit(LOOK), self.switch.going)
            on = [
                (device, answer.words)
                for device, answer in zip(asked, answers, strict=True)
                if answer.power is Power.ON
            ]
            if on and time.monotonic() >= end:
                raise Unproven(f"contradicted: {on[0][1]}")
            asked = [device for device, _ in on]
            if asked:
                self._hold()
                self.switch.sleep(4 * _PAUSE)

    def _hold(self) -> None:
        """Keep the claim while nothing is called."""
        self.switch.guard.permit("GET")
        self._renew(0.0)

    def _permit(self, seconds: float) -> float:
        """Permit one call, for which the claim is renewed. Raises Unproven, LeaseLost."""
        self.switch.guard.permit("POST")
        seconds = min(seconds, self.switch.left)
        self._renew(max(seconds, 0.0))
        if seconds <= 0:
            raise TimeOver
        return seconds

    def _renew(self, seconds: float) -> None:
        """Extend the claim for a call of this many seconds. Raises ClaimLost."""
        asked = time.clock_gettime(time.CLOCK_BOOTTIME)
        renewed = self.switch.store.atomically(
            lambda tx: host_fences.renew(tx, self.claim, seconds + self.switch.lease)
        )
        late = time.clock_gettime(time.CLOCK_BOOTTIME) - asked
        if not renewed or late > self.switch.lease / 2:
            raise _lost()


@dataclass(frozen=True)
class _Look:
    """The last signs of life of a host, as they were seen from ``began`` to ``ended``: to look
    takes time. ``sent``: the last heartbeat of each agent there, by the agent's clock.
    ``service``: its compute service; None if Nova could not be asked. All times are of the
    monotonic clock."""

    began: float
    ended: float
    sent: dict[Address, float]
    service: hosts.ComputeService | None

    @classmethod
    def of(cls, switch: Switch, host: str) -> _Look:
        """Look now. A channel or a Nova that does not answer shows no sign."""
        began, found = time.monotonic(), dict[Address, float]()
        for address in switch.guests:
            if switch.channel is None:
                break
            try:
                beat = switch.channel.heard(address)
            except (ChannelError, CloudError) as error:
                if getattr(error, "code", "") in ("LEASE_LOST", "HANDED_BACK"):
                    raise
                continue
            if beat is not None:
                found[address] = time.monotonic() - beat.ago
        try:
            service = hosts.compute_service(switch.nova, host)
        except CloudError as error:
            if error.code in ("LEASE_LOST", "HANDED_BACK"):
                raise
            service = None
        return cls(began, time.monotonic(), found, service)

    def silence(self, address: Address, first: _Look) -> float:
        """Return for how many seconds an agent had certainly sent nothing when this look began: by
        its own clock, and since an earlier look that saw the same heartbeat."""
        sent, known = self.sent[address], first.sent.get(address)
        by_its_clock = self.began - sent - _SKEW
        same = known is not None and sent <= known + _SETTLE
        return max(by_its_clock, self.began - first.ended) if same else by_its_clock

    def silence_of_service(self, first: _Look) -> float:
        """Return for how many seconds the compute service had certainly not reported when this look
        began: since an earlier look that saw the same report."""
        now, known = self.service, first.service
        if now is None or known is None or now.seen != known.seen:
            return 0.0
        return self.began - first.ended


class _Signs:
    """Signs of life of a host: heartbeats of its agents, and reports of its compute service."""

    def __init__(self, switch: Switch, host: str, first: _Look) -> None:
        """``first``: an earlier look."""
        self._switch = switch
        self._host = host
        self._first = first
        now = _Look.of(switch, host)
        self._was_up = now.service is not None and now.service.up
        self._were_heard = {each for each, sent in now.sent.items() if now.ended - sent <= RECENT}

    def contradict(self, hold: Callable[[], None]) -> None:
        """Listen for a sign of life after the host was reported off, if there was one shortly
        before; ``hold`` is called meanwhile. Raises Unproven if one comes."""
        if self._left(_Look.of(self._switch, self._host)) <= 0:
            return
        reported = time.monotonic()
        self._switch.sleep(_SETTLE)
        base = _Look.of(self._switch, self._host)
        end, service = time.monotonic() + self._left(base), base.service
        while True:
            service = self._compare(base.sent, service, reported)
            if time.monotonic() >= end:
                return
            if self._switch.left <= 0:
                raise Unproven("the rung timed out while it listened for signs of life")
            hold()
            self._switch.sleep(min(2 * _PAUSE, max(0.0, end - time.monotonic())))

    def _left(self, now: _Look) -> float:
        """Return for how many seconds to listen on: until each sign has been missing for so long
        that a live host would have shown it."""
        listen = self._switch.devices.listen
        if not listen:
            return 0.0
        heard = self._were_heard & now.sent.keys()
        missing = [now.silence(address, self._first) for address in heard]
        if self._was_up:
            missing.append(now.silence_of_service(self._first))
        return max((listen - each for each in missing), default=0.0)

    def _compare(
        self,
        beats: dict[Address, float],
        service: hosts.ComputeService | None,
        reported: float,
    ) -> hosts.ComputeService | None:
        """Compare with what was seen before; return the compute service for the next look. Raises
        Unproven."""
        found = _Look.of(self._switch, self._host)
        for address, sent in found.sent.items():
            # An agent's clock may differ from ours, so its own earlier heartbeat is compared.
            if address in beats:
                alive = sent > beats[address] + _SETTLE
            else:
                alive = sent > reported + _SETTLE
            if alive:
                raise Unproven(
                    f"contradicted: {address.member}'s agent sent a heartbeat after its host was "
                    "reported off"
                )
        now = found.service
        if now is None:
            return service
        # Another process that tells Nova of the fence moves Nova's time, too.
        if service is not None and now.marked_as(service) and now.seen != service.seen:
            raise Unproven(
                "contradicted: the compute service of its host reported to Nova after the host was "
                "reported off",
                f"the compute service on {self._host} reported at {now.seen}",
            )
        return now
