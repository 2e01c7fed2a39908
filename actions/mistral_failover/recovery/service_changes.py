# SPDX-License-Identifier: Apache-2.0
"""Store since when a group's word is so, for its availability."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from mistral_failover.groups.service import judged_services
from mistral_failover.groups.service_changes import changes_after
from mistral_failover.runtime.request import Request
from mistral_failover.store import service_changes
from mistral_failover.store.transaction import ProjectTransaction


def store_changes(
    request: Request, group_ids: Sequence[str], looked_at: Mapping[str, float]
) -> None:
    """Store the changes of the words of these groups. ``looked_at``: of each that this round has
    looked at, when it was looked at before, 0 for never. At rest nothing has changed, and a few
    statements find that, whatever the number of groups."""
    for group_id in request.store.reading(partial(_changed, request, group_ids, looked_at)):
        before = looked_at.get(group_id)
        request.store.atomically(partial(_store, request, group_id, before))


def _changed(
    request: Request,
    group_ids: Sequence[str],
    looked_at: Mapping[str, float],
    tx: ProjectTransaction,
) -> list[str]:
    """Return the groups whose word is not the stored one, or whose traversal ended since they were
    looked at: it may have been another one for a while."""
    known = judged_services(request.runtime, tx, group_ids)
    stored = service_changes.last(tx, group_ids)
    found = []
    for group_id, judged in known.items():
        last, ended = stored.get(group_id), judged.engine.ended_at or 0.0
        if (
            last is None
            or last.service is not judged.state.service
            or ended > looked_at.get(group_id, ended)
        ):
            found.append(group_id)
    return found


def _store(
    request: Request, group_id: str, looked_at: float | None, tx: ProjectTransaction
) -> None:
    if tx.lock_group(group_id, shared=False) is None:
        return
    judged = judged_services(request.runtime, tx, [group_id])[group_id]
    last = service_changes.last(tx, [group_id]).get(group_id)
    changes = changes_after(request.runtime, tx, judged, last, looked_at)
    service_changes.record(tx, group_id, changes)
