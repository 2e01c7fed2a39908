# SPDX-License-Identifier: Apache-2.0
"""A small world that operations take effect on.

It refuses what reality would refuse, so a wrong order of operations fails here and not only in an
assertion about the order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from mistral_failover.convergence.records import Operation, Outcome, Record
from mistral_failover.model.goal import FENCE_PREFIX, REPLACE_PREFIX, fence_name


def type_file(name: str, *, replace: str = "create_first", member: bool = False) -> dict[str, Any]:
    """A type with one immutable property ``key``, one mutable ``value``, perhaps a member; as the
    shipped ones, those on a member are brought back where their deletion failed."""
    properties: dict[str, Any] = {"key": {"immutable": True}, "value": {}}
    if member:
        properties["member"] = {"type": "string", "immutable": True, "required": True}
    document: dict[str, Any] = {
        "failover_type_version": "2026-11-21",
        "name": name,
        "description": "for simulations",
        "replace": replace,
        "revive": member,
        "properties": properties,
        "attributes": {"echo": {"description": "the value it was given"}},
        "operations": {
            verb: {"workflow": f"test.{verb}"} for verb in ("create", "update", "delete")
        },
    }
    if member:
        document["member"] = "member"
    return document


TYPES = [
    type_file("shared"),
    type_file("exclusive", replace="delete_first"),
    type_file("held", replace="delete_first", member=True),
]


@dataclass(frozen=True)
class CheckObservation:
    """What a check says about the world: an ``operation`` in a goal with ``lost`` members was
    handed out, or else the ``record`` is settled upon ``inputs`` (None: it was cleaned up).
    ``users``: who still uses what a deletion would take away, and has to turn away first."""

    record: Record
    operation: Operation | None = None
    lost: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    inputs: Mapping[str, Mapping[str, Any]] | None = None


def _sits_on(thing: Mapping[str, Any], member: str) -> bool:
    return bool(thing["type"] == "held" and thing["properties"].get("member") == member)


def outcome_of(operation: Operation) -> Outcome:
    """What comes of an operation that takes effect."""
    if operation.ticket.verb == "delete":
        return Outcome()
    echo = {"echo": operation.properties.get("value")}
    return Outcome(physical_id=f"physical-{operation.record.id}", attributes=echo)


class World:
    """What exists.

    Of a thing that is exclusive or held only one (by name) may exist at a time; nothing is taken
    away under one of those; nothing is made upon what is not there; what need not go first is not
    taken away under anybody; a lost member's things are taken away under its fence only, and
    nothing is made on a fenced member.
    """

    def __init__(self) -> None:
        self.things: dict[str, dict[str, Any]] = {}
        self.effects: list[tuple[str, str]] = []
        self.keys: set[str] = set()
        self.log: list[str] = []

    def see(self, seen: CheckObservation) -> None:
        """Hold what a check answered against what there is."""
        if seen.operation is not None:
            assert not seen.users, f"{seen.record.name} is to go, and {seen.users} use it"
            self.admit(seen.operation, seen.lost)
        else:
            self.settle(seen.record, seen.inputs)

    def admit(self, operation: Operation, lost: Iterable[str]) -> None:
        """Refuse what must not even be handed out, in a goal with ``lost`` members."""
        record = operation.record
        if operation.ticket.verb == "delete":
            if record.member is not None and record.member in lost:
                assert self._fenced(record.member), f"{record.name}: no fence of {record.member}"
            return
        assert record.member is None or not self._fenced(record.member), (
            f"{record.name} is made on {record.member}, which is fenced"
        )
        if record.name.startswith(REPLACE_PREFIX):
            member = operation.properties["member"]
            assert member not in lost or self._fenced(member), f"{record.name}: no fence"
            left = [t["name"] for t in self.things.values() if _sits_on(t, member)]
            assert not left, f"{record.name}, and {left} are left there"
        there = {f"physical-{identity}" for identity in self.things}
        missing = [name for name, data in operation.inputs.items() if data["id"] not in there]
        assert not missing, f"{record.name} is made upon {missing}, not there"

    def operate(self, operation: Operation) -> Outcome:
        """Carry an operation out; a repeat of a creation or deletion finds it done.

        A key that was heard of before does nothing, as with the journals of the members' agents.
        """
        if operation.ticket.key in self.keys:
            return outcome_of(operation)
        record, verb = operation.record, operation.ticket.verb
        self.log.append(f"{verb} {record.name}")
        self.keys.add(operation.ticket.key)
        if verb == "delete":
            self._refuse_if_stood_upon(record)
            if self.things.pop(record.id, None) is not None:
                self.effects.append((verb, record.id))
            return outcome_of(operation)
        if record.type in ("exclusive", "held"):
            names = [t["name"] for i, t in self.things.items() if i != record.id]
            assert record.name not in names, f"{record.name} exists already"
        if record.id not in self.things:
            assert verb == "create", f"{record.name} is updated, and not there"
            self.effects.append(("create", record.id))
        self.things[record.id] = {
            "name": record.name,
            "type": record.type,
            "properties": dict(operation.properties),
            "stands_on": requirements_of(record, operation.inputs),
        }
        return outcome_of(operation)

    def is_as_wanted(self, operation: Operation) -> bool:
        """Whether a look finds nothing to do for an operation."""
        thing = self.things.get(operation.record.id)
        if operation.ticket.verb == "delete":
            return thing is None
        return thing is not None and thing["properties"] == dict(operation.properties)

    def settle(self, record: Record, inputs: Mapping[str, Mapping[str, Any]] | None) -> None:
        """What a node without an operation comes to; ``inputs`` is None for a cleanup."""
        if inputs is None:
            self.things.pop(record.id, None)
        else:
            self.things[record.id]["stands_on"] = requirements_of(record, inputs)

    def assert_nothing_happened_twice(self) -> None:
        """Invariant 4: every record is made once and removed once; only what is removed, and whose
        removal was not heard of, is made again."""
        last: dict[str, str] = {}
        for verb, identity in self.effects:
            assert last.get(identity) != verb, f"{verb} of {identity} happened twice"
            last[identity] = verb

    def _fenced(self, member: str) -> bool:
        return any(thing["name"] == fence_name(member) for thing in self.things.values())

    def _refuse_if_stood_upon(self, record: Record) -> None:
        above = [
            thing["name"]
            for thing in self.things.values()
            if f"physical-{record.id}" in thing["stands_on"] and thing["type"] != "shared"
        ]
        assert not above, f"{record.name} is taken away under {above}"


def requirements_of(record: Record, inputs: Mapping[str, Mapping[str, Any]]) -> set[str]:
    """The ids of what a thing was made upon; a fence is waited for, and not stood upon, and so is
    whatever a member's new server comes after."""
    if record.name.startswith(REPLACE_PREFIX):
        return set()
    return {data["id"] for name, data in inputs.items() if not name.startswith(FENCE_PREFIX)}
