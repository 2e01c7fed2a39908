# SPDX-License-Identifier: Apache-2.0
"""Conclude an operation: record its outcome, and notify the nodes that wait for it.

Each function runs in one transaction. ``tests/convergence/conftest.py`` lists the rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from mistral_failover.convergence.definitions import Definitions
from mistral_failover.convergence.errors import ConvergenceError
from mistral_failover.convergence.ports import Transaction
from mistral_failover.convergence.records import (
    VERB_OF,
    GroupState,
    JournalKind,
    Node,
    NodeState,
    NodeStatus,
    Outcome,
    Ready,
    Record,
    Status,
    Step,
    Ticket,
    Traversal,
    TraversalStatus,
)
from mistral_failover.convergence.sentences import because, operation_words_of, where
from mistral_failover.convergence.traversals import (
    automatic_rollback_goal,
    begin_successor,
    complete,
    restate,
)
from mistral_failover.convergence.waiting import TARGET_DOWN, Wait, next_look, next_wait
from mistral_failover.fault_points import reach
from mistral_failover.model.goal import FENCE_PREFIX
from mistral_failover.model.types import Verb

HANDED_BACK = "HANDED_BACK"
"""The code of an operation that its process releases cleanly, for another process to continue."""

STOPPED = (TraversalStatus.FAILED, TraversalStatus.BLOCKED)

_NOT_REACHED: Mapping[JournalKind, str] = {
    JournalKind.BLOCKED: "Blocked: an operator must act before it can continue",
    JournalKind.NOT_REACHED: "Failed: the goal was not reached",
}


@dataclass(frozen=True)
class Failed:
    """Why a node failed: ``what`` was done, and the ``error`` (message, remedy, code). ``blocked``:
    it waits for an operator."""

    what: str
    error: Mapping[str, Any]
    blocked: bool = False

    def reason(self, *, remedy: bool = True) -> str:
        """Return it in one line."""
        return f"{self.what}: {because(self.error, remedy=remedy)}"


def conclude(tx: Transaction, definitions: Definitions, ticket: Ticket, outcome: Outcome) -> Step:
    """Record an operation's outcome, free its lock, and notify the nodes that wait for it.

    An operation that failed for a transient reason is retried as long as the group's patience
    lasts; until then its node does not fail. A traversal that can go back does not wait for a
    target that is down.
    """
    # A failure may start the rollback, so no other transaction may read the group's traversal
    # concurrently.
    group = tx.lock_group_of(ticket.traversal_id, shared=outcome.ok)
    view = tx.view(ticket.traversal_id, ticket.node) if group else None
    if group is None or view is None or view.record is None:
        return Step(f"{ticket.node.key} has no operation to conclude")
    traversal, state, record = view.traversal, view.state, view.record
    what = operation_words_of(
        ticket.verb, record, definitions.group(tx, group).types.get(record.type)
    )
    if outcome.transient:  # an earlier try may have got further than the last one
        outcome = replace(outcome, unknown=True)
    failing = tx.waits_since(ticket.lock) if outcome.transient else None
    changes = _changes(ticket, outcome, record, state)
    if not tx.release(ticket.lock, **changes):
        sentence = f"{what}: a late result under an old token was ignored"
        write_journal(tx, traversal, record, JournalKind.LATE, sentence)
        return Step(sentence)
    reach("conclude.released")
    tx.close_operation(ticket, outcome)
    current = group.current_traversal == traversal.id
    if current and state is not None and outcome.transient:
        patience = definitions.group(tx, group).limits.patience
        if (outcome.error or {}).get("code") == TARGET_DOWN:
            back = automatic_rollback_goal(tx, group, traversal, blocked=False)
            patience = patience if back is None else 0.0
        wait = next_wait(
            state,
            outcome.error or {},
            tx.now(),
            patience,
            own=outcome.patience,
            failing=failing,
            blocked=outcome.blocked,
        )
        if wait is not None:
            return _retry_later(tx, traversal, record, state, wait, what)
    end = "done" if outcome.ok else because(outcome.error or {})
    kind = JournalKind.DONE if outcome.ok else JournalKind.FAILED
    write_journal(tx, traversal, record, kind, f"{what}: {end}")
    if not current or state is None:
        return Step(f"{what}: {end}", ready=wake(tx, group, record.id))
    if outcome.ok:
        ready = report(tx, traversal, ticket.node, replace(record, **changes))
    else:
        failed = Failed(what, outcome.error or {}, blocked=outcome.blocked)
        ready = fail(tx, definitions, group, traversal, ticket.node, failed)
    reach("conclude.reported")
    return Step(f"{what}: {end}", ready=ready)


def _retry_later(
    tx: Transaction,
    traversal: Traversal,
    record: Record,
    state: NodeState,
    wait: Wait,
    what: str,
) -> Step:
    """Leave a node to its next try; the journal gets one entry, when the wait begins."""
    tx.schedule_retry(
        traversal.id,
        state.node,
        waiting_for=wait.what,
        since=wait.since,
        own_since=wait.own_since,
        next_try=wait.next_try,
    )
    if traversal.status in STOPPED:
        restate(tx, traversal.id)
    sentence = f"{what}: waiting for {wait.what}"
    if not state.tries:
        write_journal(tx, traversal, record, JournalKind.WAITING, sentence)
    return Step(sentence, retry_at=wait.next_try)


def break_dead_lock(tx: Transaction, traversal: Traversal, record: Record) -> None:
    """Break a dead owner's lock, unless another worker did."""
    if tx.break_dead_lock(record, f"its owner {record.owner} died during the operation"):
        sentence = f"{record.name}: broke the lock of {record.owner}, which is dead"
        write_journal(tx, traversal, record, JournalKind.STEAL, sentence, broken=True)
        reach("check.stolen")


def give_up(
    tx: Transaction,
    definitions: Definitions,
    ready: Ready,
    error: Mapping[str, Any],
    *,
    if_waiting: bool = False,
) -> Step:
    """Fail a node that no operation concludes, as if the group's patience were over. One that a
    live worker holds is left alone; with ``if_waiting`` also one that waits for no service."""
    traversal, key = tx.traversal(ready.traversal_id), ready.node.key
    group = tx.lock_group(traversal.group_id, shared=False) if traversal else None
    state = tx.node(ready.traversal_id, ready.node)
    record = tx.lock_record(ready.node.resource_id)
    if traversal is None or group is None or state is None or record is None:
        return Step(f"{key} does not exist")
    if (
        group.current_traversal != traversal.id
        or state.status != NodeStatus.WAITING
        or state.remaining
        or (if_waiting and state.waiting_since is None)
        or record.held_at(tx.now())
    ):
        return Step(f"{key} does not wait")
    if record.owner is not None:
        break_dead_lock(tx, traversal, record)  # no check looks at this node again
    what = f"check of {record.name}"  # without the definition, which may be why it failed
    if if_waiting:
        verb = VERB_OF[record.action]
        what = operation_words_of(verb, record, definitions.group(tx, group).types.get(record.type))
    write_journal(tx, traversal, record, JournalKind.FAILED, f"{what}: {because(error)}")
    failed = Failed(what, error)
    nodes = fail(tx, definitions, group, traversal, ready.node, failed)
    return Step(failed.reason(), ready=nodes)


def abandon(
    tx: Transaction, definitions: Definitions, ticket: Ticket, reason: str, code: str
) -> Step:
    """Give up an operation whose outcome is not known, and its lock if it is still ours: after a
    lost lease other workers need not wait for the lease's end. ``code`` is the error for the
    ledger; the journal has its own kind for HANDED_BACK."""
    traversal = tx.traversal(ticket.traversal_id)
    record = tx.record(ticket.node.resource_id)
    group = tx.lock_group(traversal.group_id, shared=True) if traversal else None
    if traversal is None or record is None or group is None:
        return Step(f"{ticket.node.key} has no operation to abandon")
    what = operation_words_of(
        ticket.verb, record, definitions.group(tx, group).types.get(record.type)
    )
    if not tx.release(ticket.lock, status=Status.FAILED, reason=reason, given_up=code):
        return Step(f"{what}: {reason}; another worker has broken the lock")
    error = {"code": code, "message": reason}
    tx.close_operation(ticket, Outcome(error=error, unknown=True))
    back = code == HANDED_BACK
    sentence = f"{what}: {'released' if back else 'abandoned'}, {reason}"
    kind = JournalKind.HANDED_BACK if back else JournalKind.GIVEN_UP
    write_journal(tx, traversal, record, kind, sentence)
    return Step(sentence, ready=wake(tx, group, record.id))


def report(tx: Transaction, traversal: Traversal, node: Node, record: Record) -> tuple[Ready, ...]:
    """Notify the dependents of a node of the current traversal. ``record``: as it is now."""
    if traversal.status in STOPPED:  # this node was tried again
        restate(tx, traversal.id)
    data = {
        "name": record.name,
        "id": record.physical_id,
        "attributes": dict(record.attributes),
    }
    reported = tx.report(traversal.id, node, data)
    if reported.finished:
        complete(tx, traversal)
    return tuple(Ready(traversal.id, n) for n in reported.ready)


def fail(
    tx: Transaction,
    definitions: Definitions,
    group: GroupState,
    traversal: Traversal,
    node: Node,
    failed: Failed,
) -> tuple[Ready, ...]:
    """Set the traversal to FAILED or BLOCKED unless it goes back. Nodes that do not depend on this
    one continue: half of an application is better than none.

    If the traversal goes back, its reason omits the remedy, which says how to continue to a goal
    that was given up. The journal and the record have it.
    """
    goal = automatic_rollback_goal(tx, group, traversal, blocked=failed.blocked)
    blocked = failed.blocked and goal is None
    reason = failed.reason(remedy=goal is None)
    state, now = tx.node(traversal.id, node), tx.now()
    since = (state and (state.stopped_since or state.waiting_since)) or now
    again = next_look(since, now)
    tx.stop_node(traversal.id, node, blocked=blocked, reason=reason, since=since, again=again)
    _tell_stop(tx, traversal)
    if goal is None:
        return ()
    cause = f"rolling back to the last reached goal ({where(goal)}): {reason}"
    try:
        started = begin_successor(
            tx, definitions, traversal, goal, why="rollback", cause=cause, back=True
        )
    except ConvergenceError as error:
        why = f"{failed.reason()} It cannot be rolled back: {error}"
        tx.mark_traversal(traversal.id, TraversalStatus.FAILED, why, node)
        return ()
    return started.ready


def _tell_stop(tx: Transaction, traversal: Traversal) -> None:
    """Mark the traversal FAILED or BLOCKED; the journal gets one entry for all of its nodes, and
    for all tries of one."""
    tx.lock_group(traversal.group_id, shared=False)  # so that two nodes do not both write an entry
    before = tx.traversal(traversal.id)
    restate(tx, traversal.id)
    after = tx.traversal(traversal.id)
    if before is None or after is None or before.status == after.status:
        return
    kind = (
        JournalKind.BLOCKED if after.status == TraversalStatus.BLOCKED else JournalKind.NOT_REACHED
    )
    sentence = _NOT_REACHED[kind]
    tx.journal(traversal.group_id, sentence, kind=kind, traversal_id=traversal.id)


def write_journal(
    tx: Transaction,
    traversal: Traversal,
    record: Record,
    kind: JournalKind,
    sentence: str,
    *,
    broken: bool = False,
) -> None:
    """Add what happened to a record to the group's journal. ``broken``: the lock that ``record``
    shows was broken."""
    tx.journal(
        traversal.group_id,
        sentence,
        kind=kind,
        traversal_id=traversal.id,
        resource_id=record.id,
        owner=record.owner if broken else None,
        token=record.token if broken else None,
    )


def wake(tx: Transaction, group: GroupState, resource_id: str) -> tuple[Ready, ...]:
    """Trigger the node of this resource in the current traversal."""
    current = group.current_traversal
    if current is None:
        return ()
    for node in (Node("update", resource_id), Node("cleanup", resource_id)):
        state = tx.node(current, node)
        if state is not None and state.status == NodeStatus.WAITING and not state.remaining:
            return (Ready(current, node),)
    return ()


def _changes(
    ticket: Ticket, outcome: Outcome, record: Record, state: NodeState | None
) -> dict[str, Any]:
    """Return how an outcome changes the record."""
    # An operation that may have taken effect is repeated under the same key.
    generation = record.generation if outcome.unknown else record.generation + 1
    changes: dict[str, Any] = {"generation": generation}
    if not outcome.ok:
        return changes | {"status": Status.FAILED, "reason": because(outcome.error or {})}
    changes |= {
        "status": Status.COMPLETE,
        "reason": "",
        "goal_version": ticket.goal_version,
        "physical_id": outcome.physical_id or record.physical_id,
        "attributes": {**record.attributes, **outcome.attributes},
    }
    if not record.name.startswith(FENCE_PREFIX):
        # What it asked for was seen. A fence is proven by what it sees, whatever it asked for.
        changes |= {"asked": None, "settles_at": None}
    if ticket.verb != Verb.DELETE:
        changes["applied"] = record.properties
    if state is not None and state.wanted is not None:
        changes["requires"] = state.wanted.requires
    return changes
