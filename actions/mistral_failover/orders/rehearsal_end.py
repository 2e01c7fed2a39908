# SPDX-License-Identifier: Apache-2.0
"""The end of a rehearsal: what it came to is recorded, and its cleanup begins."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

from mistral_failover.agent.wire import REHEARSAL_ENDED
from mistral_failover.convergence.records import (
    GroupState,
    JournalKind,
    Record,
    Traversal,
    TraversalStatus,
)
from mistral_failover.convergence.traversals import begin
from mistral_failover.model.ids import derived_id
from mistral_failover.model.rehearsal_goal import ended_goal
from mistral_failover.model.rehearsals import Place, RehearsalOutcome, judged_roles, role_words
from mistral_failover.model.types import Verb
from mistral_failover.orders.rehearsal_report import (
    RehearsalReport,
    failed_places,
    rehearsal_report,
)
from mistral_failover.runtime.request import Request
from mistral_failover.store import details, plans, rehearsals, rehearsed_roles
from mistral_failover.store.details import LedgerRow
from mistral_failover.store.rehearsals import RehearsalRow
from mistral_failover.store.transaction import ProjectTransaction

_KINDS = {
    RehearsalOutcome.PASSED: JournalKind.REHEARSAL_PASSED,
    RehearsalOutcome.FAILED: JournalKind.REHEARSAL_FAILED,
    RehearsalOutcome.ENDED: JournalKind.REHEARSAL_ENDED,
}


def condemn(request: Request, tx: ProjectTransaction, group_id: str, why: str) -> None:
    """End the rehearsals of a group, in the transaction that starts a failover of it. The failover
    does not wait for the cleanup, except for copies on the server on which it starts the
    application (``resources.activation``)."""
    for row in rehearsals.unfinished(tx, group_id):
        if row["outcome"] != RehearsalOutcome.RUNNING:
            continue
        state, own = tx.lock_group(group_id, shared=False), tx.lock_group(row["id"], shared=False)
        if state is not None and own is not None:
            record_end(request, tx, state, own, row, RehearsalOutcome.ENDED, f"ended by: {why}")


def record_end(
    request: Request,
    tx: ProjectTransaction,
    state: GroupState,
    own: GroupState,
    row: RehearsalRow,
    outcome: RehearsalOutcome,
    reason: str,
) -> None:
    """Record what a rehearsal came to, and give its own group the goal that asks for nothing. One
    that failed only because a member's agent had ended it, for a real command or as it was
    restarted, says nothing of the standby: it was ended."""
    definitions = request.runtime.definitions
    types = definitions.group(tx, own).types
    rows = details.operations_of(tx, traversal_id=own.current_traversal)
    left_out, roles = row["planned"]["left_out"], row["planned"]["roles"]
    lasted, places = plans.durations(tx, state.id), _places(tx.records(own.id))
    report = rehearsal_report(rows, types, left_out, lasted, places)
    if outcome is RehearsalOutcome.FAILED and _codes(rows) == {REHEARSAL_ENDED}:
        outcome = RehearsalOutcome.ENDED
    elif outcome is RehearsalOutcome.FAILED and not row["planned"]["consistent"]:
        reason += _doubt(report)
    if not rehearsals.end(tx, row["id"], outcome, reason, cast(Mapping[str, Any], report)):
        return
    rehearsed_roles.end(tx, row["id"], judged_roles(outcome, roles, failed_places(report)))
    goal = ended_goal(state.name)
    traversal = Traversal(
        traversal_id(row["id"], "end"),
        own.id,
        goal.version,
        TraversalStatus.IN_PROGRESS,
        cause=f"the rehearsal of {state.name} has ended",
    )
    begin(tx, definitions, own, goal, traversal, own.current_traversal)
    sentence = f"rehearsal {outcome.lower()}: {role_words(roles)}"
    if outcome is RehearsalOutcome.PASSED and report["to_service"] is not None:
        sentence += f": a failover would take {report['to_service']:.1f} s"
    tx.journal(state.id, f"{sentence}: {reason}" if reason else sentence, kind=_KINDS[outcome])


def _codes(rows: Iterable[LedgerRow]) -> set[str]:
    """Return the codes of the errors of what was to be made."""
    errors = ((row["result"] or {}).get("error") for row in rows if row["verb"] == Verb.CREATE)
    return {str(error["code"]) for error in errors if error}


def _doubt(report: RehearsalReport) -> str:
    """Return what an application or a check that failed may have met besides the standby: copies
    of several volumes, which are not of one instant."""
    if not any(step["error"] and step["role"] for step in report["steps"]):
        return ""
    return (
        f"; the copies are not of one instant (within {report['spread'] or 0.0:.1f} s), so they "
        "may be the cause"
    )


def _places(records: Iterable[Record]) -> dict[str, Place]:
    """Return by resource on which member it is, and of which role."""
    given = {record.name: record.properties or {} for record in records}
    return {name: Place(each.get("on"), each.get("role")) for name, each in given.items()}


def traversal_id(rehearsal_id: str, what: str) -> str:
    """Return the id of a traversal of a rehearsal; ``what``: begin or end."""
    return derived_id(rehearsal_id, "rehearsal", what)
