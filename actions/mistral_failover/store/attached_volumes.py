# SPDX-License-Identifier: Apache-2.0
"""The volume that each attachment of a group last used. Each function runs in one transaction."""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa

from mistral_failover.store.records import BIRTH
from mistral_failover.store.session import ProjectSession
from mistral_failover.store.tables import resources

_VOLUMES = (
    sa.select(resources.c.name, resources.c.properties, resources.c.physical_id)
    .where(
        resources.c.group_id == sa.bindparam("this_group"),
        resources.c.type == sa.bindparam("this_type"),
        resources.c.physical_id.is_not(None),
    )
    .order_by(*BIRTH)
)
_VOLUMES_OF_ONE = _VOLUMES.where(resources.c.name == sa.bindparam("this_name"))


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
    here = {"this_group": group_id, "this_type": attachment}
    rows = (
        tx.connection.execute(_VOLUMES, here)
        if name is None
        else tx.connection.execute(_VOLUMES_OF_ONE, {**here, "this_name": name})
    )
    return {
        row.name: AttachedVolume(str(row.properties["volume"]), row.physical_id)
        for row in rows
        if row.properties
    }
