# SPDX-License-Identifier: Apache-2.0
"""Bring a database to the schema of this version, with alembic."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import alembic.command
import alembic.config
import sqlalchemy as sa
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

from mistral_failover.store.database import Database

VERSION_TABLE = "failover_schema"
"""The table that holds the revision of the schema."""
_SCRIPTS = Path(__file__).parent / "migrations"


_SECONDS = 120  # to wait for another process that is changing the schema
_mutex = threading.Lock()  # alembic keeps the running migration in a global


def upgrade(database: Database, revision: str = "head") -> None:
    """Create or upgrade the tables. Do nothing if they are up to date.

    Several processes may call this at once: they take turns. Raises TimeoutError if another process
    does not finish.
    """
    with _alone(database) as connection:
        alembic.command.upgrade(_config(connection), revision)


def downgrade(database: Database, revision: str) -> None:
    """Return the tables to an earlier revision ("base": remove them)."""
    with _alone(database) as connection:
        alembic.command.downgrade(_config(connection), revision)


def revisions(database: Database) -> tuple[str | None, str | None]:
    """Return the revision of the tables, and the one that this version needs."""
    with database.engine.connect() as connection:
        options = {"version_table": VERSION_TABLE}
        has = MigrationContext.configure(connection, opts=options).get_current_revision()
        return has, ScriptDirectory.from_config(_config(connection)).get_current_head()


def knows(revision: str) -> bool:
    """Return whether a revision belongs to this version. If not, it is from a later version."""
    scripts = ScriptDirectory(str(_SCRIPTS))
    return revision in {each.revision for each in scripts.walk_revisions()}


@contextmanager
def _alone(database: Database) -> Iterator[sa.Connection]:
    """Open a transaction and exclude all others that change the schema. SQLite's transactions do
    this anyway."""
    with (
        _mutex,
        database.engine.connect() as connection,
        _tables_can_be_replaced(connection),
        _locked(connection),
        connection.begin(),
    ):
        yield connection


@contextmanager
def _locked(connection: sa.Connection) -> Iterator[None]:
    """Lock the schema. MySQL commits at every change of the schema, so only a lock of the session
    lasts. It is released after the last commit, because the next process must see the new revision.
    """
    if connection.dialect.name == "sqlite":
        yield
        return
    name = sa.func.sha1(sa.func.concat("failover_schema/", sa.func.database()))
    with connection.begin():
        got = connection.execute(sa.select(sa.func.get_lock(name, _SECONDS))).scalar_one()
    if got != 1:
        raise TimeoutError("another process has been changing the schema for too long")
    try:
        yield
    finally:
        with connection.begin():
            connection.execute(sa.select(sa.func.release_lock(name)))


@contextmanager
def _tables_can_be_replaced(connection: sa.Connection) -> Iterator[None]:
    """Turn off foreign keys in SQLite. SQLite changes a table by making a new one and dropping the
    old one, which would delete the rows that refer to it. Foreign keys cannot be turned off within
    a transaction."""
    if connection.dialect.name != "sqlite":
        yield
        return
    driver = connection.connection.driver_connection
    assert driver is not None
    driver.execute("PRAGMA foreign_keys=OFF")
    try:
        yield
    finally:
        driver.execute("PRAGMA foreign_keys=ON")


def _config(connection: sa.Connection) -> alembic.config.Config:
    config = alembic.config.Config()
    config.set_main_option("script_location", str(_SCRIPTS))
    config.attributes["connection"] = connection
    return config
