# SPDX-License-Identifier: Apache-2.0
"""What a sweep does about rehearsals: it ends those that have ended, or take too long, and were not
followed by their workflow; and it begins those whose time has come."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from mistral_failover.convergence.records import GroupState, JournalKind, TraversalStatus
from mistral_failover.groups.service import judged_services
from mistral_failover.groups.snapshot import group_snapshot_in, locked
from mistral_failover.model.errors import InvalidDocument
from mistral_failover.model.observation import Service
from mistral_failover.model.rehearsals import AGAIN, RehearsalOutcome, RehearsalSchedule
from mistral_failover.orders.rehearsal import life
from mistral_failover.recovery.documents import DueRehearsal, TakenUp
from mistral_failover.runtime.request import Request
from mistral_failover.store import groups, incidents, rehearsals, suspensions, views
from mistral_failover.store.rehearsals import RehearsalRow
from mistral_failover.store.transaction import ProjectTransaction


def continued(request: Request, group_id: str | None) -> Iterator[TakenUp]:
    """End the rehearsals of the project, or of one group, whose workflow does not; yield what their
    cleanup needs. An operator who names a group wants that at once."""
    quiet = 0.0 if group_id is not None else request.runtime.settings.sweep_after
    found = request.store.reading(lambda tx: _left(tx, group_id, quiet))
    for row, name, why in found:
        left = life.end(request, row["id"], why)
        if row["outcome"] == RehearsalOutcome.RUNNING and left["traversal"] is not None:
            sentence = f"the rehearsal was ended by a sweep{f': {why}' if why else ''}"
            yield {"traversal": left["traversal"], "group": name, "sentence": sentence}


def due(request: Request) -> list[DueRehearsal]:
    """Return the rehearsal of the project whose time has come, if there is one: one at a time, and
    none while an alarm is held, because more groups than that one may be in trouble.

    A group that does not serve, waits for anything or is suspended is passed over.
    """

    def candidates(tx: ProjectTransaction) -> list[GroupState]:
        if rehearsals.unfinished(tx) or incidents.is_held_full(tx, 1):
            return []
        return [
            state
            for state in groups.states(tx)
            if state.current_traversal is not None and _due_schedule(request, tx, state)
        ]

    def begin(name: str, tx: ProjectTransaction) -> DueRehearsal | None:
        state = locked(request, tx, name)
        schedule = _due_schedule(request, tx, state)
        if schedule is None:
            return None  # another sweep has begun it, or the group has other work by now
        sentence = f"a rehearsal is due ({schedule.words}): a sweep starts it"
        tx.journal(state.id, sentence, kind=JournalKind.REHEARSAL)
        because = f"rehearsed by schedule: {schedule.words}"
        return {
            "group": name,
            "sentence": sentence,
            "workflow": "failover.rehearse",
            "input": {"group": name, "because": because},
        }

    for state in request.store.reading(candidates):
        if found := request.store.atomically(partial(begin, state.name)):
            return [found]
    return []


def _due_schedule(
    request: Request, tx: ProjectTransaction, state: GroupState
) -> RehearsalSchedule | None:
    """Return the schedule by which a rehearsal of a group is due; None: none is."""
    try:
        schedule = request.runtime.definitions.group(tx, state).rehearsal.schedule
    except InvalidDocument:  # it needs a package that is gone, which must not stop the others
        return None
    if schedule is None or suspensions.is_suspended(tx, state.id):
        return None
    now, last = tx.now(), rehearsals.last_result(tx, state.id)
    if not schedule.is_due(state.id, now, last["began_at"] if last else None):
        return None
    tried = views.last_in_group(tx, state.id, JournalKind.REHEARSAL)
    if tried is not None and now - tried < AGAIN:
        return None
    serves = judged_services(request.runtime, tx, [state.id])[state.id].state.service
    if serves not in (Service.SERVING, Service.DEGRADED):
        return None
    return schedule if group_snapshot_in(request, tx, state).reached else None


def _left(
    tx: ProjectTransaction, group_id: str | None, quiet: float
) -> list[tuple[RehearsalRow, str, str]]:
    """Return the rehearsals to be ended, each with the name of its own group, and why, in words;
    empty if its traversal has ended."""
    now = tx.now()
    found = []
    for row in rehearsals.unfinished(tx, group_id):
        own = groups.get(tx, row["id"])
        current = own.current_traversal if own is not None else None
        traversal = tx.traversal(current) if current is not None else None
        if own is None or traversal is None:
            continue
        limit = float(row["planned"]["limit"])
        late = row["outcome"] == RehearsalOutcome.RUNNING and now - row["began_at"] > limit
        done = traversal.status != TraversalStatus.IN_PROGRESS
        since = views.status_since(tx, traversal.id) or now
        if late:
            found.append((row, own.name, f"it did not end within {limit:.0f} s"))
        elif done and now - since >= quiet:
            found.append((row, own.name, ""))
    return found
