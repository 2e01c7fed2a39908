# SPDX-License-Identifier: Apache-2.0
"""Planned moves on the real engine with an emulated cloud: they arrive, or they come back."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from mistral_lib.actions import Result
from mistral_lib.actions.context import ActionContext, ExecutionContext, SecurityContext

from mistral_failover.actions import orders, recovery
from mistral_failover.convergence.records import Outcome
from mistral_failover.groups import agent_health
from mistral_failover.model.types import installed_types
from support.operators import Operator
from support.volume_group import ACTIVE, DATA
from support.waiting import until

COMMANDS = {"member": ACTIVE, "start": "start", "stop": "stop"}


def quick(name: str, **seconds: int) -> dict[str, Any]:
    """A shipped type under another name, whose operations may take these times."""
    document = installed_types()[name].to_dict()
    document["name"] = f"quick_{name}"
    for verb, limit in seconds.items():
        document["operations"][verb]["timeout"] = limit
    return document


def database(kind: str = "activation", **properties: Any) -> dict[str, Any]:
    """The application on the volume."""
    return {"type": kind, "depends_on": "data", "properties": {**COMMANDS, **properties}}


def impatiently(protect: Callable[..., Any], **seconds: int) -> Any:
    """A group whose stop is waited for a second, and its start so many; it is up on db_a."""
    kind = quick("activation", **{"create": 1, "delete": 1, **seconds})
    group = protect({"data": DATA, "database": database(kind["name"])}, types=[kind])
    group.activate()
    return group


@pytest.fixture
def impatient(protect: Callable[..., Any]) -> Any:
    """A group whose commands are waited for a second, and that is up on db_a."""
    return impatiently(protect)


@pytest.fixture
def slowly(up: Any) -> Iterator[Any]:
    """Stopping takes so long that something may happen meanwhile."""
    up.cloud.set_latency(command_stop=0.6)
    yield up
    up.cloud.set_latency(command_stop=0)


@pytest.fixture
def up(group: Any) -> Any:
    """A group that is up on db_a."""
    group.activate()
    return group


def switch(group: Any, **more: Any) -> Any:
    return group.run("switchover", group=group.name, **more)


def at(group: Any) -> tuple[list[str], list[str]]:
    """Who has the volume, and on whom the application runs."""
    return group.holders(), group.runs_on()


# -- it arrives


def test_a_planned_move_quiesces_detaches_attaches_and_starts_and_fences_no_member(up: Any) -> None:
    run = switch(up, to="db_b").assert_succeeded()

    outcome = run.output["outcome"]
    assert (outcome["status"], outcome["reason"]) == ("COMPLETE", "moved: active on db_b")
    assert (outcome["roles"], outcome["lost"]) == ({"active": "db_b"}, [])
    assert at(up) == (["db_b"], ["db_b"])
    assert [member["epoch"] for member in up.status()["members"]] == [1, 1]
    assert not any("Fence" in sentence for sentence in up.told())

    switch(up).assert_succeeded()

    assert at(up) == (["db_a"], ["db_a"]), "and back again"
    assert up.cloud.violations() == []


def test_without_a_target_the_group_chooses_among_the_others(protect: Callable[..., Any]) -> None:
    group = protect(servers=("db_a", "db_b", "db_c"))
    group.activate()
    stop(group, "db_b")

    switch(group).assert_succeeded()

    assert group.status()["roles"] == {"active": "db_c"}


def test_a_move_to_whom_it_is_on_already_does_nothing_and_says_so(up: Any) -> None:
    run = switch(up, to="db_a").assert_succeeded()

    assert run.output["begun"]["sentence"] == "db_a already holds active: nothing to do"
    assert len(up.traversals()) == 1


def test_nothing_moves_away_from_whom_another_member_has_followed_by_then(up: Any) -> None:
    run = switch(up, holder="db_b").assert_succeeded()

    assert run.output["begun"]["sentence"] == "db_a already holds active: nothing to do"
    assert run.output["outcome"]["status"] == "COMPLETE"
    assert len(up.traversals()) == 1


@pytest.mark.parametrize(
    ("member", "code"), [("db_a", "CANNOT_QUIESCE"), ("db_b", "NO_ELIGIBLE_MEMBER")]
)
def test_a_member_whose_agent_is_silent_takes_part_in_no_move(
    up: Any, monkeypatch: pytest.MonkeyPatch, member: str, code: str
) -> None:
    monkeypatch.setattr(agent_health, "SILENT", 0.2)
    up.fails("hang", member)
    time.sleep(0.3)

    run = switch(up, to="db_b").assert_failed_with(code)

    assert "has sent no heartbeat" in str(run.output["error"])
    assert at(up) == (["db_a"], ["db_a"])


def test_of_several_roles_the_named_one_moves(protect: Callable[..., Any]) -> None:
    parameters = {"active": {"get_param": "left"}}
    resources = {"routing": {"type": "stack_parameters", "properties": {"parameters": parameters}}}
    group = protect(resources, roles=["left", "right"])
    group.run("activate_first", group=group.name, to={"left": "db_a", "right": "db_b"})

    switch(group).assert_failed_with("BAD_INPUT")
    switch(group, role="middle").assert_failed_with("BAD_INPUT")
    switch(group, role="right").assert_succeeded()

    assert group.status()["roles"] == {"left": "db_a", "right": "db_a"}


# -- it is refused while nothing has happened


def test_a_group_that_is_not_up_can_not_be_moved(group: Any) -> None:
    run = switch(group).assert_failed_with("NOT_COMPLETE")

    assert "failover group activate" in run.output["error"]["remedy"]


def test_a_group_out_of_service_can_not_be_moved(up: Any) -> None:
    up.run("remove", group=up.name).assert_succeeded()

    switch(up).assert_failed_with("NOT_COMPLETE")


@pytest.mark.parametrize("status", ["FAILED", "BLOCKED"])
def test_a_group_that_did_not_reach_its_goal_can_not_be_moved(up: Any, status: str) -> None:
    if status == "FAILED":
        up.cloud.api_fault("stack_patch", "fail")
        up.run("failover", group=up.name, lost=[], to="db_b")
    else:
        up.run("on_alarm", **up.fails("power_off"))

    run = switch(up).assert_failed_with("NOT_COMPLETE")

    error, step = run.output["error"], up.status()["failure"]
    assert f"is {status}" in error["message"]
    assert step["message"] in error["message"]
    assert step["remedy"] in error["remedy"]
    assert step["remedy"] not in error["message"], "it is said once"
    assert ("failover rollback" in error["remedy"]) == (status == "FAILED")
    run.assert_tasks("begin")


def test_a_group_that_is_under_way_can_not_be_moved(up: Any) -> None:
    up.cloud.api_fault("stack_patch", "hold", seconds=1)
    other = up.start("failover", group=up.name, lost=[], to="db_b")
    up.wait_until_told("Update the stack (routing): started", times=2)

    run = switch(up).assert_failed_with("NOT_COMPLETE")

    assert "IN_PROGRESS" in run.output["error"]["message"]
    up.ended(other).assert_succeeded()


@pytest.mark.parametrize(
    ("status", "code"), [("backing-up", "VOLUME_BUSY"), ("error_extending", "VOLUME_ERROR")]
)
def test_a_volume_that_can_not_move_now_is_refused_while_the_application_runs(
    up: Any, status: str, code: str
) -> None:
    volume = up.cloud.resources(up.name)["data_volume"]["physical_resource_id"]
    Operator(up.cloud).set_volume(volume, status)

    run = switch(up).assert_failed_with(code)

    assert status in run.output["error"]["message"]
    assert "--state available" not in run.output["error"]["remedy"]
    assert up.runs_on() == ["db_a"]
    Operator(up.cloud).set_volume(volume, "in-use")
    switch(up).assert_succeeded()


def test_a_backup_that_begins_during_the_move_does_not_keep_the_application_stopped(
    slowly: Any,
) -> None:
    volume = slowly.cloud.resources(slowly.name)["data_volume"]["physical_resource_id"]
    execution = slowly.start("switchover", group=slowly.name)
    slowly.wait_until_told("Stop database on db_a: started")
    Operator(slowly.cloud).set_volume(volume, "backing-up")

    slowly.ended(execution).assert_failed_with("RETURNED")

    assert at(slowly) == (["db_a"], ["db_a"])


def test_a_target_that_can_not_serve_is_refused_with_the_reason(up: Any) -> None:
    stop(up, "db_b")

    run = switch(up, to="db_b").assert_failed_with("NO_ELIGIBLE_MEMBER")

    reason = run.output["error"]["reasons"]["db_b"]
    assert "SHUTOFF" in reason
    assert at(up) == (["db_a"], ["db_a"])
    # Who looks later finds the reason, too.
    assert f"db_b: {reason}" in up.status()["incidents"][0]["sentence"]


def test_who_is_off_can_not_be_asked_to_stop_and_the_way_to_fence_it_is_named(up: Any) -> None:
    stop(up, "db_a")

    run = switch(up, to="db_b").assert_failed_with("CANNOT_QUIESCE")

    assert "SHUTOFF" in run.output["error"]["message"]
    assert f"failover start {up.name} --lost db_a" in run.output["error"]["remedy"]
    assert len(up.traversals()) == 1


def stop(group: Any, member: str) -> None:
    """Somebody switches a server off."""
    Operator(group.cloud).stop_server(group.server(member))
    until(lambda: not group.cloud.guests()[group.server(member)]["answers"])
    time.sleep(0.05)  # Nova says so in the same moment, and is asked only here


# -- it comes back


@pytest.mark.parametrize(
    ("operation", "fault"),
    [
        ("command_stop", {"fault": "fail", "times": 99}),
        ("detach", {"fault": "error", "status": 400}),
        ("attach", {"fault": "error", "status": 400}),
        ("command_start", {"fault": "fail"}),
        ("stack_patch", {"fault": "fail"}),
    ],
)
def test_whatever_fails_on_the_way_takes_the_group_back_by_itself(
    up: Any, operation: str, fault: dict[str, Any]
) -> None:
    home = up.status()["goal"]
    up.cloud.api_fault(operation, **fault)

    run = switch(up, to="db_b").assert_failed_with("RETURNED")

    assert "it returned (active on db_a) and serves again" in run.output["error"]["message"]
    assert run.output["error"]["report"]["roles"] == {"active": "db_a"}
    assert at(up) == (["db_a"], ["db_a"])
    status = up.status()
    assert (status["status"], status["goal"], status["lost"]) == ("COMPLETE", home, [])
    # The way back stops no application once more: it starts what a failed stop may have left.
    assert up.told().count("Stop database on db_a: started") == 1
    assert up.cloud.violations() == []


def test_a_stop_that_is_refused_changes_nothing(protect: Callable[..., Any]) -> None:
    group = protect({"data": DATA, "database": database(stop="unheard-of")}, unresolved=True)
    group.activate()

    run = switch(group).assert_failed_with("CANNOT_QUIESCE")

    assert "unheard-of" in run.output["error"]["message"]
    assert at(group) == (["db_a"], ["db_a"])
    assert group.status()["status"] == "COMPLETE"


def test_what_would_wait_for_a_person_comes_back_instead(slowly: Any) -> None:
    """Nova detaches nothing from a server that it has in ERROR; its guest is well."""
    execution = slowly.start("switchover", group=slowly.name)
    slowly.wait_until_told("Stop database on db_a: started")
    Operator(slowly.cloud).reset_server(slowly.server("db_a"), "error")

    run = slowly.ended(execution).assert_failed_with("RETURNED")

    assert "SERVER_IN_ERROR" in run.output["error"]["message"]
    assert at(slowly) == (["db_a"], ["db_a"])
    assert slowly.cloud.violations() == []


def test_where_the_way_back_needs_a_person_too_it_goes_on_backwards_once_they_helped(
    slowly: Any,
) -> None:
    volume = slowly.cloud.resources(slowly.name)["data_volume"]["physical_resource_id"]
    execution = slowly.start("switchover", group=slowly.name)
    slowly.wait_until_told("Stop database on db_a: started")
    Operator(slowly.cloud).set_volume(volume, "error")

    run = slowly.ended(execution).assert_failed_with("BLOCKED")

    assert "The way back (active on db_a) is BLOCKED" in run.output["error"]["message"]
    assert run.output["error"]["message"].count("VOLUME_ERROR") == 2
    Operator(slowly.cloud).set_volume(volume, "in-use")
    slowly.run("sweep", group=slowly.name).assert_succeeded()
    assert slowly.status()["status"] == "COMPLETE"
    assert at(slowly) == (["db_a"], ["db_a"])


# -- the process that carries it out dies


def test_a_move_whose_process_died_as_it_failed_is_taken_back_by_the_sweep(
    up: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(up.state, "eager", False)
    context = ActionContext(SecurityContext(), ExecutionContext())
    begun = orders.Switchover(up.name, to="db_b").run(context)
    (ready,) = up.ready(begun)
    step = up.state.engine.check(ready, "a process that dies")
    assert step.operation is not None
    broken = {"code": "COMMAND_FAILED", "message": "no", "remedy": "Look."}
    up.state.engine.conclude(step.operation.ticket, Outcome(error=broken))
    assert up.status()["status"] == "IN_PROGRESS"

    up.run("sweep", group=up.name).assert_succeeded()

    assert up.status()["status"] == "COMPLETE"
    assert at(up) == (["db_a"], ["db_a"])
    report = recovery.Report(up.name, begun["traversal"]).run(context)
    assert isinstance(report, Result)
    assert report.error["code"] == "RETURNED"


# -- the old active does not answer, or late


def test_a_stop_that_takes_longer_than_it_may_ends_before_the_start_that_takes_it_back(
    protect: Callable[..., Any],
) -> None:
    group = impatiently(protect, create=60)
    group.cloud.set_latency(command_stop=2.5)
    try:
        run = switch(group).assert_failed_with("RETURNED")
    finally:
        group.cloud.set_latency(command_stop=0)

    assert "NO_ANSWER" in run.output["error"]["message"]
    assert order(group) == ["start", "stop", "start"], "one lane runs in order"
    assert at(group) == (["db_a"], ["db_a"])


def order(group: Any) -> list[str]:
    """The verbs of the commands that ended on the group's servers, in order."""
    servers = {group.server(member) for member in group.members}
    events = group.cloud.audit(kind="command_finished")
    return [event["verb"] for event in events if event["server"] in servers]


def test_who_hangs_is_asked_to_stop_and_to_start_and_the_user_learns_that_both_failed(
    impatient: Any,
) -> None:
    impatient.fails("hang")

    run = switch(impatient).assert_failed_with("FAILED")

    message = run.output["error"]["message"]
    assert "the move failed: Stop database on db_a: " in message
    assert "The way back (active on db_a) is FAILED: Start database on db_a: " in message
    assert at(impatient) == (["db_a"], ["db_a"]), "nothing was taken from it"
    assert impatient.status()["lost"] == []


def test_an_active_member_that_dies_in_the_middle_is_failed_over_by_its_alarm(
    impatient: Any,
) -> None:
    alarm = impatient.fails("crash")
    switch(impatient).assert_failed_with("FAILED")

    impatient.run("on_alarm", **alarm).assert_succeeded()

    assert at(impatient) == (["db_b"], ["db_b"])
    assert impatient.status()["lost"] == ["db_a"]
    assert impatient.cloud.violations() == []


def test_a_target_that_dies_in_the_middle_is_fenced_by_its_alarm_and_the_old_active_serves(
    slowly: Any,
) -> None:
    execution = slowly.start("switchover", group=slowly.name, to="db_b")
    slowly.wait_until_told("Stop database on db_a: started")
    slowly.run("on_alarm", **slowly.fails("crash", "db_b")).assert_succeeded()

    run = slowly.ended(execution).assert_failed_with("OVERTAKEN")

    assert "db_b" in run.output["error"]["message"]
    assert slowly.status()["status"] == "COMPLETE"
    assert slowly.status()["roles"] == {"active": "db_a"}
    assert at(slowly) == (["db_a"], ["db_a"])


# -- afterwards


def test_a_move_that_returned_is_tried_again_after_the_repair(up: Any) -> None:
    up.cloud.api_fault("attach", "error", status=400)
    switch(up).assert_failed_with("RETURNED")

    switch(up).assert_succeeded()

    assert at(up) == (["db_b"], ["db_b"])


def test_a_failure_after_a_move_rolls_nothing_back_unless_the_group_file_says_so(up: Any) -> None:
    switch(up).assert_succeeded()
    up.cloud.api_fault("attach", "error", status=400)

    run = up.run("on_alarm", **up.fails("app", "db_b"))

    run.assert_failed_with("FAILED")
    assert up.status()["roles"] == {"active": "db_a"}


# -- it is refused before anything is stopped


def refused(group: Any, code: str) -> str:
    """Why a planned move is refused; nothing was stopped or changed for it."""
    epochs = [member["epoch"] for member in group.status()["members"]]
    told = group.told()

    run = switch(group).assert_failed_with(code)

    assert at(group) == (["db_a"], ["db_a"])
    assert [each for each in group.told() if not each.startswith("REFUSED: ")] == told
    assert [member["epoch"] for member in group.status()["members"]] == epochs
    return str(run.output["error"])


def test_a_move_that_would_update_a_failed_stack_is_refused(up: Any) -> None:
    up.cloud.api_fault("stack_patch", "fail")
    operator = Operator(up.cloud)
    operator.update_stack(up.name, ends="UPDATE_FAILED")

    assert f"openstack stack failures list {up.name}" in refused(up, "STACK_FAILED")

    operator.update_stack(up.name)
    switch(up).assert_succeeded()


@pytest.mark.parametrize("member", ["db_a", "db_b"])
def test_a_move_from_or_to_a_locked_server_is_refused(up: Any, member: str) -> None:
    operator, server = Operator(up.cloud), up.server(member)
    operator.act(server, "lock")

    code = "SERVER_BUSY" if member == "db_a" else "NO_ELIGIBLE_MEMBER"
    assert f"openstack server unlock {server}" in refused(up, code)

    operator.act(server, "unlock")
    switch(up, to="db_b").assert_succeeded()
