# SPDX-License-Identifier: Apache-2.0
"""The fences of compute hosts: one process at a time fences a host, and the others use its proof.
And the clients of volumes that a storage fence has blocked, until the block is lifted.

Each function runs in one transaction. Times are seconds by the database's clock. A host and a
client belong to the cloud and not to a project, so these functions take none; only code with the
operator's configuration calls them.
"""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa

from mistral_failover.model.text import clean
from mistral_failover.store.session import Session
from mistral_failover.store.tables import blocked_clients, host_fences, incidents, traversals

_reports = incidents.alias("report")
_OWNER = 255  # characters that the column holds
_TICK = 0.001  # seconds
NOT_TOLD = "9999-12-31T23:59:59"
"""In place of a report: Nova is to be told that the host is down. It is a time: no report
is later."""
BY_OPERATOR = "9999-12-31T23:59:58"
"""In place of a report: an operator had forced the host down before, and lifts that."""


_NOT_SEEN = sa.case(
    (host_fences.c.nova_seen.is_(None), NOT_TOLD),
    (host_fences.c.nova_seen.in_((NOT_TOLD, BY_OPERATOR)), NOT_TOLD),
    else_="",
)
"""What is recorded of a host that is proven off: Nova is to be told, or looked at again."""


@dataclass(frozen=True)
class Claim:
    """The right to fence a host until the lease ends."""

    host: str
    token: int


@dataclass(frozen=True)
class Beginning:
    """When a failover began: in seconds by the database's clock, and by the ``number`` that orders
    traversals, reports and blocks, whatever the clock says."""

    at: float
    number: int


@dataclass(frozen=True)
class HostFence:
    """``owner``: who fences the host now, or None. ``proof`` and ``proven_at``: the last proof that
    it was off; None while there is none. ``claimed_at``: when the fence with this proof began;
    later than every block of a client before it, whatever the clock says.
    ``nova_seen``: None once Nova has shown the host up since it was proven off, or if it never
    was. Before that `NOT_TOLD`, `BY_OPERATOR`, or, once we told Nova that it is down, what Nova
    showed as its last report after that; empty before the first look."""

    owner: str | None
    proof: str | None
    proven_at: float | None
    claimed_at: float | None = None
    nova_seen: str | None = None

    @property
    def back(self) -> bool:
        """Return whether Nova's word about the host counts: no fence of ours is its reason."""
        return self.nova_seen is None

    @property
    def told(self) -> bool:
        """Return whether Nova counts the host as down because of us, or is to do so."""
        return self.nova_seen not in (None, BY_OPERATOR)


def claim(tx: Session, host: str, owner: str, lease: float) -> Claim | None:
    """Claim a host for ``lease`` seconds; None while another owner has it. A claim voids the last
    proof: from now on the host may be switched on or off."""
    row = tx.connection.execute(
        sa.select(host_fences.c.token).where(host_fences.c.host == host)
    ).one_or_none()
    now = tx.now()
    until = now + lease
    owner = clean(owner)[:_OWNER]
    blocked = tx.connection.execute(sa.select(sa.func.max(blocked_clients.c.blocked_at))).scalar()
    began = max(now, (blocked or 0.0) + _TICK)
    if row is None:
        tx.insert(host_fences, host=host, owner=owner, token=1, lease_until=until, claimed_at=began)
        return Claim(host, 1)
    free = sa.or_(host_fences.c.owner.is_(None), host_fences.c.lease_until <= tx.clock())
    taking = host_fences.update().where(
        host_fences.c.host == host, host_fences.c.token == row.token, free
    )
    taken = tx.changed(
        taking.values(
            owner=owner,
            token=row.token + 1,
            lease_until=until,
            claimed_at=began,
            proof=None,
            proven_at=None,
        )
    )
    return Claim(host, row.token + 1) if taken else None


def renew(tx: Session, held: Claim, lease: float) -> bool:
    """Extend a claim to ``lease`` seconds from now. Return False if another owner has claimed the
    host since."""
    return tx.changed(_held(held).values(lease_until=tx.now() + lease))


def prove(tx: Session, held: Claim, proof: str) -> bool:
    """Record the proof, and that Nova has not shown the host up since; release the host. Return
    False, without effect, if the claim is lost, or if its lease has ended: the process slept, and
    what its device said is old."""
    valid = _held(held).where(host_fences.c.lease_until > tx.clock())
    return tx.changed(
        valid.values(
            owner=None,
            lease_until=None,
            proof=clean(proof),
            proven_at=tx.now(),
            nova_seen=_NOT_SEEN,
        )
    )


def release(tx: Session, held: Claim) -> bool:
    """Release the host without a proof. Return False if the claim is lost."""
    return tx.changed(_held(held).values(owner=None, lease_until=None))


def of_host(tx: Session, host: str) -> HostFence:
    """Return who fences a host now, and the last proof that it was off."""
    row = tx.connection.execute(
        sa.select(
            host_fences.c.owner,
            host_fences.c.lease_until,
            host_fences.c.proof,
            host_fences.c.proven_at,
            host_fences.c.claimed_at,
            host_fences.c.nova_seen,
        ).where(host_fences.c.host == host)
    ).one_or_none()
    if row is None:
        return HostFence(None, None, None)
    held = row.owner is not None and row.lease_until > tx.now()
    owner = row.owner if held else None
    return HostFence(owner, row.proof, row.proven_at, row.claimed_at, row.nova_seen)


def record_off(tx: Session, host: str) -> None:
    """Record that a host was seen off, so that no report that Nova showed before is its return."""
    tx.execute(host_fences.update().where(host_fences.c.host == host).values(nova_seen=_NOT_SEEN))


def record_forced_down(tx: Session, host: str) -> None:
    """Record that we tell Nova that a host is down, and that what Nova shows of it was not looked
    at since."""
    tx.execute(host_fences.update().where(host_fences.c.host == host).values(nova_seen=""))


def record_forced_by_operator(tx: Session, host: str) -> None:
    """Record that Nova counts a host as down, unless we recorded that we tell it."""
    record_nova_report(tx, host, NOT_TOLD, BY_OPERATOR)


def record_nova_report(tx: Session, host: str, before: str, seen: str | None) -> bool:
    """Record the last report that Nova shows of a host that was fenced; None: Nova shows it up
    again. Return False, without effect, unless ``before`` was recorded."""
    same = sa.and_(host_fences.c.host == host, host_fences.c.nova_seen == before)
    return tx.changed(host_fences.update().where(same).values(nova_seen=seen))


def not_back(tx: Session) -> list[str]:
    """Return the hosts that were proven off, and that Nova has not shown up since."""
    query = sa.select(host_fences.c.host).where(host_fences.c.nova_seen.is_not(None))
    return sorted(tx.connection.execute(query).scalars())


def proofs_valid_from(tx: Session, traversal_id: str) -> float:
    """Return when a traversal began, or when its host was first reported lost, if that report
    started it. No proof from before counts for its fences: one proof serves all groups of a report,
    however late their failovers begin."""
    found = beginning_of(tx, traversal_id)
    return found.at if found is not None else tx.now()


def beginning_of(tx: Session, traversal_id: str) -> Beginning | None:
    """Return when a traversal began, or when its host was first reported lost, if that report
    started it; None for an unknown traversal."""
    query = (
        sa.select(
            traversals.c.started_at,
            traversals.c.number,
            _reports.c.first_at,
            _reports.c.number.label("reported"),
        )
        .outerjoin(incidents, incidents.c.id == traversals.c.incident_id)
        .outerjoin(_reports, _reports.c.id == incidents.c.parent)
        .where(traversals.c.id == traversal_id)
    )
    row = tx.connection.execute(query).one_or_none()
    if row is None:
        return None
    times = [float(time) for time in (row.started_at, row.first_at) if time is not None]
    return Beginning(min(times), row.reported or row.number)


def _held(held: Claim) -> sa.Update:
    """Return an update of the row as long as the claim is valid."""
    return host_fences.update().where(
        host_fences.c.host == held.host,
        host_fences.c.token == held.token,
        host_fences.c.owner.is_not(None),
    )


@dataclass(frozen=True)
class BlockedClient:
    """A client on the storage's blocklist. ``blocked_at``: right before it was put there, in
    seconds by the database's clock; never before a fence of a host that began earlier, whatever the
    clock says. ``number``: the order of blocks, traversals and reports."""

    client: str
    volume_id: str
    blocked_at: float
    number: int


def record_blocked(tx: Session, client: str, volume_id: str) -> None:
    """Record that a client of a volume is about to be blocked, perhaps once more."""
    began = tx.connection.execute(sa.select(sa.func.max(host_fences.c.claimed_at))).scalar()
    blocked_at = max(tx.now(), began or 0.0)
    values = {"volume_id": volume_id, "blocked_at": blocked_at, "number": tx.number()}
    again = blocked_clients.update().where(blocked_clients.c.client == client)
    if not tx.changed(again.values(**values)):
        tx.insert(blocked_clients, client=client, **values)


def all_blocked(tx: Session) -> list[BlockedClient]:
    """Return all that are blocked."""
    query = sa.select(blocked_clients).order_by(blocked_clients.c.client)
    return [BlockedClient(**row) for row in tx.connection.execute(query).mappings()]


def blocked_since(tx: Session, traversal_id: str) -> list[BlockedClient]:
    """Return those that were blocked after a traversal began, or after its host was first reported
    lost, if that report started it; whatever the clock says; none for an unknown traversal."""
    began = beginning_of(tx, traversal_id)
    return [each for each in all_blocked(tx) if began is not None and began.number < each.number]


def forget_blocked(tx: Session, lifted: BlockedClient) -> bool:
    """Forget a client whose block was lifted. Return False if it was blocked again meanwhile."""
    same = sa.and_(
        blocked_clients.c.client == lifted.client,
        blocked_clients.c.blocked_at == lifted.blocked_at,
    )
    return tx.execute(blocked_clients.delete().where(same)) > 0
