# SPDX-License-Identifier: Apache-2.0
"""What was last seen of each group. Functions over one transaction; times in seconds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import sqlalchemy as sa

from mistral_failover.model.observation import Observation, ObservationMemory
from mistral_failover.store.session import ProjectSession, chunks
from mistral_failover.store.tables import OF_USERS, groups, observations, traversals

_DEEP = 200  # conditions: SQLite takes no deeper ones
_OF_GROUP = sa.select(
    observations.c.at, observations.c.since, observations.c.seen, observations.c.memory
).where(observations.c.group_id == sa.bindparam("this_group"))


@dataclass(frozen=True)
class StoredObservation:
    """``at``: when it was seen; ``since``: since when the service is so."""

    at: float
    since: float
    seen: Observation
    memory: ObservationMemory


def of_group(tx: ProjectSession, group_id: str) -> StoredObservation | None:
    """Return what was last seen of a group."""
    row = tx.connection.execute(_OF_GROUP, {"this_group": group_id}).one_or_none()
    return StoredObservation(*row) if row else None


def hosts(tx: ProjectSession) -> dict[str, tuple[str, ...]]:
    """Return where the servers of the project's members ran when they were last seen, by server id:
    the fields of ``cloud.servers.ServerHost``."""
    found: dict[str, tuple[str, ...]] = {}
    for memory in _memories(tx):
        found |= {server: tuple(host) for server, host in memory.hosts.items()}
    return found


def zones(tx: ProjectSession) -> dict[str, str]:
    """Return in which availability zone the servers of the project's members were when they were
    last seen, by server id."""
    found: dict[str, str] = {}
    for memory in _memories(tx):
        found |= memory.zones
    return found


def heard(tx: ProjectSession) -> dict[str, float]:
    """Return when the agents of the project's members were last heard, by server id; up to
    ``groups.project_view.REMEMBERED`` seconds too early."""
    found: dict[str, float] = {}
    for memory in _memories(tx):
        found |= memory.heard
    return found


def _memories(tx: ProjectSession) -> Iterable[ObservationMemory]:
    """Return what is remembered of the project's groups, the latest last."""
    query = (
        sa.select(observations.c.memory)
        .join(groups, groups.c.id == observations.c.group_id)
        .where(groups.c.project_id == tx.project_id)
        .order_by(observations.c.at)
    )
    return tx.connection.execute(query).scalars()


def due(tx: ProjectSession, interval: float, group_id: str | None = None) -> list[str]:
    """Return the ids of the project's groups with a goal that were not looked at for ``interval``
    seconds, nor since their last traversal ended; those not looked at for longest come first."""
    query = (
        sa.select(groups.c.id)
        .join(traversals, traversals.c.id == groups.c.current_traversal)
        .join(observations, observations.c.group_id == groups.c.id, isouter=True)
        .where(
            groups.c.project_id == tx.project_id,
            OF_USERS,
            sa.or_(
                observations.c.at.is_(None),
                observations.c.at <= tx.now() - interval,
                observations.c.at < traversals.c.ended_at,
            ),
        )
        .order_by(sa.func.coalesce(observations.c.at, 0.0), groups.c.id)
    )
    if group_id is not None:
        query = query.where(groups.c.id == group_id)
    return list(tx.connection.execute(query).scalars())


def save(
    tx: ProjectSession,
    group_id: str,
    observation: Observation,
    memory: ObservationMemory,
    at: float,
    since: float | None = None,
) -> None:
    """Keep what was seen at that time. ``since``: when the service became so, if the look tells; it
    counts from the last look that found another service on. The caller has locked the group."""
    before = of_group(tx, group_id)
    if before is not None and before.seen.service == observation.service:
        since = before.since
    else:
        last = before.at if before is not None else 0.0
        since = at if since is None else min(max(since, last), at)
    values = {"at": at, "service": observation.service, "since": since}
    values |= {"seen": observation, "memory": memory}
    if before is None:
        tx.insert(observations, group_id=group_id, **values)
    else:
        tx.execute(
            observations.update().where(observations.c.group_id == group_id).values(**values)
        )


def forget_alarms(tx: ProjectSession, group_id: str) -> None:
    """Forget that alarms signalled a group's stack: its owner may want none from now on. The next
    look finds out anew what room there is."""
    known = of_group(tx, group_id)
    if known is not None and (known.memory.alarmed or known.memory.room_at):
        memory = replace(known.memory, alarmed=False, room_at=0.0)
        save(tx, group_id, known.seen, memory, known.at)


def seen_again(tx: ProjectSession, known: Sequence[tuple[str, float]], at: float) -> None:
    """Note that these groups, each with the time of its last look, were seen at that time to be as
    they were then; not where another process has looked since."""
    for these in chunks(known, _DEEP):
        some = [
            sa.and_(observations.c.group_id == group_id, observations.c.at == before)
            for group_id, before in these
        ]
        tx.execute(observations.update().where(sa.or_(*some), observations.c.at < at).values(at=at))
