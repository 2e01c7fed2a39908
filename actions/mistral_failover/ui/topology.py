# SPDX-License-Identifier: Apache-2.0
"""Who has what: members, their servers and volumes, and what is moving between them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, TypedDict

from mistral_failover.convergence.records import Action, OperationStatus, Status, TraversalStatus
from mistral_failover.model.goal import (
    FENCE_PREFIX,
    FENCE_TYPE,
)
from mistral_failover.model.observation import Condition, Presence
from mistral_failover.model.types import Provides, Verb, installed_types
from mistral_failover.ui.levels import URGENCY, Level

if TYPE_CHECKING:  # the page starts without the code of the actions
    from mistral_failover.reports.documents import (
        OperationOfTraversal,
        ResourceOfGroup,
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
    ASTRAY = "astray"
    """The last look found it elsewhere, or not at all."""


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


class Doubt(StrEnum):
    """Why a server is not simply one that runs."""

    NONE = ""
    HUNG = "hung"
    STOPPED = "stopped"
    DELETED = "deleted"
    REPLACED = "replaced"
    """A later server has its member's name; what it has was left on it."""
    UNREACHABLE = "unreachable"
    UNKNOWN = "not known"


@dataclass(frozen=True)
class TopologyItem:
    """Something that a member has, is to have, or gives up. ``detail``: such as the device.
    ``source``: the member that it comes from; ``target``: the one where it belongs (both may be
    empty)."""

    name: str
    kind: Kind
    state: ItemState
    detail: str = ""
    source: str = ""
    target: str = ""

    @property
    def moving(self) -> bool:
        """Whether it is on its way from one member to another."""
        return bool(self.source or self.target)

    @property
    def words(self) -> str:
        """How the member has it."""
        said = _STATES[self.state]
        if self.source:
            said += f" from {self.source}"
        if self.target:
            said += f", belongs on {self.target}"
        if self.state is ItemState.ASTRAY:
            return f"{said}: {self.detail}"
        return f"{said} ({self.detail})" if self.detail else said


@dataclass(frozen=True)
class Member:
    """A server of a member; one that was replaced and still has something is beside the present
    one. ``role``: the roles that the goal gives it; ``active``: it has them, because the goal is
    reached. ``doubt``: what is wrong with the server, and ``why``, in words."""

    name: str
    server: str
    role: str
    active: bool
    lost: bool
    fenced: Fenced
    items: tuple[TopologyItem, ...]
    doubt: Doubt = Doubt.NONE
    why: str = ""

    @property
    def badges(self) -> tuple[tuple[Level, str], ...]:
        """Its role and what is wrong with it: each a word with its level."""
        found: list[tuple[Level, str]] = []
        if self.active:
            sound = self.doubt is Doubt.NONE and not self.lost
            found.append((Level.GOOD if sound else Level.NEUTRAL, self.role))
        elif self.role:
            found.append((Level.WORKING, f"to be {self.role}"))
        elif not self.lost and self.doubt is not Doubt.REPLACED:
            found.append((Level.NEUTRAL, "standby"))
        if self.lost:
            found.append((Level.TROUBLE, "LOST"))
        if self.fenced is not Fenced.NO:
            found.append((_FENCED_LEVEL[self.fenced], self.fenced.value))
        if self.doubt is not Doubt.NONE:
            hard = self.role or self.doubt in (Doubt.HUNG, Doubt.REPLACED)
            found.append((Level.TROUBLE if hard else Level.ATTENTION, self.doubt.value))
        return tuple(found)

    @property
    def level(self) -> Level:
        """The most urgent of its badges, of neutral ones and better the best."""
        levels = [level for level, _ in self.badges] or [Level.NEUTRAL]
        urgent = [each for each in levels if each in (Level.TROUBLE, Level.ATTENTION)]
        if urgent:
            return min(urgent, key=URGENCY.__getitem__)
        return max(levels, key=URGENCY.__getitem__) if Level.GOOD in levels else levels[0]


@dataclass(frozen=True)
class Topology:
    """A group at one moment."""

    members: tuple[Member, ...]


def topology(status: StatusReport) -> Topology:
    """Return the topology in an answer of failover.status."""
    rows = [
        _seen(row, state)
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
    servers = {row["name"]: row["server"] for row in status["members"]}
    names = [*servers, *(row["member"] for row in operations if row["member"])]
    # What a look found now says nothing of that time.
    members: list[_Known] = [
        {"name": name, "server": servers.get(name), "condition": None, "why": ""}
        for name in dict.fromkeys(names)
    ]
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
    server: str = ""


def _seen(row: ResourceOfGroup, state: ItemState) -> _Row:
    """Return a resource as the records have it, unless the last look found it otherwise."""
    detail = row["attributes"].get("device") or ""
    if state is ItemState.HELD and row["presence"] in (Presence.GONE, Presence.CHANGED):
        state, detail = ItemState.ASTRAY, row["why"]
    server = row["attributes"].get("server_id") or ""
    return _Row(row["name"], row["type"], row["member"], state, detail, server)


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


class _Known(TypedDict):
    """What is known of a member; see `MemberOfGroup`."""

    name: str
    server: str | None
    condition: str | None
    why: str


def _drawn(
    members: Sequence[_Known],
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
    items: dict[tuple[str, str], list[TopologyItem]] = {}
    present = {each["name"]: str(each["server"] or "") for each in members}
    for row in rows:
        if row.member and row.type != FENCE_TYPE:
            server = row.server or present.get(row.member, "")
            items.setdefault((row.member, server), []).append(_item(row, rows))
    drawn = [
        Member(
            name=each["name"],
            server=present[each["name"]][:_SHORT],
            role=", ".join(sorted(r for r, member in roles.items() if member == each["name"])),
            active=reached and each["name"] in roles.values(),
            lost=each["name"] in gone,
            fenced=fences.get(each["name"], Fenced.NO),
            items=_sorted(items.pop((each["name"], present[each["name"]]), ())),
            doubt=_DOUBTS.get(each["condition"] or "", Doubt.NONE),
            why=each["why"] if each["condition"] in _DOUBTS else "",
        )
        for each in members
    ]
    # What is left is on servers that are no member's any more.
    for (name, server), left in items.items():
        drawn.append(
            Member(
                name=name,
                server=server[:_SHORT],
                role="",
                active=False,
                lost=False,
                fenced=Fenced.NO,
                items=_sorted(left),
                doubt=Doubt.REPLACED,
                why="another server has its name now; what it has was left on it",
            )
        )
    return Topology(tuple(sorted(drawn, key=lambda each: each.name)))  # the present one first


def _sorted(items: Iterable[TopologyItem]) -> tuple[TopologyItem, ...]:
    return tuple(sorted(items, key=lambda each: (each.kind, each.name)))


def _item(row: _Row, rows: Iterable[_Row]) -> TopologyItem:
    """Return what a member has, with where it comes from or belongs if that is elsewhere."""
    coming = (ItemState.ARRIVING, ItemState.WANTED)
    source = target = ""
    for other in rows:
        if (other.name, other.type) != (row.name, row.type) or other.member in (None, row.member):
            continue
        if row.state in coming and other.state is not ItemState.WANTED:
            source = str(other.member)
        elif row.state not in coming and other.state in coming:
            target = str(other.member)
    return TopologyItem(row.name, kind_of(row.type), row.state, row.detail, source, target)


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
_FENCED_LEVEL = {
    Fenced.FENCING: Level.WORKING,
    Fenced.FENCED: Level.NEUTRAL,
    Fenced.UNPROVEN: Level.TROUBLE,
}
_DOUBTS: Mapping[str, Doubt] = {
    Condition.HUNG: Doubt.HUNG,
    Condition.STOPPED: Doubt.STOPPED,
    Condition.DELETED: Doubt.DELETED,
    Condition.UNREACHABLE: Doubt.UNREACHABLE,
    Condition.UNKNOWN: Doubt.UNKNOWN,
}
_STATES = {
    ItemState.HELD: "is here",
    ItemState.ARRIVING: "is arriving",
    ItemState.LEAVING: "is leaving",
    ItemState.WANTED: "is to come",
    ItemState.FAILED: "failed",
    ItemState.ASTRAY: "is not where it belongs",
}
