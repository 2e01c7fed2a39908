# SPDX-License-Identifier: Apache-2.0
"""The store that convergence needs, as a contract.

The engine composes each of its steps from these primitives inside **one** transaction, so a
step happens whole or not at all, and a crash leaves nothing between two of them.

What an implementation owes:

- transactions are at least READ COMMITTED and see their own writes;
- the primitives marked *compare-and-swap* are one conditional UPDATE each and return whether it
  took effect; nothing is decided on a value read before;
- ``lock_group(..., shared=True)`` keeps the group's current traversal as it is until the
  transaction ends, and several may hold it; ``shared=False`` excludes them all;
- ``now()`` is the database's clock, in seconds since the epoch, the same for every process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from mistral_failover.convergence.graph import TraversalPlan
from mistral_failover.convergence.records import (
    GroupState,
    JournalKind,
    Lock,
    Node,
    NodeProgress,
    NodeState,
    NodeView,
    Outcome,
    Record,
    Reported,
    StoppedNode,
    Ticket,
    Traversal,
    TraversalStatus,
    Unsettled,
)
from mistral_failover.model.goal import Goal

T = TypeVar("T")


class Transaction(Protocol):
    """The primitives of one transaction."""

    def now(self) -> float:
        """Return the database's clock, in seconds."""

    # -- groups, goals, traversals
    def lock_group(self, group_id: str, *, shared: bool) -> GroupState | None:
        """Read a group and keep its current traversal from changing (see above)."""

    def lock_group_of(self, traversal_id: str, *, shared: bool) -> GroupState | None:
        """As :meth:`lock_group`, for the group of a traversal."""

    def definition(self, group_id: str, version: str | None = None) -> Mapping[str, Any]:
        """Return one of the group's definitions: ``{"document": group file, "types": [type
        files]}``. Without a version, the one that the group's owner gave last."""

    def goal(self, group_id: str, version: str) -> Goal | None:
        """Return a goal of this group, by its version. Its definition is that of the last traversal
        that reached it, or else of the last one."""

    def save_goal(self, group_id: str, goal: Goal) -> None:
        """Keep a goal; saving it again changes nothing."""

    def traversal(self, traversal_id: str) -> Traversal | None:
        """Return one traversal, current or not."""

    def followed(self, traversal_id: str) -> tuple[Traversal, str | None] | None:
        """Return one traversal, and the id of the one by which the engine itself replaced it, None
        if it did not. Return None if there is no such traversal."""

    def open_through(self, traversal_id: str, through: int | None) -> None:
        """Let the stages up to this rank run; None: all. Never closes a stage again."""

    def swap_traversal(
        self, group_id: str, expected: str | None, new: str, definition_version: str
    ) -> bool:
        """Make ``new`` the group's current traversal, and the version of its definition the one
        that the engine works by. *Compare-and-swap* on ``expected``."""

    def open_traversal(self, traversal: Traversal, plan: TraversalPlan) -> None:
        """Insert a traversal: its graph, new records, sync points; mark the kept and replaced."""

    def mark_traversal(
        self, traversal_id: str, status: TraversalStatus, reason: str, failed: Node | None = None
    ) -> None:
        """Change a traversal's status; COMPLETE and SUPERSEDED stay. ``failed``: the node whose
        failure is the reason. One that goes on after it FAILED has not ended."""

    def supersede(self, traversal_id: str, by: str) -> None:
        """Mark a traversal SUPERSEDED by another one, unless it has ended, and delete its sync
        points."""

    def set_last_complete(self, group_id: str, goal_version: str, in_force: str | None) -> None:
        """Record the goal that was reached, and the version of the definition that is in force now;
        None if the group is out of service."""

    def reached_goals(self, group_id: str) -> Sequence[str]:
        """Return the versions of the goals that were ever reached, the latest first, each once."""

    def epochs(self, group_id: str) -> Mapping[str, int]:
        """Return the current epoch of each member."""

    def raise_epochs(self, group_id: str, members: Iterable[str]) -> None:
        """Raise the epoch of members that are fenced now."""

    def return_members(self, group_id: str, names: Iterable[str]) -> None:
        """Make members again, with their last epochs, of those that have left the group. Other
        names change nothing."""

    # -- records and their locks
    def records(self, group_id: str) -> Sequence[Record]:
        """Return every record of the group that is not gone, oldest first."""

    def record(self, resource_id: str) -> Record | None:
        """Return one record."""

    def lock_record(self, resource_id: str) -> Record | None:
        """Read a record after every running change has ended, and keep it from changing until the
        transaction ends."""

    def acquire(self, record: Record, owner: str, lease: float, **changes: Any) -> Lock | None:
        """Take a free lock, raise its token, change the record. *Compare-and-swap* on ``owner IS
        NULL`` and the atomic key of ``record``."""

    def break_dead_lock(self, record: Record, reason: str) -> bool:
        """Free the lock of a dead owner and mark the record FAILED. *Compare-and-swap* on the
        owner **and** the token of ``record``: a second worker that tries fails."""

    def renew(self, lock: Lock) -> bool:
        """Prolong a lease by its length from now. *Compare-and-swap* on owner and token, and only
        before it has expired.

        Also refused for an operation that creates something on a member that was fenced or replaced
        since: so no node waits for a dead one longer than one lease."""

    def ask(self, lock: Lock, asked: str, seconds: float) -> bool:
        """Renew a lease, and record the request that is sent next: whatever becomes of its sender,
        it may take effect for so many seconds. *Compare-and-swap* like :meth:`renew`."""

    def settle(self, lock: Lock, asked: str | None = None, seconds: float = 0.0) -> bool:
        """Record that a request was answered; ``asked``: the one that may still take effect, for
        so many seconds, None if there is none. *Compare-and-swap* on owner and token."""

    def unsettled(self, group_id: str) -> Sequence[Unsettled]:
        """Return the requests of a group's operations that may still take effect."""

    def release(self, lock: Lock, **changes: Any) -> bool:
        """Free a lock and change the record. *Compare-and-swap* on owner and token."""

    def amend(self, record: Record, **changes: Any) -> bool:
        """Change a record whose lock is free. *Compare-and-swap* like :meth:`acquire`."""

    # -- the ledger
    def open_operation(self, ticket: Ticket, record: Record, intent: Mapping[str, Any]) -> bool:
        """Record the intent. Return True if the outcome of an earlier attempt is unknown: of this
        operation, or of another one on the resource that no success has followed since."""

    def waits_since(self, lock: Lock) -> float | None:
        """Since when the operation under a lock has waited for a service that does not answer;
        None: it does not."""

    def close_operation(self, ticket: Ticket, outcome: Outcome) -> None:
        """Record the outcome."""

    # -- sync points
    def node(self, traversal_id: str, node: Node) -> NodeState | None:
        """Return a node's sync point; None if a newer traversal has replaced its traversal."""

    def view(self, traversal_id: str, node: Node) -> NodeView | None:
        """Read all that a node's visit is about at once; None if there is no such traversal."""

    def inputs(self, traversal_id: str, node: Node) -> Mapping[str, Mapping[str, Any]]:
        """Return what the predecessors reported, by resource name."""

    def report(self, traversal_id: str, node: Node, data: Mapping[str, Any]) -> Reported:
        """Report that a node is done to those that wait for it, once. Return which of them wait
        for nothing any more (also when repeated); none when the sync points are gone."""

    def stop_node(
        self,
        traversal_id: str,
        node: Node,
        *,
        blocked: bool,
        reason: str,
        since: float,
        again: float,
    ) -> None:
        """Record that a node failed, or waits for an operator: ``since`` when, and when a sweep
        tries it ``again`` at the earliest."""

    def put_off(self, traversal_id: str, node: Node, again: float) -> None:
        """Let a sweep try a stopped node again at that time at the earliest."""

    def retry_now(self, traversal_id: str) -> None:
        """Let the nodes that wait for a service be retried at once."""

    def reopen_node(self, traversal_id: str, node: Node, *, once: bool = False) -> bool:
        """Let a stopped node be retried; return False if it has not stopped. ``once``: an error
        with a patience of its own is not retried again for that long."""

    def defer(self, traversal_id: str, node: Node, holder: str) -> None:
        """Record, for operators to see, which worker holds what this node needs."""

    def ready_nodes(self, traversal_id: str) -> list[Node]:
        """Return the nodes of a traversal that wait for nothing and are not done."""

    def stopped_nodes(self, traversal_id: str) -> list[StoppedNode]:
        """Return the nodes of a traversal that failed or are blocked, the first to stop first."""

    def schedule_retry(
        self,
        traversal_id: str,
        node: Node,
        *,
        waiting_for: str,
        since: float,
        own_since: float | None = None,
        next_try: float,
    ) -> None:
        """Record one more transient failure of a node's operation. A report or a failure of the
        node ends the wait."""

    def postpone(
        self, traversal_id: str, node: Node, *, waiting_for: str, since: float, next_try: float
    ) -> None:
        """Record that a node waits, without a failure."""

    def progress(self, traversal_id: str) -> list[NodeProgress]:
        """Return the progress of each node of a traversal, in one query; empty when it was
        superseded."""

    # -- the journal
    def journal(
        self,
        group_id: str,
        sentence: str,
        *,
        kind: JournalKind,
        traversal_id: str | None = None,
        resource_id: str | None = None,
        incident_id: str | None = None,
        owner: str | None = None,
        token: int | None = None,
    ) -> None:
        """Add one sentence to the group's journal. ``owner`` and ``token`` are those of a lock that
        was broken."""


class Store(Protocol):
    """Runs functions in transactions."""

    def atomically(self, function: Callable[[Transaction], T]) -> T:
        """Run ``function`` in one transaction and return its result.

        It may run again from its beginning when the database reports a deadlock or a serialisation
        failure, so it must do nothing but call the transaction.
        """
