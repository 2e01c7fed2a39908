# SPDX-License-Identifier: Apache-2.0
"""Rolling back and removing, on the real engine with an emulated cloud."""

from __future__ import annotations

from typing import Any

import pytest
import requests
from mistral_lib.actions.context import ActionContext, ExecutionContext, SecurityContext

from mistral_failover.actions import orders, reports


def context(execution: str | None = None) -> ActionContext:
    return ActionContext(SecurityContext(), ExecutionContext(workflow_execution_id=execution))


def switch(group: Any, to: str) -> None:
    group.run("failover", group=group.name, to=to, lost=[]).assert_succeeded()


def goals(group: Any) -> list[dict[str, Any]]:
    """What failover.goals lists."""
    listed: list[dict[str, Any]] = reports.Goals(group.name).run(context())
    return listed


def test_a_rollback_goes_to_the_goal_before_or_to_a_named_one(group: Any) -> None:
    group.activate()
    home = group.status()["goal"]
    switch(group, "db_b")
    # What the group had, and how it differs.
    newer, older = goals(group)
    assert newer["roles"] == {"active": "db_b"}
    assert (newer["current"], newer["last_complete"]) == (True, True)
    assert (older["roles"], older["current"]) == ({"active": "db_a"}, False)
    compare = reports.CompareGoals(group.name, older["version"][:7], newer["version"])
    compared = compare.run(context())
    assert compared["lines"][0] == "~ roles.active: db_a -> db_b"
    assert compared["from"] == older["version"]

    run = group.run("rollback", group=group.name).assert_succeeded()

    assert run.output["outcome"]["status"] == "COMPLETE"
    assert run.output["begun"]["goal"] == home
    assert (group.holders(), group.runs_on()) == (["db_a"], ["db_a"])

    group.run("rollback", group=group.name).assert_succeeded()

    assert group.holders() == ["db_b"]

    group.run("rollback", group=group.name, goal=home[:8]).assert_succeeded()

    assert group.status()["goal"] == home
    assert group.cloud.violations() == []


def test_a_role_holder_on_whom_nothing_is_may_be_named_when_the_group_goes(protect: Any) -> None:
    routing = {"type": "stack_parameters", "properties": {"parameters": {"active": "me"}}}
    group = protect({"routing": routing})
    group.activate()

    run = group.run("remove", group=group.name, lost=["db_a"]).assert_succeeded()

    assert run.output["outcome"]["status"] == "COMPLETE"


def test_after_a_failed_failover_it_is_the_last_goal_that_was_reached(group: Any) -> None:
    group.activate()
    home = group.status()["goal"]
    group.cloud.api_fault("stack_patch", "fail")
    group.run("failover", group=group.name, to="db_b", lost=[]).assert_failed_with("FAILED")

    group.run("rollback", group=group.name).assert_succeeded()

    assert group.status()["goal"] == home
    assert (group.holders(), group.runs_on()) == (["db_a"], ["db_a"])


def test_nothing_goes_back_to_a_lost_member_unless_somebody_vouches_for_it(group: Any) -> None:
    group.activate()
    group.run("on_alarm", **group.fails("app")).assert_succeeded()

    refused = group.run("rollback", group=group.name)
    refused.assert_failed_with("INVALID_DOCUMENT")
    assert "add --recovered" in refused.output["error"]["remedy"]
    assert group.holders() == ["db_b"]

    group.run("rollback", group=group.name, recovered=["db_a"]).assert_succeeded()

    assert (group.holders(), group.runs_on()) == (["db_a"], ["db_a"])
    assert group.status()["lost"] == []


def test_nothing_goes_back_to_a_member_that_can_not_serve(group: Any) -> None:
    group.activate()
    switch(group, "db_b")
    # A dead host alone is not shown to a project's own user; a server that is off is.
    server = f"{group.cloud.url}/compute/v2.1/servers/{group.server('db_a')}"
    headers = {"X-Auth-Token": group.cloud.token()}
    requests.post(f"{server}/action", json={"os-stop": None}, headers=headers, timeout=5)

    run = group.run("rollback", group=group.name)

    run.assert_failed_with("NO_ELIGIBLE_MEMBER")
    assert group.holders() == ["db_b"]


@pytest.mark.parametrize(
    ("goal", "code"), [("0123", "BAD_INPUT"), ("0" * 12, "UNKNOWN_GOAL"), (7, "BAD_INPUT")]
)
def test_a_goal_that_is_not_there_is_refused(group: Any, goal: Any, code: str) -> None:
    group.activate()

    group.run("rollback", group=group.name, goal=goal).assert_failed_with(code)


def test_a_group_that_reached_one_goal_only_has_nothing_to_go_back_to(group: Any) -> None:
    group.run("rollback", group=group.name).assert_failed_with("NOTHING_TO_RETURN_TO")
    group.activate()
    run = group.run("rollback", group=group.name).assert_failed_with("NOTHING_TO_RETURN_TO")
    assert f"failover goals {group.name}" in str(run.output)


def test_a_rollback_that_is_delivered_twice_goes_back_once(group: Any) -> None:
    group.activate()
    switch(group, "db_b")

    first = orders.Rollback(group.name).run(context("the-same-execution"))
    again = orders.Rollback(group.name).run(context("the-same-execution"))

    assert first["traversal"] == again["traversal"]
    assert group.status()["roles"] == {"active": "db_a"}


def test_a_group_whose_member_crashed_is_removed_under_its_fence(group: Any) -> None:
    group.activate()
    group.fails("crash")

    group.run("remove", group=group.name, lost=["db_a"]).assert_succeeded()

    assert (group.holders(), group.runs_on()) == ([], [])
    assert [row["type"] for row in group.status()["resources"]] == ["fence"]
    group.run("remove", group=group.name, lost=["db_b"]).assert_failed_with("UNKNOWN_MEMBER")


@pytest.mark.parametrize("way", ["activate_first", "rollback"])
def test_a_removed_group_can_be_brought_up_again(group: Any, way: str) -> None:
    group.activate()
    group.run("remove", group=group.name).assert_succeeded()

    group.run(way, group=group.name).assert_succeeded()

    assert (group.holders(), group.runs_on()) == (["db_a"], ["db_a"])


def test_a_removed_group_runs_nowhere_and_an_alarm_about_it_starts_nothing(group: Any) -> None:
    group.activate()

    removed = group.run("remove", group=group.name).assert_succeeded()

    assert removed.output["outcome"]["status"] == "COMPLETE"
    assert (group.holders(), group.runs_on()) == ([], [])
    status = group.status()
    assert (status["roles"], status["resources"]) == ({}, [])

    run = group.run("on_alarm", **group.fails("app")).assert_succeeded()

    assert run.output["admission"]["decision"] == "IGNORED"
    assert (group.holders(), group.runs_on()) == ([], [])
