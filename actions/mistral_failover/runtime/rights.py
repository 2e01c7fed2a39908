# SPDX-License-Identifier: Apache-2.0
"""When the rights of a request end before its work does.

A token ends within hours, and a trust whenever somebody takes it away. What such a request can not
do is not impossible; it is for somebody else to do. So its operation is given up, as by a process
that lost its lease: the lock is freed, the outcome counts as unknown, and the node stays ready for
whoever comes with valid rights: a sweep, or a person. Nothing fails by it, and nothing is lost.
"""

from __future__ import annotations

from collections.abc import Iterable

from mistral_failover.cloud.tokens import NO_RIGHTS
from mistral_failover.convergence.records import Outcome, Record, Ticket
from mistral_failover.convergence.sentences import because
from mistral_failover.runtime.process import Request
from mistral_failover.store import views

ATTEMPTS = 10
"""Times that one operation was given up for that: then it has failed, for none of those who came
was let in."""


def ended(request: Request, ticket: Ticket, outcome: Outcome) -> tuple[str, str] | None:
    """Why an operation is to be left for somebody with valid rights, in a sentence and as a code;
    None: it is to be concluded.

    An operation that was tried often enough is concluded as what it is: failed.
    """
    error = outcome.error or {}
    code = error.get("code")
    if code not in NO_RIGHTS or _given_up(request, ticket) >= ATTEMPTS - 1:
        return None
    why = (
        "the rights of the request ended; a sweep, or anybody with valid rights, goes on: "
        f"{because(error)}"
    )
    return why, str(code)


def waiting(records: Iterable[Record]) -> str:
    """What of a group waits for somebody with valid rights, in a sentence; empty: nothing does."""
    return "; ".join(
        f"{record.name}: {record.reason}"
        for record in records
        if record.status == "FAILED" and record.owner is None and record.given_up in NO_RIGHTS
    )


def still_ended(request: Request, group_id: str) -> tuple[str, str] | None:
    """What :func:`ended` said of an operation of a group that waits for valid rights, if Keystone
    still does not accept this request; None: it may try, or nothing waits for that."""
    said = waiting(request.runtime.database.reading(lambda tx: tx.records(group_id)))
    refusal = request.refusal() if said else None
    return (said, refusal.code) if refusal else None


def _given_up(request: Request, ticket: Ticket) -> int:
    return request.runtime.database.reading(
        lambda tx: views.told(tx, ticket.traversal_id, ticket.node.resource_id, "given_up")
    )
