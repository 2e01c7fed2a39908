# SPDX-License-Identifier: Apache-2.0
"""The volume that each attachment of a group last used. Each function runs in one transaction."""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa

from mistral_failover.store.records import BIRTH
from mistral_failover.store.session import ProjectSession
from mistral_failover.store.tables import resources


@dataclass(frozen=True)
class AttachedVolume:
    """A volume by its id, and its ``name`` in the group file."""

    name: str
    volume_id: str


def volumes(
    tx: ProjectSession, group_id: str, attachment: str, name: str | None = None
) -> dict[str, AttachedVolume]:
    """Return, by resource, the volume of its latest record that has one, even if that record is
    gone. ``attachment`` is the type. So a volume is known while it is attached nowhere. ``name``:
    of the only resource that counts."""
    query = (
        sa.select(resources.c.name, resources.c.properties, resources.c.physical_id)
        .where(
            resources.c.group_id == group_id,
            resources.c.type == attachment,
            resources.c.physical_id.is_not(None),
        )
        .order_by(*BIRTH)
    )
    if name is not None:
        query = query.where(resources.c.name == name)
    return {
        row.name: AttachedVolume(str(row.properties["volume"]), row.physical_id)
        for row in tx.connection.execute(query)
        if row.properties
    }
