# SPDX-License-Identifier: Apache-2.0
"""Which member a rehearsal is on: each that may have to take over in turn, for each of its roles.
On the real engine with an emulated cloud."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from mistral_lib.actions import Result
from mistral_lib.actions.context import ActionContext, ExecutionContext, SecurityContext

from mistral_failover.actions import orders, rehearsals, reports
from mistral_failover.cli import status_screen
from mistral_failover.lab.emulator.client import EmulatorClient
from mistral_failover.lab.testing.workflows import Workflows
from support.activation import done
from support.waiting import until

THREE = ("db_a", "db_b", "db_c")
LEFT, RIGHT = {"get_param": "left"}, {"get_param": "right"}
HOUSE = """
version: '2.0'
house.told:
  input: [event]
  output:
    event: <% $.event %>
  tasks:
    note: {action: std.noop}
"""


def context() -> ActionContext:
    return ActionContext(SecurityContext(), ExecutionContext())


def refusal(group: Any, **asked: Any) -> dict[str, Any]:
    """Why an order is refused."""
    found = orders.Rehearse(group.name, **asked).run(context())
    assert isinstance(found, Result)
    return dict(found.error)


def rehearse(group: Any, **more: Any) -> dict[str, Any]:
    """The outcome of a rehearsal."""
    run = group.run("rehearse", group=group.name, **more)
    assert run.output.get("outcome"), run.output
    return dict(run.output["outcome"])


def previewed(group: Any, **asked: Any) -> dict[str, str]:
    """The roles of the next rehearsal."""
    planned = done(rehearsals.PreviewRehearsal(group.name, **asked).run(context()))
    return dict(planned["roles"])


def members(group: Any) -> dict[tuple[str, str], str | None]:
    """What status says of each member and role."""
    rows = group.status()["rehearsal"]["members"]
    return {(row["member"], row["role"]): row["status"] for row in rows}


@pytest.fixture
def each(protect: Callable[..., Any]) -> Any:
    """A group that is up on db_a, and whose two standbys are rehearsed in turn."""
    made = protect(servers=THREE, rehearsal={"members": "each"})
    made.activate()
    return made


@pytest.fixture
def shared(protect: Callable[..., Any], cloud: EmulatorClient) -> Any:
    """As of :func:`share`, in which each member is rehearsed."""
    return share(protect, cloud, "each")


def share(protect: Callable[..., Any], cloud: EmulatorClient, members: str) -> Any:
    """A group with two roles, left on db_a and right on db_b, each with an application and a check;
    db_c has none."""
    # Of every guest, because a group file names only commands that the agents know.
    cloud.add_application(
        "right", start="start_right", stop="stop_right", checks=["look_right"], told_only=True
    )
    checks = [{"command": "look_left", "role": "left"}, {"command": "look_right", "role": "right"}]
    made = protect(
        {
            "data": {
                "type": "volume_attachment",
                "properties": {"volume": "data_volume", "server": LEFT},
            },
            "left_app": {
                "type": "activation",
                "depends_on": "data",
                "properties": {
                    "member": LEFT,
                    "start": "start",
                    "stop": "stop",
                    "device": {"get_attr": ["data", "device"]},
                },
            },
            "right_app": {
                "type": "activation",
                "properties": {
                    "member": RIGHT,
                    "start": "start_right",
                    "stop": "stop_right",
                    "peer": LEFT,
                },
            },
        },
        servers=THREE,
        roles={"left": {"prefer": ["db_a"]}, "right": {"prefer": ["db_b"]}},
        rehearsal={"members": members, "checks": checks},
    )
    cloud.add_application(
        made.name,
        start="start",
        stop="stop",
        checks=["look_left"],
        needs_volume=True,
        told_only=True,
        stack=made.name,
    )
    made.activate()
    assert made.status()["roles"] == {"left": "db_a", "right": "db_b"}
    return made


def test_members_are_rehearsed_in_turn_and_status_says_when_each_was(each: Any) -> None:
    assert members(each) == {("db_b", "active"): None, ("db_c", "active"): None}
    assert "db_c: never" in status_screen.facts(each.status())["rehearsed"]

    assert rehearse(each)["roles"] == {"active": "db_b"}
    assert members(each) == {("db_b", "active"): "PASSED", ("db_c", "active"): None}
    assert rehearse(each)["roles"] == {"active": "db_c"}
    assert previewed(each) == {"active": "db_b"}

    assert rehearse(each, to="db_c")["roles"] == {"active": "db_c"}, "the operator chooses"
    assert members(each) == {("db_b", "active"): "PASSED", ("db_c", "active"): "PASSED"}
    shown = status_screen.facts(each.status())["rehearsed"].splitlines()
    assert [line.partition(":")[0] for line in shown[1:]] == ["db_b", "db_c"]


def test_without_each_it_is_always_the_one_that_a_failover_would_choose(
    protect: Callable[..., Any],
) -> None:
    group = protect(servers=THREE)
    group.activate()
    assert [rehearse(group)["roles"] for _ in range(2)] == [{"active": "db_b"}] * 2
    assert members(group) == {("db_b", "active"): "PASSED"}


def test_a_member_that_cannot_be_rehearsed_now_keeps_no_other_from_its_turn(each: Any) -> None:
    each.cloud.fault("server", each.server("db_b"), "not_isolated")
    until(lambda: previewed(each) == {"active": "db_c"}, "db_b was never passed over")
    assert refusal(each, to="db_b")["code"] == "NOT_REHEARSABLE"

    assert rehearse(each)["status"] == "PASSED"

    assert members(each)["db_b", "active"] is None
    each.cloud.fault("server", each.server("db_b"), "repaired")
    until(lambda: previewed(each) == {"active": "db_b"}, "it never got its turn again")


def test_one_that_failed_is_told_until_it_passes_there_and_not_on_another_one(each: Any) -> None:
    each.cloud.fault("server", each.server("db_b"), "denied")
    assert rehearse(each)["status"] == "FAILED"
    each.cloud.fault("server", each.server("db_b"), "repaired")
    assert rehearse(each)["roles"] == {"active": "db_c"}

    seen = each.observed()
    assert (seen["status"], "db_b failed" in str(seen["reasons"])) == ("DEGRADED", True)
    command = f"failover rehearse {each.name} --role active --to db_b"
    assert command in str(done(reports.Status(each.name).run(context())))
    rows = done(reports.Metrics().run(context()))["families"]["rehearsal_ok"]
    mine = {r["labels"]["member"]: r["value"] for r in rows if r["labels"]["group"] == each.name}
    assert mine == {"db_b": 0, "db_c": 1}

    assert rehearse(each, role="active", to="db_b")["status"] == "PASSED"
    assert each.observed()["status"] == "SERVING"


def test_each_member_takes_each_role_that_it_may_have_to_take(shared: Any) -> None:
    wanted = {("left", "db_b"), ("left", "db_c"), ("right", "db_a"), ("right", "db_c")}
    found = []
    for _ in wanted:
        outcome = rehearse(shared)
        assert outcome["status"] == "PASSED", outcome["reason"]
        found += outcome["roles"].items()
        (check,) = outcome["report"]["checks"]
        ((role, member),) = outcome["roles"].items()
        assert (check["role"], check["member"]) == (role, member)
        assert check["command"] == f"look_{role}", "that of the other role is not run"

    assert sorted(found) == sorted(wanted)
    assert set(members(shared).values()) == {"PASSED"}
    assert "db_c as right: " in status_screen.facts(shared.status())["rehearsed"]


def test_the_losses_of_several_holders_are_rehearsed_in_turn(
    protect: Callable[..., Any], cloud: EmulatorClient
) -> None:
    group = share(protect, cloud, "chosen")
    found = [list(rehearse(group)["roles"]) for _ in range(3)]
    assert found == [["left"], ["right"], ["left"]]


def test_one_role_may_be_named_and_a_loss_and_a_role_must_agree(shared: Any) -> None:
    assert previewed(shared, role="right", to="db_a") == {"right": "db_a"}
    assert previewed(shared, member="db_b") == {"right": "db_a"}
    assert previewed(shared, to="db_a") == {"right": "db_a"}, "it cannot take over from itself"
    assert "left of" in refusal(shared, role="left", member="db_b")["message"]
    assert "role: middle" in refusal(shared, role="middle")["message"]


def test_several_roles_of_a_lost_member_go_where_a_failover_gives_them(shared: Any) -> None:
    assert shared.run("switchover", group=shared.name, role="right", to="db_a").state == "SUCCESS"
    assert shared.status()["roles"] == {"left": "db_a", "right": "db_a"}
    shared.cloud.fault("server", shared.server("db_c"), "denied")

    outcome = rehearse(shared, role="left", to="db_b")

    assert outcome["roles"] == {"left": "db_b", "right": "db_b"}
    assert outcome["status"] == "PASSED", outcome["reason"]
    places = {(step["member"], step["role"]) for step in outcome["report"]["steps"]}
    assert {("db_b", "left"), ("db_b", "right")} < places
    outcome = rehearse(shared, role="left", to="db_c")
    assert (outcome["roles"]["left"], outcome["status"]) == ("db_c", "FAILED")
    shared.cloud.fault("server", shared.server("db_c"), "repaired")
    failed = {place for place, status in members(shared).items() if status == "FAILED"}
    assert {member for member, _ in failed} == {"db_c"}, "the others are not to blame"


def test_a_group_of_one_server_is_told_why_it_cannot_be_rehearsed(
    protect: Callable[..., Any],
) -> None:
    group = protect(servers=("db_a",))
    group.activate()
    found = refusal(group)
    assert found["code"] == "NO_STANDBY"
    assert "db_a is its only member" in found["message"]


@pytest.mark.parametrize(
    ("how", "event"), [("repaired", "rehearsal_passed"), ("denied", "rehearsal_failed")]
)
def test_a_workflow_of_the_group_s_own_is_told_how_it_ended(
    protect: Callable[..., Any], pack: Workflows, how: str, event: str
) -> None:
    pack.load(HOUSE)
    group = protect(on_event={"workflow": "house.told", "events": [event]})
    group.activate()
    group.cloud.fault("server", group.server("db_b"), how)
    rehearse(group)
    group.cloud.fault("server", group.server("db_b"), "repaired")

    def told() -> list[dict[str, Any]]:
        runs = [each for each in pack.executions() if each.name == "house.told"]
        return [each.output["event"] for each in runs if each.state == "SUCCESS"]

    until(lambda: bool(told()), "the workflow was never started")
    (found,) = told()
    assert (found["group"], found["event"]) == (group.name, event)
    assert "active on db_b" in found["sentence"]
