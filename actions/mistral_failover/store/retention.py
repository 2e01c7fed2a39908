# SPDX-License-Identifier: Apache-2.0
"""Delete old incidents, journal entries, plans and changes of service by policy, a batch at a time.

Each function runs in one transaction, deletes at most ``batch`` rows, and returns their number.
These rows are never deleted:

- incidents that wait for an operator, or for their traversal to begin (admission limits their
  number);
- incidents whose traversal is kept, on which others are counted, or that are the latest report of
  an alarm that was admitted;
- journal entries of a group's current traversal, and events that its workflow has not received.
"""

from __future__ import annotations

from typing import Any, TypeVar

import sqlalchemy as sa

from mistral_failover.model.decisions import Decision
from mistral_failover.store.incidents import LOOKS_FOR_MEMBERS, OPERATOR
from mistral_failover.store.plans import REMEMBERED
from mistral_failover.store.session import ProjectSession
from mistral_failover.store.tables import (
    groups,
    incidents,
    journal,
    plans,
    service_changes,
    traversals,
)

T = TypeVar("T")
_other = incidents.alias()


def _by_number(now: float) -> sa.ColumnElement[bool]:
    """Return which incidents a sender can cause in any number. Admission limits the others."""
    return sa.or_(
        incidents.c.decision.in_(
            (Decision.IGNORED, Decision.DUPLICATE, Decision.DISMISSED, Decision.REFUSED)
        ),
        # A host event, after its children, and when no sweep looks for further ones.
        sa.and_(
            incidents.c.decision == Decision.ADMITTED,
            incidents.c.group_id.is_(None),
            incidents.c.first_at < now - LOOKS_FOR_MEMBERS,
            ~sa.exists().where(_other.c.parent == incidents.c.id),
        ),
    )


_BY_AGE = sa.and_(
    incidents.c.decision == Decision.ADMITTED,
    sa.or_(incidents.c.traversal_id.is_not(None), incidents.c.source == OPERATOR),
    ~sa.exists().where(traversals.c.id == incidents.c.traversal_id),
    ~sa.exists().where(
        _other.c.group_id == incidents.c.group_id, _other.c.duplicate_of == incidents.c.id
    ),
    sa.or_(
        incidents.c.series == "",
        sa.exists().where(
            _other.c.group_id == incidents.c.group_id,
            _other.c.series == incidents.c.series,
            _other.c.said > incidents.c.said,
        ),
    ),
)
"""Incidents whose traversal is deleted, and that no other incident needs."""
_OF_GROUP = (
    groups.c.id,
    groups.c.current_traversal,
    groups.c.hook,
    groups.c.told,
)


def purge_incidents(tx: ProjectSession, *, keep: int, older_than: float, batch: int) -> int:
    """Delete incidents of the project that were last reported before ``older_than``; and of those
    that ask for nothing all but the ``keep`` latest."""
    mine, by_number = incidents.c.project_id == tx.project_id, _by_number(tx.now())
    oldest_kept = (
        sa.select(incidents.c.number)
        .where(mine, by_number)
        .order_by(incidents.c.number.desc())
        .limit(1)
        .offset(keep)
    )
    boundary = tx.connection.execute(oldest_kept).scalar_one_or_none()
    over = sa.and_(sa.or_(by_number, _BY_AGE), incidents.c.last_at < older_than)
    if boundary is not None:
        over = sa.or_(over, sa.and_(by_number, incidents.c.number <= boundary))
    return _delete(tx, incidents, sa.and_(mine, over), incidents.c.number, batch)


def purge_journal(tx: ProjectSession, *, keep: int, older_than: float, batch: int) -> int:
    """Delete entries of the groups' journals that were written before ``older_than``, and all
    but the ``keep`` latest of each group."""
    crowded = (
        sa.select(*_OF_GROUP)
        .join(journal, journal.c.group_id == groups.c.id)
        .where(groups.c.project_id == tx.project_id)
        .group_by(*_OF_GROUP)
        .having(sa.or_(sa.func.count() > keep, sa.func.min(journal.c.at) < older_than))
        .order_by(groups.c.id)
    )
    deleted = 0
    for group in tx.connection.execute(crowded).all():
        deleted += _purge_entries(tx, group, keep, older_than, batch - deleted)
        if deleted >= batch:
            break
    return deleted


def _purge_entries(tx: ProjectSession, group: Any, keep: int, older_than: float, batch: int) -> int:
    mine = journal.c.group_id == group.id
    oldest_kept = (
        sa.select(journal.c.id).where(mine).order_by(journal.c.id.desc()).limit(1).offset(keep)
    )
    boundary = tx.connection.execute(oldest_kept).scalar_one_or_none() or 0
    over = sa.and_(
        mine,
        sa.or_(journal.c.id <= boundary, journal.c.at < older_than),
        sa.or_(
            journal.c.traversal_id.is_(None),
            journal.c.traversal_id != (group.current_traversal or ""),
        ),
    )
    if group.hook is not None:
        over = sa.and_(over, journal.c.id <= (group.told or 0))
    return _delete(tx, journal, over, journal.c.id, batch)


def purge_plans(tx: ProjectSession, *, batch: int) -> int:
    """Delete plans that expired so long ago that no operator starts them any more."""
    over = sa.and_(plans.c.project_id == tx.project_id, plans.c.expires_at < tx.now() - REMEMBERED)
    return _delete(tx, plans, over, plans.c.id, batch)


def purge_service_changes(tx: ProjectSession, *, keep: int, older_than: float, batch: int) -> int:
    """Delete changes of the groups' words that another one followed before ``older_than``, and all
    but the ``keep`` latest of each group."""
    deleted = 0
    later = service_changes.alias()
    number = sa.func.count()
    crowded = (
        sa.select(service_changes.c.group_id)
        .join(groups, groups.c.id == service_changes.c.group_id)
        .where(groups.c.project_id == tx.project_id)
        .group_by(service_changes.c.group_id)
        .having(sa.or_(number > keep, sa.func.min(service_changes.c.at) < older_than))
        .order_by(service_changes.c.group_id)
    )
    for group_id in tx.connection.execute(crowded).scalars().all():
        in_force = sa.select(sa.func.max(later.c.at)).where(
            later.c.group_id == group_id, later.c.at < older_than
        )
        oldest_kept = (
            sa.select(later.c.at)
            .where(later.c.group_id == group_id)
            .order_by(later.c.at.desc())
            .limit(1)
            .offset(keep - 1)
        )
        known = (
            tx.connection.execute(each).scalar_one_or_none() for each in (in_force, oldest_kept)
        )
        limits = [each for each in known if each is not None]
        if limits:
            over = sa.and_(
                service_changes.c.group_id == group_id, service_changes.c.at < max(limits)
            )
            found = sa.select(service_changes.c.at).where(over).order_by(service_changes.c.at)
            rows = list(tx.connection.execute(found.limit(batch - deleted)).scalars())
            if rows:
                these = sa.and_(over, service_changes.c.at <= rows[-1])
                deleted += tx.execute(service_changes.delete().where(these))
        if deleted >= batch:
            break
    return deleted


def _delete(
    tx: ProjectSession,
    table: sa.Table,
    over: sa.ColumnElement[bool],
    order: sa.Column[Any],
    batch: int,
) -> int:
    """Delete the first rows for which ``over`` holds. They are locked before, so that of two
    simultaneous sweeps only one counts and deletes them."""
    key = table.c.id
    found = sa.select(key).where(over).order_by(order).limit(batch)
    known = list(tx.connection.execute(found).scalars())
    if not known:
        return 0
    locking = sa.select(key).where(key.in_(known), over).with_for_update()
    rows = list(tx.connection.execute(locking).scalars())
    return tx.execute(table.delete().where(key.in_(rows))) if rows else 0
