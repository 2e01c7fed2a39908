# SPDX-License-Identifier: Apache-2.0
"""The life of a traversal: start, check a node, conclude an operation.

Every step is one transaction. Steps may be repeated, doubled, reordered or lost: the lock lets
one of several triggers through, and what a lost one leaves lying is found by a look at the store.
The engine carries nothing out: it hands operations out and takes their outcomes back, so it runs
under Mistral as well as in a loop (``convergence.loop``).
"""

from __future__ import annotations

from mistral_failover.convergence.check import Terms, check
from mistral_failover.convergence.conclude import abandon, conclude
from mistral_failover.convergence.definitions import Definitions
from mistral_failover.convergence.errors import UnknownGroup
from mistral_failover.convergence.ports import Store, Transaction
from mistral_failover.convergence.records import (
    Outcome,
    Ready,
    Started,
    Step,
    Ticket,
    Traversal,
    TraversalStatus,
)
from mistral_failover.convergence.traversals import begin
from mistral_failover.fault_points import reach
from mistral_failover.model.goal import Goal
from mistral_failover.model.stages import Stage, rank

_ATTEMPTS = 8  # of a step that lost a compare-and-swap: each loss means that somebody else won


def latest(tx: Transaction, traversal_id: str) -> Traversal:
    """Return what :meth:`Engine.current` does, within a transaction."""
    found = tx.traversal(traversal_id)
    if found is None:
        raise LookupError(f"there is no traversal {traversal_id}")
    while (successor := tx.successor(found.id)) is not None:
        found = tx.traversal(successor) or found
    return found


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
        through: Stage | None = None,
    ) -> Started:
        """Start the traversal to ``goal``, in place of the current one, ``expected``.

        When another traversal has become current meanwhile nothing changes and ``won`` is False:
        somebody newer won, so derive the goal anew from what is current now. Starting the same
        traversal id again changes nothing and returns what is ready in it. ``through``: the last
        stage that may be worked off until :meth:`open_through` opens more; None: all.

        Raises UnknownGroup, UnknownType, GoalCycle.
        """

        def swap(tx: Transaction) -> Started:
            group = tx.lock_group(group_id, shared=False)
            if group is None:
                raise UnknownGroup(group_id)
            traversal = Traversal(
                traversal_id,
                group_id,
                goal.version,
                TraversalStatus.IN_PROGRESS,
                cause=cause,
                incident_id=incident_id,
                through=None if through is None else rank(through),
            )
            return begin(tx, self._definitions, group, goal, traversal, expected)

        reach("start.before")
        started = self._store.atomically(swap)
        reach("start.after")
        return started

    def resume(self, group_id: str) -> tuple[Ready, ...]:
        """Let the blocked nodes of the current traversal be tried again, and those that wait for a
        service at once; returns the blocked ones."""

        def reopen(tx: Transaction) -> tuple[Ready, ...]:
            group = tx.lock_group(group_id, shared=False)
            if group is None:
                raise UnknownGroup(group_id)
            current = group.current_traversal
            if current is None:
                return ()
            tx.retry_now(current)
            nodes = [n for n in tx.stopped_nodes(current) if tx.reopen_node(current, n)]
            if nodes:
                tx.mark_traversal(current, TraversalStatus.IN_PROGRESS, "")
            return tuple(Ready(current, node) for node in nodes)

        return self._store.atomically(reopen)

    def open_through(self, traversal_id: str, through: Stage | None) -> tuple[Ready, ...]:
        """Let the stages of a traversal up to this one be worked off; None: all of them.

        Never closes a stage that is open. Returns the nodes that wait for nothing, if the traversal
        is its group's current one.
        """

        def opened(tx: Transaction) -> tuple[Ready, ...]:
            traversal = tx.traversal(traversal_id)
            # So that a traversal that takes its place meanwhile has the same stages open.
            group = tx.lock_group(traversal.group_id, shared=False) if traversal else None
            if group is None:
                return ()
            tx.open_through(traversal_id, None if through is None else rank(through))
            if group.current_traversal != traversal_id:
                return ()
            return tuple(Ready(traversal_id, node) for node in tx.ready_nodes(traversal_id))

        return self._store.atomically(opened)

    def current(self, traversal_id: str) -> Traversal:
        """Return the traversal itself, or the last one of those by which the engine itself replaced
        it: a repeated walk to the same goal, a rollback.

        Raises LookupError when there is no such traversal.
        """

        return self._store.atomically(lambda tx: latest(tx, traversal_id))

    # -- a node's life

    def check(self, ready: Ready, owner: str) -> Step:
        """Look at a node and take what is to be done, if anything is and nobody else has it.

        ``owner`` names who would hold the lock, for people to see.
        """
        terms = Terms(owner, self._lease)
        reach("check.before")
        for _ in range(_ATTEMPTS):
            step = self._store.atomically(lambda tx: check(tx, self._definitions, ready, terms))
            if step is not None:
                reach("check.after")
                return step
        return Step(f"{ready.node.key} is contended; it is triggered again", ready=(ready,))

    def conclude(self, ticket: Ticket, outcome: Outcome) -> Step:
        """Record what came of an operation, free its lock, and tell those who wait for it.

        Once the lock is somebody else's the outcome changes nothing. What failed of something that
        passes by itself (``Outcome.transient``) fails nothing: the step says when to try it again.
        """
        reach("conclude.before")
        step = self._store.atomically(lambda tx: conclude(tx, self._definitions, ticket, outcome))
        reach("conclude.after")
        return step

    def abandon(self, ticket: Ticket, reason: str, code: str = "LEASE_LOST") -> Step:
        """Give up an operation that this process may not go on with, and its lock if nobody broke
        that yet: its lease was lost, or, by another ``code``, something else that it needs.

        Nothing fails by it: its outcome is unknown, and its node is triggered again.
        """
        return self._store.atomically(
            lambda tx: abandon(tx, self._definitions, ticket, reason, code)
        )
