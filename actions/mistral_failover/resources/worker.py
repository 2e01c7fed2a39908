# SPDX-License-Identifier: Apache-2.0
"""Process one node: check it, carry out its operation under its lock, conclude."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import tenacity
from sqlalchemy.exc import SQLAlchemyError

from mistral_failover.cloud.waits import Pauses
from mistral_failover.convergence.errors import UnknownGroup
from mistral_failover.convergence.records import Operation, Outcome, Ready, Step, Ticket
from mistral_failover.convergence.waiting import TARGET_DOWN
from mistral_failover.fault_points import reach
from mistral_failover.mistral import event_hooks, user_workflows
from mistral_failover.mistral.operation_documents import (
    OperationDocument,
    operation_document,
    outcome_of,
)
from mistral_failover.model.documents import load_json
from mistral_failover.model.goal import Goal
from mistral_failover.model.group import Group
from mistral_failover.model.types import OperationSpec, ResourceType
from mistral_failover.resources import modules
from mistral_failover.resources.operation_context import under_lease
from mistral_failover.runtime import rights
from mistral_failover.runtime.budgets import Need
from mistral_failover.runtime.errors import DEFECTS
from mistral_failover.runtime.lease_guard import LeaseGuard
from mistral_failover.runtime.request import Request
from mistral_failover.store import groups
from mistral_failover.store.database import is_away
from mistral_failover.store.groups import QueuePosition, queue_position
from mistral_failover.store.leases import elapsed
from mistral_failover.store.transaction import ProjectTransaction


@dataclass(frozen=True)
class _NodeNeeds:
    """What decides what the nodes of a traversal need to start: its place among others, and the
    group's types by name."""

    position: QueuePosition = field(default_factory=QueuePosition)
    types: Mapping[str, ResourceType] = field(default_factory=dict)


@dataclass
class NodeWorker:
    """Processes nodes of one group, on behalf of a request. ``ended``: why the request's rights are
    no longer sufficient, as a sentence and a code."""

    request: Request
    group_id: str
    ended: tuple[str, str] | None = None
    _needs: dict[str, _NodeNeeds] = field(default_factory=dict)
    _goals: dict[str, Goal | None] = field(default_factory=dict)

    def submit(self, ready: Ready) -> bool:
        """Have a thread of this process process a node, and the nodes that become ready by that.
        Return False if a thread already does so, or if the process is stopping."""
        return self.request.runtime.workers.submit(self.group_id, ready, self.work, self.needs)

    def needs(self, ready: Ready) -> Need:
        """Return what a node needs to start. Nothing special is needed while the state store is
        away: then the node's check fails."""
        known = self._needs.get(ready.traversal_id)
        if known is None or ready.node.resource_id not in known.position.types:
            known = _NodeNeeds()
            try:
                known = self.request.store.reading(
                    lambda tx: self._needs_of(tx, ready.traversal_id)
                )
            except SQLAlchemyError as error:
                self.request.caught(error, "reading what a node needs to start")
            self._needs[ready.traversal_id] = known
        of_type = known.types.get(known.position.types.get(ready.node.resource_id, ""))
        return Need(
            self.request.project_id,
            _asked(of_type) if of_type else (),
            known.position.priority,
            known.position.number,
        )

    def _needs_of(self, tx: ProjectTransaction, traversal_id: str) -> _NodeNeeds:
        position = queue_position(tx, traversal_id)
        state = groups.get(tx, self.group_id)
        if position is None or state is None:
            return _NodeNeeds()
        return _NodeNeeds(position, self.request.runtime.definitions.group(tx, state).types)

    def work(self, ready: Ready) -> Pauses[Iterable[Ready]]:
        """Process a node; return the nodes that became ready by that. Yield the seconds for which
        it needs no thread: its lease is kept alive meanwhile."""
        steps = self._checked(ready)
        while True:
            try:
                pause = next(steps)
            except StopIteration as end:
                step: Step = end.value
                return step.ready
            finally:
                event_hooks.after(self.request)  # in the thread that committed them
            yield pause

    def _checked(self, ready: Ready) -> Pauses[Step]:
        """Check a node, carry out its operation under its lock, conclude it."""
        runtime, since = self.request.runtime, elapsed()
        try:
            step = runtime.engine.check(ready, self.request.owner)
        except Exception as error:
            facts = self.request.caught(error, "checking a node")
            if facts["code"] not in DEFECTS:
                raise
            return runtime.engine.give_up(ready, facts)
        if step.operation is not None:
            ticket = step.operation.ticket
            with runtime.leases.hold(ticket.lock, since) as lease:
                outcome = yield from self._outcome(
                    step.operation,
                    runtime.guard(lease, self.request.project_id, step.operation.unsettled),
                )
                try:
                    step = self._concluded(ticket, outcome)
                except Exception as error:
                    facts = self.request.caught(error, "concluding an operation")
                    if facts["code"] not in DEFECTS:
                        raise
                    step = runtime.engine.conclude(ticket, Outcome(error=facts, unknown=True))
            down = (outcome.error or {}).get("code") == TARGET_DOWN  # a loop looks for another one
            if step.retry_at is not None and not down:
                # The loop of failover.advance tries again, too, but the same outage may end it.
                pause = max(0.0, step.retry_at - runtime.database.reading(lambda tx: tx.now()))
                runtime.workers.submit_later(self.group_id, ready, self.work, self.needs, pause)
        reach("work.next")
        return step

    def _outcome(self, operation: Operation, guard: LeaseGuard) -> Pauses[Outcome]:
        """Carry out an operation. Never raises: the lock is held, so there must be an outcome."""
        request = self.request
        try:
            document, spec = described(request, operation, self._goals)
        except Exception as error:  # nothing was done yet, so what may pass is tried again
            facts = request.caught(error, "preparing an operation")
            passes = facts["code"] not in DEFECTS
            said = {**facts, "transient": True} if passes else facts
            return Outcome(error=said, transient=passes, unknown=True)
        if spec.function is not None:
            return carried_out(request, guard, spec.function, document)
        return (yield from user_workflows.operate(request, guard, str(spec.workflow), document))

    def _concluded(self, ticket: Ticket, outcome: Outcome) -> Step:
        """Record the outcome of an operation, or leave it to another worker."""
        engine, code = self.request.runtime.engine, (outcome.error or {}).get("code")
        if code == "LEASE_LOST":
            return engine.abandon(ticket, "its lease was lost during the operation")
        if code == "HANDED_BACK":
            return engine.abandon(ticket, "its process is stopping", "HANDED_BACK")
        if why := rights.ended(self.request, ticket, outcome):
            self.ended = why
            engine.abandon(ticket, *why)
            return Step(why[0])  # this request would be refused again
        return _insisted(self.request, ticket, outcome)


def carried_out(
    request: Request, guard: LeaseGuard, function: str, operation: OperationDocument
) -> Outcome:
    """Have the function of a type carry out an operation, and return its outcome. Never raises."""
    try:
        with rights.named_if_ended(request):
            operate = modules.operation(operation["resource"]["type"], function)
            result = operate(under_lease(request, guard), operation)
        # What the state store can hold.
        kept = load_json(json.dumps(result, allow_nan=False), "result")
    except Exception as error:
        return outcome_of(None, request.caught(error, f"carrying out {function}"))
    return outcome_of(kept, None)


def _asked(of_type: ResourceType) -> tuple[str, ...]:
    """Return the services that the operations of a type ask: Mistral too if one is a workflow. Such
    an operation may take a day, and its lease is renewed all the time."""
    is_workflow = any(each.workflow is not None for each in of_type.operations.values())
    return (*of_type.services, *(("Mistral",) if is_workflow else ()))


def _insisted(request: Request, ticket: Ticket, outcome: Outcome) -> Step:
    """Conclude, and retry while the lease may last: only this worker knows the outcome, and a short
    outage of the database must not make it unknown. What the database does not take is no outage.
    """
    for attempt in tenacity.Retrying(
        retry=tenacity.retry_if_exception(is_away),
        stop=tenacity.stop_after_delay(ticket.lock.lease),
        wait=tenacity.wait_random_exponential(multiplier=0.1, max=2.0),
        reraise=True,
    ):
        with attempt:
            return request.runtime.engine.conclude(ticket, outcome)
    raise AssertionError("unreachable: the last attempt raises")


def described(
    request: Request, operation: Operation, goals: dict[str, Goal | None]
) -> tuple[OperationDocument, OperationSpec]:
    """Return what an operation is given, and what its type says about it. ``goals``: those of the
    group that are known, by version; the operation's is added. Raises UnknownGroup."""
    version = operation.ticket.goal_version

    def read(tx: ProjectTransaction) -> tuple[Group, dict[str, groups.MemberRow]]:
        found = groups.with_members(tx, operation.record.group_id)
        if found is None:
            raise UnknownGroup(operation.record.group_id)
        state, members = found
        if version not in goals:
            goals[version] = tx.goal(state.id, version)
        return request.runtime.definitions.group(tx, state), members

    group, members = request.store.reading(read)
    goal = goals[version]
    spec = group.types[operation.record.type].operations[operation.ticket.verb]
    return operation_document(operation, goal, group, members, spec.timeout), spec
