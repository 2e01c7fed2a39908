# SPDX-License-Identifier: Apache-2.0
"""Stores through which a test decides what happens between two transactions, and within one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import sqlalchemy as sa

from mistral_failover.convergence.records import GroupState, Lock, Record
from mistral_failover.store.database import Database
from mistral_failover.store.transaction import SqlTransaction

T = TypeVar("T")


class NeedsSecondTransaction(Exception):
    """A step wants a second transaction: somebody else may come in between."""


class WouldWait(Exception):
    """What was to happen in the middle of a transaction would have waited for its end."""


class OneTransaction:
    """A store that gives each step of the engine one transaction.

    ``meanwhile`` runs between what the transaction reads and the first thing that it changes, as
    what others commit does where reads take no locks.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._spent = False
        self._meanwhile: Callable[[SqlTransaction], None] | None = None

    def step(self, meanwhile: Callable[[SqlTransaction], None] | None = None) -> None:
        """Let the engine take its next step."""
        self._spent, self._meanwhile = False, meanwhile

    def atomically(self, function: Callable[[SqlTransaction], T]) -> T:
        """See ``convergence.ports.Store``."""
        if self._spent:
            raise NeedsSecondTransaction
        self._spent = True
        meanwhile = self._meanwhile
        if meanwhile is None:
            return self._database.atomically(function)
        return self._database.atomically(
            lambda tx: function(Interrupted(tx.connection, tx.clock, meanwhile))
        )


class Interrupted(SqlTransaction):
    """A transaction before whose first change something else happens."""

    def __init__(
        self,
        connection: sa.Connection,
        clock: Callable[[], sa.ColumnElement[float]],
        meanwhile: Callable[[SqlTransaction], None],
    ) -> None:
        super().__init__(connection, clock)
        self._meanwhile: Callable[[SqlTransaction], None] | None = meanwhile

    def lock_group(self, group_id: str, *, shared: bool) -> GroupState | None:
        if not shared:
            raise WouldWait  # nothing else of the group can happen before this ends
        return super().lock_group(group_id, shared=shared)

    def lock_group_of(self, traversal_id: str, *, shared: bool) -> GroupState | None:
        if not shared:
            raise WouldWait
        return super().lock_group_of(traversal_id, shared=shared)

    def lock_record(self, resource_id: str) -> Record | None:
        self._interrupt()
        return super().lock_record(resource_id)

    def break_dead_lock(self, record: Record, reason: str) -> bool:
        self._interrupt()
        return super().break_dead_lock(record, reason)

    def release(self, lock: Lock, **changes: Any) -> bool:
        self._interrupt()
        return super().release(lock, **changes)

    def amend(self, record: Record, **changes: Any) -> bool:
        self._interrupt()
        return super().amend(record, **changes)

    def _interrupt(self) -> None:
        meanwhile, self._meanwhile = self._meanwhile, None
        if meanwhile is not None:
            meanwhile(SqlTransaction(self.connection, self.clock))


class ConcurrentTransaction(SqlTransaction):
    """A transaction within one that has looked at the group."""

    def lock_group(self, group_id: str, *, shared: bool) -> GroupState | None:
        if not shared:
            raise WouldWait
        return super().lock_group(group_id, shared=shared)

    def lock_group_of(self, traversal_id: str, *, shared: bool) -> GroupState | None:
        if not shared:
            raise WouldWait
        return super().lock_group_of(traversal_id, shared=shared)


class NestedStore:
    """A store inside an open transaction."""

    def __init__(self, tx: SqlTransaction) -> None:
        self._tx = tx

    def atomically(self, function: Callable[[SqlTransaction], T]) -> T:
        """See ``convergence.ports.Store``."""
        return function(ConcurrentTransaction(self._tx.connection, self._tx.clock))
