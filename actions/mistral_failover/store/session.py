# SPDX-License-Identifier: Apache-2.0
"""The common base of the parts of a transaction."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar, cast

import sqlalchemy as sa

from mistral_failover.store.tables import numbers

Item = TypeVar("Item")
Row = TypeVar("Row")

# Building a statement takes longer than running it. The database's clock is always the same
# expression, so what is built from it is built once; a simulated clock is another one each time.
_BUILT = 256
_insertion = functools.cache(sa.insert)
_NUMBERED = numbers.delete().where(numbers.c.id == sa.bindparam("made"))


def chunks(items: Sequence[Item], size: int = 500) -> Iterator[Sequence[Item]]:
    """Split the items: SQLite takes some thousand parameters in a statement at most."""
    return (items[first : first + size] for first in range(0, len(items), size))


def fields(
    kind: type[Any], *tables: sa.FromClause, **given: sa.ColumnElement[Any]
) -> sa.Select[Any]:
    """Return a query of the fields of a kind of row: each as ``given``, or the column of its name
    in the first of the tables that has one."""
    of = {name: column for table in reversed(tables) for name, column in table.c.items()} | given
    return sa.select(*(of[name].label(name) for name in kind.__annotations__))


@functools.lru_cache(_BUILT)
def _asking(clock: sa.ColumnElement[float]) -> sa.Select[Any]:
    return sa.select(clock)


@functools.lru_cache(_BUILT)
def after(clock: sa.ColumnElement[float], seconds: float) -> sa.ColumnElement[float]:
    """Return an SQL expression for the time in so many seconds."""
    return clock + seconds


@functools.lru_cache(_BUILT)
def _setting(
    statement: sa.Insert | sa.Update, computed: tuple[tuple[str, sa.ColumnElement[Any]], ...]
) -> sa.Insert | sa.Update:
    return statement.values(dict(computed))


class Session:
    """A connection within a transaction, and the database's clock.

    A function that takes one works in every transaction, also in one that sees all projects. Other
    functions take a :class:`ProjectSession`.
    """

    def __init__(
        self, connection: sa.Connection, clock: Callable[[], sa.ColumnElement[float]]
    ) -> None:
        self.connection = connection
        self.clock = clock
        self.counted: dict[tuple[str | None, str, tuple[str, ...]], float] = {}
        """What the transaction counts, by owner, name and labels; see :meth:`count`."""
        self.projects: dict[str, str] = {}
        """The projects of the groups that the transaction has read."""

    def now(self) -> float:
        """Return the database's time, in seconds since the epoch."""
        return float(self.connection.execute(_asking(self.clock())).scalar_one())

    def number(self) -> int:
        """Return a number greater than any given to a transaction that is committed by now.

        What happened later has the greater number, whatever the clock says. Only in SQLite, where
        transactions take turns, does this make other transactions wait.
        """
        made = self.connection.execute(_insertion(numbers)).inserted_primary_key
        assert made is not None  # of one row
        self.connection.execute(_NUMBERED, {"made": made.id})
        return int(made.id)

    def count(self, owner: str | None, name: str, *labels: str, value: float = 1.0) -> None:
        """Count an event for the metrics, when the transaction is committed (``store.counters``).

        ``owner``: the id of its group; in a transaction of one project any id of what it is about,
        None if there is none.
        """
        key = owner, name, labels
        self.counted[key] = self.counted.get(key, 0.0) + value

    def insert(self, table: sa.Table, **values: Any) -> None:
        """Insert one row."""
        self._set(_insertion(table), {}, values)

    def rows(
        self, kind: type[Row], query: sa.Select[Any], here: Mapping[str, Any] | None = None
    ) -> list[Row]:
        """Return the rows of a query as documents of a kind, whose fields the query selects.
        ``here``: the parameters of a query that was built before."""
        return [cast(Row, dict(row._mapping)) for row in self.connection.execute(query, here)]

    def execute(self, statement: sa.Update | sa.Delete) -> int:
        """Run a statement. Return the number of rows that it found."""
        return self.connection.execute(statement).rowcount

    def changed(self, statement: sa.Update) -> bool:
        """Run a compare-and-swap. Return whether it took effect."""
        return self.execute(statement) == 1

    def change(self, statement: sa.Update, here: Mapping[str, Any], **values: Any) -> int:
        """Run a statement that was built before. Return the number of rows that it found.

        ``here`` are the parameters of its conditions; ``values``, by column, are set beside what it
        sets itself.
        """
        return self._set(statement, here, values)

    def _set(
        self, statement: sa.Insert | sa.Update, here: Mapping[str, Any], values: Mapping[str, Any]
    ) -> int:
        # Values that are part of the statement must be built into it each time; parameters not.
        computed = {k: v for k, v in values.items() if isinstance(v, sa.ColumnElement)}
        if computed:
            statement = _setting(statement, tuple(computed.items()))
            values = {k: v for k, v in values.items() if k not in computed}
        return self.connection.execute(statement, {**here, **values}).rowcount


class ProjectSession(Session):
    """The session of a transaction that belongs to one project: its statements reach only rows of
    this project, whatever they ask for (``store.project_scope``)."""

    project_id: str
