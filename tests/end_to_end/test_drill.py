# SPDX-License-Identifier: Apache-2.0
"""Whole drills through the command line, as a user starts them."""

from __future__ import annotations

import pytest

from support.drills import drill

pytestmark = pytest.mark.drills


def test_a_dead_application_s_standby_takes_over_in_eight_tasks_however_many_volumes_move() -> None:
    code, outcome, told = drill("--latency", "zero", "--fault", "app", "--volumes", "4")
    assert code == 0, told
    assert outcome["status"] == "COMPLETE"
    assert outcome["active"] == "db_b"
    moved = ("data", "data_2", "data_3", "data_4")
    assert outcome["holders"] == dict.fromkeys(moved, "db_b")
    assert 0 < outcome["tasks"] <= 8, told
    assert outcome["violations"] == []
    assert "Start database on db_b: done" in told


def test_a_node_that_is_slow_and_says_so_is_not_fenced_by_a_short_limit() -> None:
    code, outcome, told = drill("--latency", "zero", "--fault", "slow")
    assert code == 0, (told, outcome)
    assert "proven by quiesce" in told
