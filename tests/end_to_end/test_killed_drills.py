# SPDX-License-Identifier: Apache-2.0
"""Drills that are killed, and what the next one makes of what they left: a whole drill as well."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from mistral_failover.lab.emulator.client import EmulatorError
from mistral_failover.store.database import Database
from mistral_failover.store.tables import groups, operations
from support.drills import (
    at_once,
    cloud,
    drill,
    killed_cloud_afterwards,
    slow_down,
    start_drill,
    wait_for_sentence,
)
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


def every_operation_is_done(path: Path) -> bool:
    database = Database(f"sqlite:///{path}")
    query = sa.select(operations.c.status).distinct()
    return database.reading(lambda tx: tx.connection.execute(query).scalars().all()) == ["done"]
