# SPDX-License-Identifier: Apache-2.0
"""No other member can take a role: the lost one comes back with a new server and takes it again.

On the real engine with an emulated cloud. The order never changes: proof, release, new server,
attach, start.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from support.operators import Operator
from support.waiting import until

PROOF, RELEASE, NEW, BACK = "Fence db_a", "Detach data", "Replace db_a", "Start database on db_a"


@pytest.fixture
def single(protect: Callable[..., Any]) -> Any:
    """One server, up."""
    group = protect(servers=("db_a",), members={"servers": ["db_a"], "replace": "lost"})
    group.activate()
    return group


def patiently(group: Any, workflow: str, /, **inputs: Any) -> Any:
    """Run a shipped workflow to its end, which may take a while on a slow machine."""
    return group.workflows.wait(group.start(workflow, **inputs), timeout=90)


def test_the_only_server_comes_back_as_another_one(single: Any) -> None:
    former, before = single.server("db_a"), len(single.told("done"))

    patiently(single, "on_alarm", **single.fails("crash", "db_a")).assert_succeeded()

    assert single.server("db_a") != former
    assert (single.holders(), single.runs_on()) == (["db_a"], ["db_a"])
    status = single.status()
    assert (status["roles"], status["lost"]) == ({"active": "db_a"}, [])
    assert status["status"] == "COMPLETE"
    order = [line.removesuffix(": done") for line in single.told("done")[before:]]
    steps = [order.index(next(o for o in order if o.startswith(s))) for s in (PROOF, RELEASE, NEW)]
    assert steps == sorted(steps)
    assert order.index(NEW) < order.index(BACK)
    assert single.cloud.violations() == []


def test_it_is_down_until_then_and_says_why(single: Any) -> None:
    former = single.server("db_a")
    single.cloud.api_fault("stack_patch", status=503, times=10_000)

    execution = single.start("on_alarm", **single.fails("crash", "db_a"))
    until(lambda: any(line.startswith(RELEASE) for line in single.told("done")))

    status = single.status()
    assert (status["roles"], status["lost"], status["status"]) == ({}, ["db_a"], "IN_PROGRESS")
    assert status["service"]["status"] == "DOWN"
    assert status["service"]["reasons"][0] == "no member holds active"
    assert former in {m["server"] for m in status["members"]}
    single.cloud.clear_api_faults()
    single.workflows.wait(execution, timeout=90).assert_succeeded()


def test_the_last_of_two_comes_back(protect: Callable[..., Any]) -> None:
    group = protect(members={"servers": ["db_a", "db_b"], "replace": "lost"})
    group.activate()
    group.run("failover", group=group.name, lost=["db_a"]).assert_succeeded()
    assert group.runs_on() == ["db_b"]

    patiently(group, "on_alarm", **group.fails("crash", "db_b")).assert_succeeded()

    assert group.runs_on() == group.holders() == ["db_b"]
    assert group.status()["lost"] == ["db_a"], "nobody said that it is well"
    assert group.cloud.violations() == []


def test_a_standby_that_is_well_again_takes_the_role_before_the_new_server(
    protect: Callable[..., Any],
) -> None:
    group = protect(members={"servers": ["db_a", "db_b"], "replace": "lost"})
    group.activate()
    person = Operator(group.cloud)
    person.stop_server(group.server("db_b"))
    execution = group.start("on_alarm", **group.fails("crash", "db_a"))
    until(lambda: "Fence db_a: done" in group.told("done"))

    person.start_server(group.server("db_b"))

    group.workflows.wait(execution, timeout=90).assert_succeeded()
    assert group.status()["lost"] == []
    assert group.runs_on() == group.holders()
    assert group.cloud.violations() == []


def test_a_group_that_waits_for_a_standby_replaces_nothing(protect: Callable[..., Any]) -> None:
    members = {"servers": ["db_a"], "replace": "lost", "when_no_standby": "wait"}
    group = protect(servers=("db_a",), members=members)
    group.activate()
    former = group.server("db_a")

    run = patiently(group, "on_alarm", **group.fails("crash", "db_a"))

    run.assert_failed_with("NO_ELIGIBLE_MEMBER")
    assert group.server("db_a") == former


def test_an_operator_can_order_it(single: Any) -> None:
    former = single.server("db_a")
    single.fails("crash", "db_a")

    patiently(single, "failover", group=single.name, lost=["db_a"]).assert_succeeded()

    assert single.server("db_a") != former
    assert single.runs_on() == ["db_a"]


def test_a_person_can_replace_it_where_the_group_waits(protect: Callable[..., Any]) -> None:
    group = protect(servers=("db_a",))
    group.activate()
    former = group.server("db_a")
    group.fails("crash", "db_a")
    patiently(group, "failover", group=group.name, lost=["db_a"]).assert_failed_with(
        "NO_ELIGIBLE_MEMBER"
    )

    Operator(group.cloud).reset_server(former, "error")
    patiently(group, "replace_member", group=group.name, member="db_a").assert_succeeded()

    assert group.server("db_a") != former
    assert group.runs_on() == group.holders() == ["db_a"]


def test_a_server_that_somebody_deleted_comes_back(single: Any) -> None:
    alarm = single.fails("crash", "db_a")
    Operator(single.cloud).delete_server(single.server("db_a"))

    patiently(single, "on_alarm", **alarm).assert_succeeded()

    assert single.runs_on() == single.holders() == ["db_a"]
    assert single.cloud.violations() == []


def test_the_plan_says_so_before(single: Any) -> None:
    plan = single.plan(lost=["db_a"])

    assert "active waits for a new server" in plan["sentence"]
    assert [step["what"] for step in plan["steps"]][-1] == "Replace db_a"


def test_it_can_happen_again(single: Any) -> None:
    for _ in range(2):
        patiently(single, "failover", group=single.name, lost=["db_a"]).assert_succeeded()

    assert single.runs_on() == single.holders() == ["db_a"]
    assert {m["epoch"] for m in single.status()["members"]} == {5}
    assert single.cloud.violations() == []
