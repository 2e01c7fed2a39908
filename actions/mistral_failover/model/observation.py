# SPDX-License-Identifier: Apache-2.0
"""The result of an observation: does the group serve, and could it fail over?

The engine's status says what was last done. An observation says what exists. This module is pure:
other modules make the observation.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Self

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
    PRESENT: what would hold a failover up."""

    presence: Presence
    why: str = ""

    def document(self) -> dict[str, str]:
        """Return it as JSON."""
        return {"presence": str(self.presence), "why": self.why}

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Self:
        """Return it from an object that has the keys of a :meth:`document`."""
        return cls(Presence(document["presence"]), document["why"])


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
    """A member. ``roles``: the roles that it holds. ``observed``: its server; GONE: it does not
    run. ``why_not``: why it cannot take over a role, None if it can."""

    name: str
    roles: tuple[str, ...]
    observed: ObservedPresence
    why_not: str | None = None


@dataclass(frozen=True)
class Observation(Stored):
    """What one observation of a group found, and the conclusion."""

    service: Service
    reasons: tuple[str, ...] = ()
    members: tuple[ObservedMember, ...] = ()
    resources: tuple[ObservedResource, ...] = ()

    def document(self) -> dict[str, Any]:
        """Return the observation as JSON: ``service``, ``reasons``, ``members`` (name, roles,
        presence, why, why_not) and ``resources`` (name, type, member, serves, presence, why)."""
        return {
            "service": str(self.service),
            "reasons": list(self.reasons),
            "members": [
                {
                    "name": each.name,
                    "roles": list(each.roles),
                    **each.observed.document(),
                    "why_not": each.why_not,
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
        }

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Self:
        """Return what a :meth:`document` holds."""
        return cls(
            Service(document["service"]),
            tuple(document["reasons"]),
            tuple(
                ObservedMember(
                    each["name"],
                    tuple(each["roles"]),
                    ObservedPresence.read(each),
                    each["why_not"],
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
        )


@dataclass(frozen=True)
class ObservationMemory(Stored):
    """What a look at a group leaves for the next one.

    ``well``: by record, the version of the cloud's state that matched it. By server id ``hosts``
    (the fields of ``cloud.servers.ServerHost``), ``zones``, and ``heard``, the time at which the
    member's agent was last heard. ``alarmed``: whether an alarm that signals the group's stack was
    seen since the group file was last stored. ``told``: the service that the journal told last.
    ``repair_after``: no repair is asked for before this time. Times are seconds.
    """

    well: Mapping[str, str] = field(default_factory=dict)
    hosts: Mapping[str, Sequence[str]] = field(default_factory=dict)
    zones: Mapping[str, str] = field(default_factory=dict)
    heard: Mapping[str, float] = field(default_factory=dict)
    alarmed: bool = False
    told: Service = Service.SERVING
    repair_after: float = 0.0

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
) -> Observation:
    """Judge whether a group serves, from the state of its members and resources. ``unguarded``: why
    an alarm would not notice a failure, in words; ``vacant``: the roles that no member can take.

    The worst finding decides: DOWN before UNKNOWN before DEGRADED.
    """

    def found(service: Service, reasons: Iterable[str]) -> Observation:
        return Observation(service, tuple(reasons), tuple(members), tuple(resources))

    if not roles and not vacant:
        return found(Service.OUT_OF_SERVICE, ())
    holders = [each for each in members if each.roles]
    known = {each.name for each in members}
    down = list(unheld(vacant))
    down += [
        f"{role} is on {member}, which is not a member of the stack"
        for role, member in sorted(roles.items())
        if member not in known
    ]
    down += [_of_member(each) for each in holders if each.observed.presence is Presence.GONE]
    serving = [each for each in resources if each.serves]
    down += [_of(each) for each in serving if each.observed.presence is Presence.GONE]
    down += [_of(each) for each in serving if each.observed.presence is Presence.CHANGED]
    if down:
        return found(Service.DOWN, down)
    unknown = [_of_member(each) for each in holders if each.observed.presence is Presence.UNKNOWN]
    unknown += [_of(each) for each in serving if each.observed.presence is Presence.UNKNOWN]
    if unknown:
        return found(Service.UNKNOWN, unknown)
    flaws = [
        _of(each)
        for each in resources
        if each.observed.presence is not Presence.PRESENT or each.observed.why
    ]
    flaws += [f"{each.name}: {each.observed.why}" for each in holders if each.observed.why]
    flaws += unguarded
    standbys = [each for each in members if not each.roles]
    if not any(each.why_not is None for each in standbys):
        why = "; ".join(f"{each.name}: {each.why_not}" for each in standbys)
        flaws.append(f"no member can take over ({why or 'there is no other member'})")
    return found(Service.DEGRADED if flaws else Service.SERVING, flaws)


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
    """What the engine knows about a group. ``members``: as if their servers were well. ``ended_at``
    None: its traversal is running. ``reached``: its goal is. ``made_at``: when the last of what
    serves was made, None if that is not known. ``missing``: what the goal needs for service and
    does not exist, a clause for each."""

    roles: Mapping[str, str] = field(default_factory=dict)
    members: tuple[ObservedMember, ...] = ()
    started_at: float | None = None
    ended_at: float | None = None
    reached: bool = False
    made_at: float | None = None
    missing: tuple[str, ...] = ()


@dataclass(frozen=True)
class ServiceState:
    """Whether a group serves now. ``since``: the start of this state, as far as known. ``seen_at``:
    the time of the last observation, None if there was none after the engine's last work. Both are
    in seconds by the database's clock."""

    service: Service
    reasons: tuple[str, ...]
    since: float | None
    seen_at: float | None


def service_state(
    engine: EngineView, stored: Observation | None, at: float | None, since: float | None
) -> ServiceState:
    """Combine the engine's knowledge with the last stored observation, its time ``at`` and the time
    ``since`` which its result has been the same.

    Resources that the engine knows to be missing count first. An observation from before the end of
    the last traversal says nothing about the result of that traversal; while it runs, none from
    before it made what serves. Then what the engine knows is judged in its place.
    """
    if not engine.roles and not engine.missing:
        return ServiceState(Service.OUT_OF_SERVICE, (), engine.ended_at, None)
    if engine.missing:
        down_before = stored is not None and stored.service == Service.DOWN
        begun = since if down_before and since is not None else engine.started_at
        return ServiceState(Service.DOWN, engine.missing, begun, at)
    changed = engine.ended_at or engine.made_at
    if at is None or stored is None or at < (changed or 0.0):
        known = judged(engine.roles, engine.members, ())
        return ServiceState(known.service, known.reasons, changed, None)
    service = stored.service
    if since is not None and changed is not None and not _lasts(service, engine, since):
        since = max(since, changed)  # the group did not serve like this during the traversal
    return ServiceState(service, stored.reasons, since, at)


def _lasts(service: Service, engine: EngineView, since: float) -> bool:
    """Return whether a service that was seen since then was the same during the last traversal: it
    has made nothing of what serves, or the group was down and the goal is not reached."""
    if service is Service.DOWN and not engine.reached:
        return True
    return engine.made_at is not None and engine.made_at <= since
