# SPDX-License-Identifier: Apache-2.0
"""A backup of the state store, made and loaded by the commands of docs/backup.md, on SQLite and on
MariaDB: its groups are known, and nothing that they claim to have counts."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from bench.databases import MariaDb
from mistral_failover.convergence.records import Record, Traversal, TraversalStatus
from mistral_failover.model.goal import render_goal
from mistral_failover.model.group import parse_group
from mistral_failover.store import groups, incidents, schema, tables
from mistral_failover.store.database import Database
from support.pages import page, section
from support.simulation import PROJECT

DOCUMENT = {
    "failover_template_version": "2026-11-21",
    "stack": "s",
    "members": {"servers": ["a", "b"]},
    "resources": {
        "data": {
            "type": "volume_attachment",
            "properties": {"volume": "v", "server": {"get_param": "active"}},
        }
    },
}


class Store:
    """A state store, its ``folder``, and the environment in which the commands run."""

    def __init__(self, database: Database, folder: Path, environment: dict[str, str]) -> None:
        self.database, self.folder, self.environment = database, folder, environment

    def follow(self, heading: str, *, starts: str) -> None:
        """Type the block of the page below this heading that begins so."""
        (block,) = (
            each
            for each in re.findall(r"```text\n(.*?)```", section(page("backup"), heading), re.S)
            if each.startswith(starts)
        )
        typed = block.replace("/var/lib/failover-server", str(self.folder / "state"))
        subprocess.run(
            ["sh", "-ec", typed], cwd=self.folder, env=os.environ | self.environment, check=True
        )


@pytest.fixture(scope="module")
def mariadb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDb]:
    if not MariaDb.is_installed():
        pytest.skip("needs mariadbd")
    with MariaDb(tmp_path_factory.mktemp("mariadb")) as server:
        yield server


@pytest.fixture(params=["sqlite", "mariadb"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    environment: dict[str, str] = {}
    if request.param == "sqlite":
        (tmp_path / "state").mkdir()
        url = f"sqlite:///{tmp_path / 'state' / 'failover.sqlite'}"
    else:
        server = sa.engine.make_url(request.getfixturevalue("mariadb").url)
        admin = sa.create_engine(server, isolation_level="AUTOCOMMIT")
        with admin.connect() as connection:
            connection.execute(sa.text("DROP DATABASE IF EXISTS failover"))
            connection.execute(sa.text("CREATE DATABASE failover"))
        admin.dispose()
        socket, user = server.query["unix_socket"], server.username or "root"
        (tmp_path / ".my.cnf").write_text(f"[client]\nsocket={socket}\nuser={user}\n")
        environment["HOME"] = str(tmp_path)
        url = server.set(database="failover").render_as_string(hide_password=False)
    database = Database(url)
    schema.upgrade(database)
    yield Store(database, tmp_path, environment)
    database.close()


def backed_up(store: Store) -> str:
    """A group with a record on ``a``, in a failover; a backup of it; then it changes. Returns its
    id."""
    project = store.database.for_project(PROJECT)
    group = parse_group(DOCUMENT, name="g")
    goal = render_goal(group, {"active": "a"}, [])

    def begin(tx: Any) -> str:
        identity = groups.define(tx, "g", {"document": DOCUMENT, "types": []})
        groups.record_members(tx, identity, [("a", "s-a", 1.0), ("b", "s-b", 2.0)])
        tx.save_goal(identity, goal)
        record = Record(
            "r", identity, "data", "volume_attachment", goal_version=goal.version, member="a"
        )
        tx.insert_records((record,), tx.now())
        running = Traversal("t", identity, goal.version, TraversalStatus.IN_PROGRESS)
        values = {
            "id": running.id,
            "group_id": identity,
            "goal_version": goal.version,
            "status": running.status,
            "reason": "",
            "cause": "",
            "graph": {},
            "started_at": tx.now(),
            "definition_version": "v",
            "number": 1,
        }
        tx.insert(tables.traversals, **values)
        tx.execute(tables.groups.update().values(current_traversal="t", in_force="v"))
        groups.confirm_fenced(tx, identity, "a", "it is off")
        return identity

    identity = project.atomically(begin)
    dump = "mysqldump" if store.environment else "sqlite3"
    store.follow("Make a backup", starts=dump)
    project.atomically(lambda tx: tx.raise_epochs(identity, ["a"]))
    project.atomically(lambda tx: tx.execute(tables.groups.update().values(name="later")))
    store.database.close()
    store.follow("When a backup is loaded", starts="mysql " if store.environment else "cp ")
    return identity


def test_a_loaded_backup_has_groups_that_have_no_goal(store: Store) -> None:
    identity = backed_up(store)

    project = store.database.for_project(PROJECT)
    state = project.reading(lambda tx: groups.find(tx, "g"))

    assert state is not None
    assert (state.id, state.restored, state.current_traversal) == (identity, True, None)
    assert schema.revisions(store.database)[0] == schema.head()


def test_a_group_that_begins_again_keeps_its_file_its_alarms_and_its_epochs(store: Store) -> None:
    identity = backed_up(store)
    project = store.database.for_project(PROJECT)

    project.atomically(lambda tx: groups.begin_again(tx, identity, "it begins again"))

    def read(tx: Any) -> Any:
        (status,) = tx.connection.execute(sa.select(tables.traversals.c.status)).scalars()
        return (
            groups.get(tx, identity),
            groups.all_members_of(tx, identity),
            status,
            tx.records(identity),
        )

    state, members, status, records = project.reading(read)
    assert (state.restored, state.in_force, state.stack_id) == (False, None, None)
    assert state.definition_version == state.defined
    assert {name: row.epoch for name, row in members.items()} == {"a": 1, "b": 1}
    assert members["a"].confirmed_because is None
    assert (status, list(records)) == (TraversalStatus.SUPERSEDED, [])
    assert project.reading(lambda tx: incidents.waiting(tx, identity)) == []
