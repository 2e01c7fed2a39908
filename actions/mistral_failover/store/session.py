# SPDX-License-Identifier: Apache-2.0
"""The common base of the parts of a transaction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sqlalchemy as sa

from mistral_failover.store.tables import numbers


class Session:
    """A connection within a transaction, and the database's clock."""

    def __init__(
        self, connection: sa.Connection, clock: Callable[[], sa.ColumnElement[float]]
    ) -> None:
        self.connection = connection
        self.clock = clock

    def now(self) -> float:
        """Return the database's time, in seconds since the epoch."""
        return float(self.connection.execute(sa.select(self.clock())).scalar_one())

    def number(self) -> int:
        """Return a number greater than any given to a transaction that is committed by now.

        What happened later has the greater number, whatever the clock says. Only in SQLite, where
        transactions take turns, does this make other transactions wait.
        """
        made = self.connection.execute(numbers.insert()).inserted_primary_key
        assert made is not None  # of one row
        self.execute(numbers.delete().where(numbers.c.id == made.id))
        return int(made.id)

    def insert(self, table: sa.Table, **values: Any) -> None:
        """Insert one row."""
        self.connection.execute(table.insert().values(**values))

    def execute(self, statement: sa.Update | sa.Delete) -> int:
        """Run a statement. Return the number of rows that it found."""
        return self.connection.execute(statement).rowcount

    def changed(self, statement: sa.Update) -> bool:
        """Run a compare-and-swap. Return whether it took effect."""
        return self.execute(statement) == 1
