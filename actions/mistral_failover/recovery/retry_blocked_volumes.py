# SPDX-License-Identifier: Apache-2.0
"""Retry nodes that are blocked by a volume that only an operator can free.

A node that was blocked by a volume has recorded the state of the volume that was seen
(``cloud.volume_holders.volume_fingerprint``). If a sweep sees a different state, it retries the
node. Only the retry shows if the change was the right one. A project does not see whether a compute
host is back, so what waits for one is also retried from time to time, once: Nova's answer shows it.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from functools import partial

from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.transport import Unguarded
from mistral_failover.cloud.volume_holders import volume_fingerprint
from mistral_failover.convergence.records import JournalKind, TraversalStatus
from mistral_failover.recovery.documents import TakenUp
from mistral_failover.runtime.request import Request
from mistral_failover.store import stalled_work
from mistral_failover.store.transaction import ProjectTransaction


def retry_blocked(request: Request, group_id: str | None, end: float) -> Iterator[TakenUp]:
    """Reopen the nodes whose volume has changed since they were blocked, and those that are due for
    another try. Only one of two simultaneous sweeps does so. ``end``: when this must be over, on
    the monotonic clock. Raises CloudError."""
    database = request.store
    found = database.reading(lambda tx: stalled_work.blocked_by_volume(tx, group_id))
    if not found:
        return
    cloud = request.cloud(Unguarded())
    trouble: CloudError | None = None
    random.shuffle(found)  # if the time is not enough for all, each gets its turn
    for held in found:
        if time.monotonic() > end:
            break
        try:
            seen = volume_fingerprint(cloud, held.volume, held.server)
        except CloudError as error:
            trouble = error  # raised after the other groups had their turn
            continue
        if seen == held.sight and not held.due:
            continue
        once = seen == held.sight
        why = "what it waits for may be back" if once else f"it has changed: {seen}"
        sentence = f"{held.resource}: reopened by a sweep, because {why}"
        if database.atomically(partial(_reopened, held, sentence, once)):
            traversal = held.ready.traversal_id
            yield {"traversal": traversal, "group": held.group, "sentence": sentence}
    if trouble is not None:
        raise trouble


def _reopened(
    held: stalled_work.BlockedByVolume, sentence: str, once: bool, tx: ProjectTransaction
) -> bool:
    tx.lock_group(held.group_id, shared=False)
    traversal = held.ready.traversal_id
    if not tx.reopen_node(traversal, held.ready.node, once=once):
        return False
    if not tx.stopped_nodes(traversal):
        tx.mark_traversal(traversal, TraversalStatus.IN_PROGRESS, "")
    tx.journal(
        held.group_id,
        sentence,
        kind=JournalKind.SWEEP,
        traversal_id=traversal,
        resource_id=held.ready.node.resource_id,
    )
    return True
