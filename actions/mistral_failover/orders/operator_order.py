# SPDX-License-Identifier: Apache-2.0
"""An operator's order: it is recorded as an incident of its own, and starts one traversal."""

from __future__ import annotations

import logging
import uuid

from sqlalchemy.exc import DBAPIError

from mistral_failover.convergence.records import JournalKind
from mistral_failover.fault_points import reach
from mistral_failover.groups.snapshot import GroupSnapshot, locked
from mistral_failover.model.alarm_fact import AlarmFact
from mistral_failover.model.decisions import Decision
from mistral_failover.model.ids import derived_id
from mistral_failover.model.order import Order
from mistral_failover.orders import failover
from mistral_failover.orders.answers import StartedOrder
from mistral_failover.runtime.errors import describe, explained
from mistral_failover.runtime.request import Request
from mistral_failover.store import incidents
from mistral_failover.store.incidents import OPERATOR, Incident
from mistral_failover.store.transaction import ProjectTransaction

LOG = logging.getLogger(__name__)


class NothingToDo(Exception):  # noqa: N818 - no error
    """The requested state is already reached; the text says why."""


class AlreadyThere(NothingToDo):
    """The roles are already where they should be; ``why``, in words."""

    def __init__(self, snapshot: GroupSnapshot, why: str) -> None:
        self.snapshot = snapshot
        super().__init__(f"{why}: nothing to do")


def start_order(
    request: Request,
    group: str,
    derive: failover.Derive,
    order: Order,
    cause: str,
    occasion: str | None = None,
) -> StartedOrder:
    """Start the traversal that an operator orders, as an incident of its own.

    The Mistral execution identifies the order, unless another ``occasion`` is given: if it runs
    again, nothing is started twice. ``order`` is stored with the incident. If the roles are there
    already, the answer is about the current traversal, without an incident. Raises what
    :func:`failover.begin` raises, and NothingToDo.
    """
    occasion = occasion or occasion_of(request)
    fact = AlarmFact(group)

    def record(tx: ProjectTransaction) -> str:
        state = locked(request, tx, group)
        identity = order_id(request.project_id, state.id, occasion)
        known = incidents.get(tx, identity)
        if known is not None and known.decision in (Decision.REFUSED, Decision.IGNORED):
            # It is tried again.
            incidents.decide(tx, identity, Decision.ADMITTED, cause, fact, order)
        if known is None:
            new = Incident(
                identity,
                request.project_id,
                state.id,
                OPERATOR,
                fact,
                {},
                Decision.ADMITTED,
                cause,
                order=order,
            )
            incidents.add(tx, new)
        return identity

    incident_id = request.store.atomically(record)
    reach("order.after")
    try:
        answer = failover.begin(request, group, derive, incident_id=incident_id, cause=cause)
    except Exception as error:
        _refused(request, incident_id, cause, error)
        if isinstance(error, AlreadyThere):
            return _unmoved(error)
        raise
    return {**answer, "incident": incident_id}


def _unmoved(there: AlreadyThere) -> StartedOrder:
    state, group = there.snapshot.state, there.snapshot.group
    return {
        "group": group.name,
        "traversal": state.current_traversal,
        "goal": state.last_complete_goal,
        "roles": dict(there.snapshot.roles),
        "lost": sorted(there.snapshot.lost),
        "workflow": failover.chain_of(group),
        "sentence": str(there),
        "incident": None,
    }


def _refused(request: Request, incident_id: str, cause: str, error: Exception) -> None:
    """Record that an order did not start, so that it does not look as if it still waits. If the
    same execution repeats it, it may still start."""
    if isinstance(error, NothingToDo):
        decision, why = Decision.IGNORED, str(error)
    else:
        facts = describe(error)
        if facts["code"] == "UNEXPECTED":  # not a refusal: an unexpected error, at an unknown point
            return
        message = explained(error)
        decision, why = Decision.REFUSED, f"{message} [{facts['code']}]"

    def refuse(tx: ProjectTransaction) -> None:
        known = incidents.get(tx, incident_id)
        if known is None or known.decision != Decision.ADMITTED or known.traversal_id is not None:
            return
        assert known.group_id is not None  # every admitted incident has a group
        # Another delivery of it may have begun it without recording that yet.
        state = tx.lock_group(known.group_id, shared=False)
        if state is None or tx.traversal(failover.traversal_of(state.id, incident_id)) is not None:
            return
        sentence = f"{why} (order: {cause})"
        incidents.decide(tx, incident_id, decision, sentence)
        tx.journal(known.group_id, f"{decision}: {sentence}", kind=JournalKind(decision.lower()))

    try:
        request.store.atomically(refuse)
    except DBAPIError:
        LOG.warning("Could not record that order %s was refused", incident_id, exc_info=True)


def order_id(project_id: str, group_id: str, occasion: str) -> str:
    """Return the incident id of an order that was given on this occasion."""
    return derived_id("incident", project_id, group_id, occasion)


def occasion_of(request: Request) -> str:
    """Return what identifies an order of this request: the execution of Mistral that gives it."""
    execution = request.context.execution
    # An action that runs outside of an execution has no id, so its repeats cannot be recognised.
    return execution.workflow_execution_id or execution.action_execution_id or str(uuid.uuid4())
