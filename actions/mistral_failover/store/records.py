# SPDX-License-Identifier: Apache-2.0
"""Records, their locks and the ledger of their operations, in SQL."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from mistral_failover.convergence.records import (
    Action,
    Lock,
    OperationStatus,
    Outcome,
    Record,
    Status,
    Ticket,
    Unsettled,
)
from mistral_failover.store.counters import count_time
from mistral_failover.store.session import Session, after
from mistral_failover.store.tables import ALIVE, ASKED, members, operations, resources

COLUMNS = [resources.c[each.name] for each in dataclasses.fields(Record)]
"""Those of a record, as :func:`read_record` reads them."""
BIRTH = (resources.c.number, resources.c.id)
"""Records in the order in which they were inserted."""
# Building a statement takes longer than running it, so the statements of every check are built
# once.
_ONE = sa.select(*COLUMNS).where(resources.c.id == sa.bindparam("resource_id"))
_ONE_LOCKED = _ONE.with_for_update(read=True)
# Of a record: the entry of one operation, and those with an unknown outcome.
_ENTRIES = sa.select(operations.c.key, operations.c.status).where(
    operations.c.resource_id == sa.bindparam("this_record"),
    sa.or_(
        operations.c.key == sa.bindparam("this_key"),
        operations.c.status == OperationStatus.UNKNOWN,
    ),
)
_ALL = (
    sa.select(*COLUMNS)
    .where(resources.c.group_id == sa.bindparam("this_group"), ALIVE)
    .order_by(*BIRTH)
)
_SAME = _ALL.where(
    resources.c.type == sa.bindparam("this_type"),
    resources.c.physical_id == sa.bindparam("this_thing"),
)
_HELD = (
    resources.c.id == sa.bindparam("this_record"),
    resources.c.owner == sa.bindparam("this_owner"),
    resources.c.token == sa.bindparam("this_token"),
)
_DEPOSED = sa.exists().where(
    members.c.group_id == resources.c.group_id,
    members.c.name == resources.c.member,
    members.c.epoch > resources.c.epoch,
    resources.c.action != Action.DELETE,
)
_RENEWED = resources.update().where(*_HELD, sa.not_(_DEPOSED))
_SETTLED = resources.update().where(*_HELD)
_UNSETTLED = sa.select(
    resources.c.id,
    resources.c.name,
    resources.c.member,
    resources.c.asked,
    resources.c.settles_at,
).where(resources.c.group_id == sa.bindparam("this_group"))
_RELEASED = (
    resources.update()
    .where(*_HELD)
    .values(owner=None, lease_until=None, atomic_key=resources.c.atomic_key + 1)
)
_AMENDED = (
    resources.update()
    .where(
        resources.c.id == sa.bindparam("this_record"),
        resources.c.owner.is_(None),
        resources.c.atomic_key == sa.bindparam("this_key"),
    )
    .values(atomic_key=resources.c.atomic_key + 1)
)
_AGAIN = (
    operations.update()
    .where(operations.c.key == sa.bindparam("this_key"))
    .values(
        status=OperationStatus.STARTED,
        attempts=operations.c.attempts + 1,
        waiting_for=None,
        waiting_since=None,
    )
)
_RUNNING = (
    operations.c.resource_id == sa.bindparam("this_record"),
    operations.c.token == sa.bindparam("this_token"),
    operations.c.status == OperationStatus.STARTED,
)
_WAITS = operations.update().where(*_RUNNING)
_WAITED = sa.select(operations.c.waiting_since).where(*_RUNNING)
_THIS = sa.and_(
    operations.c.key == sa.bindparam("this_key"),
    operations.c.token == sa.bindparam("this_token"),
)
_OF_RECORD = operations.c.resource_id == sa.bindparam("this_record")
_CLOSED = operations.update().where(_OF_RECORD, _THIS)
_CLOSING = (
    sa.select(
        operations.c.key,
        operations.c.group_id,
        operations.c.verb,
        operations.c.started_at,
        resources.c.type,
    )
    .join(resources, resources.c.id == operations.c.resource_id)
    .where(_OF_RECORD)
)
_CLOSING_THIS = _CLOSING.where(_THIS)
_CLOSING_ALL = _CLOSING.where(sa.or_(_THIS, operations.c.status == OperationStatus.UNKNOWN))
# A success, which overtakes what is unknown of its record.
_DONE = (
    operations.update()
    .where(_OF_RECORD, sa.or_(_THIS, operations.c.status == OperationStatus.UNKNOWN))
    .values(
        result=sa.case(
            (_THIS, sa.bindparam("this_result", type_=operations.c.result.type)),
            else_=operations.c.result,
        ),
        status=sa.case((_THIS, OperationStatus.DONE.value), else_=OperationStatus.OVERTAKEN.value),
    )
)


@functools.lru_cache(64)
def _renewed(now: sa.ColumnElement[float]) -> sa.Update:
    """Return the renewal of a lease that has not expired."""
    return _RENEWED.where(resources.c.lease_until > now)


@functools.lru_cache(64)
def _unsettled(now: sa.ColumnElement[float]) -> sa.Select[Any]:
    """Return the requests that may still take effect."""
    return _UNSETTLED.where(resources.c.settles_at > now)


@functools.lru_cache(64)
def _closing(now: sa.ColumnElement[float], ok: bool) -> sa.Select[Any]:
    """Return the query of the operations that end by an outcome, and of the time: a success
    overtakes what is unknown of its record."""
    return (_CLOSING_ALL if ok else _CLOSING_THIS).add_columns(now)


class Records(Session):
    """This part of ``convergence.ports.Transaction``."""

    def records(self, group_id: str) -> Sequence[Record]:
        return [read_record(row) for row in self.connection.execute(_ALL, {"this_group": group_id})]

    def records_of(self, group_id: str, kind: str, physical_id: str | None) -> Sequence[Record]:
        """Return a group's live records of a type that have this physical id, oldest first."""
        here = {"this_group": group_id, "this_type": kind, "this_thing": physical_id}
        return [read_record(row) for row in self.connection.execute(_SAME, here)]

    def record(self, resource_id: str) -> Record | None:
        row = self.connection.execute(_ONE, {"resource_id": resource_id}).one_or_none()
        return read_record(row) if row else None

    def lock_record(self, resource_id: str) -> Record | None:
        row = self.connection.execute(_ONE_LOCKED, {"resource_id": resource_id}).one_or_none()
        return read_record(row) if row else None

    def acquire(self, record: Record, owner: str, lease: float, **changes: Any) -> Lock | None:
        lock = Lock(record.id, owner, record.token + 1, lease)
        until = after(self.clock(), lease)
        taken = self.amend(record, owner=owner, token=lock.token, lease_until=until, **changes)
        return lock if taken else None

    def break_dead_lock(self, record: Record, reason: str) -> bool:
        return self._broken(record, reason, resources.c.lease_until <= self.clock())

    def break_lock(self, record: Record, reason: str) -> bool:
        """Break a lock as :meth:`break_dead_lock`, also of a live owner: an operator decided."""
        return self._broken(record, reason)

    def _broken(self, record: Record, reason: str, *terms: sa.ColumnElement[bool]) -> bool:
        broken = self.changed(
            resources.update()
            .where(
                resources.c.id == record.id,
                resources.c.owner == record.owner,
                resources.c.token == record.token,
                *terms,
            )
            .values(
                owner=None,
                lease_until=None,
                token=resources.c.token + 1,
                atomic_key=resources.c.atomic_key + 1,
                status=Status.FAILED,
                reason=reason,
            )
        )
        if broken:
            running = (
                operations.c.resource_id == record.id,
                operations.c.token == record.token,
                operations.c.status == OperationStatus.STARTED,
            )
            for verb in self.connection.execute(sa.select(operations.c.verb).where(*running)):
                self.count(record.group_id, "unknowns", record.type, verb[0])
            self.execute(operations.update().where(*running).values(status=OperationStatus.UNKNOWN))
        return broken

    def renew(self, lock: Lock) -> bool:
        lasting, until = _renewed(self.clock()), after(self.clock(), lock.lease)
        return self.change(lasting, _held_by(lock), lease_until=until) == 1

    def ask(self, lock: Lock, asked: str, seconds: float) -> bool:
        now = self.clock()
        recorded = {"asked": asked[:ASKED], "settles_at": after(now, seconds)}
        until = after(now, lock.lease)
        return self.change(_renewed(now), _held_by(lock), lease_until=until, **recorded) == 1

    def settle(self, lock: Lock, asked: str | None = None, seconds: float = 0.0) -> bool:
        until = None if asked is None else after(self.clock(), seconds)
        named = None if asked is None else asked[:ASKED]
        return self.change(_SETTLED, _held_by(lock), asked=named, settles_at=until) == 1

    def unsettled(self, group_id: str) -> Sequence[Unsettled]:
        here = {"this_group": group_id}
        return [Unsettled(*row) for row in self.connection.execute(_unsettled(self.clock()), here)]

    def release(self, lock: Lock, **changes: Any) -> bool:
        return self.change(_RELEASED, _held_by(lock), **changes) == 1

    def amend(self, record: Record, **changes: Any) -> bool:
        here = {"this_record": record.id, "this_key": record.atomic_key}
        return self.change(_AMENDED, here, **changes) == 1

    # -- the ledger

    def open_operation(self, ticket: Ticket, record: Record, intent: Mapping[str, Any]) -> bool:
        here = {"this_record": record.id, "this_key": ticket.key}
        entries = {row.key: row.status for row in self.connection.execute(_ENTRIES, here)}
        if ticket.key in entries:
            self.change(
                _AGAIN,
                {"this_key": ticket.key},
                owner=ticket.lock.owner,
                token=ticket.lock.token,
                traversal_id=ticket.traversal_id,
            )
        else:
            self.insert(
                operations,
                key=ticket.key,
                group_id=record.group_id,
                resource_id=record.id,
                traversal_id=ticket.traversal_id,
                verb=ticket.verb,
                goal_version=ticket.goal_version,
                status=OperationStatus.STARTED,
                attempts=1,
                owner=ticket.lock.owner,
                token=ticket.lock.token,
                intent=intent,
                started_at=self.clock(),
            )
        return bool(entries)

    def waits_for(self, lock: Lock, what: str | None) -> None:
        """Record what the operation under a lock waits for now, a service that does not answer;
        None: it continues."""
        here = {"this_record": lock.resource_id, "this_token": lock.token}
        since = None if what is None else sa.func.coalesce(operations.c.waiting_since, self.clock())
        self.connection.execute(_WAITS.values(waiting_for=what, waiting_since=since), here)

    def waits_since(self, lock: Lock) -> float | None:
        here = {"this_record": lock.resource_id, "this_token": lock.token}
        return self.connection.execute(_WAITED, here).scalar_one_or_none()

    def close_operation(self, ticket: Ticket, outcome: Outcome) -> None:
        result = {
            "physical_id": outcome.physical_id,
            "attributes": outcome.attributes,
            "error": outcome.error,
        }
        here = {
            "this_key": ticket.key,
            "this_token": ticket.lock.token,
            "this_record": ticket.node.resource_id,
        }
        now = self.clock()
        closing = _closing(now, outcome.ok)
        for row in self.connection.execute(closing, here).all():
            self._count_end(row, ticket, outcome)
        if outcome.ok:
            self.change(_DONE, {**here, "this_result": result}, ended_at=now)
            return
        self.change(_CLOSED, here, status=_status(outcome), result=result, ended_at=now)

    def _count_end(self, row: Any, ticket: Ticket, outcome: Outcome) -> None:
        """Count the end of an operation: this one, or one that it overtakes. ``row``: as
        :func:`_closing` reads it."""
        labels = row.type, row.verb
        if row.key != ticket.key:
            self.count(row.group_id, "operations", *labels, OperationStatus.OVERTAKEN.value)
        elif outcome.ok:
            self.count(row.group_id, "operations", *labels, OperationStatus.DONE.value)
            seconds = row[-1] - row.started_at
            count_time(self, row.group_id, "operation_seconds", labels, seconds)
        elif not outcome.unknown:
            self.count(row.group_id, "operations", *labels, OperationStatus.FAILED.value)
        elif not outcome.transient:
            # A try that is repeated because a service was away is no process that died.
            self.count(row.group_id, "unknowns", *labels)

    def insert_records(self, records: Iterable[Record], now: float) -> None:
        """Insert new records with the creation time ``now``."""
        rows = [
            {column.name: getattr(record, column.name) for column in COLUMNS} for record in records
        ]
        if rows:
            born = {"created_at": now, "number": self.number()}
            self.connection.execute(resources.insert(), [row | born for row in rows])


def _status(outcome: Outcome) -> OperationStatus:
    """Return what a failure leaves in the ledger."""
    return OperationStatus.UNKNOWN if outcome.unknown else OperationStatus.FAILED


def _held_by(lock: Lock) -> dict[str, Any]:
    """Return the parameters of ``_HELD``."""
    return {
        "this_record": lock.resource_id,
        "this_owner": lock.owner,
        "this_token": lock.token,
    }


def read_record(row: Sequence[Any]) -> Record:
    """Return the record whose :data:`COLUMNS` a row has."""
    values = list(row)
    values[_REQUIRES] = tuple(values[_REQUIRES])
    return Record(*values)


_REQUIRES = COLUMNS.index(resources.c.requires)
