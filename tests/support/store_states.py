# SPDX-License-Identifier: Apache-2.0
"""The core's steps as functions from one content of the database to the next.

Contents are numbered; two that differ only in what decides nothing (the journal, reasons, clock
times, counters of attempts) have one number. A step runs once for each content and is remembered,
since it depends on nothing else. Here is also what must hold of every single step: tokens only
grow, no live engine loses a lock, a result under an old token changes nothing.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Hashable, Iterable
from typing import Any, NamedTuple, TypeVar

from mistral_failover.convergence.definitions import Definitions
from mistral_failover.convergence.engine import Engine
from mistral_failover.convergence.records import END, Node, Operation, Outcome, Ready, Step
from mistral_failover.store.tables import nodes, resources
from mistral_failover.store.transaction import SqlTransaction
from support.simulation import Simulation, failure, what_is_seen
from support.transactions import NeedsSecondTransaction, NestedStore, OneTransaction, WouldWait
from support.world import CheckObservation, outcome_of

T = TypeVar("T")

START = 1_000_000.0  # by the database's clock; each traversal begins a second after the last one
MOST_TRAVERSALS = 12  # more than any scenario's goals, replacements and rollbacks need
FOREVER = 1_000_000.0  # seconds: a lease ends when the explorer says so
WHAT_DECIDES = (
    "SELECT current_traversal, last_complete_goal, definition_version, defined, in_force"
    " FROM failover_groups",
    "SELECT name, epoch FROM failover_members ORDER BY 1",
    "SELECT id, goal_version, CASE WHEN id = (SELECT current_traversal FROM failover_groups)"
    " THEN status END FROM failover_traversals ORDER BY 1",
    "SELECT id, name, member, epoch, action, status, properties, physical_id, attributes, requires,"
    " goal_version, replaces, replaced_by, condemned_for, owner, token, lease_until > 0,"
    " generation, created_at, settles_at > 0 FROM failover_resources ORDER BY 1",
    "SELECT traversal_id, node, status, remaining, wanted, output, next_try > 0 FROM failover_nodes"
    " ORDER BY 1, 2",
    "SELECT traversal_id, node, predecessor FROM failover_edges ORDER BY 1, 2, 3",
    "SELECT key, resource_id, traversal_id, status, token FROM failover_operations ORDER BY 1",
)

Happening = tuple[str, int]  # ("see", number of what is seen) or ("operate", number of operation)
Doing = tuple[str, int]  # ("check" or "carry", message), or an outcome's name and an operation

OUTCOMES: dict[str, Callable[[Operation], Outcome]] = {
    "conclude": outcome_of,
    "fail": lambda operation: failure(),
    "leave unclear": lambda operation: failure("NO_ANSWER", unknown=True),
    "block": lambda operation: failure("NO_PROOF", blocked=True),
}


class StateFacts(NamedTuple):
    """What the explorer asks of a content. ``locks``: owner and token by record, ``held``: those
    whose lease lasts; ``waiting``: the nodes that are not done; ``blocked``: whether some are."""

    traversals: int
    current: str | None
    tokens: dict[str, int]
    locks: dict[str, tuple[str, int]]
    held: dict[str, tuple[str, int]]
    waiting: frozenset[tuple[str, str]]
    blocked: bool


class StepEffects(NamedTuple):
    """What a step did: messages sent, operations handed out, what the world sees of it, in order;
    ``again``: it is to be repeated from its beginning."""

    content: int
    ready: tuple[int, ...] = ()
    operations: tuple[int, ...] = ()
    happenings: tuple[Happening, ...] = ()
    again: bool = False


class Numbered(list[T]):
    """Values and their numbers; values with one key are one value."""

    def __init__(self) -> None:
        super().__init__()
        self._numbers: dict[Hashable, int] = {}

    def number(self, key: Hashable, value: T) -> int:
        """The number of a value."""
        number = self._numbers.setdefault(key, len(self))
        if number == len(self):
            self.append(value)
        return number


class StoreStates:
    """Every content that was met, and the steps between them."""

    def __init__(self, simulation: Simulation) -> None:
        """``simulation``: on SQLite in memory; its present content is number 0."""
        self.simulation = simulation
        self._raw: Any = simulation.database.engine.raw_connection().driver_connection
        self._definitions = Definitions()
        self._store = OneTransaction(simulation.database)
        self._engine = Engine(self._store, lease=FOREVER, definitions=self._definitions)
        self._blobs: Numbered[bytes] = Numbered()
        self._steps: dict[Hashable, StepEffects | None] = {}
        self._loaded: int | None = None
        self.facts: list[StateFacts] = []
        self.messages: Numbered[Ready] = Numbered()
        self.operations: Numbered[Operation] = Numbered()
        self.seen: Numbered[CheckObservation] = Numbered()
        self.ran = 0  # steps that the core really took
        self._keep()

    # -- steps

    def do(self, content: int, doing: Doing) -> StepEffects:
        """One transaction of a check, or a conclusion."""
        kind, number = doing
        done = self._once(content, doing, lambda: self._step(content, doing, None))
        assert done is not None
        if kind != "check" and not self.owns(content, number):
            assert done == StepEffects(content), "a result under an old token changed something"
        return done

    def do_both(self, content: int, outer: Doing, inner: Doing) -> StepEffects | None:
        """``inner`` happens between what ``outer`` reads and what it changes; None: it can not."""

        def run() -> StepEffects | None:
            before: list[StepEffects] = []

            def meanwhile(tx: SqlTransaction) -> None:
                before.append(self._nested(tx, content, inner))

            try:
                after = self._step(content, outer, meanwhile)
            except WouldWait:
                self._loaded = None
                return None
            if not before:
                return None
            return StepEffects(
                after.content,
                before[0].ready + after.ready,
                before[0].operations + after.operations,
                before[0].happenings + after.happenings,
                after.again,
            )

        return self._once(content, ("both", outer, inner), run)

    def start(self, content: int, number: int, begin: Callable[[], Iterable[Ready]]) -> StepEffects:
        """A new goal, the ``number``-th, is started by ``begin``."""
        done = self._once(content, ("start", number), lambda: self._plain(content, begin))
        assert done is not None
        return done

    def sweep(self, content: int) -> StepEffects:
        """What the sweep finds."""
        done = self._once(content, ("sweep",), lambda: self._plain(content, self.simulation.sweep))
        assert done is not None
        return done

    def resume(self, content: int) -> StepEffects:
        """Somebody lets what is blocked be tried again."""
        simulation = self.simulation
        done = self._once(
            content,
            ("resume",),
            lambda: self._plain(content, lambda: simulation.engine.resume(simulation.group_id)),
        )
        assert done is not None
        return done

    def end_lease(self, content: int, record_id: str) -> int:
        """The lease of a record's lock runs out, while all others are renewed."""
        ending = resources.update().where(resources.c.id == record_id).values(lease_until=0.0)

        def run() -> StepEffects:
            self.load(content)
            self.simulation.database.atomically(lambda tx: tx.execute(ending))
            return StepEffects(self._keep())

        done = self._once(content, ("end", record_id), run)
        assert done is not None
        return done.content

    def ask(self, content: int, operation: int) -> int:
        """The owner of an operation records the request that it sends next."""
        lock = self.operations[operation].ticket.lock

        def run() -> StepEffects:
            self.load(content)
            # It may be refused: a member was fenced since. Then nothing is sent.
            self.simulation.database.atomically(lambda tx: tx.ask(lock, "it", FOREVER))
            return StepEffects(self._keep())

        done = self._once(content, ("ask", operation), run)
        assert done is not None
        return done.content

    def settle(self, content: int, operation: int) -> int:
        """The request of an operation that was given up can have no effect any more, and what
        waited for that time may go on."""
        record_id = self.operations[operation].record.id
        settled = (
            resources.update().where(resources.c.id == record_id).values(asked=None, settles_at=0.0)
        )
        due = nodes.update().where(nodes.c.next_try.is_not(None)).values(next_try=0.0)

        def run() -> StepEffects:
            self.load(content)
            self.simulation.database.atomically(lambda tx: (tx.execute(settled), tx.execute(due)))
            return StepEffects(self._keep())

        done = self._once(content, ("settle", operation), run)
        assert done is not None
        return done.content

    def waiting(self, content: int) -> tuple[int, ...]:
        """Messages to every node that is not done."""
        nodes = sorted(pair for pair in self.facts[content].waiting if pair[1] != END)
        return self._numbers(Ready(traversal_id, Node.parse(key)) for traversal_id, key in nodes)

    def owns(self, content: int, operation: int) -> bool:
        """Whether the lock of an operation is its owner's still, alive or not."""
        lock = self.operations[operation].ticket.lock
        return self.facts[content].locks.get(lock.resource_id) == (lock.owner, lock.token)

    def load(self, content: int) -> None:
        """Put a content into the database."""
        if self._loaded != content:
            self._raw.deserialize(zlib.decompress(self._blobs[content]))
            self._loaded = content
        self.simulation.clock.seconds = START + self.facts[content].traversals

    def forget_loaded(self) -> None:
        """The database was changed by others."""
        self._loaded = None

    # -- how

    def _once(
        self, content: int, what: Hashable, run: Callable[[], StepEffects | None]
    ) -> StepEffects | None:
        key = (content, what)
        if key not in self._steps:
            self.ran += 1
            self._steps[key] = run()
        return self._steps[key]

    def _step(
        self, content: int, doing: Doing, meanwhile: Callable[[SqlTransaction], None] | None
    ) -> StepEffects:
        self.load(content)
        self._store.step(meanwhile)
        try:
            step = self._take(self._engine, doing, self._owner(content, doing, "owner"))
        except NeedsSecondTransaction:
            return self._done(content, (), (), (), again=True)
        if doing[0] != "check":
            return self._done(content, step.ready, (), ())
        ready = self.messages[doing[1]]
        seen = self.simulation.database.reading(lambda tx: what_is_seen(tx, ready, step))
        return self._done(content, step.ready, (step.operation,), self._see(seen))

    def _nested(self, tx: SqlTransaction, content: int, doing: Doing) -> StepEffects:
        """A whole step of another engine; ``carry``: its operation is carried out as well."""
        engine = Engine(NestedStore(tx), lease=FOREVER, definitions=self._definitions)
        step = self._take(engine, doing, self._owner(content, doing, "other"))
        if doing[0] == "conclude":
            return StepEffects(content, self._numbers(step.ready))
        seen = self._see(what_is_seen(tx, self.messages[doing[1]], step))
        if step.operation is None or doing[0] == "check":
            handed = (self.operation(step.operation),) if step.operation else ()
            return StepEffects(content, self._numbers(step.ready), handed, seen)
        end = engine.conclude(step.operation.ticket, outcome_of(step.operation))
        effect = ("operate", self.operation(step.operation))
        return StepEffects(content, self._numbers(step.ready + end.ready), (), (*seen, effect))

    def _take(self, engine: Engine, doing: Doing, owner: str) -> Step:
        kind, number = doing
        if kind in ("check", "carry"):
            return engine.check(self.messages[number], owner)
        operation = self.operations[number]
        if kind == "abandon":
            return engine.abandon(operation.ticket, "its process is stopping")
        return engine.conclude(operation.ticket, OUTCOMES[kind](operation))

    def _owner(self, content: int, doing: Doing, name: str) -> str:
        """No two that meet have one name, and its owner does not matter."""
        if doing[0] not in ("check", "carry"):
            return name
        record_id = self.messages[doing[1]].node.resource_id
        return f"{name}-{self.facts[content].tokens.get(record_id, 0) + 1}"

    def _plain(self, content: int, function: Callable[[], Iterable[Ready]]) -> StepEffects:
        self.load(content)
        return self._done(content, function(), (), ())

    def _done(
        self,
        before: int,
        ready: Iterable[Ready],
        operations: Iterable[Operation | None],
        happenings: tuple[Happening, ...],
        *,
        again: bool = False,
    ) -> StepEffects:
        after = self._keep()
        handed = tuple(self.operation(o) for o in operations if o is not None)
        self._assert_tokens_only_grow(before, after)
        assert self.facts[after].traversals <= MOST_TRAVERSALS, "one traversal after the other"
        return StepEffects(after, self._numbers(ready), handed, happenings, again)

    def _assert_tokens_only_grow(self, before: int, after: int) -> None:
        tokens = self.facts[after].tokens
        for record_id, token in self.facts[before].tokens.items():
            assert tokens.get(record_id, 0) >= token, "a token shrank"

    def _numbers(self, ready: Iterable[Ready]) -> tuple[int, ...]:
        return tuple(self.messages.number(r, r) for r in ready)

    def _see(self, seen: CheckObservation | None) -> tuple[Happening, ...]:
        if seen is None:
            return ()
        operation = None if seen.operation is None else self.operation(seen.operation)
        inputs = json.dumps(seen.inputs, sort_keys=True)
        key = (seen.record.id, operation, seen.lost, seen.users, inputs)
        return (("see", self.seen.number(key, seen)),)

    def operation(self, operation: Operation) -> int:
        """The number of an operation."""
        values = [dict(operation.properties), dict(operation.inputs)]
        key = (operation.ticket, operation.unknown, json.dumps(values, sort_keys=True))
        return self.operations.number(key, operation)

    def _keep(self) -> int:
        """The number of what is in the database now."""
        key = tuple(tuple(self._raw.execute(query)) for query in WHAT_DECIDES)
        number = self._blobs.number(key, b"")
        self._loaded = None  # it may differ from what is kept in what decides nothing
        if number == len(self.facts):
            self._blobs[number] = zlib.compress(self._raw.serialize(), 1)
            self._loaded = number
            locks = {row[0]: (row[14], row[15]) for row in key[3] if row[14]}
            held = {row[0]: locks[row[0]] for row in key[3] if row[14] and row[16]}
            tokens = {row[0]: row[15] for row in key[3]}
            waiting = frozenset((row[0], row[1]) for row in key[4] if row[2] == "WAITING")
            assert {row[0] for row in key[4]} <= {key[0][0][0]}, "an old sync point is left"
            blocked = any(row[2] == "BLOCKED" for row in key[4])
            self.facts.append(
                StateFacts(len(key[2]), key[0][0][0], tokens, locks, held, waiting, blocked)
            )
        return number
