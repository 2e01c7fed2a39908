# SPDX-License-Identifier: Apache-2.0
"""Check a ready node: whether it may be worked on, what to do, and which worker does it.

Each function runs in one transaction and returns None if its compare-and-swap lost; the caller then
reads everything again. ``tests/convergence/conftest.py`` lists the rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mistral_failover.convergence.conclude import (
    Failed,
    break_dead_lock,
    fail,
    report,
    write_journal,
)
from mistral_failover.convergence.decide import NodeDecision, decide, revived
from mistral_failover.convergence.definitions import Definitions
from mistral_failover.convergence.graph import plan_traversal
from mistral_failover.convergence.ports import Transaction
from mistral_failover.convergence.records import (
    ACTION_OF,
    Action,
    GroupState,
    JournalKind,
    NodeState,
    NodeStatus,
    Operation,
    Ready,
    Record,
    Status,
    Step,
    Ticket,
    Traversal,
    Unsettled,
)
from mistral_failover.convergence.sentences import operation_words_of, request_words
from mistral_failover.convergence.traversals import begin_successor, goal_of
from mistral_failover.fault_points import reach
from mistral_failover.model.errors import InvalidDocument
from mistral_failover.model.goal import FENCE_PREFIX, REPLACE_PREFIX, fence_name, replace_name
from mistral_failover.model.ids import derived_id
from mistral_failover.model.references import resolve_attributes
from mistral_failover.model.stages import at as stage_at
from mistral_failover.model.types import ResourceType, Verb, check_properties

_OF_SERVERS = (FENCE_PREFIX, REPLACE_PREFIX)
Inputs = Mapping[str, Mapping[str, Any]]
"""What the predecessors reported: id and attributes, by resource name."""


@dataclass(frozen=True)
class LockRequest:
    """What a worker asks for: a lock of this ``owner``, with a ``lease`` in seconds."""

    owner: str
    lease: float


@dataclass(frozen=True)
class _CheckedNode:
    """A node of the current traversal that waits for nothing, and its record, which is free.
    ``epoch``: the current one of the record's member."""

    group: GroupState
    traversal: Traversal
    state: NodeState
    record: Record
    resource_type: ResourceType
    epoch: int


def check(
    tx: Transaction, definitions: Definitions, ready: Ready, wanted_lock: LockRequest
) -> Step | None:
    """One attempt; None if everything must be read again."""
    group = tx.lock_group_of(ready.traversal_id, shared=True)
    view = tx.view(ready.traversal_id, ready.node) if group else None
    if group is None or view is None:
        return Step(f"there is no traversal {ready.traversal_id}")
    traversal, state, record = view.traversal, view.state, view.record
    if group.current_traversal != traversal.id:
        return Step(
            f"traversal {traversal.id} was superseded by {group.current_traversal}",
            superseded_by=group.current_traversal,
        )
    if state is None:
        return Step(f"traversal {traversal.id} has no node {ready.node.key}")
    if state.status != NodeStatus.WAITING:
        return Step(f"{ready.node.key} is {state.status} already")
    if state.remaining:
        return Step(f"{ready.node.key} still waits for {state.remaining} others")
    if (not_yet := _not_yet(tx, traversal, state)) is not None:
        return not_yet
    if record is None:
        return Step(f"the record of {ready.node.key} does not exist")
    if record.owner is not None:
        if record.held_at(tx.now()):
            return _defer_to_owner(tx, ready, record)
        break_dead_lock(tx, traversal, record)
        return None
    resource_type = definitions.group(tx, group).types[record.type]
    checked = _CheckedNode(group, traversal, state, record, resource_type, view.epoch)
    return _check_free(tx, definitions, checked, wanted_lock)


def _not_yet(tx: Transaction, traversal: Traversal, state: NodeState) -> Step | None:
    """Return why a ready node must still wait: for its stage, or for its next try."""
    key = state.node.key
    if traversal.through is not None and state.stage > traversal.through:
        return Step(f"{key} waits for its stage, {stage_at(state.stage)}", held=True)
    if state.next_try is not None and state.next_try > (now := tx.now()):
        sentence = f"{key} waits for {state.waiting_for}, next try in {state.next_try - now:.0f} s"
        return Step(sentence, retry_at=state.next_try)
    return None


def _defer_to_owner(tx: Transaction, ready: Ready, seen: Record) -> Step | None:
    """Leave a resource alone whose owner is live; that owner's conclusion triggers this node.

    A running conclusion may have read this node before it was ready, so this leaves only if the
    lock certainly outlives this transaction.
    """
    record, now = tx.lock_record(seen.id), tx.now()
    if record is None or not record.held_at(now):
        return None
    tx.defer(ready.traversal_id, ready.node, record.owner or "")
    left = (record.lease_until or now) - now
    return Step(
        f"{record.owner} is working on {record.name} (lease: {left:.0f} s left); when it is done, "
        "this is triggered again"
    )


def _check_free(
    tx: Transaction, definitions: Definitions, checked: _CheckedNode, wanted_lock: LockRequest
) -> Step | None:
    inputs = tx.inputs(checked.traversal.id, checked.state.node)
    try:
        properties = _resolve(checked, inputs)
    except InvalidDocument as error:
        return _give_up(tx, definitions, checked, error)
    record = checked.record
    kind = checked.state.node.kind
    decision = decide(kind, record, checked.resource_type, properties, epoch=checked.epoch)
    if decision.action == "none":
        return _conclude_unchanged(tx, checked)
    if decision.action == "replace":
        return _replan(tx, definitions, checked, decision)
    if decision.action == Verb.DELETE and _is_wanted_after_all(tx, definitions, checked):
        return _keep(tx, definitions, checked)
    return _hand_out(tx, checked, decision.action, properties, inputs, wanted_lock)


def _resolve(checked: _CheckedNode, inputs: Inputs) -> Mapping[str, Any]:
    """Return the wanted properties, with the predecessors' data filled in.

    Raises UnresolvedReference if the data is missing, InvalidDocument if it does not fit.
    """
    wanted = checked.state.wanted
    if wanted is None:
        return {}
    resolved: Mapping[str, Any] = resolve_attributes(wanted.properties, inputs)
    check_properties(checked.resource_type, resolved, f"resources.{wanted.name}.properties")
    return resolved


def _give_up(
    tx: Transaction,
    definitions: Definitions,
    checked: _CheckedNode,
    error: InvalidDocument,
) -> Step:
    """Conclude that the node's needs cannot be met: there is no operation, and the traversal
    fails."""
    failed = Failed(checked.record.name, {"code": error.code, "message": str(error)})
    sentence = failed.reason()
    write_journal(tx, checked.traversal, checked.record, JournalKind.FAILED, sentence)
    ready = fail(tx, definitions, checked.group, checked.traversal, checked.state.node, failed)
    return Step(sentence, ready=ready)


def _conclude_unchanged(tx: Transaction, checked: _CheckedNode) -> Step | None:
    """Conclude that there is nothing to do: set the record to the goal's version and report."""
    record, wanted = checked.record, checked.state.wanted
    changes: dict[str, Any] = {"goal_version": checked.traversal.goal_version}
    if wanted is None:
        changes |= {
            "action": Action.DELETE,
            "status": Status.COMPLETE,
            "reason": "",
            "given_up": None,
        }
    else:
        changes |= {"requires": wanted.requires}
    if not tx.amend(record, **changes):
        return None
    sentence = f"{record.name} is {'gone' if wanted is None else 'as the goal wants it'}"
    ready = report(tx, checked.traversal, checked.state.node, record)
    return Step(sentence, ready=ready, unchanged=True)


def _replan(
    tx: Transaction, definitions: Definitions, checked: _CheckedNode, decision: NodeDecision
) -> Step | None:
    """The record cannot become what is wanted: start a traversal to the same goal with a new
    record."""
    traversal, record = checked.traversal, checked.record
    if not tx.amend(record, condemned_for=traversal.goal_version):
        return None
    goal = goal_of(tx, traversal)
    if goal is None:
        return Step(f"the goal of traversal {traversal.id} does not exist")
    cause = f"{record.name} must be replaced: {decision.reason}"
    started = begin_successor(
        tx, definitions, traversal, goal, why=f"again/{record.id}", cause=cause
    )
    return Step(cause, ready=started.ready)


def _is_wanted_after_all(tx: Transaction, definitions: Definitions, checked: _CheckedNode) -> bool:
    """Return whether a record whose deletion has just failed is what the goal wants after all: it
    was being deleted when the traversal was planned, so a new record was to replace it."""
    if not revived(checked.record, checked.resource_type):
        return False
    goal = goal_of(tx, checked.traversal)
    if goal is None:
        return False
    plan = plan_traversal(
        goal,
        definitions.group(tx, checked.group).types,
        tx.records(checked.group.id),
        tx.epochs(checked.group.id),
        group_id=checked.group.id,
        new_id=lambda name: derived_id(checked.traversal.id, "kept", name),
    )
    return checked.record.id in plan.kept


def _keep(tx: Transaction, definitions: Definitions, checked: _CheckedNode) -> Step | None:
    """Start a traversal to the same goal that keeps the record, rather than delete it a second
    time."""
    traversal, record = checked.traversal, checked.record
    goal = goal_of(tx, traversal)
    if goal is None:
        return Step(f"the goal of traversal {traversal.id} does not exist")
    cause = f"{record.name} stays where it is: {record.reason}"
    started = begin_successor(
        tx, definitions, traversal, goal, why=f"keep/{record.id}", cause=cause
    )
    return Step(cause, ready=started.ready)


def _hand_out(
    tx: Transaction,
    checked: _CheckedNode,
    verb: Verb,
    properties: Mapping[str, Any],
    inputs: Inputs,
    wanted_lock: LockRequest,
) -> Step | None:
    """Take the lock and record the intent; the operation may then be carried out."""
    record, traversal, node = checked.record, checked.traversal, checked.state.node
    wanted = checked.state.wanted
    changes: dict[str, Any] = {
        "action": ACTION_OF[verb],
        "status": Status.IN_PROGRESS,
        "reason": "",
    }
    changes["given_up"] = None
    if wanted is not None:
        required = {*record.requires, *wanted.requires}
        changes |= {"properties": properties, "requires": tuple(sorted(required))}
    carried = properties if wanted is not None else record.properties or {}
    # Until then it is not final what the cloud shows. A request for the same thing disturbs
    # nothing: its operation continues, and looks.
    continued = _continues(record, verb, carried)
    stack = checked.group.rehearses is None
    unsettled = [
        each for each in tx.unsettled(record.group_id) if _concerns(each, record, verb, stack=stack)
    ]
    others = [each for each in unsettled if not continued or each.record_id != record.id]
    if others:
        return _wait_until_settled(tx, checked, verb, max(others, key=lambda each: each.settles_at))
    own = max((each.settles_at for each in unsettled), default=None)
    changes["generation"] = generation = _generation_for(record, verb, carried)
    lock = tx.acquire(record, wanted_lock.owner, wanted_lock.lease, **changes)
    if lock is None:
        return None
    reach("check.locked")
    key = derived_id(record.id, traversal.goal_version, verb, str(generation))
    ticket = Ticket(key, verb, traversal.id, node, lock, traversal.goal_version)
    intent = {"properties": carried, "previous": record.applied}
    unknown = tx.open_operation(ticket, record, intent)
    what = operation_words_of(verb, record, checked.resource_type)
    if not checked.state.tries:  # the journal shows the beginning and the end of a wait
        how = "continued" if unknown else "started"
        write_journal(tx, traversal, record, JournalKind.STARTED, f"{what}: {how}")
    left = 0.0 if own is None else max(0.0, own - tx.now())
    operation = Operation(ticket, record, carried, record.applied, inputs, unknown, left)
    return Step(what, operation=operation)


def _concerns(request: Unsettled, record: Record, verb: Verb, *, stack: bool) -> bool:
    """Return whether a request may change what an operation is about.

    Those of its own name do, and if it makes something on a member, those that stop or replace that
    member's server. What belongs to no member is about the stack, whatever its name, unless the
    group has none (``stack``): each copy of a rehearsal is a thing of its own. A fence waits
    for nothing: it only stops what a late request would stop, too, and looks before it believes.
    """
    if record.name.startswith(FENCE_PREFIX):
        return False
    if request.name == record.name:
        return True
    if record.member is None:
        return stack and request.member is None and not request.name.startswith(_OF_SERVERS)
    return verb != Verb.DELETE and request.name in (
        fence_name(record.member),
        replace_name(record.member),
    )


def _wait_until_settled(
    tx: Transaction, checked: _CheckedNode, verb: Verb, unsettled: Unsettled
) -> Step:
    """Leave a node until no request of an earlier operation can take effect any more. Its owner may
    be dead, and its goal another one: a late effect would undo what this operation finds."""
    what = operation_words_of(verb, checked.record, checked.resource_type)
    waiting_for = f"an earlier request without an answer ({request_words(unsettled.asked)})"
    state, until = checked.state, unsettled.settles_at
    tx.postpone(
        checked.traversal.id,
        state.node,
        waiting_for=waiting_for,
        since=state.waiting_since or tx.now(),
        next_try=until,
    )
    sentence = f"{what}: waiting for {waiting_for}"
    if state.waiting_for != waiting_for:
        write_journal(tx, checked.traversal, checked.record, JournalKind.WAITING, sentence)
    return Step(sentence, retry_at=until)


def _generation_for(record: Record, verb: Verb, properties: Mapping[str, Any]) -> int:
    """An operation with an unknown outcome is repeated under its key. A different operation gets a
    new key for good: if the first is wanted once more, its old result must not be reused, since it
    may have been undone in the meantime."""
    if record.status == Status.COMPLETE or _continues(record, verb, properties):
        return record.generation
    return record.generation + 1


def _continues(record: Record, verb: Verb, properties: Mapping[str, Any]) -> bool:
    """Return whether an operation wants what the record's last one wanted."""
    return record.action == ACTION_OF[verb] and record.properties == properties
