# SPDX-License-Identifier: Apache-2.0
"""Migrations lead to the tables that the code knows, and back."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import alembic.autogenerate
import alembic.migration
import pytest
import sqlalchemy as sa

from mistral_failover.store import schema
from mistral_failover.store.database import Database
from mistral_failover.store.tables import journal, metadata
from support.databases import fresh_url
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


def fill(database: Database, table: str, row: dict[str, Any]) -> None:
    """Insert a row into a table as it is in the database now."""
    with database.engine.begin() as connection:
        there = sa.Table(table, sa.MetaData(), autoload_with=connection)
        connection.execute(there.insert().values(**row))


def content(database: Database, table: str) -> list[dict[str, Any]]:
    """The rows of a table, with the columns that it has in the database now."""
    with database.engine.connect() as connection:
        there = sa.Table(table, sa.MetaData(), autoload_with=connection)
        return [dict(row) for row in connection.execute(sa.select(there)).mappings()]


def test_an_upgraded_database_has_the_tables_that_the_code_knows(blank: Database) -> None:
    schema.upgrade(blank)

    with blank.engine.connect() as connection:
        context = alembic.migration.MigrationContext.configure(
            connection,
            opts={
                "version_table": "failover_schema",
                "compare_type": True,
                "target_metadata": metadata,
            },
        )
        assert alembic.autogenerate.compare_metadata(context, metadata) == []


def test_a_downgrade_to_the_base_leaves_nothing(blank: Database) -> None:
    schema.upgrade(blank)
    assert tables(blank) == set(metadata.tables)

    schema.downgrade(blank, "base")

    assert tables(blank) == set()


def test_what_is_under_way_while_stages_come_is_held_back_by_none(blank: Database) -> None:
    """And a downgrade leaves the rows as they were."""
    schema.upgrade(blank, "0001")
    node = {"traversal_id": "t", "node": "update:r", "status": "WAITING", "remaining": 0}
    traversal = {
        "id": "t",
        "group_id": "g",
        "goal_version": "v",
        "status": "IN_PROGRESS",
        "reason": "",
        "cause": "an alarm",
        "graph": "{}",
        "started_at": 1.5,
        "deferrals": 3,
    }
    fill(blank, "failover_nodes", node)
    fill(blank, "failover_traversals", traversal)

    schema.upgrade(blank)

    (row,) = content(blank, "failover_nodes")
    assert row.items() >= {**node, "stage": 0, "tries": 0, "next_try": None}.items()
    (row,) = content(blank, "failover_traversals")
    assert row.items() >= {**traversal, "through": None, "follows": None, "chains": 0}.items()

    schema.downgrade(blank, "0001")

    (row,) = content(blank, "failover_nodes")
    assert row.items() >= node.items()
    (row,) = content(blank, "failover_traversals")
    assert row.items() >= traversal.items()
    assert {"stage", "through"}.isdisjoint(row)


def test_upgrading_again_changes_nothing(blank: Database) -> None:
    schema.upgrade(blank)
    schema.upgrade(blank)

    assert tables(blank) == set(metadata.tables)


def test_processes_that_upgrade_at_once_do_not_get_in_each_others_way(blank: Database) -> None:
    url = blank.url.render_as_string(hide_password=False)
    with ProcessPoolExecutor(3, mp_context=get_context("spawn")) as pool:
        list(pool.map(_upgrade, [url] * 3))

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
        collations = dict(row._tuple() for row in rows)
    assert collations == dict.fromkeys(metadata.tables, "utf8mb4_bin")


def test_the_numbers_of_the_journal_s_sentences_are_never_given_twice(blank: Database) -> None:
    schema.upgrade(blank)

    def write(tx: Any) -> None:
        tx.journal("g", "it happened", kind="traversal")

    numbers = []
    for _ in range(2):
        blank.atomically(write)
        query = sa.select(journal.c.id)
        numbers.append(blank.reading(lambda tx, q=query: tx.connection.execute(q).scalar_one()))
        blank.atomically(lambda tx: tx.execute(journal.delete()))

    assert numbers[0] < numbers[1]
