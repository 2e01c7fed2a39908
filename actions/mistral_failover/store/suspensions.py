# SPDX-License-Identifier: Apache-2.0
"""Pauses and maintenances of groups: until when alarms are held, who set it, and why.

Each function runs in one transaction. A pause or maintenance is a mapping of ``by``, ``because``
and ``since``; a maintenance also has ``until`` and ``members``. Times are in seconds by the
database's clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

import sqlalchemy as sa

from mistral_failover.store.session import ProjectSession
from mistral_failover.store.tables import groups

Kind = Literal["pause", "maintenance"]
KINDS: tuple[Kind, ...] = ("pause", "maintenance")


def suspend(tx: ProjectSession, group_id: str, kind: Kind, said: Mapping[str, Any]) -> None:
    """Suspend the admission of a group's alarms. An existing pause or maintenance is replaced."""
    tx.execute(groups.update().where(groups.c.id == group_id).values(**{kind: dict(said)}))


def resume(tx: ProjectSession, group_id: str, kinds: Iterable[Kind] = KINDS) -> None:
    """End the pause, the maintenance, or both."""
    # SQL's null, not JSON's.
    if ended := dict.fromkeys(kinds, sa.null()):
        tx.execute(groups.update().where(groups.c.id == group_id).values(**ended))


def of_group(tx: ProjectSession, group_id: str) -> dict[Kind, Mapping[str, Any]]:
    """Return the suspensions that were not ended; a maintenance also if its time is over."""
    query = sa.select(groups.c.pause, groups.c.maintenance).where(groups.c.id == group_id)
    row = tx.connection.execute(query).one()
    found: dict[Kind, Mapping[str, Any] | None] = {
        "pause": row.pause,
        "maintenance": row.maintenance,
    }
    return {kind: said for kind, said in found.items() if said is not None}


def held_back(tx: ProjectSession, group_id: str) -> bool:
    """Return whether a group has a pause, or a maintenance whose time is not over."""
    said = of_group(tx, group_id)
    work = said.get("maintenance")
    return "pause" in said or (work is not None and tx.now() < work["until"])
