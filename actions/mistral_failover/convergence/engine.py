# SPDX-License-Identifier: Apache-2.0
"""The life of a traversal: start, check a node, conclude an operation.

Every step is one transaction. Steps may be repeated, doubled, reordered or lost: the lock admits
one of several triggers, and a look at the store finds work that a lost trigger left. The engine
runs no operations itself: it hands them out and takes their outcomes back, so it works under
Mistral as well as in a loop (``convergence.loop``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mistral_failover.convergence.check import LockRequest, check
from mistral_failover.convergence.conclude import abandon, conclude, give_up
from mistral_failover.convergence.definitions import Definitions
from mistral_failover.convergence.errors import UnknownGroup, UnknownTraversal
from mistral_failover.convergence.ports import Store, Transaction
from mistral_failover.convergence.records import (
    NodeStatus,
    Outcome,
    Ready,
    Started,
    Step,
    Ticket,
    Traversal,
    TraversalStatus,
)
from mistral_failover.convergence.traversals import begin, begin_successor, restate
from mistral_failover.fault_points import reach
from mistral_failover.model.goal import Goal
from mistral_failover.model.stages import Stage, rank

_ATTEMPTS = (
    8  # tries of a step that lost a compare-and-swap: each loss means that another worker won
)


def latest(tx: Transaction, traversal_id: str) -> Traversal:
    """Return what :meth:`Engine.current` does, within a transaction. Raises as it does."""
    step = tx.followed(traversal_id)
    if step is None:
        raise UnknownTraversal(traversal_id)
    found, successor = step
    while successor is not None and (step := tx.followed(successor)) is not None:
        found, successor = step
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
        confirm: Callable[[Transaction], None] | None = None,
    ) -> Started:
        """Start the traversal to ``goal``, in place of the current one, ``expected``.

        If another traversal has become current in the meantime, nothing changes and ``won`` is
        False: derive the goal again from what is current now. Starting the same traversal id again
        changes nothing and returns its ready nodes. ``through``: the last stage that may run until
        :meth:`open_through` opens more; None: all. ``confirm`` is called in the same transaction,
        with the group locked, before a new traversal replaces ``expected``; it raises if that may
        not start.

        Raises UnknownGroup, UnknownType, GoalCycle, and what ``confirm`` raises.
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
            new = tx.traversal(traversal_id) is None and group.current_traversal == expected
            if confirm is not None and new:
                confirm(tx)
            return begin(tx, self._definitions, group, goal, traversal, expected)

        reach("start.before")
        started = self._store.atomically(swap)
        reach("start.after")
        return started

    def redirect(
        self,
        traversal_id: str,
        goal: Goal,
        *,
        why: str,
        cause: str,
        holds: Callable[[Transaction], bool],
    ) -> Started:
        """Start the traversal to another goal that follows from what happened in ``traversal_id``,
        with the same stages open; :meth:`current` finds it.

        ``why`` identifies it: a repeat changes nothing. If ``traversal_id`` is no longer current,
        nothing changes, nor if the reason does not hold any more: the caller may have been frozen
        while another worker succeeded. ``holds`` is called in the same transaction, with the group
        locked. Raises UnknownType, GoalCycle.
        """

        def follow(tx: Transaction) -> Started:
            traversal = tx.traversal(traversal_id)
            if traversal is None:
                return Started("", False, False)
            if tx.lock_group(traversal.group_id, shared=False) is None or not holds(tx):
                return Started("", False, False)
            return begin_successor(tx, self._definitions, traversal, goal, why=why, cause=cause)

        return self._store.atomically(follow)

    def resume(self, group_id: str) -> tuple[Ready, ...]:
        """Retry the blocked nodes of the current traversal, and at once those that wait for a
        service; return the blocked ones."""

        def reopen(tx: Transaction) -> tuple[Ready, ...]:
            group = tx.lock_group(group_id, shared=False)
            if group is None:
                raise UnknownGroup(group_id)
            current = group.current_traversal
            if current is None:
                return ()
            tx.retry_now(current)
            nodes = [
                each.node
                for each in tx.stopped_nodes(current)
                if each.status == NodeStatus.BLOCKED and tx.reopen_node(current, each.node)
            ]
            if nodes:
                restate(tx, current)
            return tuple(Ready(current, node) for node in nodes)

        return self._store.atomically(reopen)

    def open_through(self, traversal_id: str, through: Stage | None) -> tuple[Ready, ...]:
        """Let the stages of a traversal up to this one run; None: all of them.

        Never closes an open stage. Returns the nodes that wait for nothing, if the traversal is its
        group's current one.
        """

        def opened(tx: Transaction) -> tuple[Ready, ...]:
            traversal = tx.traversal(traversal_id)
            # So that a traversal that replaces it in the meantime has the same stages open.
            group = tx.lock_group(traversal.group_id, shared=False) if traversal else None
            if group is None:
                return ()
            tx.open_through(traversal_id, None if through is None else rank(through))
            if group.current_traversal != traversal_id:
                return ()
            return tuple(Ready(traversal_id, node) for node in tx.ready_nodes(traversal_id))

        return self._store.atomically(opened)

    def current(self, traversal_id: str) -> Traversal:
        """Return the traversal itself, or the last of those by which the engine itself replaced it:
        a repeated traversal to the same goal, or a rollback.

        Raises UnknownTraversal.
        """

        return self._store.atomically(lambda tx: latest(tx, traversal_id))

    # -- a node's life

    def check(self, ready: Ready, owner: str) -> Step:
        """Check a node and take its operation, if there is one and no other worker has it.

        ``owner`` names the lock's holder, for operators to see.
        """
        wanted_lock = LockRequest(owner, self._lease)
        reach("check.before")
        for _ in range(_ATTEMPTS):
            step = self._store.atomically(
                lambda tx: check(tx, self._definitions, ready, wanted_lock)
            )
            if step is not None:
                reach("check.after")
                return step
        return Step(
            f"other workers changed {ready.node.key} at the same time; it is triggered again",
            ready=(ready,),
        )

    def conclude(self, ticket: Ticket, outcome: Outcome) -> Step:
        """Record an operation's outcome, free its lock, and notify the nodes that wait for it.

        If the lock has another owner, the outcome changes nothing. A transient failure
        (``Outcome.transient``) fails nothing: the step says when to retry.
        """
        reach("conclude.before")
        step = self._store.atomically(lambda tx: conclude(tx, self._definitions, ticket, outcome))
        reach("conclude.after")
        return step

    def stop_waiting(self, ready: Ready, error: Mapping[str, Any]) -> Step:
        """Fail a node that waits, though the group's patience is not over: what it waits for cannot
        come. ``error``: its code, message and remedy. A node that does not wait is left alone."""
        return self._store.atomically(
            lambda tx: give_up(tx, self._definitions, ready, error, if_waiting=True)
        )

    def give_up(self, ready: Ready, error: Mapping[str, Any]) -> Step:
        """Fail a ready node that cannot even be checked. ``error``: its code, message and remedy.
        One that a live worker holds is left alone."""
        return self._store.atomically(lambda tx: give_up(tx, self._definitions, ready, error))

    def abandon(self, ticket: Ticket, reason: str, code: str = "LEASE_LOST") -> Step:
        """Give up an operation that this process may not continue, and its lock unless it is broken
        already: the process lost its lease or, by another ``code``, something else that the
        operation needs.

        Nothing fails by it: the outcome is unknown, and the node is triggered again.
        """
        return self._store.atomically(
            lambda tx: abandon(tx, self._definitions, ticket, reason, code)
        )
