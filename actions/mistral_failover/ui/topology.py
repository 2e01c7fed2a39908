# SPDX-License-Identifier: Apache-2.0
"""Who has what: members, their servers and volumes, and what is moving between them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from mistral_failover.convergence.records import Action, OperationStatus, Status, TraversalStatus
from mistral_failover.model.goal import (
    FENCE_PREFIX,
    FENCE_TYPE,
)
from mistral_failover.model.types import Provides, Verb, installed_types

_SHORT = 8  # digits of a server's id


class Hold(StrEnum):
    """How a member has something."""

    HELD = "held"
    ARRIVING = "arriving"
    LEAVING = "leaving"
    WANTED = "wanted"
    """It is to come, and nothing was done yet."""
    FAILED = "failed"


class Kind(StrEnum):
    """What it is."""

    VOLUME = "volume"
    ADDRESS = "address"
    APPLICATION = "application"
    OTHER = "other"


class Fenced(StrEnum):
    """Whether a member is fenced."""

    NO = "no"
    FENCING = "being fenced"
    FENCED = "fenced"
    UNPROVEN = "no proof that it is off"


@dataclass(frozen=True)
class Thing:
    """Something that a member has, is to have, or gives up. ``detail``: such as the device."""

    name: str
    kind: Kind
    hold: Hold
    detail: str = ""


@dataclass(frozen=True)
class Member:
    """A member with its server. ``role``: the roles that the goal gives it; ``active``: it has
    them, because the goal is reached."""

    name: str
    server: str
    role: str
    active: bool
    lost: bool
    fenced: Fenced
    things: tuple[Thing, ...]


@dataclass(frozen=True)
class Movement:
    """Something on its way from a member to another one."""

    name: str
    source: str
    target: str


@dataclass(frozen=True)
class Topology:
    """A group at one moment."""

    members: tuple[Member, ...]
    movements: tuple[Movement, ...]

    def sentences(self) -> list[str]:
        """Return the same in words."""
        return [*(_member(each) for each in self.members), *(_move(m) for m in self.movements)]


def topology(status: Mapping[str, Any]) -> Topology:
    """Return the topology in an answer of failover.status."""
    rows = [
        _Row(row["name"], row["type"], row["member"], hold, row["attributes"].get("device") or "")
        for row in status["resources"]
        if (hold := _of_record(row["status"])) is not None
    ]
    reached = status["status"] == TraversalStatus.COMPLETE
    return _drawn(status["members"], status["roles"], status["lost"], rows, reached=reached)


def topology_at(traversal: Mapping[str, Any], status: Mapping[str, Any], moment: float) -> Topology:
    """Return the topology at a moment of a traversal, from its operations.

    ``traversal`` is the answer of failover.show, ``status`` that of failover.status: what no
    operation touched is as it is now, if the traversal is the group's last one.
    """
    operations = traversal["operations"]
    touched = {(row["resource"], row["member"]) for row in operations}
    rows = []
    for resource, member in dict.fromkeys(touched_in_order(operations)):
        of = [r for r in operations if (r["resource"], r["member"]) == (resource, member)]
        hold = _at(of, moment)
        if hold is not None:
            rows.append(_Row(resource, of[0]["type"], member, hold, ""))
    current = status["traversal"] or {}
    if current.get("id") == traversal["id"]:
        rows += [
            _Row(row["name"], row["type"], row["member"], hold, "")
            for row in status["resources"]
            if (row["name"], row["member"]) not in touched
            and (hold := _of_record(row["status"])) is not None
        ]
    servers = {row["name"]: row for row in status["members"]}
    names = [*servers, *(row["member"] for row in operations if row["member"])]
    members = [servers.get(name, {"name": name, "server": None}) for name in dict.fromkeys(names)]
    ended = traversal["ended_at"]
    reached = (
        traversal["status"] == TraversalStatus.COMPLETE and ended is not None and ended <= moment
    )
    return _drawn(members, traversal["roles"], traversal["lost"], rows, reached=reached)


def touched_in_order(operations: Iterable[Mapping[str, Any]]) -> list[tuple[str, str | None]]:
    """Return the resources, each with its member, in the order of their first operation."""
    return [(row["resource"], row["member"]) for row in operations]


@dataclass(frozen=True)
class _Row:
    name: str
    type: str
    member: str | None
    hold: Hold
    detail: str


def _of_record(status: str) -> Hold | None:
    """Return how a record's member has its resource; None if it is gone."""
    action, _, how = status.partition("_")
    if how == Status.FAILED:
        return Hold.FAILED
    if action == Action.INIT:
        return Hold.WANTED
    if action == Action.DELETE:
        return None if how == Status.COMPLETE else Hold.LEAVING
    return Hold.HELD if how == Status.COMPLETE or action == Action.UPDATE else Hold.ARRIVING


def _at(operations: Iterable[Mapping[str, Any]], moment: float) -> Hold | None:
    """Return how a member has a resource after its operations up to a moment; None: not at all."""
    hold: Hold | None = None
    for place, row in enumerate(sorted(operations, key=lambda row: float(row["started_at"]))):
        if row["started_at"] > moment:
            # What is deleted or updated later was there before.
            if place == 0:
                hold = None if row["verb"] == Verb.CREATE else Hold.HELD
            break
        ended = row["ended_at"] is not None and row["ended_at"] <= moment
        if ended and row["status"] == OperationStatus.FAILED:
            hold = Hold.FAILED
        elif row["verb"] == Verb.DELETE:
            hold = None if ended else Hold.LEAVING
        elif row["verb"] == Verb.CREATE:
            hold = Hold.HELD if ended else Hold.ARRIVING
        else:
            hold = Hold.HELD
    return hold


def _drawn(
    members: Iterable[Mapping[str, Any]],
    roles: Mapping[str, str],
    lost: Iterable[str],
    rows: list[_Row],
    *,
    reached: bool,
) -> Topology:
    fences = {
        row.name.removeprefix(FENCE_PREFIX): _FENCED.get(row.hold, Fenced.NO)
        for row in rows
        if row.type == FENCE_TYPE
    }
    gone = set(lost)
    things: dict[str, list[Thing]] = {}
    for row in rows:
        if row.member and row.type != FENCE_TYPE:
            kind = kind_of(row.type)
            things.setdefault(row.member, []).append(Thing(row.name, kind, row.hold, row.detail))
    drawn = tuple(
        Member(
            name=each["name"],
            server=str(each["server"] or "")[:_SHORT],
            role=", ".join(sorted(r for r, member in roles.items() if member == each["name"])),
            active=reached and each["name"] in roles.values(),
            lost=each["name"] in gone,
            fenced=fences.get(each["name"], Fenced.NO),
            things=tuple(sorted(things.get(each["name"], ()), key=lambda t: (t.kind, t.name))),
        )
        for each in members
    )
    return Topology(drawn, tuple(_movements(rows)))


def _movements(rows: list[_Row]) -> Iterable[Movement]:
    moving = [row for row in rows if row.member and row.type != FENCE_TYPE]
    for target in moving:
        if target.hold not in (Hold.ARRIVING, Hold.WANTED):
            continue
        for source in moving:
            same = (source.name, source.type) == (target.name, target.type)
            if same and source.member != target.member and source.hold is not Hold.WANTED:
                yield Movement(target.name, str(source.member), str(target.member))


def state_of(member: Member) -> str:
    """Return a member's role in words, and whether it is lost or fenced."""
    role = member.role if member.active or not member.role else f"to be {member.role}"
    words = [role or ("LOST" if member.lost else "standby")]
    if role and member.lost:
        words.append("LOST")
    if member.fenced is not Fenced.NO:
        words.append(member.fenced.value)
    return ", ".join(words)


def _member(member: Member) -> str:
    words = [f"{member.name} (server {member.server or 'not known'})", state_of(member)]
    words += [f"{thing.name} {_HOLDS[thing.hold]}" for thing in member.things]
    return ", ".join(words)


def _move(movement: Movement) -> str:
    return f"{movement.name} moves from {movement.source} to {movement.target}"


def kind_of(type_name: str) -> Kind:
    """Return what a resource of a type is drawn as. Types that only a group file defines are not
    known here."""
    found = installed_types().get(type_name)
    return _KINDS[found.provides] if found and found.provides else Kind.OTHER


_KINDS = {
    Provides.VOLUME: Kind.VOLUME,
    Provides.APPLICATION: Kind.APPLICATION,
    Provides.ADDRESS: Kind.ADDRESS,
}
_FENCED = {
    Hold.HELD: Fenced.FENCED,
    Hold.ARRIVING: Fenced.FENCING,
    Hold.LEAVING: Fenced.FENCED,
    Hold.WANTED: Fenced.FENCING,
    Hold.FAILED: Fenced.UNPROVEN,
}
_HOLDS = {
    Hold.HELD: "is here",
    Hold.ARRIVING: "is arriving",
    Hold.LEAVING: "is leaving",
    Hold.WANTED: "is to come",
    Hold.FAILED: "failed",
}
