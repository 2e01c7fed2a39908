# SPDX-License-Identifier: Apache-2.0
"""Delete old incidents, journal entries, plans and changes of service of a project, now and then
and in small batches, so that a sweep stays short."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from weakref import WeakKeyDictionary

from mistral_failover.orders.old_goals import DAY
from mistral_failover.runtime.request import Request
from mistral_failover.store import retention
from mistral_failover.store.database import Database
from mistral_failover.store.transaction import ProjectTransaction

LOG = logging.getLogger(__name__)
EVERY = 60.0
"""Seconds between two times that a process does this for a project."""
BATCH = 500
"""Rows that one transaction deletes at most."""
SHOWN_DAYS = 31
"""Days for which it can be asked how much a group served."""
CHANGES = 5000
"""Maximum stored changes of a group's word: more than one in ten minutes for a month."""
LIMIT = 2.0
"""Seconds after which no further batch starts; the next sweep continues."""

_done: WeakKeyDictionary[Database, dict[str, float]] = WeakKeyDictionary()


def forget(request: Request, *, at_once: bool = False) -> int:
    """Delete what the settings do not require to keep, if it is due or ``at_once``. Return the
    number of rows."""
    project = request.project_id
    done, began = _done.setdefault(request.runtime.database, {}), time.monotonic()
    if not at_once and began - done.get(project, float("-inf")) < EVERY:
        return 0
    done[project] = began
    deleted = 0
    for one_batch in _kinds(request):
        while time.monotonic() - began < LIMIT:
            number = request.store.atomically(one_batch)
            deleted += number
            if number < BATCH:
                break
        else:
            done.pop(project, None)  # there may be more
    if deleted:
        LOG.info("Deleted %d old rows of project %s.", deleted, project)
    return deleted


def _kinds(request: Request) -> list[Callable[[ProjectTransaction], int]]:
    settings = request.runtime.settings

    def since(tx: ProjectTransaction) -> float:
        return tx.now() - settings.history_days * DAY

    return [
        lambda tx: retention.purge_incidents(
            tx, keep=settings.keep_incidents, older_than=since(tx), batch=BATCH
        ),
        lambda tx: retention.purge_journal(
            tx, keep=settings.keep_journal, older_than=since(tx), batch=BATCH
        ),
        lambda tx: retention.purge_plans(tx, batch=BATCH),
        lambda tx: retention.purge_service_changes(
            tx, keep=CHANGES, older_than=tx.now() - SHOWN_DAYS * DAY, batch=BATCH
        ),
    ]
