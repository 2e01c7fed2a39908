# SPDX-License-Identifier: Apache-2.0
"""Bring a database to the schema of this version: make the tables of a new store, and migrate one
that exists, with alembic.

A process that starts on a store with a revision that it does not know, such as that of a later
version, changes nothing there and refuses to work.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import alembic.command
import alembic.config
import sqlalchemy as sa
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy.engine import create_engine  # as in database.py

from mistral_failover.errors import CodedError
from mistral_failover.store.database import Database, bounded
from mistral_failover.store.tables import metadata

VERSION_TABLE = "failover_schema"
"""The table that holds the revision of the schema."""
_SCRIPTS = Path(__file__).parent / "migrations"


_SECONDS = 120  # to wait for another process that is changing the schema
_STATEMENT = 3600.0  # seconds for one statement, which may rewrite a large table
_mutex = threading.Lock()  # alembic keeps the running migration in a global


def upgrade(database: Database) -> None:
    """Create or upgrade the tables. Do nothing if they are up to date.

    Several processes may call this at once: they take turns. Raises CodedError as `check`;
    TimeoutError if another process does not finish.
    """
    if revisions(database)[0] == head():
        return
    with _alone(database) as connection:
        if (revision := _revision(connection)) is None:
            metadata.create_all(connection)
            alembic.command.stamp(_config(connection), "head")
            return
        check(revision)
        alembic.command.upgrade(_config(connection), "head")


def check(revision: str | None) -> None:
    """Check that this version can upgrade tables of a revision; None: there are none yet. Raises
    CodedError SCHEMA_UNKNOWN if they are of another version: a later one, or one from before the
    first release."""
    scripts = ScriptDirectory(str(_SCRIPTS))
    known = {each.revision for each in scripts.walk_revisions()}
    if revision is not None and revision not in known:
        raise CodedError(
            "SCHEMA_UNKNOWN",
            f"this version does not know the schema of the state store, {revision}",
            "Install the version that the other hosts have. If this store is of an unreleased "
            "version: start with a new one.",
        )


def revisions(database: Database) -> tuple[str | None, str]:
    """Return the revision of the tables, and the one that this version needs."""
    with database.engine.connect() as connection:
        return _revision(connection), head()


@cache
def head() -> str:
    """Return the revision that this version needs."""
    found = ScriptDirectory(str(_SCRIPTS)).get_current_head()
    assert found is not None
    return found


def _revision(connection: sa.Connection) -> str | None:
    options = {"version_table": VERSION_TABLE}
    return MigrationContext.configure(connection, opts=options).get_current_revision()


@contextmanager
def _alone(database: Database) -> Iterator[sa.Connection]:
    """Open a transaction and exclude all others that change the schema. SQLite's transactions do
    this anyway."""
    with (
        _mutex,
        _patient(database) as engine,
        engine.connect() as connection,
        _tables_can_be_replaced(connection),
        _locked(connection),
        connection.begin(),
    ):
        yield connection


@contextmanager
def _patient(database: Database) -> Iterator[sa.Engine]:
    """Open an engine whose statements may take as long as a change of the schema."""
    if database.engine.dialect.name == "sqlite":
        yield database.engine
        return
    engine = create_engine(
        database.url,
        connect_args=bounded(database.url, _STATEMENT),
        isolation_level="READ COMMITTED",
        poolclass=sa.pool.NullPool,
        hide_parameters=True,
    )
    yield engine


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
