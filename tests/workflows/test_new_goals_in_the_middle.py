# SPDX-License-Identifier: Apache-2.0
"""A newer goal arrives while an operation of an older one runs: each ends at the newest."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytestmark = pytest.mark.faults

SLOW = 0.4
ATTACHING = "Attach data to db_b: started"
DETACHING = "Detach data from db_a: started"
STARTING = "Start database on db_b: started"
PATCHING = "Update the stack (routing): started"


@pytest.fixture(autouse=True)
def slowly(cloud: Any) -> Iterator[None]:
    """Operations take long enough for something to happen meanwhile."""
    cloud.set_latency(attach=SLOW, detach=SLOW, command_start=SLOW, stack_patch=SLOW)
    yield
    cloud.set_latency(attach=0, detach=0, command_start=0, stack_patch=0)


def moving_to_b(group: Any, until: str) -> str:
    """Start moving a group that is up to db_b; returns when the journal says so."""
    group.activate()
    before = group.told().count(until)
    execution = group.start("failover", group=group.name, to="db_b", lost=[])
    group.wait_until_told(until, times=before + 1)
    return str(execution)


def at_rest(group: Any, member: str | None) -> None:
    """Everything is on one member, or nowhere; no worker is active, nothing is left over."""
    assert group.status()["status"] == "COMPLETE"
    where = [member] if member else []
    assert (group.holders(), group.runs_on()) == (where, where)
    status = group.status()
    assert status["under_way"] == []
    assert {row["goal"] for row in status["resources"]} <= {status["goal"]}
    assert group.cloud.violations() == []


MOMENTS = (DETACHING, ATTACHING, STARTING, PATCHING)
BACK = {"to": "db_a", "lost": []}


@pytest.mark.parametrize(
    ("order", "more", "moment", "where"),
    [
        *(("failover", BACK, moment, "db_a") for moment in MOMENTS),
        ("rollback", {}, ATTACHING, "db_a"),  # at other moments as well: a goal like any other
        *(("remove", {}, moment, None) for moment in MOMENTS),
    ],
)
def test_the_newest_goal_wins_whatever_is_under_way(
    group: Any, order: str, more: dict[str, Any], moment: str, where: str | None
) -> None:
    first = moving_to_b(group, moment)

    group.ended(group.start(order, group=group.name, **more)).assert_succeeded()

    group.ended(first)
    group.run("sweep").assert_succeeded()
    at_rest(group, where)


@pytest.mark.parametrize("moment", [ATTACHING, STARTING])
def test_a_target_that_dies_in_the_middle_is_fenced_and_another_takes_over(
    protect: Callable[..., Any], moment: str
) -> None:
    group = protect(servers=("db_a", "db_b", "db_c"), limits={"cooldown": 0})
    first = moving_to_b(group, moment)

    alarm = group.start("on_alarm", **group.fails("crash", "db_b"))

    group.ended(alarm)
    group.ended(first)
    group.run("sweep").assert_succeeded()
    assert group.status()["lost"] == ["db_b"]
    at_rest(group, group.status()["roles"]["active"])
