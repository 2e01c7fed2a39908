# SPDX-License-Identifier: Apache-2.0
"""Run a workflow of the user and wait for its end: an operation of the user's own type, or a rung
of a fence. An operation may run for a day, so it needs no thread between two looks.

Its execution's id is derived, so a repeat finds the same execution instead of starting a second
one: Mistral answers a POST with a known id with that execution. A process that continues the work
of a dead one also waits for the execution that the dead one has started.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.transport import LeaseLost, NoLongerNeeded
from mistral_failover.cloud.waits import Pauses, ProbeResult, pauses_until
from mistral_failover.convergence.records import Outcome
from mistral_failover.fault_points import reach
from mistral_failover.mistral import api
from mistral_failover.mistral.api import Mistral, mistral_of
from mistral_failover.mistral.client import ENDED
from mistral_failover.mistral.operation_documents import OperationDocument, outcome_of
from mistral_failover.model.ids import derived_id
from mistral_failover.runtime.lease_guard import LeaseGuard
from mistral_failover.runtime.request import Request

Wait = Callable[..., Pauses[Any]]
"""``cloud.waits.pauses_until`` with its pauses and its guard filled in."""
LATER = 5.0
"""How many times longer than others the pauses of an operation may get. They grow with the time
that it has taken, so the end of a short one is seen as soon."""


@dataclass(frozen=True)
class WorkflowStart:
    """What to run: the ``workflow`` with its ``input``; ``execution``, the id of its execution;
    ``why``, for people; ``namespace``, where Mistral looks for it."""

    workflow: str
    input: Mapping[str, Any]
    execution: str
    why: str
    namespace: str = ""


@dataclass(frozen=True)
class WorkflowResult:
    """The result. ``found`` is None if the execution did not end in time; then ``stopped`` says
    whether it could be stopped, and ``state`` its state before that."""

    execution: str
    found: api.Outcome | None
    state: str = ""
    stopped: str = ""


def run_to_its_end(
    mistral: Mistral,
    wait: Wait,
    start: WorkflowStart,
    limit: float,
    *,
    stale: Callable[[api.Outcome], bool],
) -> Pauses[WorkflowResult]:
    """Start a workflow unless it was started before, and wait for its end, at most ``limit``
    seconds; then it is stopped, as long as this process lives.

    It is stopped as well if the guard ends the wait before.

    ``stale``: whether an execution that had already ended proves nothing about the present; then a
    next one counts, whose id follows from it: a former worker may have started that already, and it
    may run. Raises CloudError, LeaseLost, NoLongerNeeded.
    """
    execution, state = start.execution, ""

    def step() -> ProbeResult:
        nonlocal state, execution
        found = mistral.outcome(execution)
        while not state and found and found.state in ENDED and stale(found):
            execution = derived_id(execution, "again")
            found = mistral.outcome(execution)
        state = state or "not started"
        if found is None:
            reach("workflow.before")
            _start(mistral, start, execution)
            reach("workflow.after")
            return ProbeResult(state)
        state = found.state
        return ProbeResult(state, done=state in ENDED, result=found)

    deadline = time.monotonic() + limit
    try:
        found = yield from wait(step, what=f"the end of {start.workflow}", limit=limit)
    except NoLongerNeeded as reason:
        _stop(mistral, execution, f"NOT_NEEDED: {reason}")
        raise
    except CloudError as error:
        if error.transient or error.code != "TIMEOUT" or time.monotonic() < deadline:
            raise
        why = f"TIMEOUT: it did not end within {limit:g} s"
        return WorkflowResult(execution, None, state, _stop(mistral, execution, why))
    if found.state == "ERROR" and not found.output.get("error"):
        failure = mistral.failure(execution)
        if failure is not None and failure.said:
            found = replace(found, said=f"task {failure.task}: {failure.said}")
    return WorkflowResult(execution, found)


def operate(
    request: Request, guard: LeaseGuard, workflow: str, document: OperationDocument
) -> Pauses[Outcome]:
    """Carry out an operation that is a workflow of the user; yield the pauses between two looks.
    Never raises.

    ``document``: the operation (``mistral.operation_documents``), the workflow's only input. An
    execution that was cancelled, by us at its time limit or by a user, decided nothing: it is
    repeated.
    """
    limit = float(document["timeout"])
    settings = request.runtime.settings
    try:
        mistral = mistral_of(request, guard)
        if mistral is None:
            return _failed(
                "CONFIG",
                f"{workflow} cannot be started: neither the token nor the configuration has the "
                "URL of Mistral's API",
                "Set [failover] mistral_url, or call with a token.",
            )
        ended = yield from run_to_its_end(
            mistral,
            lambda probe, **more: pauses_until(
                probe,
                first=settings.poll_first,
                growth=settings.poll_growth,
                ceiling=LATER * settings.poll_ceiling,
                guard=guard,
                **more,
            ),
            WorkflowStart(
                workflow,
                {"operation": document},
                derived_id("operation", document["key"], workflow),
                f"{document['verb']} {document['resource']['name']} of {document['group']}",
                mistral.namespace_of(request.execution) if request.execution else "",
            ),
            limit,
            stale=lambda found: found.state == "CANCELLED",
        )
    except Exception as error:  # whatever it is, the operation failed by it
        return outcome_of(None, request.caught(error, "running an operation's workflow"))
    found = ended.found
    if found is None:
        return _failed(
            "TIMEOUT",
            f"{workflow} (execution {ended.execution}) did not end within {limit:g} s, and "
            f"{ended.stopped}",
            "Check what it did so far, and whether its type's timeout is long enough. To continue "
            f"the operation: failover start {document['group']}",
            unknown=True,
        )
    if found.workflow != workflow:
        return _failed(
            "OPERATION_FAILED",
            f"execution {ended.execution} belongs to {found.workflow}, not to {workflow}",
            "Delete that execution in Mistral, then start again.",
        )
    if found.state == "SUCCESS":
        return outcome_of(found.output, None)
    return outcome_of(None, found.output.get("error") or found.said or found.state)


def _start(mistral: Mistral, start: WorkflowStart, execution: str) -> None:
    """Start a workflow. Raises CloudError; NO_WORKFLOW if there is no workflow of this name, which
    Mistral 23 answers with a 500, like errors that pass by themselves."""
    try:
        mistral.start(execution, start.workflow, start.input, start.why, start.namespace)
    except LeaseLost:
        raise
    except CloudError:
        if mistral.has_workflow(start.workflow, start.namespace):
            raise
        raise CloudError(
            "NO_WORKFLOW",
            f"Mistral has no workflow {start.workflow}",
            remedy="Create it: failover workflows install FILE, or correct the name.",
        ) from None


def _failed(code: str, message: str, remedy: str, **more: Any) -> Outcome:
    return outcome_of(None, {"code": code, "message": message, "remedy": remedy, **more})


def _stop(mistral: Mistral, execution: str, why: str) -> str:
    """Stop an execution, if possible; return the result in words."""
    try:
        mistral.end(execution, "CANCELLED", why)
    except LeaseLost:
        raise
    except CloudError as error:
        return f"could not be stopped: {error.message.rstrip('.')}"
    return "was stopped"
