# SPDX-License-Identifier: Apache-2.0
"""Whose a traversal is. Ids of traversals and resources come in as plain inputs, so anybody could
name another project's: those are treated as if they did not exist."""

from __future__ import annotations

from typing import Any

from mistral_failover.actions.runtime import Request
from mistral_failover.store import groups


def owns(request: Request, traversal_id: str, resource_id: str | None = None) -> bool:
    """Whether the request's project has this traversal, and the resource belongs to its group."""

    def read(tx: Any) -> bool:
        traversal = tx.traversal(traversal_id)
        group = groups.get(tx, traversal.group_id) if traversal else None
        if group is None or group.project_id != request.project_id:
            return False
        if resource_id is None:
            return True
        record = tx.record(resource_id)
        return record is not None and record.group_id == group.id

    return request.runtime.database.reading(read)
