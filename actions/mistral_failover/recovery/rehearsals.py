# SPDX-License-Identifier: Apache-2.0
"""What a sweep does about rehearsals: it ends those that have ended, or take too long, and were not
followed by their workflow."""

from __future__ import annotations

from collections.abc import Iterator

from mistral_failover.convergence.records import TraversalStatus
from mistral_failover.model.rehearsals import RehearsalOutcome
from mistral_failover.orders.rehearsal import life
from mistral_failover.recovery.documents import TakenUp
from mistral_failover.runtime.request import Request
from mistral_failover.store import groups, rehearsals, views
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
