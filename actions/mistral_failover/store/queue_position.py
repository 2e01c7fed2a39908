# SPDX-License-Identifier: Apache-2.0
"""What orders the nodes that wait for a worker. The function runs in one transaction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import sqlalchemy as sa

from mistral_failover.store.session import ProjectSession
from mistral_failover.store.tables import groups, resources, traversals


@dataclass(frozen=True)
class QueuePosition:
    """The place of a traversal among others. ``number`` grows from each traversal to the next,
    ``types`` are those of the group's resources, by id."""

    priority: int = 0
    number: int = 0
    types: Mapping[str, str] = field(default_factory=dict)


def queue_position(tx: ProjectSession, traversal_id: str) -> QueuePosition | None:
    """Return the place of a traversal; None if there is none."""
    query = (
        sa.select(traversals.c.group_id, traversals.c.number, groups.c.definition)
        .join(groups, groups.c.id == traversals.c.group_id)
        .where(traversals.c.id == traversal_id)
    )
    row = tx.connection.execute(query).first()
    if row is None:
        return None
    types = sa.select(resources.c.id, resources.c.type).where(resources.c.group_id == row.group_id)
    return QueuePosition(
        int(row.definition["document"].get("priority", 0)),
        row.number,
        {row.id: row.type for row in tx.connection.execute(types)},
    )
