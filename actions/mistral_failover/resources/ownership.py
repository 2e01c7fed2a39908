# SPDX-License-Identifier: Apache-2.0
"""Check which project a traversal or an operation belongs to. Ids and whole documents are plain
inputs, so a caller could name those of another project: they are treated as if they did not
exist."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from mistral_failover.cloud.transport import LeaseLost
from mistral_failover.convergence.records import GroupState, Operation, Record, Ticket
from mistral_failover.mistral.operation_documents import (
    IssuedOperation,
    OperationDocument,
    operation_document,
    read_operation,
    read_ticket,
)
from mistral_failover.runtime.errors import ActionError
from mistral_failover.runtime.request import Request
from mistral_failover.store import groups, views
from mistral_failover.store.transaction import ProjectTransaction
from mistral_failover.store.views import LedgerEntry


def group_of(request: Request, tx: ProjectTransaction, traversal_id: str) -> GroupState | None:
    """Return the group of a traversal; None if the request's project has no such traversal."""
    state = groups.of_traversal(tx, traversal_id)
    return state if state is not None and state.project_id == request.project_id else None


def authorized_operation(request: Request, document: Any) -> tuple[Ticket, OperationDocument]:
    """Return the operation of a document's ticket, as the state store has it.

    The ticket alone is the right to carry it out. Everything else that the document says about it
    (key, verb, group, stack, resource, member, properties and time) is read from the store: members
    are commanded with the executor's rights, not with those of the document's author. The
    document's ``previous``, ``inputs`` and ``unknown`` are used. All that has been done for the
    document of an operation that a worker of this process carries out in place.

    Raises ActionError BAD_INPUT; UNKNOWN_OPERATION if the project does not have it; LeaseLost if it
    was handed to another worker.
    """
    if isinstance(document, IssuedOperation):
        return document.ticket, cast(OperationDocument, document)
    given = read_operation(document)
    ticket = read_ticket(given["ticket"])
    found = request.store.reading(lambda tx: _as_stored(request, tx, ticket, given))
    if found is None:
        raise ActionError(
            "UNKNOWN_OPERATION",
            f"this project has no operation {ticket.key}",
            "Pass on the workflow's input as it was received.",
        )
    return found


def _as_stored(
    request: Request, tx: ProjectTransaction, ticket: Ticket, given: OperationDocument
) -> tuple[Ticket, OperationDocument] | None:
    state = group_of(request, tx, ticket.traversal_id)
    record = tx.record(ticket.node.resource_id)
    if state is None or record is None or record.group_id != state.id:
        return None
    entry = _entry(tx, record, ticket)
    if entry is None:
        return None
    if (entry["token"], entry["traversal_id"]) != (ticket.lock.token, ticket.traversal_id):
        raise LeaseLost(f"operation {ticket.key} was handed to another worker")
    group = request.runtime.definitions.group(tx, state)
    spec = group.types[record.type].operations[ticket.verb]
    longest = request.runtime.settings.lease
    ticket = replace(ticket, lock=replace(ticket.lock, lease=min(ticket.lock.lease, longest)))
    operation = Operation(
        ticket,
        record,
        entry["intent"]["properties"],
        given["previous"],
        given["inputs"],
        given["unknown"] is True,
        max(0.0, (record.settles_at or 0.0) - tx.now()),
    )
    members = groups.members_of(tx, state.id)
    goal = tx.goal(state.id, ticket.goal_version)
    stored = operation_document(operation, goal, group, members, spec.timeout)
    return ticket, _in_the_epoch_given(stored, given)


def _in_the_epoch_given(stored: OperationDocument, given: OperationDocument) -> OperationDocument:
    """Return the member of an operation, in the epoch in which it was handed out; a document cannot
    name a later one. The member's present server may differ from the one of that epoch."""
    member, said = stored["member"], given["member"]
    epoch = said.get("epoch") if isinstance(said, Mapping) else None
    if member is None or not isinstance(epoch, int) or epoch >= member["epoch"]:
        return stored
    return {**stored, "member": {**member, "epoch": epoch, "server_id": None}}


def _entry(tx: ProjectTransaction, record: Record, ticket: Ticket) -> LedgerEntry | None:
    """Return the ledger's entry of a ticket's operation, if that is one of the record."""
    entry = views.operation(tx, ticket.key)
    if entry is None or (entry["resource_id"], entry["verb"]) != (record.id, ticket.verb):
        return None
    return entry
