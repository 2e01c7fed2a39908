# SPDX-License-Identifier: Apache-2.0
"""Signed alarms that were taken, by the digest of their signature: what is sent once more, to any
server on this store, is known again. Functions over one transaction."""

from __future__ import annotations

import hashlib

import sqlalchemy as sa

from mistral_failover.store.session import Session
from mistral_failover.store.tables import deliveries

_TAKEN = sa.select(deliveries.c.execution)


def taken(tx: Session, project_id: str, signature: str) -> str | None:
    """The execution that an alarm was taken as; None when it was not."""
    query = _TAKEN.where(
        deliveries.c.project_id == project_id, deliveries.c.digest == _digest(signature)
    )
    found: str | None = tx.connection.execute(query).scalar_one_or_none()
    return found


def take(tx: Session, project_id: str, signature: str, execution: str, keep: float) -> bool:
    """Record that an alarm was taken; False: it was already. What is older than ``keep`` seconds,
    by the database's clock, is forgotten."""
    if taken(tx, project_id, signature) is not None:
        return False
    now = tx.now()
    tx.execute(deliveries.delete().where(deliveries.c.at < now - keep))
    tx.insert(
        deliveries,
        project_id=project_id,
        digest=_digest(signature),
        execution=execution,
        at=now,
    )
    return True


def _digest(signature: str) -> str:
    return hashlib.sha256(signature.encode()).hexdigest()
