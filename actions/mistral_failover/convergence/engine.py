# SPDX-License-Identifier: Apache-2.0
"""The life of a traversal: start, check a node, conclude an operation.

Every step is one transaction. Steps may be repeated, doubled, reordered or lost: the lock lets
one of several triggers through, and what a lost one leaves lying is found by :meth:`Engine.loose`.
The engine carries nothing out: it hands operations out and takes their outcomes back, so it runs
under Mistral as well as in a loop (``convergence.loop``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mistral_failover.convergence.decide import Decision, decide
from mistral_failover.convergence.definitions import Definitions
from mistral_failover.convergence.errors import ConvergenceError, UnknownGroup
from mistral_failover.convergence.ports import Store, Transaction
from mistral_failover.convergence.records import (
    ACTION_OF,
    GroupState,
    Node,
    NodeState,
    Operation,
    Outcome,
    Ready,
    Record,
    Started,
    Step,
    Ticket,
    Traversal,
    Verb,
)
from mistral_failover.convergence.sentences import because, doing
from mistral_failover.convergence.traversals import (
    begin,
    begin_again,
    complete,
    derived_id,
    goal_to_fall_back_to,
)
from mistral_failover.model.errors import InvalidDocument, UnresolvedReference
from mistral_failover.model.goal import Goal
from mistral_failover.model.references import resolve_attributes
from mistral_failover.model.types import ResourceType, check_properties

_ATTEMPTS = 8  # of a step that lost a compare-and-swap: each loss means that somebody else won


class Engine:
    """Convergence over a store. Safe to use from many threads and processes at once."""

    def __init__(self, store: Store, *, lease: float, definitions: Definitions | None = None):
        """``lease``: seconds that a lock lives unless it is renewed."""
        self._store = store
        self._lease = lease
        self._definitions = definitions or Definitions()

    # -- starting

    def start(
        self,
        group_id: str,
        goal: Goal,
        *,
        traversal_id: str,
        expected: str | None,
        cause: str,
        incident_id: str | None = None,
    ) -> Started:
        """Start the traversal to ``goal``, in place of the current one, ``expected``.

        When another traversal has become current meanwhile nothing changes and ``won`` is False:
        somebody newer won, so derive the goal anew from what is current now. Starting the same
        traversal id again changes nothing and returns what is ready in it.

        Raises UnknownGroup, UnknownType, GoalCycle.
        """

        def swap(tx: Transaction) -> Started:
            group = tx.lock_group(group_id, shared=False)
            if group is None:
                raise UnknownGroup(group_id)
            traversal = Traversal(
                traversal_id, group_id, goal.version, "IN_PROGRESS", "", cause, incident_id
            )
            return begin(tx, self._definitions, group, goal, traversal, expected)

        return self._store.atomically(swap)

    def resume(self, group_id: str) -> tuple[Ready, ...]:
        """Let the blocked nodes of the current traversal be tried again; returns them."""

        def reopen(tx: Transaction) -> tuple[Ready, ...]:
            group = tx.lock_group(group_id, shared=False)
            if group is None:
                raise UnknownGroup(group_id)
            current = group.current_traversal
            if current is None:
                return ()
            nodes = [n for n in tx.stopped_nodes(current) if tx.reopen_node(current, n)]
            if nodes:
                tx.mark_traversal(current, "IN_PROGRESS", "")
            return tuple(Ready(current, node) for node in nodes)

        return self._store.atomically(reopen)

    def loose(self, project_id: str, group_id: str | None = None) -> list[Ready]:
        """The nodes that somebody should check and that nobody alive works on."""
        return self._store.atomically(lambda tx: tx.loose_nodes(project_id, group_id))

    # -- a node's life

    def check(self, ready: Ready, owner: str) -> Step:
        """Look at a node and take what is to be done, if anything is and nobody else has it.

        ``owner`` names who would hold the lock, for people to see.
        """
        for _ in range(_ATTEMPTS):
            step = self._store.atomically(lambda tx: self._check(tx, ready, owner))
            if step is not None:
                return step
        return Step(f"{ready.node.key} is contended; it is triggered again", ready=(ready,))

    def conclude(self, ticket: Ticket, outcome: Outcome) -> Step:
        """Record what came of an operation, free its lock, and tell those who wait for it.

        Once the lock is somebody else's the outcome changes nothing.
        """
        return self._store.atomically(lambda tx: self._conclude(tx, ticket, outcome))

    def _check(self, tx: Transaction, ready: Ready, owner: str) -> Step | None:
        """One attempt; None when a compare-and-swap was lost and everything must be read anew."""
        traversal = tx.traversal(ready.traversal_id)
        group = tx.lock_group(traversal.group_id, shared=True) if traversal else None
        if traversal is None or group is None:
            return Step(f"there is no traversal {ready.traversal_id}")
        state = tx.node(ready.traversal_id, ready.node)
        if group.current_traversal != traversal.id or state is None:
            return Step(f"traversal {traversal.id} was superseded by {group.current_traversal}")
        if state.status != "WAITING":
            return Step(f"{ready.node.key} is {state.status} already")
        if state.remaining:
            return Step(f"{ready.node.key} still waits for {state.remaining} others")
        record = tx.record(ready.node.resource_id)
        if record is None:
            return Step(f"the record of {ready.node.key} is gone")
        if record.owner is not None:
            if record.held_at(tx.now()):
                return self._bail_out(tx, ready, record)
            if not tx.steal(record, f"its owner {record.owner} died at work"):
                return None
            self._tell(
                tx,
                traversal,
                record,
                "steal",
                f"{record.name}: the lock of {record.owner}, which is dead, was broken",
            )
            return None
        resource_type = self._definitions.group(tx, group).types[record.type]
        try:
            properties = _resolve(tx, ready, state, resource_type)
        except (UnresolvedReference, InvalidDocument) as error:
            return self._give_up(tx, group, traversal, ready.node, record, error)
        decision = decide(ready.node.kind, record, resource_type, properties)
        if decision.action == "settle":
            return self._settle(tx, group, traversal, state, record)
        if decision.action == "replace":
            return self._replan(tx, traversal, record, decision)
        return self._hand_out(
            tx, traversal, state, record, resource_type, decision.action, properties, owner
        )

    @staticmethod
    def _bail_out(tx: Transaction, ready: Ready, seen: Record) -> Step | None:
        """A live owner is at it: leave the resource alone. Its conclusion triggers this node.

        A conclusion that is under way may have looked at this node before it was ready, so bail
        out only in front of a lock that certainly outlives this transaction.
        """
        record, now = tx.lock_record(seen.id), tx.now()
        if record is None or not record.held_at(now):
            return None
        tx.defer(ready.traversal_id, ready.node, record.owner or "")
        left = (record.lease_until or now) - now
        return Step(
            f"{record.name} is being worked on by {record.owner} (lease: {left:.0f} s left); "
            "its conclusion triggers this again"
        )

    def _settle(
        self,
        tx: Transaction,
        group: GroupState,
        traversal: Traversal,
        state: NodeState,
        record: Record,
    ) -> Step | None:
        """Nothing to carry out: stamp the record with the goal's version and report."""
        changes: dict[str, Any] = {"goal_version": traversal.goal_version}
        if state.wanted is None:
            changes |= {"action": "DELETE", "status": "COMPLETE", "reason": ""}
        else:
            changes |= {"requires": state.wanted.requires}
        if not tx.amend(record, **changes):
            return None
        sentence = f"{record.name} is {'gone' if state.wanted is None else 'as the goal wants it'}"
        return Step(sentence, ready=self._report(tx, group, traversal, state.node, record))

    def _replan(
        self, tx: Transaction, traversal: Traversal, record: Record, decision: Decision
    ) -> Step | None:
        """The record can not become what is wanted: walk to the same goal with a new one."""
        if not tx.amend(record, condemned=True):
            return None
        goal = tx.goal(traversal.group_id, traversal.goal_version)
        if goal is None:
            return Step(f"the goal of traversal {traversal.id} is gone")
        cause = f"{record.name} must be replaced: {decision.reason}"
        started = begin_again(
            tx, self._definitions, traversal, goal, why=f"again/{record.id}", cause=cause
        )
        return Step(cause, ready=started.ready)

    def _lease_for(self, resource_type: ResourceType, verb: Verb) -> float:
        """Seconds. Whoever carries a single action out renews its lease; while Mistral runs a
        workflow nobody does, so its lease lasts as long as the operation may take."""
        spec = resource_type.operations[verb]
        return self._lease if spec.action else self._lease + spec.timeout

    def _hand_out(
        self,
        tx: Transaction,
        traversal: Traversal,
        state: NodeState,
        record: Record,
        resource_type: ResourceType,
        verb: Verb,
        properties: Mapping[str, Any],
        owner: str,
    ) -> Step | None:
        """Take the lock and write the intent down; what is handed out may now be carried out."""
        changes: dict[str, Any] = {"action": ACTION_OF[verb], "status": "IN_PROGRESS", "reason": ""}
        if state.wanted is not None:
            required = {*record.requires, *state.wanted.requires}
            changes |= {"properties": properties, "requires": tuple(sorted(required))}
        lock = tx.acquire(record, owner, self._lease_for(resource_type, verb), **changes)
        if lock is None:
            return None
        key = derived_id(record.id, traversal.goal_version, verb, str(record.generation))
        ticket = Ticket(key, verb, traversal.id, state.node, lock, traversal.goal_version)
        applied = properties if state.wanted is not None else record.properties or {}
        intent = {"properties": applied, "previous": record.properties}
        unknown = tx.open_operation(ticket, record, intent)
        what = doing(verb, record, resource_type)
        self._tell(
            tx,
            traversal,
            record,
            "started",
            f"{what}: {'taken up again' if unknown else 'started'}",
        )
        inputs = tx.inputs(traversal.id, state.node)
        operation = Operation(ticket, record, applied, record.properties, inputs, unknown)
        return Step(what, operation=operation)

    def _conclude(self, tx: Transaction, ticket: Ticket, outcome: Outcome) -> Step:
        traversal = tx.traversal(ticket.traversal_id)
        record = tx.record(ticket.node.resource_id)
        if traversal is None or record is None:
            return Step(f"there is nothing to conclude for {ticket.node.key}")
        group = tx.lock_group(traversal.group_id, shared=outcome.ok)
        if group is None:
            return Step(f"the group of {ticket.node.key} is gone")
        types = self._definitions.group(tx, group).types
        what = doing(ticket.verb, record, types.get(record.type))
        state = tx.node(traversal.id, ticket.node)
        if not tx.release(ticket.lock, **_changes(ticket, outcome, record, state)):
            sentence = f"{what}: a late result under an old token was ignored"
            self._tell(tx, traversal, record, "late", sentence)
            return Step(sentence)
        tx.close_operation(ticket, outcome)
        end = "done" if outcome.ok else because(outcome.error or {})
        self._tell(tx, traversal, record, "done" if outcome.ok else "failed", f"{what}: {end}")
        if group.current_traversal != traversal.id or state is None:
            return Step(f"{what}: {end}", ready=self._wake(tx, group, record.id))
        if outcome.ok:
            ready = self._report(tx, group, traversal, ticket.node, record)
        else:
            ready = self._fail(tx, group, traversal, ticket.node, f"{what}: {end}", outcome.blocked)
        return Step(f"{what}: {end}", ready=ready)

    def _report(
        self, tx: Transaction, group: GroupState, traversal: Traversal, node: Node, record: Record
    ) -> tuple[Ready, ...]:
        """Tell the dependents. Missing sync points mean that a newer traversal stands."""
        now = tx.record(record.id) or record
        data = {"name": now.name, "id": now.physical_id, "attributes": dict(now.attributes)}
        nodes = tx.report(traversal.id, node, data)
        if nodes is None:
            return self._wake(tx, group, record.id)
        if tx.finished(traversal.id):
            complete(tx, traversal)
        return tuple(Ready(traversal.id, n) for n in nodes)

    @staticmethod
    def _wake(tx: Transaction, group: GroupState, resource_id: str) -> tuple[Ready, ...]:
        """Trigger the node that stands for this resource in the traversal that is current now."""
        current = group.current_traversal
        if current is None:
            return ()
        for node in (Node("update", resource_id), Node("cleanup", resource_id)):
            state = tx.node(current, node)
            if state is not None and state.status == "WAITING" and not state.remaining:
                return (Ready(current, node),)
        return ()

    def _give_up(
        self,
        tx: Transaction,
        group: GroupState,
        traversal: Traversal,
        node: Node,
        record: Record,
        error: UnresolvedReference | InvalidDocument,
    ) -> Step:
        """What the node needs can not be had: no operation, the traversal fails."""
        facts = {"code": error.code, "message": str(error)}
        sentence = f"{record.name}: {because(facts)}"
        self._tell(tx, traversal, record, "failed", sentence)
        return Step(sentence, ready=self._fail(tx, group, traversal, node, sentence, False))

    def _fail(
        self,
        tx: Transaction,
        group: GroupState,
        traversal: Traversal,
        node: Node,
        reason: str,
        blocked: bool,
    ) -> tuple[Ready, ...]:
        """The traversal is FAILED or BLOCKED. What does not depend on the node goes on: half of
        an application that runs is better than none."""
        tx.fail_node(traversal.id, node, blocked=blocked, reason=reason)
        tx.mark_traversal(traversal.id, "BLOCKED" if blocked else "FAILED", reason)
        goal = None if blocked else goal_to_fall_back_to(tx, group, traversal)
        if goal is None:
            return ()
        cause = f"rolling back to the last goal that was reached: {reason}"
        try:
            started = begin_again(
                tx, self._definitions, traversal, goal, why="rollback", cause=cause
            )
        except ConvergenceError as error:
            why = f"{reason} It can not be rolled back: {error}"
            tx.mark_traversal(traversal.id, "FAILED", why)
            return ()
        return started.ready

    @staticmethod
    def _tell(
        tx: Transaction, traversal: Traversal, record: Record, kind: str, sentence: str
    ) -> None:
        tx.journal(
            traversal.group_id,
            sentence,
            kind=kind,
            traversal_id=traversal.id,
            resource_id=record.id,
        )


def _changes(
    ticket: Ticket, outcome: Outcome, record: Record, state: NodeState | None
) -> dict[str, Any]:
    """How an outcome changes the record."""
    # What may have taken effect is repeated under the same key.
    generation = record.generation if outcome.unknown else record.generation + 1
    changes: dict[str, Any] = {"generation": generation}
    if not outcome.ok:
        return changes | {"status": "FAILED", "reason": because(outcome.error or {})}
    changes |= {
        "status": "COMPLETE",
        "reason": "",
        "goal_version": ticket.goal_version,
        "physical_id": outcome.physical_id or record.physical_id,
        "attributes": {**record.attributes, **outcome.attributes},
    }
    if state is not None and state.wanted is not None:
        changes["requires"] = state.wanted.requires
    return changes


def _resolve(
    tx: Transaction, ready: Ready, state: NodeState, resource_type: ResourceType
) -> Mapping[str, Any]:
    """What is wanted, with the predecessors' data put in.

    Raises UnresolvedReference when they do not have it, InvalidDocument when it does not fit.
    """
    if state.wanted is None:
        return {}
    data = tx.inputs(ready.traversal_id, ready.node)
    resolved: Mapping[str, Any] = resolve_attributes(state.wanted.properties, data)
    check_properties(resource_type, resolved, f"resources.{state.wanted.name}.properties")
    return resolved
