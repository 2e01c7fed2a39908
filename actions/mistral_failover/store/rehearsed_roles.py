# SPDX-License-Identifier: Apache-2.0
"""Which member was rehearsed for which role, and what came of it: a row for each role and member.

Each function runs in one transaction in which the rehearsed group is locked, unless it only reads.
Times are in seconds by the database's clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict

import sqlalchemy as sa

from mistral_failover.model.rehearsals import RehearsalOutcome
from mistral_failover.store.session import ProjectSession, fields
from mistral_failover.store.tables import rehearsals, rehearsed_roles
from mistral_failover.store.transaction import ProjectTransaction


class RehearsedRole(TypedDict):
    """A role that was rehearsed on a member. ``tried_at``: when the last rehearsal of it began. The
    others are of the last one that passed or failed there, and empty if there was none: ``at``,
    when it began; ``server_id``, on which server; ``to_service``, the seconds that a failover would
    take by it. ``outcome``: RUNNING if none has passed or failed."""

    role: str
    member: str
    tried_at: float
    outcome: RehearsalOutcome
    at: float | None
    server_id: str | None
    reason: str
    to_service: float | None


_OF_GROUP = (
    fields(RehearsedRole, rehearsed_roles)
    .where(rehearsed_roles.c.group_id == sa.bindparam("this_group"))
    .order_by(rehearsed_roles.c.member, rehearsed_roles.c.role)
)


def of_group(tx: ProjectSession, identity: str) -> list[RehearsedRole]:
    """Return what was rehearsed of a group, by member and role."""
    return tx.rows(RehearsedRole, _OF_GROUP, {"this_group": identity})


def begin(tx: ProjectTransaction, identity: str, roles: Mapping[str, str]) -> None:
    """Record that a rehearsal of a group begins, in which these ``roles`` go to these members."""
    for role, member in sorted(roles.items()):
        if not tx.changed(_one(identity, role, member).values(tried_at=tx.clock())):
            tx.insert(
                rehearsed_roles,
                group_id=identity,
                role=role,
                member=member,
                tried_at=tx.clock(),
                outcome=RehearsalOutcome.RUNNING,
                reason="",
            )


def end(tx: ProjectSession, rehearsal_id: str, roles: Mapping[str, str]) -> None:
    """Record what a rehearsal came to for these ``roles`` and their members, once it is recorded
    itself (`rehearsals.end`)."""
    query = sa.select(rehearsals).where(rehearsals.c.id == rehearsal_id)
    row = tx.connection.execute(query).one()
    servers: Mapping[str, Any] = row.planned["servers"]
    for role, member in roles.items():
        tx.execute(
            _one(row.group_id, role, member).values(
                outcome=row.outcome,
                at=row.began_at,
                server_id=servers.get(member),
                reason=row.reason,
                to_service=(row.report or {}).get("to_service"),
            )
        )


def _one(identity: str, role: str, member: str) -> sa.Update:
    return rehearsed_roles.update().where(
        rehearsed_roles.c.group_id == identity,
        rehearsed_roles.c.role == role,
        rehearsed_roles.c.member == member,
    )
