# SPDX-License-Identifier: Apache-2.0
"""What the parts of a transaction share."""

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
        """The database's time, in seconds since the epoch."""
        return float(self.connection.execute(sa.select(self.clock())).scalar_one())

    def number(self) -> int:
        """Return a number greater than every one that was given to a transaction committed so far.

        What happened later has the greater number, whatever the clock says. Taking one keeps no
        other transaction waiting, but in SQLite, where they take turns.
        """
        made = self.connection.execute(numbers.insert()).inserted_primary_key
        assert made is not None  # of one row
        self.execute(numbers.delete().where(numbers.c.id == made.id))
        return int(made.id)

    def insert(self, table: sa.Table, **values: Any) -> None:
        """Insert one row."""
        self.connection.execute(table.insert().values(**values))

    def execute(self, statement: sa.Update | sa.Delete) -> int:
        """Run a statement; the number of rows it found."""
        return self.connection.execute(statement).rowcount

    def changed(self, statement: sa.Update) -> bool:
        """Run a compare-and-swap; whether it took effect."""
        return self.execute(statement) == 1
