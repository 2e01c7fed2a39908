# SPDX-License-Identifier: Apache-2.0
"""The databases that the core and its store are tested on.

Always SQLite in a file; with ``FAILOVER_TEST_DATABASE`` (an SQLAlchemy URL) that server too. Each
test process works in a database of its own, and each test begins with empty tables.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import shutil
import sqlite3
import tempfile
from pathlib import Path

import sqlalchemy as sa

from mistral_failover.store import schema
from mistral_failover.store.database import Database
from mistral_failover.store.tables import metadata

SERVER = os.environ.get("FAILOVER_TEST_DATABASE")
KINDS = ["sqlite", *(["server"] if SERVER else [])]


class Clock:
    """A database clock that a test moves."""

    def __init__(self) -> None:
        self.set_back()

    def set_back(self) -> None:
        """Begin anew. Were it to run on over many tests, its sums would no longer be exact."""
        self.seconds = 1_000_000.0

    def __call__(self) -> float:
        return self.seconds


@functools.cache
def fresh_url(kind: str, purpose: str) -> str:
    """The URL of an empty database of this process; it is removed when the process ends. The kind
    ``memory`` is SQLite too, and for one thread only."""
    if kind == "memory":
        return "sqlite://"
    if kind == "sqlite":
        folder = tempfile.mkdtemp(prefix="failover-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        return f"sqlite:///{Path(folder) / 'state.db'}"
    assert SERVER is not None
    url = sa.engine.make_url(SERVER)
    worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
    name = f"{url.database}_{purpose}_{worker}_{os.getpid()}"
    admin = sa.create_engine(url, isolation_level="AUTOCOMMIT")

    def execute(statement: str) -> None:
        with admin.connect() as connection:
            connection.execute(sa.text(statement))

    execute(f"CREATE DATABASE {name}")
    atexit.register(execute, f"DROP DATABASE {name}")
    return url.set(database=name).render_as_string(hide_password=False)


@functools.cache
def _tables_of_today() -> bytes:
    """A file of SQLite with the tables. They take a tenth of a second, and store/ tests them: a
    test that needs only a store copies this file."""
    with tempfile.TemporaryDirectory(prefix="failover-") as folder:
        file = Path(folder) / "state.db"
        database = Database(f"sqlite:///{file}")
        schema.upgrade(database)
        database.close()
        with contextlib.closing(sqlite3.connect(file)) as connection:
            return connection.serialize()


def new_store(file: Path) -> str:
    """Make a state store of this version without rows; return its URL."""
    file.write_bytes(_tables_of_today())
    return f"sqlite:///{file}"


def upgrade(database: Database) -> None:
    """Give an empty database the schema of today. SQLite gets a copy, which is quicker than to make
    the tables; a server makes them."""
    if database.url.get_backend_name() != "sqlite":
        schema.upgrade(database)
        return
    left = bytearray(_tables_of_today())
    left[18:20] = b"\x01\x01"  # not WAL, which SQLite cannot open in memory
    with (
        contextlib.closing(sqlite3.connect(":memory:")) as source,
        database.engine.connect() as connection,
    ):
        source.deserialize(left)
        target = connection.connection.driver_connection
        assert isinstance(target, sqlite3.Connection)
        source.backup(target)


@functools.cache
def shared(kind: str) -> tuple[Database, Clock]:
    """This process's database with the schema, and the clock that it goes by."""
    clock = Clock()
    database = Database(fresh_url(kind, "shared"), clock=clock)
    upgrade(database)
    return database, clock


@functools.cache
def beside(kind: str, name: str) -> Database:
    """The shared database as another process, ``name``, has it."""
    database, clock = shared(kind)
    return Database(database.url.render_as_string(hide_password=False), clock=clock)


def empty(database: Database) -> None:
    """Remove every row."""
    with database.engine.begin() as connection:
        for table in metadata.sorted_tables:
            connection.execute(table.delete())
