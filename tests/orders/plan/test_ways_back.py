# SPDX-License-Identifier: Apache-2.0
"""A plan tells how a lost member comes back: by which ways, after which proof, and how long each
took before."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from mistral_failover.actions import orders
from mistral_failover.cli.plan import _readable

SINGLE = {"servers": ["db_a"], "replace": "lost"}


@pytest.fixture
def single(protect: Callable[..., Any]) -> Callable[..., Any]:
    """Make a group of one server, up."""

    def make(restart: list[str], fence: list[Any]) -> Any:
        members = {**SINGLE, "restart": restart}
        group = protect(("db_a",), members=members, fence=fence)
        group.order(orders.Begin(group.name, lost=[]))
        return group

    return make


def ways(group: Any) -> list[tuple[str, list[str] | None]]:
    (row,) = group.plan(lost=["db_a"])["ways_back"]
    assert (row["member"], row["server"]) == ("db_a", group.server("db_a"))
    return [(each["way"], each["after"]) for each in row["ways"]]


def test_an_evacuation_is_planned_after_a_proof_that_the_host_is_off(
    single: Callable[..., Any],
) -> None:
    group = single(["start", "evacuate", "replace"], [{"kind": "quiesce", "limit": 1}, "confirm"])

    assert ways(group) == [("start", ["quiesce"]), ("evacuate", ["confirm"]), ("replace", None)]
    (row,) = group.plan(lost=["db_a"])["ways_back"]
    evacuation = row["ways"][1]
    assert evacuation["longest"] == 480
    assert evacuation["expected"] is None
    # Another group of the project may have been started before.
    assert re.sub(r"took \d+ s before", "never done before", row["sentence"]) == (
        "db_a comes back: start (Nova starts the same server, after quiesce; never done before, "
        "300 s at most); otherwise evacuate (Nova makes the same server again on another host, "
        "off, and starts it, after confirm; never done before, 480 s at most); otherwise replace "
        "(Heat makes another server; never done before)"
    )


@pytest.mark.parametrize("asks", ["stop", "delete"])
def test_no_evacuation_is_planned_behind_a_rung_that_asks_nova(
    single: Callable[..., Any], asks: str
) -> None:
    group = single(["evacuate", "replace"], [asks, "confirm"])

    assert ways(group) == [("evacuate", []), ("replace", None)]
    assert "evacuate (not after this fence)" in _readable(group.plan(lost=["db_a"]))["brought back"]


def test_the_next_plan_tells_how_long_the_way_took(single: Callable[..., Any]) -> None:
    group = single(["start", "replace"], [{"kind": "stop", "limit": 30}, "confirm"])
    group.order(orders.Begin(group.name, lost=["db_a"]))
    assert [each["found"] for each in group.status()["restarts"]] == ["start"]

    (row,) = group.plan(lost=["db_a"])["ways_back"]

    took = {each["way"]: each["expected"] for each in row["ways"]}
    assert took["start"] is not None
    assert took["replace"] is None
    assert "took 0 s before" in row["sentence"]


def test_nobody_comes_back_where_a_standby_takes_over(group: Any) -> None:
    plan = group.plan()

    assert plan["ways_back"] == []
    assert "brought back" not in _readable(plan)
