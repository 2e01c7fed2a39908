# SPDX-License-Identifier: Apache-2.0
"""How a rehearsal begins and ends.

It is carried out in a group of its own (``store.rehearsals``), which has two goals: the one of
``model.rehearsal_goal``, and then the one that asks for nothing. Each step is one transaction, in
which the rehearsed group is locked first. So a failover of that group and its rehearsal never begin
at once, and whatever dies, a sweep finds what is left: the rehearsal ends, and the cleanup follows.
"""

from __future__ import annotations

from collections.abc import Mapping
from shlex import quote
from typing import TypedDict, cast

from mistral_failover.convergence.engine import latest
from mistral_failover.convergence.records import (
    GroupState,
    JournalKind,
    Traversal,
    TraversalStatus,
)
from mistral_failover.convergence.traversals import begin as begin_traversal
from mistral_failover.fault_points import reach
from mistral_failover.groups.snapshot import group_snapshot_in, locked
from mistral_failover.model.group import SHIPPED_CHAIN
from mistral_failover.model.order import Order
from mistral_failover.model.rehearsal_goal import definition_of, rehearsal_goal
from mistral_failover.model.rehearsals import RehearsalOutcome, role_words
from mistral_failover.orders import operator_order
from mistral_failover.orders.rehearsal.planning import PlannedRehearsal, draft, refuse_at_work
from mistral_failover.orders.rehearsal_end import record_end, traversal_id
from mistral_failover.orders.rehearsal_report import RehearsalReport
from mistral_failover.runtime.errors import ActionError
from mistral_failover.runtime.request import Request
from mistral_failover.store import rehearsals
from mistral_failover.store.rehearsals import RehearsalRow
from mistral_failover.store.transaction import ProjectTransaction


class StartedRehearsal(TypedDict):
    """A rehearsal that was started, now or before. ``workflow`` carries the ``traversal`` out."""

    group: str
    rehearsal: str
    traversal: str
    workflow: str
    sentence: str
    planned: PlannedRehearsal


class Rehearsal(TypedDict):
    """A rehearsal. ``status``: a `model.rehearsals.RehearsalOutcome`; ``reason``: why it is not
    PASSED. ``lost``: whose loss was rehearsed; ``roles``: who took which. ``clean``: whether
    nothing of it is left in the cloud."""

    rehearsal: str
    group: str
    status: str
    reason: str
    because: str
    lost: str
    roles: Mapping[str, str]
    began_at: float
    ended_at: float | None
    clean: bool
    planned: PlannedRehearsal
    report: RehearsalReport | None


class EndedRehearsal(TypedDict):
    """What is left to do: ``workflow`` carries the ``traversal`` out, None if nothing is. The
    ``outcome`` is the rehearsal, as far as it came."""

    rehearsal: str
    traversal: str | None
    workflow: str | None
    outcome: Rehearsal


def begin(request: Request, group: str, order: Order, because: str) -> StartedRehearsal:
    """Start a rehearsal, once for each execution of Mistral. Raises what `planning.draft` raises,
    and ActionError REHEARSAL_RUNNING."""
    occasion = operator_order.occasion_of(request)
    rehearsal_id, name = rehearsals.identity(request.project_id, group, occasion)
    known = request.store.reading(lambda tx: rehearsals.get(tx, rehearsal_id))
    if known is not None:
        return _started(known, group, "it was started before")
    drawn = draft(request, group, order)
    goal = rehearsal_goal(drawn.rehearsed(rehearsal_id))

    def start(tx: ProjectTransaction) -> RehearsalRow:
        state = locked(request, tx, group)
        if (row := rehearsals.get(tx, rehearsal_id)) is not None:
            return row
        _refuse_second(tx, state)
        refuse_at_work(group_snapshot_in(request, tx, state))
        if state.current_traversal != drawn.snapshot.state.current_traversal:
            raise ActionError(
                "CONTENDED",
                f"{group} got another goal while its rehearsal was prepared",
                f"Check its status: failover status {quote(group)}",
            )
        stored = tx.definition(state.id, state.to_move)
        definition = definition_of(stored["document"], stored["types"])
        own = rehearsals.begin(tx, state, name, definition, drawn.planned, because)
        cause = f"rehearsal of {group}: {because}"
        traversal = Traversal(
            traversal_id(rehearsal_id, "begin"),
            rehearsal_id,
            goal.version,
            TraversalStatus.IN_PROGRESS,
            cause=cause,
        )
        begin_traversal(tx, request.runtime.definitions, own, goal, traversal, None)
        taken = role_words(drawn.planned["roles"])
        sentence = f"rehearsal of the loss of {drawn.planned['lost']}, {taken}: {because}"
        tx.journal(state.id, sentence, kind=JournalKind.REHEARSAL)
        found = rehearsals.get(tx, rehearsal_id)
        assert found is not None  # it was inserted above
        return found

    reach("rehearsal.before")
    row = request.store.atomically(start)
    reach("rehearsal.begun")
    return _started(row, group, because)


def end(request: Request, rehearsal_id: str, why: str = "") -> EndedRehearsal:
    """End a rehearsal whose traversal has ended, or any, with a reason ``why``; then, once its
    cleanup is done, record that. A repeat changes nothing. Raises ActionError UNKNOWN_REHEARSAL."""

    def step(tx: ProjectTransaction) -> EndedRehearsal:
        row = rehearsals.get(tx, rehearsal_id)
        state = tx.lock_group(row["group_id"], shared=False) if row else None
        row = rehearsals.get(tx, rehearsal_id)
        if row is None or state is None:
            raise ActionError(
                "UNKNOWN_REHEARSAL",
                f"there is no rehearsal {rehearsal_id}",
                "List them: failover rehearsals",
            )
        own = tx.lock_group(rehearsal_id, shared=False)
        if own is None or own.current_traversal is None:  # it is clean
            return _left(row, state.name, None)
        traversal = latest(tx, own.current_traversal)
        if row["outcome"] == RehearsalOutcome.RUNNING:
            outcome, reason = _outcome(traversal, why)
            if outcome is RehearsalOutcome.RUNNING:
                return _left(row, state.name, traversal.id)
            record_end(request, tx, state, own, row, outcome, reason)
        elif traversal.status == TraversalStatus.COMPLETE:
            rehearsals.cleaned(tx, row)
            sentence = "nothing of the rehearsal is left in the cloud"
            tx.journal(state.id, sentence, kind=JournalKind.REHEARSAL)
        row, own = rehearsals.get(tx, rehearsal_id), tx.lock_group(rehearsal_id, shared=False)
        assert row is not None  # it is kept
        left = own.current_traversal if own is not None and row["cleaned_at"] is None else None
        return _left(row, state.name, left)

    reach("rehearsal.ending")
    found = request.store.atomically(step)
    reach("rehearsal.ended")
    return found


def of_group(request: Request, group: str) -> list[Rehearsal]:
    """Return the rehearsals of a group, the latest first. Raises UnknownGroup."""

    def read(tx: ProjectTransaction) -> list[Rehearsal]:
        state = locked(request, tx, group)
        return [document(row, group) for row in rehearsals.of_group(tx, state.id)]

    return request.store.reading(read)


def document(row: RehearsalRow, group: str) -> Rehearsal:
    """Return a rehearsal as JSON."""
    planned = cast(PlannedRehearsal, dict(row["planned"]))
    return {
        "rehearsal": row["id"],
        "group": group,
        "status": str(row["outcome"]),
        "reason": row["reason"],
        "because": row["cause"],
        "lost": planned["lost"],
        "roles": planned["roles"],
        "began_at": row["began_at"],
        "ended_at": row["ended_at"],
        "clean": row["cleaned_at"] is not None,
        "planned": planned,
        "report": cast(RehearsalReport | None, row["report"]),
    }


def _outcome(traversal: Traversal, why: str) -> tuple[RehearsalOutcome, str]:
    if traversal.status == TraversalStatus.COMPLETE:
        return RehearsalOutcome.PASSED, ""
    if traversal.status in (TraversalStatus.FAILED, TraversalStatus.BLOCKED):
        return RehearsalOutcome.FAILED, traversal.reason
    return (RehearsalOutcome.ENDED, why) if why else (RehearsalOutcome.RUNNING, "")


def _refuse_second(tx: ProjectTransaction, state: GroupState) -> None:
    for row in rehearsals.unfinished(tx, state.id):
        running = row["outcome"] == RehearsalOutcome.RUNNING
        raise ActionError(
            "REHEARSAL_RUNNING",
            f"a rehearsal of {state.name} {'is running' if running else 'is being cleaned up'}",
            f"Wait for its end: failover rehearsals {quote(state.name)}",
        )


def _started(row: RehearsalRow, group: str, sentence: str) -> StartedRehearsal:
    return {
        "group": group,
        "rehearsal": row["id"],
        "traversal": traversal_id(row["id"], "begin"),
        "workflow": SHIPPED_CHAIN,
        "sentence": sentence,
        "planned": cast(PlannedRehearsal, dict(row["planned"])),
    }


def _left(row: RehearsalRow, group: str, traversal: str | None) -> EndedRehearsal:
    return {
        "rehearsal": row["id"],
        "traversal": traversal,
        "workflow": None if traversal is None else SHIPPED_CHAIN,
        "outcome": document(row, group),
    }
