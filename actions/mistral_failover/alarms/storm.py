# SPDX-License-Identifier: Apache-2.0
"""The storm guard: when it holds alarms, and what the evidence must say to end that. Pure.

Many groups that fail at once have one of two causes. If the control plane fails, the servers are
healthy, and a failover would fence them. If servers died, each alarm is true. Counting alarms
cannot tell the two apart; Nova's answers and the agents' heartbeats can.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import ceil, inf
from typing import Generic, TypeVar

from mistral_failover.model.decisions import AdmissionRule
from mistral_failover.model.heartbeats import SILENT

SETTLED = 30.0
"""Seconds after an alarm from which on a heartbeat shows that it is over: an earlier one may have
been sent before the server died."""
UNRELATED = 3600.0
"""Seconds before an alarm was first reported. Silence that began earlier says nothing about it: the
member may have been stopped last week, or the agents' network may have failed then."""
LONGEST_WAIT = 900.0
"""Seconds after which an alarm starts before those with a higher priority."""
WITHIN = 600.0
"""Seconds within which many alarms start. After that an admitted alarm is too old to start
(``recovery.sweep``)."""
LEAST, MOST = 10, 100
"""Alarms that may start within a minute: ``LEAST`` even if few are held, and never more than
``MOST``, which one server can carry out."""
RELEASABLE = frozenset(
    {
        AdmissionRule.STORM,
        AdmissionRule.STILL_FIRING,
        AdmissionRule.DOUBTED,
        AdmissionRule.OVER,
        AdmissionRule.TOO_LATE,
        AdmissionRule.COOLDOWN,
    }
)
"""The rules whose alarms start when their servers are known to have died, and no other rule holds
them by then: one that a cooldown holds waits for its end, too."""


@dataclass(frozen=True)
class Storm:
    """The failures in the project within the last ``window`` seconds: of ``groups`` that ever had a
    goal, ``failing`` had an alarm that was admitted or held by these rules, including the present
    one. It is a storm if their share is at least ``share`` and their number at least ``fewest``;
    ``fewest`` 0 disables storms."""

    failing: int
    groups: int
    window: float
    share: float
    fewest: int

    @property
    def rages(self) -> bool:
        """Return whether so many groups fail at once that the control plane is the likely cause."""
        return 0 < self.fewest <= self.failing and self.failing >= self.share * self.groups


class ServerCondition(StrEnum):
    """What Nova says of a server."""

    RUNNING = "running"
    """It is ACTIVE, and nothing is known against its host."""
    ENDED = "ended"
    """It does not exist, or does not run."""
    HOST_DOWN = "host down"
    """Its host was declared down."""
    UNKNOWN = "unknown"
    """Nova did not answer, or does not know."""


@dataclass(frozen=True)
class MemberEvidence:
    """What is known of a member.

    ``host``: the same for members on one host, None if unknown. ``condition``: of its server,
    ``why`` as a clause. ``silent_for``: seconds since the agent's last heartbeat, None if nothing
    is known of the agent. ``lost``: whether it is declared lost already, so its silence says
    nothing new.
    """

    host: str | None
    condition: ServerCondition = ServerCondition.UNKNOWN
    why: str = ""
    silent_for: float | None = None
    lost: bool = False

    def heard_since(self, age: float) -> bool:
        """Return whether the agent is heard, and was heard within the last ``age`` seconds."""
        return self.silent_for is not None and self.silent_for < min(age, SILENT)


MemberKey = tuple[str, str]
"""The id of a group, and the name of a member."""


@dataclass(frozen=True)
class Evidence:
    """What was found in one pass over the project. ``unreachable``: for each service that did not
    answer, a clause that says so."""

    members: Mapping[MemberKey, MemberEvidence] = field(default_factory=dict)
    unreachable: tuple[str, ...] = ()

    def of(self, key: MemberKey) -> MemberEvidence:
        """Return what is known of a member."""
        return self.members.get(key, MemberEvidence(None))


@dataclass(frozen=True)
class HeldAlarm:
    """A held alarm of a group.

    ``lost``: the members that it reports, at least one. ``rule``: the rule that holds it. ``age``:
    seconds since it was last reported; ``first``: since it was first reported. ``of_server``:
    whether it reports that a server or its host failed; of any other alarm a running server is no
    news. ``by_operator``: an operator reports it, so no heartbeat is evidence against it.
    """

    id: str
    group_id: str
    lost: tuple[str, ...]
    rule: AdmissionRule
    age: float
    of_server: bool
    by_operator: bool = False
    first: float = 0.0

    @property
    def keys(self) -> tuple[MemberKey, ...]:
        """The members that it reports."""
        return tuple((self.group_id, name) for name in self.lost)


class HeldAlarmStep(StrEnum):
    """What becomes of a held alarm."""

    HOLD = "hold"
    RELEASE = "release"
    DISMISS = "dismiss"


@dataclass(frozen=True)
class Judgement:
    """What becomes of a held alarm, and the reason as a clause."""

    step: HeldAlarmStep
    why: str


def judge(held: Collection[HeldAlarm], evidence: Evidence) -> dict[str, Judgement]:
    """Judge the held alarms of a project by the evidence; return a judgement for each id.

    - DISMISS: each of its servers runs on a host that is up, and each agent was heard since the
      alarm. Only alarms about a server or a host that no operator reports, whatever rule holds
      them.
    - RELEASE: each of its members died. Only alarms that the storm guard or a cooldown holds, that
      could not be started in time, that never stopped firing, that their source doubts or calls
      over; and only while nothing points to the control plane.
    - HOLD: everything else.
    """
    suspicion = control_plane(held, evidence)
    silence = _silence(held, evidence)
    return {each.id: _judged(each, evidence, suspicion, silence) for each in held}


def control_plane(held: Iterable[HeldAlarm], evidence: Evidence) -> str | None:
    """Return why the control plane is suspected, as a clause; None if it is not."""
    if evidence.unreachable:
        return " and ".join(evidence.unreachable)
    alive = {
        known.host
        for each in held
        for key in each.keys
        if each.rule == AdmissionRule.STORM
        and not each.by_operator
        and (known := evidence.of(key)).heard_since(each.age)
    }
    if len(alive) > 1:
        # Without their number: it changes from look to look, and each change is recorded.
        return "agents on several hosts are heard although their members are reported as lost"
    return None


def _judged(
    each: HeldAlarm, evidence: Evidence, suspicion: str | None, silence: _Silence
) -> Judgement:
    known = [evidence.of(key) for key in each.keys]
    dismissible = each.of_server and not each.by_operator
    if dismissible and known and all(_cleared(one, each.age) for one in known):
        one = "its server runs, and its agent was heard since the alarm"
        several = "its servers run, and their agents were heard since the alarm"
        return Judgement(HeldAlarmStep.DISMISS, several if known[1:] else one)
    if each.rule not in RELEASABLE:
        return Judgement(HeldAlarmStep.HOLD, "another rule holds it")
    if suspicion is not None:
        return Judgement(HeldAlarmStep.HOLD, suspicion)
    deaths = [_death(one, each, silence) for one in known]
    if not deaths or None in deaths:
        others_silent = any(silence.is_doubted(one.host, each.first) for one in known)
        why = f": {_ALSO_SILENT}" if others_silent else ""
        return Judgement(HeldAlarmStep.HOLD, f"it is not known that its server died{why}")
    return Judgement(HeldAlarmStep.RELEASE, " and ".join(dict.fromkeys(filter(None, deaths))))


def seen_well(known: MemberEvidence, age: float) -> bool:
    """Return whether a member is well, of which its source says that the alarm is over: its server
    runs, and its agent was heard after the alarm, ``age`` seconds ago."""
    return known.condition is ServerCondition.RUNNING and known.heard_since(age)


def _cleared(known: MemberEvidence, age: float) -> bool:
    return known.condition is ServerCondition.RUNNING and known.heard_since(age - SETTLED)


def _death(known: MemberEvidence, alarm: HeldAlarm, silence: _Silence) -> str | None:
    """Return the evidence that a member died, as a clause; None if there is none."""
    if known.heard_since(alarm.age):
        return None
    if known.condition in (ServerCondition.ENDED, ServerCondition.HOST_DOWN):
        return known.why
    if silence.proves_death(known.host, alarm.first):
        return "the agents on its host are silent while those on other hosts are heard"
    return None


_ALSO_SILENT = (
    "the agents on a host that no alarm reports became silent too, so the agents' channel may be "
    "failing"
)


@dataclass(frozen=True)
class _Silence:
    """The hosts of which no agent is heard: for how many seconds none was. ``unexplained``: the
    shortest silence of a host that no alarm reports. ``heard``: whether other agents are."""

    hosts: Mapping[str, float]
    unexplained: float
    heard: bool

    def proves_death(self, host: str | None, first: float) -> bool:
        """Return whether the silence of a host proves that it died, for an alarm that was first
        reported ``first`` seconds ago: agents of other hosts are heard, and no other host became
        silent without an alarm, so it is not the agents' network."""
        return self._is_recent(host, first) and self.unexplained > first + UNRELATED

    def is_doubted(self, host: str | None, first: float) -> bool:
        """Return whether it proves nothing only because another host became silent, too."""
        return self._is_recent(host, first) and self.unexplained <= first + UNRELATED

    def _is_recent(self, host: str | None, first: float) -> bool:
        quiet = self.hosts.get(host or "", inf)
        return self.heard and quiet <= first + UNRELATED


def _silence(held: Iterable[HeldAlarm], evidence: Evidence) -> _Silence:
    """Return the hosts of which no agent is heard. A host with a member that is declared lost had
    its alarm."""
    alarmed = {evidence.of(key).host for each in held for key in each.keys}
    alarmed |= {known.host for known in evidence.members.values() if known.lost}
    last: dict[str, float] = {}
    for known in evidence.members.values():
        if known.host is not None and known.silent_for is not None and not known.lost:
            last[known.host] = min(known.silent_for, last.get(known.host, inf))
    silent = {host: seconds for host, seconds in last.items() if seconds > SILENT}
    unexplained = min((s for host, s in silent.items() if host not in alarmed), default=inf)
    return _Silence(silent, unexplained, heard=len(silent) < len(last))


def per_minute(alarms: int) -> int:
    """Return how many of so many alarms may start within a minute, unless an operator gives the
    rate: all of them within `WITHIN`, as far as one server can do that."""
    return max(LEAST, min(MOST, ceil(alarms * 60 / WITHIN)))


def allowance(released: int, rate: int) -> int:
    """Return how many more alarms may be let go now, if ``released`` were within the last minute,
    and ``rate`` is the most in a minute."""
    return max(0, rate - released)


T = TypeVar("T")


@dataclass(frozen=True)
class Queued(Generic[T]):
    """Something that waits for its turn. ``priority``: of its group; ``waited``: seconds."""

    item: T
    priority: int
    waited: float


def in_order(waiting: Iterable[Queued[T]]) -> list[T]:
    """Return the order in which failovers start: by priority, the highest first, then by age.

    What has waited for `LONGEST_WAIT` comes before everything else, the oldest first, so nothing
    starves.
    """

    def rank(each: Queued[T]) -> tuple[bool, int, float]:
        overdue = each.waited >= LONGEST_WAIT
        return (not overdue, 0 if overdue else -each.priority, -each.waited)

    return [each.item for each in sorted(waiting, key=rank)]
