# SPDX-License-Identifier: Apache-2.0
"""Carrying a traversal on, from one ready node as far as one action can.

An action goes on while exactly one node is ready and its operation can be carried out in place.
Whatever else became ready goes back to Mistral, which spreads it over its executors: nobody waits
here for a slow branch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tenacity
from sqlalchemy.exc import DBAPIError

from mistral_failover.actions import hanging, in_place, ownership, rights
from mistral_failover.actions.documents import operation_document, ready_document
from mistral_failover.actions.runtime import Request
from mistral_failover.cloud.errors import CloudError
from mistral_failover.convergence.errors import UnknownGroup
from mistral_failover.convergence.records import Operation, Outcome, Ready, Step, Ticket
from mistral_failover.fault_points import reach
from mistral_failover.model.group import Group
from mistral_failover.model.types import OperationSpec
from mistral_failover.store import groups
from mistral_failover.store.leases import elapsed

_TOO_LATE = "its lease was lost in the middle"


def work(request: Request, ready: Ready) -> dict[str, Any]:
    """Check a node and go on from there.

    Returns ``{"spread": [{traversal, node}], "operation": None or {workflow, input, timeout},
    "said": [sentence]}``: nodes for others, an operation whose workflow Mistral has to run (timeout
    in seconds), and what happened.
    """
    if not ownership.owns(request, ready.traversal_id):
        return _handed_back([], None, [f"there is no traversal {ready.traversal_id}"])
    return _carry(request, [ready], [])


def conclude(
    request: Request, ticket: Ticket, outcome: Outcome, timed_out: str | None = None
) -> dict[str, Any]:
    """Conclude an operation that a workflow carried out, and go on; returns as :func:`work`.

    ``timed_out``: the id of the task whose workflow did not end in time. It is stopped first, since
    the operation will be repeated.
    """
    if not ownership.owns_operation(request, ticket):
        return _handed_back([], None, [f"there is nothing to conclude for {ticket.node.key}"])
    if _came_too_late(outcome):
        step = request.runtime.engine.abandon(ticket, _TOO_LATE)
        return _carry(request, list(step.ready), [step.sentence])
    if why := rights.ended(request, ticket, outcome):
        return _left(request, ticket, why, [])
    said = [_stopped(request, timed_out)] if timed_out else []
    step = request.runtime.engine.conclude(ticket, outcome)
    return _carry(request, list(step.ready), [*said, step.sentence])


def _stopped(request: Request, task_id: str) -> str:
    """Stop what a task started, as far as Mistral can be asked; what came of it, in a sentence.
    Mistral itself lets it run on."""
    try:
        mistral = request.mistral()
        if mistral is None:
            return "its workflow runs on: [failover] mistral_url is not set"
        hanging.stop_below(mistral, task_id)
    except CloudError as error:
        return f"its workflow could not be stopped: {error.message}"
    return "its workflow was stopped"


def _carry(request: Request, ready: Sequence[Ready], said: list[str]) -> dict[str, Any]:
    engine = request.runtime.engine
    while len(ready) == 1:
        since = elapsed()
        step = engine.check(ready[0], request.owner)
        said.append(step.sentence)
        ready = step.ready
        if step.operation is None:
            continue
        document, spec = _described(request, step.operation)
        if spec.action is None:
            handed = {
                "workflow": spec.workflow,
                "input": {"operation": document},
                "timeout": spec.timeout,
            }
            return _handed_back(ready, handed, said)
        ticket = step.operation.ticket
        with request.runtime.leases.hold(ticket.lock, since):
            outcome = in_place.run(spec.action, document, request.context)
            if _came_too_late(outcome):
                step = engine.abandon(ticket, _TOO_LATE)
            elif why := rights.ended(request, ticket, outcome):
                return _left(request, ticket, why, said)
            else:
                step = _concluded(request, ticket, outcome)
        said.append(step.sentence)
        ready = step.ready
    return _handed_back(ready, None, said)


def _left(
    request: Request, ticket: Ticket, why: tuple[str, str], said: list[str]
) -> dict[str, Any]:
    """Give an operation up and leave its node to somebody else: this request would be refused
    again."""
    step = request.runtime.engine.abandon(ticket, *why)
    return _handed_back([], None, [*said, step.sentence])


def _came_too_late(outcome: Outcome) -> bool:
    """Whoever lost the lease has nothing to conclude: the operation is given up, to be taken up
    again under the same key."""
    return outcome.error is not None and outcome.error.get("code") == "LEASE_LOST"


def _concluded(request: Request, ticket: Ticket, outcome: Outcome) -> Step:
    """Conclude, and insist while the lease may last: nobody else knows the outcome, so a database
    that is away for a moment must not make it unknown."""
    for attempt in tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(DBAPIError),
        stop=tenacity.stop_after_delay(ticket.lock.lease),
        wait=tenacity.wait_random_exponential(multiplier=0.1, max=2.0),
        reraise=True,
    ):
        with attempt:
            return request.runtime.engine.conclude(ticket, outcome)
    raise AssertionError("unreachable: the last attempt raises")


def _handed_back(
    ready: Sequence[Ready], operation: dict[str, Any] | None, said: list[str]
) -> dict[str, Any]:
    reach("spread.before")
    return {
        "spread": [ready_document(node) for node in ready],
        "operation": operation,
        "said": said,
    }


def _described(request: Request, operation: Operation) -> tuple[dict[str, Any], OperationSpec]:
    def read(tx: Any) -> tuple[Group, dict[str, groups.MemberRow]]:
        state = groups.get(tx, operation.record.group_id)
        if state is None:
            raise UnknownGroup(operation.record.group_id)
        return request.runtime.definitions.group(tx, state), groups.members_of(tx, state.id)

    group, members = request.runtime.database.reading(read)
    spec = group.types[operation.record.type].operations[operation.ticket.verb]
    return operation_document(operation, group, members, spec.timeout), spec
