# SPDX-License-Identifier: Apache-2.0
"""Who has what: members, their servers and volumes, and what is moving between them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from mistral_failover.convergence.records import Action, OperationStatus, Status, TraversalStatus
from mistral_failover.model.goal import (
    FENCE_PREFIX,
    FENCE_TYPE,
)
from mistral_failover.model.types import Provides, Verb, installed_types

if TYPE_CHECKING:  # the page starts without the code of the actions
    from mistral_failover.reports.documents import (
        OperationOfTraversal,
        StatusReport,
        TraversalDetails,
    )

_SHORT = 8  # digits of a server's id


class ItemState(StrEnum):
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
class TopologyItem:
    """Something that a member has, is to have, or gives up. ``detail``: such as the device."""

    name: str
    kind: Kind
    state: ItemState
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
    items: tuple[TopologyItem, ...]


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


def topology(status: StatusReport) -> Topology:
    """Return the topology in an answer of failover.status."""
    rows = [
        _Row(row["name"], row["type"], row["member"], state, row["attributes"].get("device") or "")
        for row in status["resources"]
        if (state := _of_record(row["status"])) is not None
    ]
    reached = status["status"] == TraversalStatus.COMPLETE
    return _drawn(status["members"], status["roles"], status["lost"], rows, reached=reached)


def topology_at(traversal: TraversalDetails, status: StatusReport, moment: float) -> Topology:
    """Return the topology at a moment of a traversal, from its operations.

    ``traversal`` is the answer of failover.show, ``status`` that of failover.status: what no
    operation touched is as it is now, if the traversal is the group's last one.
    """
    operations = traversal["operations"]
    touched = {(row["resource"], row["member"]) for row in operations}
    rows = []
    for resource, member in dict.fromkeys(touched_in_order(operations)):
        of = [r for r in operations if (r["resource"], r["member"]) == (resource, member)]
        state = _at(of, moment)
        if state is not None:
            rows.append(_Row(resource, of[0]["type"], member, state, ""))
    current = status["traversal"]
    if current is not None and current["id"] == traversal["id"]:
        rows += [
            _Row(row["name"], row["type"], row["member"], state, "")
            for row in status["resources"]
            if (row["name"], row["member"]) not in touched
            and (state := _of_record(row["status"])) is not None
        ]
    servers = {row["name"]: row for row in status["members"]}
    names = [*servers, *(row["member"] for row in operations if row["member"])]
    members = [servers.get(name, {"name": name, "server": None}) for name in dict.fromkeys(names)]
    ended = traversal["ended_at"]
    reached = (
        traversal["status"] == TraversalStatus.COMPLETE and ended is not None and ended <= moment
    )
    return _drawn(members, traversal["roles"], traversal["lost"], rows, reached=reached)


def touched_in_order(operations: Iterable[OperationOfTraversal]) -> list[tuple[str, str | None]]:
    """Return the resources, each with its member, in the order of their first operation."""
    return [(row["resource"], row["member"]) for row in operations]


@dataclass(frozen=True)
class _Row:
    name: str
    type: str
    member: str | None
    state: ItemState
    detail: str


def _of_record(status: str) -> ItemState | None:
    """Return how a record's member has its resource; None if it is gone."""
    action, _, how = status.partition("_")
    if how == Status.FAILED:
        return ItemState.FAILED
    if action == Action.INIT:
        return ItemState.WANTED
    if action == Action.DELETE:
        return None if how == Status.COMPLETE else ItemState.LEAVING
    return (
        ItemState.HELD if how == Status.COMPLETE or action == Action.UPDATE else ItemState.ARRIVING
    )


def _at(operations: Iterable[OperationOfTraversal], moment: float) -> ItemState | None:
    """Return how a member has a resource after its operations up to a moment; None: not at all."""
    state: ItemState | None = None
    for place, row in enumerate(sorted(operations, key=lambda row: float(row["started_at"]))):
        if row["started_at"] > moment:
            # What is deleted or updated later was there before.
            if place == 0:
                state = None if row["verb"] == Verb.CREATE else ItemState.HELD
            break
        ended = row["ended_at"] is not None and row["ended_at"] <= moment
        if ended and row["status"] == OperationStatus.FAILED:
            state = ItemState.FAILED
        elif row["verb"] == Verb.DELETE:
            state = None if ended else ItemState.LEAVING
        elif row["verb"] == Verb.CREATE:
            state = ItemState.HELD if ended else ItemState.ARRIVING
        else:
            state = ItemState.HELD
    return state


def _drawn(
    members: Iterable[Mapping[str, Any]],
    roles: Mapping[str, str],
    lost: Iterable[str],
    rows: list[_Row],
    *,
    reached: bool,
) -> Topology:
    fences = {
        row.name.removeprefix(FENCE_PREFIX): _FENCED.get(row.state, Fenced.NO)
        for row in rows
        if row.type == FENCE_TYPE
    }
    gone = set(lost)
    items: dict[str, list[TopologyItem]] = {}
    for row in rows:
        if row.member and row.type != FENCE_TYPE:
            kind = kind_of(row.type)
            items.setdefault(row.member, []).append(
                TopologyItem(row.name, kind, row.state, row.detail)
            )
    drawn = tuple(
        Member(
            name=each["name"],
            server=str(each["server"] or "")[:_SHORT],
            role=", ".join(sorted(r for r, member in roles.items() if member == each["name"])),
            active=reached and each["name"] in roles.values(),
            lost=each["name"] in gone,
            fenced=fences.get(each["name"], Fenced.NO),
            items=tuple(sorted(items.get(each["name"], ()), key=lambda t: (t.kind, t.name))),
        )
        for each in members
    )
    return Topology(drawn, tuple(_movements(rows)))


def _movements(rows: list[_Row]) -> Iterable[Movement]:
    moving = [row for row in rows if row.member and row.type != FENCE_TYPE]
    for target in moving:
        if target.state not in (ItemState.ARRIVING, ItemState.WANTED):
            continue
        for source in moving:
            same = (source.name, source.type) == (target.name, target.type)
            if same and source.member != target.member and source.state is not ItemState.WANTED:
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
    words += [f"{item.name} {_STATES[item.state]}" for item in member.items]
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
    ItemState.HELD: Fenced.FENCED,
    ItemState.ARRIVING: Fenced.FENCING,
    ItemState.LEAVING: Fenced.FENCED,
    ItemState.WANTED: Fenced.FENCING,
    ItemState.FAILED: Fenced.UNPROVEN,
}
_STATES = {
    ItemState.HELD: "is here",
    ItemState.ARRIVING: "is arriving",
    ItemState.LEAVING: "is leaving",
    ItemState.WANTED: "is to come",
    ItemState.FAILED: "failed",
}
