# SPDX-License-Identifier: Apache-2.0
"""An operator confirms that a member is fenced, where no fence could prove it."""

from __future__ import annotations

from shlex import quote
from typing import TypedDict

from mistral_failover.convergence.records import JournalKind
from mistral_failover.fault_points import reach
from mistral_failover.groups.snapshot import group_snapshot
from mistral_failover.model.validation import did_you_mean
from mistral_failover.orders.failover import chain_of
from mistral_failover.runtime.errors import ActionError
from mistral_failover.runtime.request import Request
from mistral_failover.store import groups
from mistral_failover.store.transaction import ProjectTransaction


class ConfirmedFence(TypedDict):
    """What continues after the confirmation: the group's ``traversal``, and the ``workflow`` that
    carries it out."""

    group: str
    traversal: str | None
    workflow: str


def confirm_fenced(request: Request, group: str, member: str, because: str) -> ConfirmedFence:
    """Record an operator's confirmation that a member no longer writes, and reopen what waited for
    it."""
    snapshot = group_snapshot(request, group)

    def record(tx: ProjectTransaction) -> bool:
        known = groups.confirm_fenced(tx, snapshot.state.id, member, because)
        sentence = f"an operator confirmed that {member} is fenced: {because}"
        if known:
            tx.journal(
                snapshot.state.id,
                sentence,
                kind=JournalKind.CONFIRMED,
                traversal_id=snapshot.state.current_traversal,
            )
        return known

    if member not in snapshot.lost:
        lost = " and ".join(sorted(snapshot.lost))
        raise ActionError(
            "NOT_LOST",
            f"{member} is not declared lost in {group}, {lost or 'no member'} is",
            did_you_mean(member, snapshot.lost)
            if snapshot.lost
            else "No failover of the group waits for a confirmation.",
        )
    reach("confirm.before")
    if not request.store.atomically(record):
        raise ActionError(
            "UNKNOWN_MEMBER",
            f"{member} is not a member of {group}",
            f"List the members: failover member list {quote(group)}",
        )
    reach("confirm.recorded")
    request.engine.resume(snapshot.state.id)
    reach("confirm.after")
    return {
        "group": group,
        "traversal": snapshot.state.current_traversal,
        "workflow": chain_of(snapshot.group),
    }
