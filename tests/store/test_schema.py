# SPDX-License-Identifier: Apache-2.0
"""Migrations lead to the tables that the code knows, and back."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import alembic.autogenerate
import alembic.migration
import pytest
import sqlalchemy as sa

from mistral_failover.convergence.records import JournalKind
from mistral_failover.store import schema
from mistral_failover.store.database import Database
from mistral_failover.store.tables import journal, metadata, resources
from mistral_failover.store.transaction import SqlTransaction
from support.databases import fresh_url, upgrade
from support.rows import rows
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


WORDS = {
    "failover_traversals": {"status": "IN_PROGRESS"},
    "failover_resources": {"action": "CREATE", "status": "COMPLETE"},
    "failover_nodes": {"status": "WAITING"},
    "failover_operations": {"status": "done", "verb": "create"},
    "failover_plans": {"verb": "failover"},
    "failover_journal": {"kind": "done"},
    "failover_incidents": {"decision": "HELD", "rule": "storm"},
    "failover_observations": {"service": "DOWN"},
}


def _insert(connection: sa.Connection, table: str, **row: Any) -> None:
    """A row as an earlier version wrote it; what it must have besides is nought, or a word."""
    found = sa.Table(table, sa.MetaData(), autoload_with=connection)
    nought = {
        column.name: "0" if isinstance(column.type, sa.String) else 0
        for column in found.columns
        if not column.nullable and column.server_default is None
    }
    connection.execute(found.insert().values({**nought, **WORDS.get(table, {}), **row}))


def _insert_group(database: Database, name: str = "g") -> None:
    with database.engine.begin() as connection:
        _insert(connection, "failover_groups", id=name, name=name)


def test_a_record_that_was_condemned_stays_so_for_the_goal_of_its_group(blank: Database) -> None:
    schema.upgrade(blank, "0001")
    with blank.engine.begin() as connection:
        for name, goal in (("g", "its goal"), ("other", "another goal")):
            _insert(connection, "failover_groups", id=name, name=name, current_traversal=goal)
            _insert(connection, "failover_traversals", id=goal, group_id=name, goal_version=goal)
        for name, condemned in (("bad", True), ("good", False)):
            _insert(connection, "failover_resources", id=name, group_id="g", condemned=condemned)

    schema.upgrade(blank)

    found = rows(blank, resources, "id")
    assert {name: row["condemned_for"] for name, row in found.items()} == {
        "bad": "its goal",
        "good": None,
    }


def test_what_was_applied_last_is_what_the_record_has_or_else_what_the_ledger_says(
    blank: Database,
) -> None:
    schema.upgrade(blank, "0001")
    _insert_group(blank)
    states = (("create", "done", 1), ("update", "done", 2), ("update", "failed", 3))
    records = {  # by id: what was last done with it, how that ended, and its ledger
        "created": ("CREATE", "COMPLETE", states),
        "updated": ("UPDATE", "COMPLETE", states),
        "not updated": ("UPDATE", "FAILED", states),
        "being updated": ("UPDATE", "IN_PROGRESS", states),
        "not deleted": ("DELETE", "FAILED", states),
        "never made": ("CREATE", "FAILED", ()),
    }
    with blank.engine.begin() as connection:
        for name, (action, status, ledger) in records.items():
            _insert(
                connection,
                "failover_resources",
                id=name,
                group_id="g",
                action=action,
                status=status,
                properties=json.dumps({"value": 3}),
            )
            for verb, end, number in ledger:
                _insert(
                    connection,
                    "failover_operations",
                    key=f"{name} {number}",
                    resource_id=name,
                    verb=verb,
                    status=end,
                    intent=json.dumps({"properties": {"value": number}, "previous": None}),
                    ended_at=float(number),
                )

    schema.upgrade(blank)

    found = rows(blank, resources, "id")
    assert {name: row["applied"] for name, row in found.items()} == {
        "created": {"value": 3},
        "updated": {"value": 3},
        "not updated": {"value": 2},
        "being updated": {"value": 2},
        "not deleted": {"value": 2},
        "never made": None,
    }


def test_what_was_only_said_in_sentences_gets_columns(blank: Database) -> None:
    schema.upgrade(blank, "0004")
    superseded = {"status": "SUPERSEDED", "group_id": "g"}
    ended = "the rights of the request ended; a sweep, or anybody with valid rights, goes on: "
    refused = {"status": "FAILED", "reason": f"{ended}It was deleted. Log in: again. [TRUST_GONE]"}
    died = "fence:a: the lock of exec-1/host, a, which is dead, was broken"
    forced = "data: the lock of exec-2/b, which was alive, was broken by me (forced: which is dead)"
    with blank.engine.begin() as connection:
        for table, row in (
            ("traversals", {"id": "new", "status": "IN_PROGRESS", "group_id": "g"}),
            ("traversals", {"id": "old", "reason": "superseded by new", **superseded}),
            ("traversals", {"id": "older", "reason": "superseded by one forgotten", **superseded}),
            ("resources", {"id": "left", **refused}),
            ("resources", {"id": "taken up", **refused, "owner": "o"}),
            ("resources", {"id": "failed", "status": "FAILED", "reason": "too many [QUOTA]"}),
            ("journal", {"id": 1, "kind": "steal", "sentence": died}),
            ("journal", {"id": 2, "kind": "broken", "sentence": forced}),
            ("journal", {"id": 3, "kind": "done", "sentence": f"{died}, it says"}),
        ):
            _insert(connection, f"failover_{table}", **row)

    schema.upgrade(blank, "0005")

    def column(table: str, name: str) -> dict[Any, Any]:
        return {row["id"]: row[name] for row in content(blank, f"failover_{table}")}

    assert column("traversals", "superseded_by") == {"new": None, "old": "new", "older": None}
    assert column("resources", "given_up") == {
        "left": "TRUST_GONE",
        "taken up": None,
        "failed": None,
    }
    assert column("journal", "owner") == {1: "exec-1/host, a", 2: "exec-2/b", 3: None}
    assert set(column("journal", "token").values()) == {None}


def _fill_each_table(database: Database) -> None:
    """A group with a row of each kind, and the rows that a group which is gone left behind."""
    with database.engine.begin() as connection:
        _insert(connection, "failover_groups", id="g", name="g")
        for group, traversal, resource in (("g", "t", "r"), ("gone", "t-gone", "r-gone")):
            _insert(connection, "failover_goals", group_id=group, version="v")
            _insert(connection, "failover_traversals", id=traversal, group_id=group)
            _insert(connection, "failover_resources", id=resource, group_id=group)
            _insert(connection, "failover_nodes", traversal_id=traversal, node="end")
            _insert(connection, "failover_edges", traversal_id=traversal, node="end")
            _insert(
                connection,
                "failover_operations",
                key=resource,
                resource_id=resource,
                group_id=group,
                traversal_id=traversal,
            )
            _insert(connection, "failover_plans", id=group, group_id=group)
            _insert(connection, "failover_incidents", id=group, group_id=group)
            number = {"g": 1, "gone": 2}[group]
            _insert(connection, "failover_journal", id=number, group_id=group)
        forgotten = {"status": "SUPERSEDED", "superseded_by": "forgotten"}
        _insert(connection, "failover_traversals", id="old", group_id="g", **forgotten)


OWNED = ("goals", "traversals", "resources", "nodes", "edges", "operations", "plans")


def _count(database: Database, *tables: str) -> dict[str, int]:
    return {table: len(content(database, f"failover_{table}")) for table in tables}


def test_only_what_a_group_that_is_gone_left_behind_is_removed(blank: Database) -> None:
    """And nothing of what is there, though SQLite drops each table on the way."""
    schema.upgrade(blank, "0005")
    _fill_each_table(blank)

    schema.upgrade(blank)

    assert _count(blank, *OWNED) == dict.fromkeys(OWNED, 1) | {"traversals": 2}
    assert _count(blank, "incidents", "journal") == {"incidents": 2, "journal": 2}
    assert {row["superseded_by"] for row in content(blank, "failover_traversals")} == {None}

    schema.downgrade(blank, "0005")

    assert _count(blank, *OWNED) == dict.fromkeys(OWNED, 1) | {"traversals": 2}
    with blank.engine.begin() as connection:
        _insert(connection, "failover_nodes", traversal_id="nowhere", status="nonsense")


def test_with_a_group_goes_what_belongs_to_it(blank: Database) -> None:
    schema.upgrade(blank, "0005")
    _fill_each_table(blank)
    schema.upgrade(blank)

    with blank.engine.begin() as connection:
        connection.execute(sa.text("DELETE FROM failover_groups"))

    assert _count(blank, *OWNED) == dict.fromkeys(OWNED, 0)
    assert _count(blank, "incidents", "journal") == {"incidents": 2, "journal": 2}


def test_a_row_of_what_is_not_there_is_refused(blank: Database) -> None:
    upgrade(blank)
    for table in OWNED:
        with pytest.raises(sa.exc.IntegrityError), blank.engine.begin() as connection:
            _insert(connection, f"failover_{table}")


def test_an_unknown_status_is_refused(blank: Database) -> None:
    schema.upgrade(blank, "0005")
    _fill_each_table(blank)
    schema.upgrade(blank)
    with blank.engine.begin() as connection:
        _insert(connection, "failover_observations", group_id="g")
    checked = {
        (table.name, str(check.name))
        for table in metadata.tables.values()
        for check in table.constraints
        if isinstance(check, sa.CheckConstraint)
    }
    assert {table for table, _ in checked} == set(WORDS)

    for table, name in checked:
        column = name.rpartition("_")[2]
        values = sa.table(table, sa.column(column))
        with pytest.raises(sa.exc.DBAPIError, match=name), blank.engine.begin() as connection:
            connection.execute(values.update().values({column: "nonsense"}))


def test_the_words_of_the_migration_are_those_of_the_code(blank: Database) -> None:
    upgrade(blank)
    found = sa.inspect(blank.engine)
    for name, table in metadata.tables.items():
        there = {check["name"]: check["sqltext"] for check in found.get_check_constraints(name)}
        wanted = {
            str(check.name): str(check.sqltext.compile(compile_kwargs={"literal_binds": True}))
            for check in table.constraints
            if isinstance(check, sa.CheckConstraint)
        }
        assert there.keys() == wanted.keys()
        for check in wanted:
            assert _quoted(str(there[check])) == _quoted(wanted[check])


def _quoted(text: str) -> set[str]:
    return set(re.findall(r"'(\w*)'", text))


def test_a_downgrade_to_the_base_leaves_nothing(blank: Database) -> None:
    upgrade(blank)
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
    _insert_group(blank)
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


def test_an_upgrade_and_a_downgrade_keep_the_numbers_of_deleted_entries(blank: Database) -> None:
    """The cursor of a group's events refers to them."""
    given = []
    for change, revision in (
        (schema.upgrade, "0011_since_0008"),
        (schema.upgrade, "0012_since_0008"),
        (schema.downgrade, "0011_since_0008"),
    ):
        change(blank, revision)
        with blank.engine.begin() as connection:
            table = sa.Table("failover_journal", sa.MetaData(), autoload_with=connection)
            row = {"group_id": "g", "kind": "done", "sentence": "", "at": 0.0}
            made = connection.execute(table.insert().values(row)).inserted_primary_key
            assert made is not None
            given.append(made[0])
            connection.execute(table.delete())

    assert given == [1, 2, 3]


# By table: what a row of the first schema must have, but for its id.
BEFORE: dict[str, dict[str, Any]] = {
    "failover_incidents": {
        "project_id": "p",
        "source": "aodh",
        "fact": "{}",
        "payload": "{}",
        "decision": "HELD",
        "sentence": "",
        "duplicates": 0,
        "rule": "",
        "firing": True,
        "series": "s",
    },
    "failover_resources": {
        "group_id": "g",
        "name": "r",
        "type": "t",
        "epoch": 0,
        "action": "CREATE",
        "status": "COMPLETE",
        "reason": "",
        "attributes": "{}",
        "requires": "[]",
        "goal_version": "v",
        "condemned": False,
        "token": 0,
        "atomic_key": 0,
        "generation": 0,
    },
    "failover_traversals": {
        "group_id": "g",
        "goal_version": "v",
        "status": "COMPLETE",
        "reason": "",
        "cause": "",
        "graph": "{}",
    },
}


def in_order(database: Database, table: str, column: str) -> list[str]:
    known = sa.table(table, sa.column("id", sa.String), sa.column(column))
    query = sa.select(known.c.id).order_by(known.c[column])
    with database.engine.connect() as connection:
        return list(connection.execute(query).scalars())


def test_rows_from_before_there_were_numbers_keep_the_order_of_their_clocks(
    blank: Database,
) -> None:
    schema.upgrade(blank, "0001")
    _insert_group(blank)
    # first_at, decided_at, last_at; of b and d the first two are one moment.
    heard = {"c": (1, 9, 40), "d": (2, 2, 10), "b": (2, 2, 30), "a": (3, 3, 20)}
    times = {
        "failover_incidents": {
            row: {"first_at": first, "decided_at": decided, "last_at": last}
            for row, (first, decided, last) in heard.items()
        },
        "failover_resources": {row: {"created_at": heard[row][0]} for row in heard},
        "failover_traversals": {row: {"started_at": heard[row][0]} for row in heard},
    }
    with blank.engine.begin() as connection:
        for table, rows in times.items():
            for row, at in rows.items():
                values = {"id": row, **BEFORE[table], **at}
                insert = sa.table(table, *map(sa.column, values)).insert()
                connection.execute(insert.values(values))

    schema.upgrade(blank)

    assert in_order(blank, "failover_incidents", "number") == ["c", "b", "d", "a"]
    assert in_order(blank, "failover_incidents", "said") == ["d", "a", "b", "c"]
    assert in_order(blank, "failover_resources", "number") == ["c", "b", "d", "a"]
    assert in_order(blank, "failover_traversals", "number") == ["c", "b", "d", "a"]
    assert blank.atomically(lambda tx: tx.number()) > len(heard)


def test_incidents_get_no_parent_and_a_downgrade_leaves_no_host_event_to_be_started(
    blank: Database,
) -> None:
    schema.upgrade(blank, "0005")
    _fill_each_table(blank)
    schema.upgrade(blank, "0007")
    before = {row["id"]: row for row in content(blank, "failover_incidents")}

    schema.upgrade(blank)

    for row in content(blank, "failover_incidents"):
        assert row == {**before[row["id"]], "parent": None}
    with blank.engine.begin() as connection:
        event = {"decision": "ADMITTED", "rule": "host", "group_id": None}
        _insert(connection, "failover_incidents", id="event", **event)
        _insert(connection, "failover_incidents", id="child", group_id="g", parent="event")

    schema.downgrade(blank, "0007")

    after = {row["id"]: row for row in content(blank, "failover_incidents")}
    assert after.items() >= before.items()
    assert (after["event"]["decision"], after["child"]["decision"]) == ("DISMISSED", "HELD")


def test_a_traversal_that_stopped_names_the_node_that_failed(blank: Database) -> None:
    """And nothing else does; a downgrade leaves the rows as they were."""
    schema.upgrade(blank, "0009")
    _insert_group(blank)
    stopped = {  # by traversal: its status and reason, and those of its nodes
        "failed": ("FAILED", "b broke", {"update:a": "a broke", "cleanup:b": "b broke"}),
        "blocked": ("BLOCKED", "a waits", {"update:a": "a waits"}),
        "other words": ("FAILED", "a broke. It cannot be rolled back", {"update:a": "a broke"}),
        "runs": ("IN_PROGRESS", "", {"update:a": "a broke"}),
        "superseded": ("SUPERSEDED", "superseded by runs", {}),
    }
    with blank.engine.begin() as connection:
        for name, (status, reason, nodes) in stopped.items():
            row = {"id": name, "group_id": "g", "status": status, "reason": reason}
            _insert(connection, "failover_traversals", **row)
            for node, why in nodes.items():
                row = {"traversal_id": name, "node": node, "reason": why}
                _insert(connection, "failover_nodes", **row, status=_stopped(status))
    before = {row["id"]: row for row in content(blank, "failover_traversals")}

    schema.upgrade(blank)

    found = {row["id"]: row.pop("failed_node") for row in content(blank, "failover_traversals")}
    assert found == {
        **dict.fromkeys(stopped),
        "failed": "cleanup:b",
        "blocked": "update:a",
    }

    schema.downgrade(blank, "0009")

    assert {row["id"]: row for row in content(blank, "failover_traversals")} == before


def _stopped(status: str) -> str:
    """The status of a node that failed in a traversal of this status."""
    return "BLOCKED" if status == "BLOCKED" else "FAILED"


def test_words_that_no_code_writes_any_more_do_not_prevent_the_upgrade(blank: Database) -> None:
    schema.upgrade(blank, "0011_since_0008")
    _insert_group(blank)
    with blank.engine.begin() as connection:
        for number, kind in enumerate(("retired", "done", "no_other_target"), start=1):
            _insert(connection, "failover_journal", id=number, group_id="g", kind=kind)
        for rule in ("retired", "storm", ""):
            _insert(connection, "failover_incidents", id=f"by {rule}", group_id="g", rule=rule)
        for verb in ("evacuate", "switchover"):
            _insert(connection, "failover_plans", id=verb, group_id="g", verb=verb)

    schema.upgrade(blank)

    found = {row["id"]: row["kind"] for row in content(blank, "failover_journal")}
    assert found == {1: "other", 2: "done", 3: "no_other_target"}
    found = {row["id"]: row["rule"] for row in content(blank, "failover_incidents")}
    assert found == {"by retired": "", "by storm": "storm", "by ": ""}
    assert [row["id"] for row in content(blank, "failover_plans")] == ["switchover"]


def test_what_names_a_row_that_is_gone_is_removed_or_forgets_it(blank: Database) -> None:
    """A node remains without its record, and an operation without its traversal. A downgrade leaves
    the rows as they are."""
    schema.upgrade(blank, "0011_since_0008")
    _insert_group(blank)
    with blank.engine.begin() as connection:
        _insert(connection, "failover_traversals", id="t", group_id="g")
        _insert(connection, "failover_resources", id="r", group_id="g")
        _insert(connection, "failover_plans", id="stays", group_id="g")
        _insert(connection, "failover_nodes", traversal_id="t", node="kept", resource_id="r")
        _insert(connection, "failover_nodes", traversal_id="t", node="gone", resource_id="r-gone")
        ledger = {"resource_id": "r", "traversal_id": "forgotten"}
        _insert(connection, "failover_operations", key="stays", group_id="g", **ledger)
        _insert(connection, "failover_operations", key="goes", group_id="gone", **ledger)
        _insert(connection, "failover_plans", id="goes", group_id="gone")

    schema.upgrade(blank)

    nodes = {row["node"]: row["resource_id"] for row in content(blank, "failover_nodes")}
    assert nodes == {"kept": "r", "gone": None}
    assert {row["key"] for row in content(blank, "failover_operations")} == {"stays"}
    assert [row["id"] for row in content(blank, "failover_plans")] == ["stays"]
    with blank.engine.begin() as connection:
        connection.execute(sa.text("DELETE FROM failover_resources"))
    nodes = {row["node"]: row["resource_id"] for row in content(blank, "failover_nodes")}
    assert nodes == {"kept": None, "gone": None}

    schema.downgrade(blank, "0011_since_0008")

    with blank.engine.begin() as connection:
        _insert(connection, "failover_plans", id="x", group_id="nowhere", verb="nonsense")
    assert len(content(blank, "failover_plans")) == 2


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
