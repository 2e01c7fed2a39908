# SPDX-License-Identifier: Apache-2.0
"""What the parts of a transaction share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sqlalchemy as sa


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

    def insert(self, table: sa.Table, **values: Any) -> None:
        """Insert one row."""
        self.connection.execute(table.insert().values(**values))

    def execute(self, statement: sa.Update | sa.Delete) -> int:
        """Run a statement; the number of rows it found."""
        return self.connection.execute(statement).rowcount

    def changed(self, statement: sa.Update) -> bool:
        """Run a compare-and-swap; whether it took effect."""
        return self.execute(statement) == 1
