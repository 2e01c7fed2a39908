# SPDX-License-Identifier: Apache-2.0
"""What was last seen of each group. Functions over one transaction; times in seconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from mistral_failover.store.session import ProjectSession
from mistral_failover.store.tables import groups, observations, traversals

_CHUNK = 500  # SQLite takes some thousand parameters at most


@dataclass(frozen=True)
class StoredObservation:
    """``at``: when it was seen; ``since``: since when the service is so; ``document``: see
    ``model.observation.Observation``."""

    at: float
    service: str
    since: float
    document: Mapping[str, Any]


def of_group(tx: ProjectSession, group_id: str) -> StoredObservation | None:
    """Return what was last seen of a group."""
    query = sa.select(
        observations.c.at, observations.c.service, observations.c.since, observations.c.document
    ).where(observations.c.group_id == group_id)
    row = tx.connection.execute(query).one_or_none()
    return StoredObservation(*row) if row else None


def hosts(tx: ProjectSession) -> dict[str, tuple[str, ...]]:
    """Return where the servers of the project's members ran when they were last seen, by server id:
    the fields of ``cloud.servers.ServerHost``."""
    return {server: tuple(host) for server, host in _last_seen(tx, "hosts").items()}


def zones(tx: ProjectSession) -> dict[str, str]:
    """Return in which availability zone the servers of the project's members were when they were
    last seen, by server id."""
    return _last_seen(tx, "zones")


def heard(tx: ProjectSession) -> dict[str, float]:
    """Return when the agents of the project's members were last heard, by server id; up to
    ``groups.project_view.REMEMBERED`` seconds too early."""
    return _last_seen(tx, "heard")


def _last_seen(tx: ProjectSession, what: str) -> dict[str, Any]:
    query = (
        sa.select(observations.c.document)
        .join(groups, groups.c.id == observations.c.group_id)
        .where(groups.c.project_id == tx.project_id)
        .order_by(observations.c.at)
    )
    found: dict[str, Any] = {}
    for document in tx.connection.execute(query).scalars():
        found |= document.get(what, {})
    return found


def due(tx: ProjectSession, interval: float, group_id: str | None = None) -> list[str]:
    """Return the ids of the project's groups at rest that were not looked at for ``interval``
    seconds, nor since their last traversal ended; those not looked at for longest come first."""
    query = (
        sa.select(groups.c.id)
        .join(traversals, traversals.c.id == groups.c.current_traversal)
        .join(observations, observations.c.group_id == groups.c.id, isouter=True)
        .where(
            groups.c.project_id == tx.project_id,
            traversals.c.ended_at.is_not(None),
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
    tx: ProjectSession, group_id: str, service: str, document: Mapping[str, Any], at: float
) -> None:
    """Keep what was seen at that time. The caller has locked the group."""
    before = of_group(tx, group_id)
    since = at if before is None or before.service != service else before.since
    values = {"at": at, "service": service, "since": since, "document": dict(document)}
    if before is None:
        tx.insert(observations, group_id=group_id, **values)
    else:
        tx.execute(
            observations.update().where(observations.c.group_id == group_id).values(**values)
        )


def forget_alarms(tx: ProjectSession, group_id: str) -> None:
    """Forget that alarms signalled a group's stack: its owner may want none from now on."""
    seen = of_group(tx, group_id)
    if seen is not None and seen.document.get("alarmed"):
        kept = {key: value for key, value in seen.document.items() if key != "alarmed"}
        save(tx, group_id, seen.service, kept, seen.at)


def seen_again(tx: ProjectSession, group_ids: Sequence[str], at: float) -> None:
    """Note that these groups were seen at that time to be as they were before."""
    for begin in range(0, len(group_ids), _CHUNK):
        some = group_ids[begin : begin + _CHUNK]
        again = observations.update().where(
            observations.c.group_id.in_(some), observations.c.at < at
        )
        tx.execute(again.values(at=at))
