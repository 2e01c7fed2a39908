# SPDX-License-Identifier: Apache-2.0
"""Requests whose rights end before their work does.

A token expires within hours, and a trust can be deleted at any time. Another request can still do
the work. So the operation is abandoned as if the lease was lost: the lock is freed, the outcome
counts as unknown, and the node stays ready for a request with valid rights: a sweep, or an
operator's command. This makes nothing fail, and nothing is lost.
"""

from __future__ import annotations

from collections.abc import Iterable

from mistral_failover.cloud.errors import NO_RIGHTS
from mistral_failover.convergence.records import JournalKind, Outcome, Record, Status, Ticket
from mistral_failover.convergence.sentences import because
from mistral_failover.runtime.request import Request
from mistral_failover.store import views

ATTEMPTS = 10
"""How often one operation may be abandoned for this reason; then it fails, because no request was
accepted."""


def ended(request: Request, ticket: Ticket, outcome: Outcome) -> tuple[str, str] | None:
    """Return why an operation is left to a request with valid rights, as a sentence and as a code;
    None if it is to be concluded.

    An operation that was tried often enough is concluded as failed.
    """
    error = outcome.error or {}
    code = error.get("code")
    if code not in NO_RIGHTS or _given_up(request, ticket) >= ATTEMPTS - 1:
        return None
    why = (
        "the rights of the request ended; a sweep or a command with valid rights continues: "
        f"{because(error)}"
    )
    return why, str(code)


def waiting(records: Iterable[Record]) -> str:
    """Return which work of a group waits for valid rights, in a sentence; empty if none does."""
    return "; ".join(
        f"{record.name}: {record.reason}"
        for record in records
        if record.status == Status.FAILED and record.owner is None and record.given_up in NO_RIGHTS
    )


def still_ended(request: Request, group_id: str) -> tuple[str, str] | None:
    """Return the result of :func:`ended` for an operation of a group that waits for valid rights,
    if Keystone still does not accept this request; None if it may try, or if nothing waits for
    that."""
    said = waiting(request.store.reading(lambda tx: tx.records(group_id)))
    refusal = request.refusal() if said else None
    return (said, refusal.code) if refusal else None


def _given_up(request: Request, ticket: Ticket) -> int:
    return request.store.reading(
        lambda tx: views.count_journal_entries(
            tx, ticket.traversal_id, ticket.node.resource_id, JournalKind.GIVEN_UP
        )
    )
