# SPDX-License-Identifier: Apache-2.0
"""The clients that a storage fence has blocked, until the block is lifted.

Each function runs in one transaction. A client belongs to the cloud and not to a project, so these
functions take none; only code with the operator's configuration calls them.
"""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa

from mistral_failover.store.host_fences import beginning_of
from mistral_failover.store.session import Session
from mistral_failover.store.tables import blocked_clients, host_fences


@dataclass(frozen=True)
class BlockedClient:
    """A client on the storage's blocklist. ``blocked_at``: right before it was put there, in
    seconds by the database's clock; never before a fence of a host that began earlier, whatever the
    clock says. ``number``: the order of blocks, traversals and reports."""

    client: str
    volume_id: str
    blocked_at: float
    number: int


def record(tx: Session, client: str, volume_id: str) -> None:
    """Record that a client of a volume is about to be blocked, perhaps once more."""
    began = tx.connection.execute(sa.select(sa.func.max(host_fences.c.claimed_at))).scalar()
    blocked_at = max(tx.now(), began or 0.0)
    values = {"volume_id": volume_id, "blocked_at": blocked_at, "number": tx.number()}
    again = blocked_clients.update().where(blocked_clients.c.client == client)
    if not tx.changed(again.values(**values)):
        tx.insert(blocked_clients, client=client, **values)


def everywhere(tx: Session) -> list[BlockedClient]:
    """Return all that are blocked."""
    query = sa.select(blocked_clients).order_by(blocked_clients.c.client)
    return [BlockedClient(**row) for row in tx.connection.execute(query).mappings()]


def since(tx: Session, traversal_id: str) -> list[BlockedClient]:
    """Return those that were blocked after a traversal began, or after its host was first reported
    lost, if that report started it; whatever the clock says; none for an unknown traversal."""
    began = beginning_of(tx, traversal_id)
    return [each for each in everywhere(tx) if began is not None and began.number < each.number]


def forget(tx: Session, lifted: BlockedClient) -> bool:
    """Forget a client whose block was lifted. Return False if it was blocked again meanwhile."""
    same = sa.and_(
        blocked_clients.c.client == lifted.client,
        blocked_clients.c.blocked_at == lifted.blocked_at,
    )
    return tx.execute(blocked_clients.delete().where(same)) > 0
