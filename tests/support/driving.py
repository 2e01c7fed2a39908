# SPDX-License-Identifier: Apache-2.0
"""The driver, one step at a time: which nodes are ready, one of them worked off, an operation
handed out that a test carries out itself."""

from __future__ import annotations

from collections.abc import Callable

from mistral_lib.actions.context import ActionContext

from mistral_failover.cloud.waits import slept
from mistral_failover.convergence.records import Outcome, Ready, Step
from mistral_failover.mistral.operation_documents import OperationDocument, outcome_of, read_ticket
from mistral_failover.resources import ownership, worker
from mistral_failover.runtime.process import Runtime
from mistral_failover.runtime.request import Request


def ready_nodes(state: Runtime, traversal: str | None) -> list[Ready]:
    """The nodes of a traversal that wait for nothing; none of one that is over."""
    if traversal is None:
        return []
    ready = state.database.reading(lambda tx: tx.ready_nodes(traversal))
    return [Ready(traversal, node) for node in ready]


def work(state: Runtime, context: ActionContext, ready: Ready) -> list[Ready]:
    """Work one node off, as a worker of a request does; returns what became ready by it."""
    request = Request(state, context)
    group = request.store.reading(lambda tx: ownership.group_of(request, tx, ready.traversal_id))
    assert group is not None
    return list(slept(worker.NodeWorker(request, group.id).work(ready)))


def work_all(
    state: Runtime,
    context: Callable[[], ActionContext],
    traversal: str | None,
    *,
    choose: Callable[[int], int] = lambda count: 0,
    most: int | None = None,
) -> None:
    """Work a traversal off, and whatever takes its place by that, one node after the other.

    ``context`` makes a request for each node, ``choose`` picks one of so many, and ``most`` bounds
    how many are worked on.
    """
    left = ready_nodes(state, traversal)
    while left and most != 0:
        left += work(state, context(), left.pop(choose(len(left))))
        most = None if most is None else most - 1


def handed_out(state: Runtime, context: ActionContext, ready: Ready) -> OperationDocument:
    """Check a node; returns the document of the operation that is handed out, whose lock is
    held."""
    request = Request(state, context)
    step = state.engine.check(ready, request.owner)
    assert step.operation is not None, step.sentence
    document, _ = worker.described(request, step.operation, {})
    return document


def conclude(state: Runtime, document: OperationDocument, outcome: Outcome | None = None) -> Step:
    """Conclude what :func:`handed_out` returned: by default it is done."""
    return state.engine.conclude(
        read_ticket(document["ticket"]), outcome or outcome_of({"physical_id": "x"}, None)
    )
