# SPDX-License-Identifier: Apache-2.0
"""The changes of a group's word up to now, of which those up to the last round are stored."""

from __future__ import annotations

from mistral_failover.groups.service import JudgedService
from mistral_failover.model.availability import Change, Interruption, further_changes
from mistral_failover.model.observation import fresh_for
from mistral_failover.runtime.process import Runtime
from mistral_failover.store import service_changes
from mistral_failover.store.transaction import ProjectTransaction


def changes_after(
    runtime: Runtime,
    tx: ProjectTransaction,
    judged: JudgedService,
    last: Change | None,
    looked_at: float | None = None,
) -> tuple[Change, ...]:
    """Return the changes of a group up to now after the ``last`` one that is stored; the first may
    take its place. ``looked_at``: the time of the last look whose word is stored, 0 if there is
    none; unless it is given, the last look is."""
    if looked_at is None:
        looked_at = judged.look.at if judged.look is not None else 0.0
    interruption = _interruption(tx, judged)
    fresh = fresh_for(runtime.settings.observe_interval)
    return further_changes(last, looked_at, judged.state, interruption, tx.now(), fresh)


def _interruption(tx: ProjectTransaction, judged: JudgedService) -> Interruption | None:
    """Return the time for which the current traversal interrupted the service; None if it has made
    nothing that serves."""
    made, started = judged.engine.made_at, judged.engine.started_at
    if judged.traversal is None or made is None or started is None or made <= started:
        return None
    begun = service_changes.interrupted_from(tx, judged.traversal)
    return None if begun is None else Interruption(begun, max(made, begun))
