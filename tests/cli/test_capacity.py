# SPDX-License-Identifier: Apache-2.0
"""``failover capacity`` calculates from measured constants, and asks no server."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bench.__main__ import PARTS
from mistral_failover.cli import capacity
from mistral_failover.recovery import sweep
from support.commands import failover


def asked(*words: str) -> dict[str, Any]:
    answer = failover("capacity", *words, "-f", "json")
    assert answer.returncode == 0, answer.stderr
    return {row["name"]: row for row in json.loads(answer.stdout)}


def test_people_see_the_same_as_machines() -> None:
    machines = failover("capacity", "--groups", "10", "-f", "json")

    table = failover("capacity", "--groups", "10")

    found = json.loads(machines.stdout)
    assert found
    assert all(row["measured_by"] in table.stdout for row in found)


def test_it_multiplies_what_was_measured() -> None:
    found = asked("--groups", "1000", "--volumes", "3", "--failing", "100")

    assert found["observation"]["value"] == pytest.approx(1000 * capacity.LOOK_CPU / 60 * 100)
    each = capacity.FAILOVER_CPU + 2 * capacity.VOLUME_CPU
    assert found["failover_cpu"]["value"] == pytest.approx(each)
    assert found["all_failed_over"]["value"] > 100 * each, "looking goes on meanwhile"


def test_it_tells_how_long_the_storm_guard_takes_to_let_all_go() -> None:
    few, many = asked("--groups", "50"), asked("--groups", "1000")

    assert few["let_go"]["value"] == pytest.approx(300), "ten a minute"
    assert many["let_go"]["value"] == pytest.approx(sweep.STALE)


def test_every_line_names_the_benchmark_that_measured_it() -> None:
    found = asked("--groups", "10")

    assert {row["measured_by"] for row in found.values()} <= PARTS.keys()


def test_constants_of_the_code_are_those_of_the_code() -> None:
    assert capacity.STALE == sweep.STALE


@pytest.mark.parametrize(
    ("words", "limit"),
    [
        (("--groups", "10"), "The CPU of failovers"),
        (("--groups", "4000"), "could not be started until then are held"),
        (("--groups", "100000"), "Looking at groups takes"),
    ],
)
def test_it_names_the_next_limit(words: tuple[str, ...], limit: str) -> None:
    assert limit in failover("capacity", *words).stderr


def test_no_more_groups_fail_than_there_are() -> None:
    few = ("--groups", "10", "--failing")
    assert asked(*few, "99") == asked(*few, "10")


@pytest.mark.parametrize("words", [("--groups", "0"), ("--groups", "5", "--volumes", "many")])
def test_numbers_that_make_no_sense_are_refused(words: tuple[str, ...]) -> None:
    answer = failover("capacity", *words)

    assert answer.returncode == 2
    assert "it must be a whole number from 1" in answer.stderr
