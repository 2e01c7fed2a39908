# SPDX-License-Identifier: Apache-2.0
"""Signed alarms that were accepted, by the digest of their signature. So every server on this store
recognises an alarm that is sent again. Each function runs in one transaction."""

from __future__ import annotations

import hashlib

import sqlalchemy as sa

from mistral_failover.store.session import ProjectSession
from mistral_failover.store.tables import deliveries

_TAKEN = sa.select(deliveries.c.execution)


def taken(tx: ProjectSession, signature: str) -> str | None:
    """Return the execution that was started for an alarm; None if it was not accepted."""
    query = _TAKEN.where(
        deliveries.c.project_id == tx.project_id, deliveries.c.digest == _digest(signature)
    )
    found: str | None = tx.connection.execute(query).scalar_one_or_none()
    return found


def take(tx: ProjectSession, signature: str, execution: str, keep: float) -> bool:
    """Record an accepted alarm. Return False if it was already recorded. Entries older than
    ``keep`` seconds by the database's clock are deleted."""
    if taken(tx, signature) is not None:
        return False
    now = tx.now()
    tx.execute(deliveries.delete().where(deliveries.c.at < now - keep))
    tx.insert(
        deliveries,
        project_id=tx.project_id,
        digest=_digest(signature),
        execution=execution,
        at=now,
    )
    return True


def _digest(signature: str) -> str:
    return hashlib.sha256(signature.encode()).hexdigest()
