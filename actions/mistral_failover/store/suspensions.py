# SPDX-License-Identifier: Apache-2.0
"""Pauses and maintenances of groups: until when alarms are held, who set it, and why.

Each function runs in one transaction. Times are in seconds by the database's clock.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NotRequired, TypedDict

import sqlalchemy as sa

from mistral_failover.store.session import ProjectSession
from mistral_failover.store.tables import groups

Kind = Literal["pause", "maintenance"]
KINDS: tuple[Kind, ...] = ("pause", "maintenance")


class Pause(TypedDict):
    """Alarms are held until an operator resumes the group. ``by``: who set it."""

    by: str
    because: str
    since: float


class Maintenance(Pause):
    """Alarms are held until a time; only those about ``members``, unless that is empty."""

    until: float
    members: list[str]


class Suspensions(TypedDict):
    """What holds the alarms of a group."""

    pause: NotRequired[Pause]
    maintenance: NotRequired[Maintenance]


_OF_GROUP = sa.select(groups.c.pause, groups.c.maintenance).where(
    groups.c.id == sa.bindparam("this_group")
)


def suspend(tx: ProjectSession, group_id: str, kind: Kind, said: Pause | Maintenance) -> None:
    """Suspend the admission of a group's alarms. An existing pause or maintenance is replaced."""
    tx.execute(groups.update().where(groups.c.id == group_id).values(**{kind: dict(said)}))


def resume(tx: ProjectSession, group_id: str, kinds: Iterable[Kind] = KINDS) -> None:
    """End the pause, the maintenance, or both."""
    # SQL's null, not JSON's.
    if ended := dict.fromkeys(kinds, sa.null()):
        tx.execute(groups.update().where(groups.c.id == group_id).values(**ended))


def of_group(tx: ProjectSession, group_id: str) -> Suspensions:
    """Return the suspensions that were not ended; a maintenance also if its time is over. Empty for
    a group that is not defined yet."""
    row = tx.connection.execute(_OF_GROUP, {"this_group": group_id}).one_or_none()
    found: Suspensions = {}
    if row is None:
        return found
    if row.pause is not None:
        found["pause"] = row.pause
    if row.maintenance is not None:
        found["maintenance"] = row.maintenance
    return found


def is_suspended(tx: ProjectSession, group_id: str) -> bool:
    """Return whether a group has a pause, or a maintenance whose time is not over."""
    said = of_group(tx, group_id)
    work = said.get("maintenance")
    return "pause" in said or (work is not None and tx.now() < work["until"])
