# SPDX-License-Identifier: Apache-2.0
"""Migrations lead to the tables that the code knows; a store of another version is refused."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import alembic.autogenerate
import alembic.migration
import pytest
import sqlalchemy as sa

from mistral_failover.convergence.records import JournalKind
from mistral_failover.errors import CodedError
from mistral_failover.runtime.process import Runtime
from mistral_failover.settings import Settings
from mistral_failover.store import schema
from mistral_failover.store.database import Database
from mistral_failover.store.tables import Word, journal, metadata
from mistral_failover.store.transaction import SqlTransaction
from support.databases import fresh_url, upgrade
from support.together import together


@pytest.fixture
def blank(kind: str) -> Iterator[Database]:
    """A database without tables."""
    database = Database(fresh_url(kind, "schema"))
    yield database
    with database.engine.begin() as connection:
        metadata.drop_all(connection)
        connection.execute(sa.text("DROP TABLE IF EXISTS failover_schema"))
    database.close()


def _upgrade(url: str) -> None:
    database = Database(url)
    schema.upgrade(database)
    database.close()


def tables(database: Database) -> set[str]:
    return set(sa.inspect(database.engine).get_table_names()) - {"failover_schema"}


def _count(database: Database, *names: str) -> dict[str, int]:
    with database.engine.connect() as connection:
        counts = {each: sa.select(sa.func.count()).select_from(_table(each)) for each in names}
        return {each: connection.execute(query).scalar_one() for each, query in counts.items()}


def _table(name: str) -> sa.Table:
    return metadata.tables[f"failover_{name}"]


def _insert(connection: sa.Connection, table: str, **row: Any) -> None:
    """A row; what it must have besides is nought, or the first word of its kind."""
    there = _table(table)
    values = {
        column.name: _nought(column.type)
        for column in there.columns
        if not column.nullable and column.server_default is None
    }
    connection.execute(there.insert().values({**values, **row}))


def _nought(kind: sa.types.TypeEngine[Any]) -> Any:
    if isinstance(kind, Word):
        return next(iter(kind.kind))
    return "0" if isinstance(kind, sa.String) else 0


def _fill(database: Database) -> None:
    """A group with a row of each kind."""
    with database.engine.begin() as connection:
        _insert(connection, "groups", id="g", name="g")
        _insert(connection, "goals", group_id="g", version="v")
        _insert(connection, "traversals", id="t", group_id="g")
        _insert(connection, "resources", id="r", group_id="g")
        _insert(connection, "nodes", traversal_id="t", node="end", resource_id="r")
        _insert(connection, "edges", traversal_id="t", node="end")
        _insert(connection, "operations", key="o", resource_id="r", group_id="g", traversal_id="t")
        _insert(connection, "plans", id="p", group_id="g")
        _insert(connection, "incidents", id="i", group_id="g")
        _insert(connection, "journal", id=1, group_id="g")


OWNED = ("goals", "traversals", "resources", "nodes", "edges", "operations", "plans")
OUTLIVING = ("incidents", "journal")


def test_an_upgraded_database_has_the_tables_that_the_code_knows(blank: Database) -> None:
    schema.upgrade(blank)
    schema.upgrade(blank)

    with blank.engine.connect() as connection:
        context = alembic.migration.MigrationContext.configure(
            connection,
            opts={
                "version_table": "failover_schema",
                "compare_type": True,
                "compare_server_default": True,
                "target_metadata": metadata,
            },
        )
        assert alembic.autogenerate.compare_metadata(context, metadata) == []


def test_with_a_group_goes_what_belongs_to_it(blank: Database) -> None:
    upgrade(blank)
    _fill(blank)

    with blank.engine.begin() as connection:
        connection.execute(sa.text("DELETE FROM failover_resources"))
    assert _count(blank, "nodes", "operations") == {"nodes": 1, "operations": 0}

    with blank.engine.begin() as connection:
        connection.execute(sa.text("DELETE FROM failover_groups"))

    assert _count(blank, *OWNED) == dict.fromkeys(OWNED, 0)
    assert _count(blank, *OUTLIVING) == dict.fromkeys(OUTLIVING, 1)


def test_a_row_of_what_is_not_there_is_refused(blank: Database) -> None:
    upgrade(blank)
    for table in OWNED:
        with pytest.raises(sa.exc.IntegrityError), blank.engine.begin() as connection:
            _insert(connection, table)


WORDS = [
    (table, column.name)
    for table in metadata.tables.values()
    for column in table.columns
    if isinstance(column.type, Word)
]


def test_an_unknown_word_is_refused(blank: Database) -> None:
    upgrade(blank)
    for table, column in WORDS:
        for word in ("nonsense", "done ", 1):
            statement = table.update().values({column: word})
            with pytest.raises(sa.exc.StatementError) as raised, blank.engine.begin() as connection:
                connection.execute(statement)
            assert isinstance(raised.value.orig, ValueError)


def test_every_word_fits_its_column() -> None:
    for table, column in WORDS:
        kind = table.columns[column].type
        assert isinstance(kind, Word)
        assert max(map(len, kind.kind)) <= kind.length


# -- the next version


NEXT = """
import sqlalchemy as sa
from alembic import op

revision = "0002_next"
down_revision = "0001_first"

def upgrade():
    with op.batch_alter_table("failover_groups") as table:
        table.alter_column("hook", existing_type=sa.String(255), type_=sa.String(200))
        table.add_column(sa.Column("note", sa.String(64), nullable=True))
"""


@contextmanager
def _next_version(folder: Path) -> Iterator[None]:
    """Within it this process is of the next version."""
    scripts = folder / "migrations"
    shutil.copytree(schema._SCRIPTS, scripts)
    (scripts / "versions" / "0002_next.py").write_text(NEXT, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schema, "_SCRIPTS", scripts)
        patch.setattr(schema, "head", schema.head.__wrapped__)
        yield


def test_the_next_version_keeps_the_rows_and_this_version_refuses_its_store(
    blank: Database, tmp_path: Path
) -> None:
    """SQLite drops the table of the groups on the way."""
    upgrade(blank)
    _fill(blank)

    with _next_version(tmp_path):
        assert schema.revisions(blank) == ("0001_first", "0002_next")
        schema.upgrade(blank)

    every = ("groups", *OWNED, *OUTLIVING)
    assert _count(blank, *every) == dict.fromkeys(every, 1)
    assert schema.revisions(blank) == ("0002_next", "0001_first")
    with pytest.raises(CodedError):
        schema.upgrade(blank)


@pytest.mark.parametrize("revision", ["0002_next", "0001", "0015_since_0008", "something else"])
def test_a_store_of_another_version_is_refused_and_not_changed(
    blank: Database, revision: str
) -> None:
    """Of a later version, or of a version before the first release."""
    with blank.engine.begin() as connection:
        known = sa.Table(
            schema.VERSION_TABLE, sa.MetaData(), sa.Column("version_num", sa.String(32))
        )
        known.create(connection)
        connection.execute(known.insert().values(version_num=revision))

    with pytest.raises(CodedError) as raised:
        Runtime(replace(Settings(), database=blank.url.render_as_string(hide_password=False)))

    assert raised.value.code == "SCHEMA_UNKNOWN"
    assert revision in raised.value.message
    assert schema.revisions(blank)[0] == revision
    assert tables(blank) == set()


# -- processes at once, and what no migration tells


THREE_PROCESSES = """
import os
import sys
import traceback
from mistral_failover.store import schema
from mistral_failover.store.database import Database

waiting, all_there = os.pipe()
children = []
for _ in range(3):
    child = os.fork()
    if child:
        children.append(child)
        continue
    try:
        os.close(all_there)
        os.read(waiting, 1)
        schema.upgrade(Database(sys.argv[1]))
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
os.close(all_there)
sys.exit(any([os.waitpid(child, 0)[1] for child in children]))
"""
"""They import what they need once, and begin at one moment."""


def test_processes_that_upgrade_at_once_do_not_get_in_each_others_way(blank: Database) -> None:
    url = blank.url.render_as_string(hide_password=False)
    command = [sys.executable, "-c", THREE_PROCESSES, url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr

    assert tables(blank) == set(metadata.tables)


def test_threads_that_upgrade_at_once_take_turns(blank: Database) -> None:
    url = blank.url.render_as_string(hide_password=False)

    together(4, lambda number: _upgrade(url))

    assert tables(blank) == set(metadata.tables)


def test_every_table_keeps_names_apart_that_differ_in_case_alone(kind: str) -> None:
    """Of MySQL, whose default takes them for one."""
    if kind == "sqlite":
        pytest.skip("SQLite compares bytes")
    database = Database(fresh_url(kind, "collation"))
    schema.upgrade(database)
    if database.engine.dialect.name not in ("mysql", "mariadb"):
        pytest.skip("only MySQL has collations by table")
    with database.engine.connect() as connection:
        rows = connection.execute(
            sa.text(
                "SELECT table_name, table_collation FROM information_schema.tables "
                "WHERE table_schema = DATABASE() AND table_name <> 'failover_schema'"
            )
        )
        collations: dict[str, str] = dict(row._tuple() for row in rows)
    assert collations == dict.fromkeys(metadata.tables, "utf8mb4_bin")


def test_the_numbers_of_the_journal_s_sentences_are_never_given_twice(blank: Database) -> None:
    upgrade(blank)

    def write(tx: SqlTransaction) -> None:
        tx.journal("g", "it happened", kind=JournalKind.TRAVERSAL)

    def last(tx: SqlTransaction) -> int:
        return int(tx.connection.execute(sa.select(journal.c.id)).scalar_one())

    numbers = []
    for _ in range(2):
        blank.atomically(write)
        numbers.append(blank.reading(last))
        blank.atomically(lambda tx: tx.execute(journal.delete()))

    assert numbers[0] < numbers[1]


def test_a_number_is_never_given_twice_and_grows(blank: Database) -> None:
    upgrade(blank)

    def fail(tx: SqlTransaction) -> None:
        given.append(tx.number())
        raise KeyError

    given = [blank.atomically(lambda tx: tx.number())]
    with pytest.raises(KeyError):
        blank.atomically(fail)
    given.append(blank.atomically(lambda tx: tx.number()))
    assert given[0] < given[2]

    def taken(number: int) -> list[int]:
        return [blank.atomically(lambda tx: tx.number()) for _ in range(10)]

    beside = together(4, taken)

    assert all(numbers == sorted(numbers) for numbers in beside)
    every = [number for numbers in beside for number in numbers]
    assert len({*every, given[2]}) == 41
    assert min(every) > given[2]
