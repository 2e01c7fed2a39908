# SPDX-License-Identifier: Apache-2.0
"""The result of an observation: does the group serve, and could it fail over?

The engine's status says what was last done. An observation says what exists. This module is pure:
other modules make the observation.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import inf
from typing import Any, Self

from mistral_failover.model.remedies import Need, another_server, need
from mistral_failover.model.stored import Stored


class Presence(StrEnum):
    """How reality compares with the record of a resource."""

    PRESENT = "present"
    """As recorded."""
    CHANGED = "changed"
    """There, but not as recorded."""
    GONE = "gone"
    """It does not exist."""
    UNKNOWN = "unknown"
    """It could not be checked: a service did not answer, or does not know."""


class Condition(StrEnum):
    """How the server of a member was found."""

    RUNS = "runs"
    HUNG = "hung"
    """Nova has it running, and its agent is silent."""
    STOPPED = "stopped"
    DELETED = "deleted"
    UNREACHABLE = "unreachable"
    """Its host is down: the guest may be running."""
    UNKNOWN = "unknown"
    """Nova did not answer."""


class Service(StrEnum):
    """Whether a group serves."""

    SERVING = "SERVING"
    """Everything that the goal wants exists, and a member could take over."""
    DEGRADED = "DEGRADED"
    """It serves, but something is wrong: a failover would fail, or start too late."""
    DOWN = "DOWN"
    """It does not serve."""
    UNKNOWN = "UNKNOWN"
    """Whether it serves could not be checked."""
    OUT_OF_SERVICE = "OUT_OF_SERVICE"
    """The goal assigns no roles: the group is not supposed to serve."""


@dataclass(frozen=True)
class ObservedPresence:
    """The result of one check. ``why``: a clause for people, empty if all is as recorded. With
    PRESENT: what would hold a failover up. ``needs``: what a person does about it, in order; empty
    if that depends."""

    presence: Presence
    why: str = ""
    needs: tuple[Need, ...] = ()

    def document(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {
            "presence": str(self.presence),
            "why": self.why,
            "needs": [each.document() for each in self.needs],
        }

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Self:
        """Return it from an object that has the keys of a :meth:`document`."""
        return cls(Presence(document["presence"]), document["why"], _needs(document))


def _needs(document: Mapping[str, Any]) -> tuple[Need, ...]:
    return tuple(Need.read(each) for each in document["needs"])


AS_RECORDED = ObservedPresence(Presence.PRESENT)


@dataclass(frozen=True)
class ObservedResource:
    """A resource of the current goal. ``serves``: the group does not serve without it. The loss of
    any other resource only degrades the group."""

    name: str
    type: str
    member: str | None
    serves: bool
    observed: ObservedPresence


@dataclass(frozen=True)
class ObservedMember:
    """A member. ``roles``: the roles that it holds. ``observed``: its server, in this
    ``condition``; GONE: it does not run. ``why_not``: why it cannot take over a role, None if it
    can; ``able``: what a person does so that it can, in order."""

    name: str
    roles: tuple[str, ...]
    observed: ObservedPresence
    why_not: str | None = None
    condition: Condition = Condition.RUNS
    able: tuple[Need, ...] = ()


@dataclass(frozen=True)
class Flaw:
    """What is wrong with a group: a clause, and what a person does about it, in order; empty if
    that depends."""

    words: str
    needs: tuple[Need, ...] = ()


@dataclass(frozen=True)
class Observation(Stored):
    """What one observation of a group found, and the conclusion. ``another_stack``: its stack was
    deleted and made again, and an operator has not said yet whether the group takes the new one;
    ``stack_gone``: it was deleted."""

    service: Service
    flaws: tuple[Flaw, ...] = ()
    members: tuple[ObservedMember, ...] = ()
    resources: tuple[ObservedResource, ...] = ()
    another_stack: bool = False
    stack_gone: bool = False

    @property
    def reasons(self) -> tuple[str, ...]:
        """The flaws in words."""
        return tuple(each.words for each in self.flaws)

    @property
    def needs(self) -> tuple[Need, ...]:
        """All that a person does, in order."""
        return tuple(dict.fromkeys(each for flaw in self.flaws for each in flaw.needs))

    @property
    def explained(self) -> bool:
        """Return whether it is known for every flaw what to do about it."""
        return all(each.needs for each in self.flaws)

    def document(self) -> dict[str, Any]:
        """Return the observation as JSON: ``service``, ``flaws`` (words, needs), ``members`` (name,
        roles, presence, why, needs, why_not, condition, able), ``resources`` (name, type, member,
        serves, presence, why, needs), ``another_stack`` and ``stack_gone``."""
        return {
            "service": str(self.service),
            "flaws": [
                {"words": each.words, "needs": [n.document() for n in each.needs]}
                for each in self.flaws
            ],
            "members": [
                {
                    "name": each.name,
                    "roles": list(each.roles),
                    **each.observed.document(),
                    "why_not": each.why_not,
                    "condition": str(each.condition),
                    "able": [n.document() for n in each.able],
                }
                for each in self.members
            ],
            "resources": [
                {
                    "name": each.name,
                    "type": each.type,
                    "member": each.member,
                    "serves": each.serves,
                    **each.observed.document(),
                }
                for each in self.resources
            ],
            "another_stack": self.another_stack,
            "stack_gone": self.stack_gone,
        }

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Self:
        """Return what a :meth:`document` holds."""
        return cls(
            Service(document["service"]),
            tuple(Flaw(each["words"], _needs(each)) for each in document["flaws"]),
            tuple(
                ObservedMember(
                    each["name"],
                    tuple(each["roles"]),
                    ObservedPresence.read(each),
                    each["why_not"],
                    Condition(each["condition"]),
                    tuple(Need.read(n) for n in each["able"]),
                )
                for each in document["members"]
            ),
            tuple(
                ObservedResource(
                    each["name"],
                    each["type"],
                    each["member"],
                    each["serves"],
                    ObservedPresence.read(each),
                )
                for each in document["resources"]
            ),
            document["another_stack"],
            document["stack_gone"],
        )


@dataclass(frozen=True)
class ObservationMemory(Stored):
    """What a look at a group leaves for the next one.

    ``well``: by record, the version of the cloud's state that matched it. By server id ``hosts``
    (the fields of ``cloud.servers.ServerHost``), ``zones``, and ``heard``, the time at which the
    member's agent was last heard. ``alarmed``: whether an alarm that signals the group's stack was
    seen since the group file was last stored. ``told``: the service that the journal told last.
    ``repair_after``: no repair is asked for before this time. ``room``: in words, why another
    server of a member that holds a role could not be made, as found at ``room_at``. Times are
    seconds.
    """

    well: Mapping[str, str] = field(default_factory=dict)
    hosts: Mapping[str, Sequence[str]] = field(default_factory=dict)
    zones: Mapping[str, str] = field(default_factory=dict)
    heard: Mapping[str, float] = field(default_factory=dict)
    alarmed: bool = False
    told: Service = Service.SERVING
    repair_after: float = 0.0
    room: tuple[str, ...] = ()
    room_at: float = 0.0

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Self:
        """Return what a :meth:`document` holds."""
        return super().read({**document, "told": Service(document.get("told", Service.SERVING))})


def judged(
    roles: Mapping[str, str],
    members: Sequence[ObservedMember],
    resources: Sequence[ObservedResource],
    unguarded: Sequence[str] = (),
    vacant: Sequence[str] = (),
    *,
    cold: bool = False,
    stack: str | None = "",
    another_stack: str = "",
    stack_gone: str = "",
    rehearsed: Iterable[Flaw] = (),
) -> Observation:
    """Judge whether a group serves, from the state of its members and resources. ``unguarded``: in
    words, why an alarm would not notice a failure, or why a lost member would not come back;
    ``vacant``: the roles that no member can take; ``cold``: a lost member is brought back if no
    other can take its role, so the group needs no standby. One that it has, it needs. ``stack``:
    that of the group, None if it has none.
    ``another_stack``: in words, that the group's stack was deleted and made again, which explains
    what is gone; ``stack_gone``: in words, that it was deleted. ``rehearsed``: that the last
    rehearsal failed on a standby that it still has.

    The worst finding decides: DOWN before UNKNOWN before DEGRADED.
    """

    def found(service: Service, flaws: Iterable[Flaw]) -> Observation:
        parts = (tuple(flaws), tuple(members), tuple(resources))
        return Observation(service, *parts, bool(another_stack), bool(stack_gone))

    of_stack = _of_stack(another_stack, stack_gone)

    if not roles and not vacant:
        return found(Service.OUT_OF_SERVICE, ())
    holders = [each for each in members if each.roles]
    known = {each.name for each in members}
    standbys = [each for each in members if not each.roles]
    alone = not any(each.why_not is None for each in standbys) and bool(standbys or not cold)
    off = tuple(each.name for each in holders if each.observed.presence is Presence.GONE)
    moved: tuple[Need, ...] = ()
    if off and cold and not standbys:
        moved = need("BRING_BACK", lost=off), need("PLAN_MOVE", lost=off)
    elif off:
        moved = _moved(off, standbys if alone else (), stack, waits=alone and not cold)
    if any(each.observed.needs for each in holders if each.name in off):
        # What makes its own server run gives the service back. A move after that would fence it.
        moved = tuple(
            replace(each, instead=True)
            if {*each.value("lost"), *each.value("member")} & {*off}
            else each
            for each in moved
        )
    down = [Flaw(each) for each in unheld(vacant)]
    down += [
        Flaw(f"{role} is on {member}, which is not a member any more")
        for role, member in sorted(roles.items())
        if member not in known
    ]
    ways = {each.name: (*each.observed.needs, *moved) for each in holders if each.name in off}
    down += [Flaw(_of_member(each), ways[each.name]) for each in holders if each.name in off]
    serving = [each for each in resources if each.serves]
    down += [
        Flaw(_of(each), ways.get(each.member or "", each.observed.needs))
        for presence in (Presence.GONE, Presence.CHANGED)
        for each in serving
        if each.observed.presence is presence
    ]
    if down:
        return found(Service.DOWN, [of_stack] if of_stack else down)
    hidden = [
        Flaw(_of_member(each), _of_silent(each, alone))
        for each in holders
        if each.observed.presence is Presence.UNKNOWN
    ]
    hidden += [Flaw(_of(each)) for each in serving if each.observed.presence is Presence.UNKNOWN]
    if hidden:
        return found(Service.UNKNOWN, hidden)
    flaws = [of_stack] if of_stack else []
    flaws += [
        Flaw(_of(each), each.observed.needs)
        for each in resources
        if each.observed.presence is not Presence.PRESENT or each.observed.why
    ]
    flaws += [
        Flaw(f"{each.name}: {each.observed.why}", each.observed.needs or _of_silent(each, alone))
        for each in holders
        if each.observed.why
    ]
    flaws += map(Flaw, unguarded)
    flaws += rehearsed
    if alone:
        why = "; ".join(f"{each.name}: {each.why_not}" for each in standbys)
        words = f"no member can take over ({why or 'there is no other member'})"
        flaws.append(Flaw(words, tuple(n for each in standbys for n in each.able)))
    return found(Service.DEGRADED if flaws else Service.SERVING, flaws)


def _of_stack(another: str, gone: str) -> Flaw | None:
    if another:
        return Flaw(another, (need("ADOPT_STACK"),))
    return Flaw(gone, (need("END_GROUP"), need("ADOPT_LATER"))) if gone else None


def _moved(
    lost: Sequence[str], unable: Sequence[ObservedMember], stack: str | None, *, waits: bool
) -> tuple[Need, ...]:
    """Return what gives the roles of these members to another one. ``unable``: the other members,
    if none can take over now; what makes one able comes first. One that was declared lost is
    declared healthy by the same order, because no other order may move a role away first.
    ``waits``: the group waits for a member that can; if nothing makes one able, a move is refused,
    and only another server helps."""
    ways = [each for member in unable for each in member.able]
    back = [name for each in ways if each.code == "RECOVER" for name in each.value("member")]
    first = tuple(each for each in ways if each.code != "RECOVER")
    if waits and not ways and all(each.observed.presence is Presence.GONE for each in unable):
        return tuple(another_server(stack, member) for member in lost)
    if back:
        fields = {"lost": lost, "recovered": back, "able": back}
        return (*first, need("MOVE_TO_RECOVERED", **fields))
    return (*first, need("MOVE", lost=lost), need("PLAN_MOVE", lost=lost))


def _of_silent(holder: ObservedMember, alone: bool) -> tuple[Need, ...]:
    """Return what helps if the guest of a holder may be dead while its server runs: a move, or, if
    only its agent is, what the doctor says. A move needs a member that can take over; without one,
    what makes its own server run."""
    if holder.condition is not Condition.HUNG:
        return ()
    if alone:
        return holder.able
    return need("MOVE_SILENT", lost=(holder.name,), silent=holder.name), need("DIAGNOSE")


def needs_of_declared(
    seen: Observation, lost: Collection[str], stack: str | None, *, cold: bool
) -> tuple[Need, ...]:
    """Return what gives the roles of members that an admitted alarm declares ``lost`` to a member:
    another server, if no other member can take them, nothing makes one able, and the group waits
    for one (not ``cold``). ``stack``: that of the group, None if it has none."""
    others = [each for each in seen.members if not each.roles]
    if cold or any(each.able or each.why_not is None for each in others):
        return ()
    holders = [each.name for each in seen.members if each.roles and each.name in lost]
    return tuple(another_server(stack, name) for name in holders)


def unheld(vacant: Iterable[str]) -> Iterator[str]:
    """Yield a clause for each role that no member holds."""
    for role in vacant:
        yield f"no member holds {role}"


def _of_member(member: ObservedMember) -> str:
    return f"{' and '.join(member.roles)} is on {member.name}, but {member.observed.why}"


def _of(resource: ObservedResource) -> str:
    on = f" on {resource.member}" if resource.member else ""
    return f"{resource.name}{on}: {resource.observed.why}"


def keeps_from_roles(
    member: str, lost: Collection[str], in_maintenance: Collection[str]
) -> str | None:
    """Return why a member cannot take a role, by what was said of it; None if nothing was."""
    if member in lost:
        return "it was declared lost"
    return "it is in maintenance" if member in in_maintenance else None


@dataclass(frozen=True)
class EngineView:
    """What the engine knows about a group. ``roles``: where they serve now, which is not where the
    goal has them until the traversal has released anything. ``members``: as if their servers were
    well. ``ended_at`` None: its traversal is running. ``reached``: its goal is. ``stopped``: the
    status of a traversal that ended otherwise, else empty. ``made``: by member (None: on none) and
    name, when each thing that serves there was made or changed last, 0 if that is not known.
    ``missing``: what the goal needs for service and does not exist, a clause for each. ``cold`` and
    ``stack``: as for :func:`judged`. By member, ``lost_until`` is the end of the last earlier
    traversal that had it declared lost, and ``renewed`` when it was last brought back. Times are
    seconds."""

    roles: Mapping[str, str] = field(default_factory=dict)
    members: tuple[ObservedMember, ...] = ()
    started_at: float | None = None
    ended_at: float | None = None
    reached: bool = False
    stopped: str = ""
    made: Mapping[str | None, Mapping[str, float]] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    cold: bool = False
    stack: str | None = ""
    lost_until: Mapping[str, float] = field(default_factory=dict)
    renewed: Mapping[str, float] = field(default_factory=dict)

    @property
    def made_at(self) -> float | None:
        """When the last of what serves was made; None if that is not known."""
        return max((at for each in self.made.values() for at in each.values() if at), default=None)


@dataclass(frozen=True)
class Look:
    """The last look at a group: its ``service``, ``at``, and ``since`` when that has been so.
    ``found``: all that it found; None where that is not needed (:func:`service_state`)."""

    service: Service
    reasons: tuple[str, ...]
    at: float
    since: float
    found: Observation | None = None

    def saw(self, member: str, name: str) -> bool:
        """Return whether it found a thing that serves, and the member on which it is, as they
        should be. What it did not look at, it has found so unless it found a flaw."""
        if self.service in _SERVES:
            return True
        if self.found is None:
            return False
        return any(
            each.name == member and each.observed.presence is Presence.PRESENT
            for each in self.found.members
        ) and not any((each.member, each.name) == (member, name) for each in self.missed())

    def missed(self) -> list[ObservedResource]:
        """Return what serves and was not found as it should be."""
        resources = self.found.resources if self.found is not None else ()
        return [
            each
            for each in resources
            if each.serves and each.observed.presence is not Presence.PRESENT
        ]


@dataclass(frozen=True)
class WaitingAlarm:
    """An alarm about a group that waits, and that its source has not called over: held, or
    ``admitted`` and its failover has not begun. ``lost``: the members that it names; empty: it
    names none. ``at``: when it was heard first, in seconds: a repeat tells nothing new."""

    lost: tuple[str, ...]
    admitted: bool
    at: float


@dataclass(frozen=True)
class ServiceState:
    """Whether a group serves now. ``since``: the start of this state, as far as known. ``seen_at``:
    the time of the last observation, None if there was none after the engine's last work. Both are
    in seconds by the database's clock."""

    service: Service
    reasons: tuple[str, ...]
    since: float | None
    seen_at: float | None


_SERVES = frozenset({Service.SERVING, Service.DEGRADED})
"""What only a fresh look, or work of the engine as fresh, can show."""
_NOT_SEEN_SINCE = "it was declared lost, and not looked at since it was declared healthy"
FRESH = 2
"""Intervals of observation for which a look counts."""
SLACK = 30.0
"""Seconds for which it counts beyond that: looks take time, and cron starts some of them late."""


def fresh_for(interval: float) -> float:
    """Return the seconds for which a look counts; ``interval``: seconds between two looks."""
    return FRESH * interval + SLACK


def service_state(
    engine: EngineView,
    look: Look | None,
    alarms: Sequence[WaitingAlarm],
    now: float,
    interval: float,
) -> ServiceState:
    """Return whether a group serves: the one answer of status, overview, page and metrics.

    ``interval``: seconds between two looks. ``look`` needs what it ``found`` unless that is all
    well, or it is later than the engine's work. The first row that applies decides:

    - the goal gives no member a role: OUT_OF_SERVICE;
    - what serves does not exist, by the engine's records: DOWN;
    - an admitted alarm names a holder of a role, and its failover has not begun: DOWN;
    - the last look found it so, and the engine has not made since all that the look missed: DOWN,
      UNKNOWN;
    - of what serves on a holder, something was not seen within two intervals and `SLACK`, neither
      by a look nor because the engine made it: UNKNOWN;
    - a held alarm is about a holder, and is younger than that evidence: UNKNOWN;
    - such an alarm is older, or the last traversal stopped, or no member could take over, or the
      look found another flaw: DEGRADED;
    - SERVING.
    """
    if not engine.roles and not engine.missing:
        return ServiceState(Service.OUT_OF_SERVICE, (), engine.ended_at, None)
    about = [
        each for each in alarms if not each.lost or set(each.lost) & set(engine.roles.values())
    ]
    declared = [each for each in about if each.admitted and each.lost]
    missing = (*engine.missing, *(_declared(each, engine) for each in declared))
    if missing:
        return _down(engine, look, missing, declared)
    changed = engine.ended_at or engine.made_at
    known, seen_at = _known(engine, look)
    if known.service not in _SERVES:
        return ServiceState(known.service, known.reasons, _since(engine, known, look), seen_at)
    evidence = _evidence(engine, look)
    fresh = fresh_for(interval)
    unseen = sorted(member for member, at in evidence.items() if now - at > fresh)
    if unseen:
        last = min(evidence[each] for each in unseen)
        begun = last + fresh if last else changed
        why = f"{' and '.join(unseen)}: not looked at for more than {fresh:.0f} s"
        return ServiceState(Service.UNKNOWN, (why,), begun, seen_at)
    seen = min(evidence.values())
    if young := [each for each in about if each.at > seen]:
        begun = min(each.at for each in young)
        reasons = tuple(
            dict.fromkeys(_waiting(each, "and it was not looked at since") for each in young)
        )
        return ServiceState(Service.UNKNOWN, reasons, begun, seen_at)
    flaws = [*(_waiting(each, "while a look finds it well") for each in about)]
    if engine.stopped:
        flaws.append(f"what was asked for last was not reached ({engine.stopped})")
    if not flaws:
        return ServiceState(known.service, known.reasons, _since(engine, known, look), seen_at)
    reasons = tuple(dict.fromkeys((*known.reasons, *flaws)))
    degraded = Observation(Service.DEGRADED, tuple(map(Flaw, reasons)))
    begun = _since(engine, degraded, look)
    if about and known.service is Service.SERVING and not engine.stopped:
        begun = max(min(each.at for each in about), changed or 0.0)
    return ServiceState(Service.DEGRADED, reasons, begun, seen_at)


def _down(
    engine: EngineView, look: Look | None, missing: tuple[str, ...], declared: list[WaitingAlarm]
) -> ServiceState:
    began = [each.at for each in declared]
    if engine.missing and engine.started_at is not None:
        began.append(engine.started_at)
    # A look tells nothing of now if the engine has made all that was gone since then.
    counts = engine.missing or (look is not None and look.at >= (engine.made_at or 0.0))
    if look is not None and look.service is Service.DOWN and counts:
        began.append(look.since)
    begun = min(began, default=None)
    return ServiceState(Service.DOWN, missing, begun, look.at if look else None)


def _known(engine: EngineView, look: Look | None) -> tuple[Observation, float | None]:
    """Return what was found last, by a look or by the engine, and when it was looked at; None if
    there was no look after the engine's last work.

    A look from before the end of a traversal knows nothing of a standby that was made or lost in
    it. What it missed of what serves counts until that was made anew.
    """
    if look is not None and look.at >= (engine.ended_at or engine.made_at or 0.0):
        return Observation(look.service, tuple(map(Flaw, look.reasons))), look.at
    members = [_since_look(each, engine, look) for each in engine.members]
    missed = [
        each
        for each in (look.missed() if look is not None else ())
        if look is not None and engine.made.get(each.member, {}).get(each.name, inf) <= look.at
    ]
    known = judged(engine.roles, members, missed, cold=engine.cold, stack=engine.stack)
    if look is None or known.service in _SERVES:
        return known, None
    return known, look.at


def _since_look(member: ObservedMember, engine: EngineView, look: Look | None) -> ObservedMember:
    """Return a member as the last look found it, unless that is over: one that has a role, once all
    that serves there was made since, because a volume can be attached to a server that is off; any
    other, once it was brought back. One that was declared lost later was not found well by it."""
    seen_at = look.at if look is not None else 0.0
    made = engine.made.get(member.name, {}).values()
    if (member.roles and min(made, default=0.0) > seen_at) or member.why_not:
        return member
    if not member.roles and engine.renewed.get(member.name, 0.0) > seen_at:
        return member
    if not member.roles and engine.lost_until.get(member.name, 0.0) > seen_at:
        return replace(member, why_not=_NOT_SEEN_SINCE)
    seen = look.found.members if look is not None and look.found is not None else ()
    observed = next((each.observed for each in seen if each.name == member.name), AS_RECORDED)
    if member.roles:
        well = observed.presence is Presence.PRESENT
        return member if well else replace(member, observed=observed)
    return replace(member, why_not=observed.why or None)


def _evidence(engine: EngineView, look: Look | None) -> dict[str, float]:
    """Return when each holder of a role was last seen to serve, by all that serves there; 0 for
    never. A look saw what was there already."""

    def seen(holder: str, name: str, there: float) -> float:
        saw = look is not None and look.at >= there and look.saw(holder, name)
        return look.at if look is not None and saw else 0.0

    found = {}
    for holder in engine.roles.values():
        made = engine.made.get(holder, {})
        each = [max(at, seen(holder, name, at)) for name, at in made.items()]
        found[holder] = min(each, default=seen(holder, "", engine.started_at or 0.0))
    return found


def _since(engine: EngineView, known: Observation, look: Look | None) -> float | None:
    changed = engine.ended_at or engine.made_at
    if look is None or look.service is not known.service:
        return changed
    if changed is not None and not _lasts(known.service, engine, look.since):
        return max(look.since, changed)  # the group did not serve like this during the traversal
    return look.since


def _lasts(service: Service, engine: EngineView, since: float) -> bool:
    """Return whether a service that was seen since then was the same during the last traversal: it
    has made nothing of what serves, or the group was down and the goal is not reached."""
    if service is Service.DOWN and not engine.reached:
        return True
    return engine.made_at is not None and engine.made_at <= since


def _declared(alarm: WaitingAlarm, engine: EngineView) -> str:
    holders = sorted(set(alarm.lost) & set(engine.roles.values()))
    return f"{' and '.join(holders)} was declared lost, and the failover has not begun"


def _waiting(alarm: WaitingAlarm, then: str) -> str:
    what = f"says that {' and '.join(alarm.lost)} is lost" if alarm.lost else "is about this group"
    state = "an admitted" if alarm.admitted else "a held"
    return f"{state} alarm {what}, {then}"
