# SPDX-License-Identifier: Apache-2.0
"""Drills that are killed, and what the next one makes of what they left: a whole drill as well."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from mistral_failover.lab.emulator.client import EmulatorClient, EmulatorError
from mistral_failover.lab.emulator.latency import MEASURED
from mistral_failover.store.database import Database
from mistral_failover.store.tables import groups, journal, operations
from support.drills import drill, start_drill
from support.waiting import until

pytestmark = pytest.mark.drills


def test_a_drill_killed_in_its_failback_is_finished_by_the_next_one(tmp_path: Path) -> None:
    options = ["--active-active", "--state-dir", str(tmp_path), "--latency", "zero"]
    with killed_cloud_afterwards(tmp_path):
        killed = start_drill(*options)
        wait_for_sentence(tmp_path / "failover.sqlite", "Stop orders_database on db_b: started")
        killed.kill()
        killed.wait()
        code, outcome, told = drill(*options)
    assert code == 0, (told, outcome)
    assert outcome["active"] == "orders on db_a, reports on db_b"
    assert outcome["violations"] == []
    assert every_operation_is_done(tmp_path / "failover.sqlite")


@pytest.mark.parametrize(
    ("sentence", "slow"),
    [
        ("Detach data_2 from db_a: started", "detach"),
        ("Start database on db_b: started", "command_start"),
    ],
)
def test_a_drill_killed_in_the_middle_is_finished_by_the_next_one_and_nothing_is_done_twice(
    sentence: str, slow: str, tmp_path: Path
) -> None:
    options = ["--state-dir", str(tmp_path), "--volumes", "3", "--fault", "app"]
    options += ["--latency", "zero"]
    with killed_cloud_afterwards(tmp_path):
        killed = start_drill(*options)
        slow_down(tmp_path, slow)
        wait_for_sentence(tmp_path / "failover.sqlite", sentence)
        killed.kill()
        killed.wait()
        at_once(tmp_path)
        code, outcome, told = drill(*options)
    assert code == 0, (told, outcome)
    assert outcome["recovered"] > 0, "a sweep found what was left lying"
    assert outcome["status"] == "COMPLETE"
    assert outcome["violations"] == []
    assert every_operation_is_done(tmp_path / "failover.sqlite")


ONE_ACTIVE = {"active": "db_b", "holders": {"data": "db_b", "data_2": "db_b"}}
ALONE = {"active": "db", "holders": {"data": "db", "data_2": "db"}}
TWO_ACTIVE = {  # the survivor took both roles, and a failback spread them
    "active": "orders on db_a, reports on db_b",
    "holders": {
        "orders_data": "db_a",
        "orders_data_2": "db_a",
        "reports_data": "db_b",
        "reports_data_2": "db_b",
    },
}


@pytest.mark.parametrize(
    ("more", "started", "end"),
    [
        ([], "database on db_b", ONE_ACTIVE),
        (["--active-active"], "orders_database on db_b", TWO_ACTIVE),
        (["--agents"], "database on db_b", ONE_ACTIVE),
        (["--single"], "database on db", ALONE),
    ],
    ids=["emulated guests", "two active members", "agents", "a single server"],
)
def test_a_drill_killed_while_it_sets_the_scene_is_finished_by_the_next_one(
    more: list[str], started: str, end: dict[str, Any], tmp_path: Path
) -> None:
    options = ["--state-dir", str(tmp_path), "--volumes", "2", *more]
    with killed_cloud_afterwards(tmp_path):
        killed = start_drill("--keep", *options)
        wait_for_stack(tmp_path)
        killed.kill()
        killed.wait()
        assert defined_groups(tmp_path / "failover.sqlite") == []
        at_once(tmp_path)
        code, outcome, told = drill("--keep", *options)
    assert code == 0, (told, outcome)
    assert outcome["status"] == "COMPLETE"
    assert outcome["violations"] == []
    assert every_operation_is_done(tmp_path / "failover.sqlite")
    assert {key: outcome[key] for key in end} == end
    assert f"Start {started}: done" in told
    assert "reports_database on db_a" not in told, "what was well never moved"


def cloud(state_dir: Path) -> EmulatorClient:
    """The cloud of a drill, which outlives it."""
    announced = state_dir / "cloud" / "emulator.json"
    return EmulatorClient(json.loads(announced.read_text())["url"])


def at_once(state_dir: Path) -> None:
    """Have the cloud take no time from now on: only the kill needed it to be slow."""
    cloud(state_dir).set_latency(**dict.fromkeys(MEASURED, 0.0))


def slow_down(state_dir: Path, operation: str) -> None:
    """Have this operation take so long that a kill hits it; wait for the cloud to be there."""

    def is_slow() -> bool:
        with suppress(OSError, ValueError):  # it does not answer yet
            cloud(state_dir).set_latency(**{operation: 2.0})
            return True
        return False

    until(is_slow, "there never was a cloud", limit=90)


def wait_for_stack(state_dir: Path) -> None:
    """Wait until the cloud has the stack, finished or not."""

    def is_there() -> bool:
        with suppress(OSError, ValueError, EmulatorError):  # no cloud yet, or no stack in it
            return bool(cloud(state_dir).resources("payments"))
        return False

    until(is_there, "there never was a stack", limit=90)


def defined_groups(path: Path) -> list[str]:
    database = Database(f"sqlite:///{path}")
    query = sa.select(groups.c.name)
    return list(database.reading(lambda tx: tx.connection.execute(query).scalars().all()))


def wait_for_sentence(path: Path, sentence: str) -> None:
    """Wait until the journal says it."""
    query = sa.select(sa.func.count()).where(journal.c.sentence == sentence)

    def is_said() -> bool:
        if not path.exists():
            return False
        with closing(Database(f"sqlite:///{path}")) as database:
            with suppress(sa.exc.OperationalError):  # the tables are only being made
                return database.reading(lambda tx: bool(tx.connection.execute(query).scalar_one()))
            return False

    until(is_said, f"the journal never said: {sentence}", limit=90)


def every_operation_is_done(path: Path) -> bool:
    database = Database(f"sqlite:///{path}")
    query = sa.select(operations.c.status).distinct()
    return database.reading(lambda tx: tx.connection.execute(query).scalars().all()) == ["done"]


@contextmanager
def killed_cloud_afterwards(state_dir: Path) -> Iterator[None]:
    """A test that fails half way must leave no emulated cloud behind."""
    try:
        yield
    finally:
        with suppress(OSError, ValueError, ProcessLookupError):
            pid = json.loads((state_dir / "cloud" / "emulator.json").read_text())["pid"]
            os.kill(pid, signal.SIGKILL)
