# SPDX-License-Identifier: Apache-2.0
"""Delete old goals whenever a group is given a new one: only then does their number grow."""

from __future__ import annotations

import logging

from sqlalchemy.exc import DBAPIError

from mistral_failover.runtime.request import Request
from mistral_failover.store import goals
from mistral_failover.store.transaction import ProjectTransaction

LOG = logging.getLogger(__name__)
DAY = 86400.0


def forget(request: Request, group_id: str) -> int:
    """Delete the goals of a group that the settings do not require to keep. Return their number.

    If the database does not answer, nothing is deleted now; the next goal triggers it again.
    """
    settings = request.runtime.settings

    def prune(tx: ProjectTransaction) -> int:
        if tx.lock_group(group_id, shared=False) is None:
            return 0
        since = tx.now() - settings.keep_days * DAY
        return goals.purge(tx, group_id, keep=settings.keep_goals, older_than=since)

    try:
        return request.store.atomically(prune)
    except DBAPIError:
        LOG.warning("Old goals of group %s could not be deleted.", group_id, exc_info=True)
        return 0
