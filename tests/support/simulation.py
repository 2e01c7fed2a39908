# SPDX-License-Identifier: Apache-2.0
"""The convergence core without Mistral and without a cloud: a store, a clock, a small world."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from mistral_failover.convergence.engine import Engine
from mistral_failover.convergence.loop import run
from mistral_failover.convergence.records import (
    Node,
    NodeState,
    Operation,
    Outcome,
    Ready,
    Record,
    Started,
    Step,
)
from mistral_failover.convergence.traversals import present_goal
from mistral_failover.model.goal import Goal, empty_goal, render_goal
from mistral_failover.model.group import Group, parse_group
from mistral_failover.model.types import ResourceType, load_type
from mistral_failover.store import groups, stalled_work
from mistral_failover.store.database import Database
from mistral_failover.store.transaction import ProjectTransaction, SqlTransaction
from support.databases import beside, empty, shared
from support.world import TYPES, CheckObservation, World

PROJECT = "project-1"
LEASE = 30.0


def failure(code: str = "BROKEN", *, blocked: bool = False, unknown: bool = False) -> Outcome:
    """An outcome without success, as far as is known."""
    error = {"code": code, "message": "it broke", "remedy": "Repair it."}
    return Outcome(error=error, blocked=blocked, unknown=unknown)


def away(service: str = "Cinder", detail: str = "connection refused") -> Outcome:
    """The outcome of an operation that found a service away."""
    error = {
        "code": "UNREACHABLE",
        "message": f"{service} did not answer",
        "remedy": "Wait.",
        "transient": True,
        "service": service,
        "detail": detail,
    }
    return Outcome(error=error, transient=True)


class Observed(Engine):
    """An engine whose answers the world sees as well: what needs no operation, what is asked."""

    simulation: Simulation

    def check(self, ready: Ready, owner: str) -> Step:
        """See ``Engine.check``; also holds what is handed out against the world."""
        step = super().check(ready, owner)
        seen = self.simulation.database.reading(lambda tx: what_is_seen(tx, ready, step))
        if seen is not None:
            self.simulation.world.see(seen)
        return step


def what_is_seen(tx: SqlTransaction, ready: Ready, step: Step) -> CheckObservation | None:
    """What a check's answer says about the world; None: nothing new."""
    record = tx.record(ready.node.resource_id)
    if record is None:
        return None
    if step.operation is not None:
        lost = lost_members(tx, record.group_id)
        return CheckObservation(record, step.operation, lost, users_of(tx, step.operation))
    if not step.unchanged:
        return None
    if ready.node.kind == "cleanup":
        return CheckObservation(record)
    return CheckObservation(record, inputs=tx.inputs(ready.traversal_id, ready.node))


def users_of(tx: SqlTransaction, operation: Operation) -> tuple[str, ...]:
    """Who uses what a deletion would take away: whatever was made upon it, or may have been. None
    of what may have to go first: that is delete-first, is replaced by such a thing, or was made
    upon one that may."""
    if operation.ticket.verb != "delete":
        return ()
    group_id, going = operation.record.group_id, operation.record.id
    goal = tx.goal(group_id, operation.ticket.goal_version)
    assert goal is not None
    wanted = goal.document["resources"]
    below = [operation.record]
    while below:
        record = below.pop()
        if {record.type, wanted.get(record.name, {}).get("type", "shared")} != {"shared"}:
            return ()
        found = [tx.record(required) for required in record.requires]
        below += [each for each in found if each is not None]
    return tuple(r.name for r in tx.records(group_id) if going in r.requires)


def lost_members(tx: SqlTransaction, group_id: str) -> tuple[str, ...]:
    """The members that the current goal declares lost."""
    group = groups.get(tx, group_id)
    assert group is not None
    goal = present_goal(tx, group)
    assert goal is not None
    return tuple(goal.document["lost"])


@functools.lru_cache(256)
def _parsed(document: str, name: str, types: tuple[str, ...]) -> Group:
    """A group file as the model reads it: many a search defines the same one at every turn."""
    return parse_group(json.loads(document), name=name, types=map(_type, types))


@functools.cache
def _type(document: str) -> ResourceType:
    """A type as the model reads it: nearly every group is defined with the same ones."""
    return load_type(json.loads(document))


class Simulation:
    """One group in an empty store."""

    def __init__(self, kind: str = "sqlite") -> None:
        self.kind = kind
        self.database, self.clock = shared(kind)
        self.store = self.database.for_project(PROJECT)
        empty(self.database)
        self.clock.set_back()
        self.engine = self._observed(self.database, LEASE)
        self.world = World()
        self.group: Group | None = None
        self.group_id = ""
        self.count = 0

    def another_engine(self, name: str, lease: float) -> Engine:
        """An engine as another process has it: with a store of its own on the same database."""
        return self._observed(beside(self.kind, name), lease)

    def _observed(self, database: Database, lease: float) -> Engine:
        engine = Observed(database, lease=lease)
        engine.simulation = self
        return engine

    def define(
        self,
        resources: Mapping[str, Any],
        *,
        servers: tuple[str, ...] = ("a", "b", "c"),
        name: str = "g",
        types: Iterable[Mapping[str, Any]] = TYPES,
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
        types = list(types)
        definition = {"document": document, "types": types}
        self.group = _parsed(json.dumps(document), name, tuple(map(json.dumps, types)))

        def store(tx: ProjectTransaction) -> str:
            group_id = groups.define(tx, name, definition)
            groups.record_members(tx, group_id, [(s, f"server-{s}", None) for s in servers])
            return group_id

        self.group_id = self.store.atomically(store)
        return self.group

    def goal(
        self, active: str = "a", lost: tuple[str, ...] = (), replaced: Iterable[str] = ()
    ) -> Goal:
        """The goal in which ``active`` is the active member, and these get other servers."""
        assert self.group is not None
        servers = {member: {"server_id": f"server-{member}"} for member in replaced}
        return render_goal(self.group, {"active": active}, lost, replaced=servers)

    def nothing(self) -> Goal:
        """The goal of removing the group."""
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
        return self.carry(self.start(goal).ready, operate, **options)

    def carry(
        self,
        ready: Iterable[Ready],
        operate: Callable[[Operation], Outcome] | None = None,
        **options: Any,
    ) -> list[Step]:
        """Carry on from these nodes to the end."""
        operate = operate or self.world.operate
        return run(self.engine, ready, operate, owner="o", limit=2000, **options)

    def sweep(self, group_id: str | None = None) -> list[Ready]:
        """What a sweep finds that waits for no silence."""

        def look(tx: ProjectTransaction) -> list[Ready]:
            found = [each.traversal_id for each in stalled_work.stalled(tx, group_id, 0.0)]
            return [
                Ready(traversal, row.node)
                for traversal in found
                for row in tx.progress(traversal)
                if row.status == "WAITING"
                and not row.remaining
                and (row.owner is None or (row.lease_until or 0.0) <= tx.now())
                and (row.next_try is None or row.next_try <= tx.now())
            ]

        return self.store.reading(look)

    def operation(self, ready: Ready, owner: str = "o") -> Operation:
        """Check a node that has something to carry out."""
        step = self.engine.check(ready, owner)
        assert step.operation is not None, step.sentence
        return step.operation

    def current_goal(self) -> Goal | None:
        """The goal of the current traversal."""
        current = self.current
        if current is None:
            return None

        def read(tx: SqlTransaction) -> Goal | None:
            traversal = tx.traversal(current)
            return tx.goal(self.group_id, traversal.goal_version) if traversal else None

        return self.database.reading(read)

    @property
    def current(self) -> str | None:
        """The id of the current traversal."""
        state = self.database.reading(lambda tx: tx.lock_group(self.group_id, shared=True))
        return state.current_traversal if state else None

    def status(self, traversal_id: str | None = None) -> str:
        """A traversal's status, of the current one unless told otherwise."""
        identity = traversal_id or self.current or ""
        traversal = self.database.reading(lambda tx: tx.traversal(identity))
        return traversal.status if traversal else "none"

    def reason(self, traversal_id: str | None = None) -> str:
        """Why a traversal has its status."""
        identity = traversal_id or self.current or ""
        traversal = self.database.reading(lambda tx: tx.traversal(identity))
        return traversal.reason if traversal else ""

    def node(self, ready: Ready) -> NodeState | None:
        """A node's sync point."""
        return self.database.reading(lambda tx: tx.node(ready.traversal_id, ready.node))

    def update_of(self, name: str) -> Ready:
        """The update node of the newest record of a name, in the current traversal."""
        newest = [r for r in self.records() if r.name == name and not r.replaced_by][-1]
        return Ready(self.current or "", Node("update", newest.id))

    def record(self, resource_id: str) -> Record | None:
        """One record."""
        return self.database.reading(lambda tx: tx.record(resource_id))

    def records(self) -> list[Record]:
        """All records that are not gone."""
        return list(self.database.reading(lambda tx: tx.records(self.group_id)))

    def by_name(self) -> dict[str, Record]:
        """The newest record of each name."""
        return {record.name: record for record in self.records()}

    def audit_at_rest(self, goal: Goal) -> None:
        """Invariant 5: at rest reality equals the goal."""
        assert self.status() == "COMPLETE", self.reason()
        records = self.records()
        assert all(r.owner is None for r in records), "a lock is held"
        assert all(r.goal_version == goal.version for r in records), "an old goal's record is left"
        assert all(r.status == "COMPLETE" for r in records)
        wanted = goal.document["resources"]
        assert sorted(r.name for r in records) == sorted(wanted)
        assert {r.id for r in records} == set(self.world.things), "orphans, or records of nothing"
        by_id = {r.id: r.name for r in records}
        for record in records:
            assert {by_id[i] for i in record.requires} == set(wanted[record.name]["requires"])
            thing = self.world.things[record.id]
            assert thing["properties"] == record.properties
            assert thing["stands_on"] == {f"physical-{i}" for i in record.requires}
        self.world.assert_nothing_happened_twice()
