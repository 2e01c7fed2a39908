# SPDX-License-Identifier: Apache-2.0
"""Which volume each attachment of a group was made with last. Functions over one transaction."""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa

from mistral_failover.store.records import BIRTH
from mistral_failover.store.session import Session
from mistral_failover.store.tables import resources


@dataclass(frozen=True)
class AttachedVolume:
    """A volume by its id, and the ``name`` that the group file had for it."""

    name: str
    volume_id: str


def volumes(tx: Session, group_id: str, attachment: str) -> dict[str, AttachedVolume]:
    """By resource, what its latest record with a volume says, gone or not; ``attachment`` is the
    type. So a volume is known also while it hangs nowhere."""
    query = (
        sa.select(resources.c.name, resources.c.properties, resources.c.physical_id)
        .where(
            resources.c.group_id == group_id,
            resources.c.type == attachment,
            resources.c.physical_id.is_not(None),
        )
        .order_by(*BIRTH)
    )
    return {
        row.name: AttachedVolume(str(row.properties["volume"]), row.physical_id)
        for row in tx.connection.execute(query)
        if row.properties
    }
