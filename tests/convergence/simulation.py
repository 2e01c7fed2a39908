# SPDX-License-Identifier: Apache-2.0
"""The convergence core without Mistral and without a cloud: a store, a clock, a small world.

The world is what operations take effect on. It refuses what reality would refuse, so a wrong
order of operations fails here and not only in an assertion about the order.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from mistral_failover.convergence.engine import Engine
from mistral_failover.convergence.loop import run
from mistral_failover.convergence.records import Operation, Outcome, Record, Started, Step
from mistral_failover.model.goal import Goal, empty_goal, render_goal
from mistral_failover.model.group import Group, parse_group
from mistral_failover.store import groups, schema
from mistral_failover.store.database import Database

PROJECT = "project-1"


class Clock:
    """A database clock that a test moves."""

    def __init__(self) -> None:
        self.seconds = 1_000_000.0

    def __call__(self) -> float:
        return self.seconds


def type_file(
    name: str, *, replace: str = "create_first", member: bool = False
) -> dict[str, Any]:
    """A type with one immutable property ``key``, one mutable ``value``, perhaps a member."""
    properties: dict[str, Any] = {
        "key": {"immutable": True},
        "value": {},
    }
    if member:
        properties["member"] = {"type": "string", "immutable": True, "required": True}
    document: dict[str, Any] = {
        "failover_type_version": "2026-11-21",
        "name": name,
        "description": "for simulations",
        "replace": replace,
        "properties": properties,
        "attributes": {"echo": {"description": "the value it was given"}},
        "operations": {verb: {"workflow": f"test.{verb}"} for verb in ("create", "update", "delete")},
    }
    if member:
        document["member"] = "member"
    return document


TYPES = [
    type_file("shared"),
    type_file("exclusive", replace="delete_first"),
    type_file("held", replace="delete_first", member=True),
]


class World:
    """What exists. Of an exclusive thing (same name) only one may exist at a time, and what
    others stand on may not be taken away."""

    def __init__(self) -> None:
        self.things: dict[str, dict[str, Any]] = {}
        self.effects: list[tuple[str, str]] = []
        self.log: list[str] = []

    def operate(self, operation: Operation) -> Outcome:
        """Carry an operation out; a repeat of a creation or deletion finds it done."""
        record, verb = operation.record, operation.ticket.verb
        self.log.append(f"{verb} {record.name}")
        if verb == "delete":
            self._refuse_if_stood_upon(record)
            if self.things.pop(record.id, None) is not None:
                self.effects.append((verb, record.id))
            return Outcome()
        if verb == "create" and record.type != "shared":
            others = [t for i, t in self.things.items() if t["name"] == record.name and i != record.id]
            assert not others, f"{record.name} exists already: {others}"
        if verb == "create" and record.id not in self.things:
            self.effects.append((verb, record.id))
        self.things[record.id] = {
            "name": record.name,
            "type": record.type,
            "properties": dict(operation.properties),
            "stands_on": {data["id"] for data in operation.inputs.values()},
        }
        return Outcome(
            physical_id=f"physical-{record.id}",
            attributes={"echo": operation.properties.get("value")},
        )

    def _refuse_if_stood_upon(self, record: Record) -> None:
        above = [
            thing["name"]
            for thing in self.things.values()
            if f"physical-{record.id}" in thing["stands_on"] and thing["type"] != "shared"
        ]
        assert not above, f"{record.name} is taken away under {above}"


class Simulation:
    """One group in a store of its own."""

    def __init__(self, url: str | None = None, lease: float = 30.0) -> None:
        self.clock = Clock()
        self.database = Database(url or "sqlite://", clock=self.clock)
        schema.upgrade(self.database)
        self.engine = Engine(self.database, lease=lease)
        self.world = World()
        self.group: Group | None = None
        self.group_id = ""
        self.count = 0

    def define(
        self,
        resources: Mapping[str, Any],
        *,
        servers: tuple[str, ...] = ("a", "b", "c"),
        name: str = "g",
        **more: Any,
    ) -> Group:
        """Define the group, or define it anew."""
        document = {
            "failover_template_version": "2026-11-21",
            "stack": "s",
            "members": {"servers": list(servers)},
            "resources": dict(resources),
            **more,
        }
        definition = {"document": document, "types": TYPES}
        self.group = parse_group(document, name=name, types=TYPES)

        def store(tx: Any) -> str:
            group_id = groups.define(tx, PROJECT, name, definition)
            groups.see_members(tx, group_id, [(s, f"server-{s}", None) for s in servers])
            return group_id

        self.group_id = self.database.atomically(store)
        return self.group

    def goal(self, active: str = "a", lost: tuple[str, ...] = ()) -> Goal:
        assert self.group is not None
        return render_goal(self.group, {"active": active}, lost)

    def nothing(self) -> Goal:
        assert self.group is not None
        return empty_goal(self.group)

    def start(self, goal: Goal, traversal_id: str | None = None) -> Started:
        """Start a traversal in place of whatever is current."""
        self.count += 1
        return self.engine.start(
            self.group_id,
            goal,
            traversal_id=traversal_id or f"traversal-{self.count}",
            expected=self.current,
            cause="a test",
        )

    def converge(
        self, goal: Goal, operate: Callable[[Operation], Outcome] | None = None, **options: Any
    ) -> list[Step]:
        """Start a traversal and carry it to its end."""
        started = self.start(goal)
        return self.carry(started.ready, operate, **options)

    def carry(self, ready: Any, operate: Any = None, **options: Any) -> list[Step]:
        return run(self.engine, ready, operate or self.world.operate, owner="o", **options)

    @property
    def current(self) -> str | None:
        state = self.database.reading(lambda tx: tx.lock_group(self.group_id, shared=True))
        return state.current_traversal if state else None

    def status(self, traversal_id: str | None = None) -> str:
        identity = traversal_id or self.current or ""
        traversal = self.database.reading(lambda tx: tx.traversal(identity))
        return f"{traversal.status}: {traversal.reason}" if traversal else "none"

    def records(self) -> list[Record]:
        return list(self.database.reading(lambda tx: tx.records(self.group_id)))

    def by_name(self) -> dict[str, Record]:
        return {record.name: record for record in self.records()}

    def audit_at_rest(self, goal: Goal) -> None:
        """Invariant 5: at rest reality equals the goal."""
        records = self.records()
        assert all(r.owner is None for r in records), "a lock is held"
        assert all(r.goal_version == goal.version for r in records), "an old goal's record is left"
        assert all(r.status == "COMPLETE" for r in records)
        wanted = {n: r for n, r in goal.document["resources"].items() if r["type"] != "fence"}
        kept = [r for r in records if r.type != "fence"]
        assert sorted(r.name for r in kept) == sorted(wanted)
        made = {i for i, t in self.world.things.items() if t["type"] != "fence"}
        assert {r.id for r in kept} == made, "orphans, or records of nothing"
        by_id = {r.id: r.name for r in records}
        for record in kept:
            assert {by_id[i] for i in record.requires} == set(wanted[record.name]["requires"])
        assert self.status() == "COMPLETE: "


DATABASES = ["sqlite://", *filter(None, [os.environ.get("FAILOVER_TEST_DATABASE")])]
