# SPDX-License-Identifier: Apache-2.0
"""Two versions work on one store at the same time, during an upgrade: the rule for migrations.

Code names every column that it knows, and no other. So its statements follow from its tables, which
are on record in ``table_records`` for the schemas that a version in use may have.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa
from alembic.script import ScriptDirectory

from mistral_failover.runtime.errors import ActionError
from mistral_failover.runtime.process import Runtime
from mistral_failover.settings import Settings
from mistral_failover.store import schema, tables
from mistral_failover.store.database import Database
from support import table_records
from support.databases import fresh_url, upgrade
from support.table_records import Tables

RECORDED = table_records.recorded()
HEAD = schema.number(schema.head())
FIRST_WITH_A_RULE = 10
EARLIEST = schema.earliest(schema.head()) or 8
"""The earliest schema whose code has to work with the tables of this version."""
EARLIER = [number for number in sorted(RECORDED) if EARLIEST <= number < HEAD]


@pytest.fixture
def blank(kind: str) -> Iterator[Database]:
    """A database without tables."""
    database = Database(fresh_url(kind, "two_versions"))
    yield database
    with database.engine.begin() as connection:
        tables.metadata.drop_all(connection)
        connection.execute(sa.text(f"DROP TABLE IF EXISTS {schema.VERSION_TABLE}"))
    database.close()


class Code:
    """The statements of the code of one schema."""

    def __init__(self, known: Tables) -> None:
        # What a row belongs to is written first, also where no key said so yet.
        order = [table.name for table in tables.metadata.sorted_tables if table.name in known]
        self.known = {name: known[name] for name in order}
        self.tables = {
            name: sa.table(name, *(sa.column(column) for column in columns))
            for name, columns in known.items()
        }

    def write(self, connection: sa.Connection) -> None:
        """Insert a row into every table: only what a row must have."""
        for name, columns in self.known.items():
            values = {
                column: _value(about)
                for column, about in columns.items()
                if "required" in about or name == "failover_numbers"
            }
            connection.execute(self.tables[name].insert().values(values))

    def read(self, connection: sa.Connection) -> dict[str, list[tuple[Any, ...]]]:
        """Every row, with every column."""
        return {
            name: [tuple(row) for row in connection.execute(sa.select(table))]
            for name, table in self.tables.items()
        }

    def update(self, connection: sa.Connection) -> None:
        """Set every column, and those with words to each of them."""
        for name, columns in self.known.items():
            table = self.tables[name]
            for column, about in columns.items():
                for value in about.get("words", [sa.column(column)]):
                    connection.execute(table.update().values({column: value}))

    def delete(self, connection: sa.Connection) -> None:
        """Delete every row."""
        for table in reversed(self.tables.values()):
            connection.execute(table.delete())


def _value(about: dict[str, Any]) -> str | int:
    if "words" in about:
        word: str = about["words"][0]
        return word
    return "1" if about["type"] == "text" else 1


# -- the record


def test_the_tables_of_this_version_are_on_record() -> None:
    """If not: cd tests; python -m support.table_records"""
    assert RECORDED.get(HEAD) == table_records.of_this_version()


def test_a_revision_says_since_which_schema_code_can_work_with_it() -> None:
    """NNNN_since_NNNN, from the tenth on."""
    scripts = ScriptDirectory(str(schema._SCRIPTS)).walk_revisions()
    later = [each.revision for each in scripts if schema.number(each.revision) >= FIRST_WITH_A_RULE]

    assert [name for name in later if not re.fullmatch(r"\d{4}_since_\d{4}", name)] == []
    assert [name for name in later if (schema.earliest(name) or 0) > schema.number(name)] == []


def test_the_tables_of_the_previous_version_are_on_record() -> None:
    assert EARLIEST in RECORDED


# -- the rule


@pytest.mark.parametrize("earlier", EARLIER)
def test_code_of_an_earlier_schema_works_with_the_tables_of_this_version(
    blank: Database, earlier: int
) -> None:
    """And finds what it wrote before the upgrade, in a filled store."""
    code = Code(RECORDED[earlier])
    schema.upgrade(blank, f"{earlier:04}")
    with blank.engine.begin() as connection:
        code.write(connection)
        before = code.read(connection)

    schema.upgrade(blank)

    with blank.engine.begin() as connection:
        assert code.read(connection) == before
        code.update(connection)
        code.delete(connection)
        assert not any(code.read(connection).values())
        code.write(connection)


@pytest.mark.parametrize("earlier", EARLIER)
def test_code_of_this_version_reads_what_code_of_an_earlier_schema_writes(
    blank: Database, earlier: int
) -> None:
    upgrade(blank)
    with blank.engine.begin() as connection:
        Code(RECORDED[earlier]).write(connection)

        for table in tables.metadata.sorted_tables:
            columns: list[sa.ColumnElement[Any]] = [*map(sa.column, table.columns.keys())]
            found = connection.execute(sa.select(*columns).select_from(table)).all()
            assert len(found) == (table.name in RECORDED[earlier])


@pytest.mark.parametrize("earlier", EARLIER)
def test_this_version_writes_no_word_that_code_of_an_earlier_schema_does_not_know(
    earlier: int,
) -> None:
    unknown = {
        (name, column): set(about["words"]) - set(known)
        for name, columns in table_records.of_this_version().items()
        for column, about in columns.items()
        if (known := RECORDED[earlier].get(name, {}).get(column, {}).get("words"))
        and set(about["words"]) - set(known)
    }

    assert unknown == {}


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE failover_groups DROP COLUMN definition_version",
        "ALTER TABLE failover_members RENAME COLUMN epoch TO era",
        "ALTER TABLE failover_goals ADD COLUMN needed INTEGER NOT NULL",
        "DROP TABLE failover_totals",
    ],
)
def test_what_breaks_the_code_of_an_earlier_schema_is_noticed(change: str) -> None:
    database = Database(fresh_url("memory", "change"))
    upgrade(database)
    with database.engine.begin() as connection:
        connection.execute(sa.text(change))

        with pytest.raises(sa.exc.DBAPIError):
            _write_and_read(Code(RECORDED[HEAD]), connection)


def _write_and_read(code: Code, connection: sa.Connection) -> None:
    code.write(connection)
    code.read(connection)


# -- a process that starts after a later version has upgraded the store


def _upgraded_by_a_later_version(database: Database, revision: str) -> None:
    upgrade(database)
    with database.engine.begin() as connection:
        table = sa.table(schema.VERSION_TABLE, sa.column("version_num"))
        connection.execute(table.update().values(version_num=revision))


def test_it_works_if_the_later_schema_says_so(blank: Database) -> None:
    later = f"{HEAD + 1:04}_since_{HEAD:04}"
    _upgraded_by_a_later_version(blank, later)

    runtime = Runtime(_settings(blank))
    try:
        assert runtime.database.reading(lambda tx: tx.now())
        assert schema.revisions(blank)[0] == later
    finally:
        runtime.database.close()


@pytest.mark.parametrize("later", [f"{HEAD + 2:04}_since_{HEAD + 1:04}", "9999", "something else"])
def test_it_refuses_if_the_later_schema_does_not_say_so(blank: Database, later: str) -> None:
    _upgraded_by_a_later_version(blank, later)

    with pytest.raises(ActionError) as raised:
        Runtime(_settings(blank))

    assert raised.value.code == "SCHEMA_UNKNOWN"
    assert later in raised.value.message
    assert "Install the version" in raised.value.remedy
    assert schema.revisions(blank)[0] == later


def _settings(database: Database) -> Settings:
    return replace(Settings(), database=database.url.render_as_string(hide_password=False))
