# SPDX-License-Identifier: Apache-2.0
"""A failover failed, or is blocked, and what stopped it is over: a sweep tries it again, and the
group reaches the goal that it had. Until then it keeps its state, and says since when."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from mistral_lib.actions.context import ActionContext, ExecutionContext, SecurityContext

from mistral_failover.actions import members, suspensions
from mistral_failover.convergence import conclude
from support.looks import observe
from support.operators import Operator

pytestmark = pytest.mark.faults

STOPS = [{"kind": "stop", "limit": 0.5}, "confirm"]


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What has stopped is tried again by each sweep."""
    monkeypatch.setattr(conclude, "next_look", lambda _since, now: now)


@pytest.fixture
def patch_fails(protect: Callable[..., Any], cloud: Any) -> Callable[..., Any]:
    """Make a group whose failover FAILED, because Heat failed the update of its stack."""

    def make(times: int = 1, **more: Any) -> Any:
        group = protect(**{"limits": {"cooldown": 0}, **more})
        group.activate()
        cloud.api_fault("stack_patch", "fail", times=times)
        group.fails("crash")
        group.run("failover", group=group.name, lost=["db_a"]).assert_failed_with("FAILED")
        assert group.status()["status"] == "FAILED"
        return group

    return make


@pytest.fixture
def unproven(protect: Callable[..., Any], cloud: Any) -> Any:
    """A group that is BLOCKED: the host of the lost member is out of Nova's reach."""
    group = protect(limits={"cooldown": 0}, fence=STOPS)
    group.activate()
    group.fails("compute_down")
    group.run("failover", group=group.name, lost=["db_a"]).assert_failed_with("BLOCKED")
    return group


def sweep(of: Any, **which: Any) -> None:
    """Run the sweep of the project, as a cron trigger does, or of one group."""
    of.run("sweep", **which).assert_succeeded()


def settled(group: Any) -> None:
    status = group.status()
    assert (status["status"], status["reason"]) == ("COMPLETE", "")
    assert status["roles"] == {"active": "db_b"}
    assert (group.holders(), group.runs_on()) == (["db_b"], ["db_b"])
    assert status["failure"] is None


@pytest.mark.usefixtures("at_once")
def test_a_step_that_failed_is_tried_again_by_a_sweep(patch_fails: Callable[..., Any]) -> None:
    group = patch_fails()

    sweep(group)

    settled(group)
    assert group.observed()["status"] == "DEGRADED", "db_a is lost still"
    assert len(group.traversals()) == 2, "it is the same failover"


def test_it_is_not_tried_again_before_its_time_unless_an_operator_asks(
    patch_fails: Callable[..., Any],
) -> None:
    group = patch_fails()

    sweep(group)
    assert group.status()["status"] == "FAILED"

    sweep(group, group=group.name)
    settled(group)


@pytest.mark.usefixtures("at_once")
def test_a_fence_proves_itself_when_the_host_is_back(unproven: Any) -> None:
    host = unproven.cloud.guests()[unproven.server("db_a")]["host"]
    unproven.cloud.fault("host", host, "revive")

    sweep(unproven)

    settled(unproven)


@pytest.mark.usefixtures("at_once")
def test_a_try_that_fails_changes_neither_the_state_nor_since_when(
    patch_fails: Callable[..., Any], cloud: Any
) -> None:
    group = patch_fails(times=100)
    before = group.status()

    for _ in range(2):
        sweep(group)

    after = group.status()
    for key in ("status", "reason"):
        assert after[key] == before[key]
    assert after["traversal"]["ended_at"] == before["traversal"]["ended_at"]
    assert group.told().count("Failed: the goal was not reached") == 1, "one event, not one a try"
    cloud.clear_api_faults()
    sweep(group)
    settled(group)


@pytest.mark.usefixtures("at_once")
def test_a_fence_that_stays_unproven_is_blocked_since_the_first_time(unproven: Any) -> None:
    before = unproven.status()

    sweep(unproven)

    after = unproven.status()
    assert after["status"] == "BLOCKED"
    assert after["traversal"] == before["traversal"]
    assert len(unproven.told("blocked")) == 1
    assert [row["member"] for row in after["remedies"]] == ["db_a"]


def conditions(group: Any) -> dict[str, str]:
    """How the server of each member was found."""
    return {row["name"]: row["condition"] for row in group.status()["members"]}


def test_a_group_that_waits_for_a_person_is_looked_at_all_the_same(
    unproven: Any, operator: Operator
) -> None:
    before = unproven.status()
    told = unproven.told()
    observe(unproven)
    assert conditions(unproven) == {"db_a": "runs", "db_b": "runs"}

    operator.stop_server(unproven.server("db_b"))
    observe(unproven)

    assert conditions(unproven) == {"db_a": "runs", "db_b": "stopped"}
    after = unproven.status()
    assert after["service"]["status"] == "DOWN"
    assert after["service"]["reasons"] == before["service"]["reasons"]
    assert after["service"]["since"] == before["service"]["since"]
    assert after["service"]["seen_at"] > before["since"]
    assert (after["status"], after["since"]) == ("BLOCKED", before["since"])
    assert unproven.told() == told, "its failover has told that it is down"


def test_the_question_before_a_confirmation_is_short_whatever_it_waits_for(unproven: Any) -> None:
    found = members.Evidence(unproven.name, "db_a").run(
        ActionContext(SecurityContext(), ExecutionContext())
    )

    assert len(found["sentence"].split()) <= 40, found
    assert "two servers write to one volume" in found["sentence"]
    assert "does not give data away" in found["afterwards"]


@pytest.mark.usefixtures("at_once")
def test_what_a_look_found_while_a_group_waited_is_over_when_it_serves(unproven: Any) -> None:
    observe(unproven)
    host = unproven.cloud.guests()[unproven.server("db_a")]["host"]
    unproven.cloud.fault("host", host, "revive")

    unproven.run("sweep").assert_succeeded()

    settled(unproven)
    found = unproven.status()["service"]
    assert found["status"] == "DEGRADED", (found, "db_a is lost still, and db_b serves")
    assert not [each for each in found["reasons"] if "not in service" in each]


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("policy", ["report", "pause"])
def test_what_failed_is_left_to_an_operator_if_the_group_says_so(
    patch_fails: Callable[..., Any], policy: str
) -> None:
    group = patch_fails(heal="report" if policy == "report" else "repair")
    if policy == "pause":
        context = ActionContext(SecurityContext(), ExecutionContext())
        suspensions.Pause(group.name, because="we look at it").run(context)

    sweep(group)
    assert group.status()["status"] == "FAILED"

    sweep(group, group=group.name)
    settled(group)
