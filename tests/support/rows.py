# SPDX-License-Identifier: Apache-2.0
"""Rows as they stand in the database, and what a statement left alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa

from mistral_failover.store.database import Database


def rows(database: Database, table: sa.Table, *key: str) -> dict[Any, dict[str, Any]]:
    """A table's rows, by the columns of ``key``."""
    with database.engine.connect() as connection:
        found = [dict(row) for row in connection.execute(sa.select(table)).mappings()]
    return {tuple(row[k] for k in key) if len(key) > 1 else row[key[0]]: row for row in found}


@contextmanager
def only_these_change(
    database: Database, table: sa.Table, key: tuple[str, ...], *changed: Any
) -> Iterator[None]:
    """Outside of the rows ``changed``, the table stays as it was."""
    before = rows(database, table, *key)
    yield
    after = rows(database, table, *key)
    assert {k: v for k, v in after.items() if k not in changed} == {
        k: v for k, v in before.items() if k not in changed
    }


@contextmanager
def statements_of(database: Database) -> Iterator[list[str]]:
    """Note the statements that are executed while the block runs, without the beginnings of
    transactions."""
    said: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_more: Any) -> None:
        if not statement.startswith("BEGIN"):
            said.append(statement)

    sa.event.listen(database.engine, "before_cursor_execute", note)
    try:
        yield said
    finally:
        sa.event.remove(database.engine, "before_cursor_execute", note)
