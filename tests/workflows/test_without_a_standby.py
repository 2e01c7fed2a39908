# SPDX-License-Identifier: Apache-2.0
"""No other member can take a role: the lost one comes back and takes it again. Its server is
started again; if that cannot be, it gets a new one.

On the real engine with an emulated cloud. The order never changes: proof, release, bring back,
attach, start.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from mistral_lib.actions.context import ActionContext, ExecutionContext, SecurityContext

from mistral_failover.actions import reports
from mistral_failover.reports.advice import advice
from mistral_failover.resources import commands
from mistral_failover.resources.restart import start
from support.activation import done
from support.operators import Operator
from support.volume_group import RESOURCES
from support.waiting import patiently, until

PROOF, RELEASE, BACK = "Fence db_a", "Detach data", "Bring back db_a"
SERVES = "Start database on db_a"


@pytest.fixture
def single(protect: Callable[..., Any]) -> Any:
    """One server, up."""
    members = {"servers": ["db_a"], "replace": "lost", "restart": ["replace"]}
    group = protect(servers=("db_a",), members=members)
    group.activate()
    return group


@pytest.fixture
def pet(protect: Callable[..., Any]) -> Any:
    """One server, up, of a group that says only that who is lost comes back."""
    group = protect(servers=("db_a",), members={"servers": ["db_a"], "replace": "lost"})
    group.activate()
    return group


def context() -> ActionContext:
    return ActionContext(SecurityContext(), ExecutionContext())


def test_the_only_server_comes_back_as_another_one(single: Any) -> None:
    former, before = single.server("db_a"), len(single.told("done"))

    patiently(single, "on_alarm", **single.fails("crash", "db_a")).assert_succeeded()

    assert single.server("db_a") != former
    assert (single.holders(), single.runs_on()) == (["db_a"], ["db_a"])
    status = single.status()
    assert (status["roles"], status["lost"]) == ({"active": "db_a"}, [])
    assert status["status"] == "COMPLETE"
    order = [line.removesuffix(": done") for line in single.told("done")[before:]]
    steps = [order.index(next(o for o in order if o.startswith(s))) for s in (PROOF, RELEASE, BACK)]
    assert steps == sorted(steps)
    assert order.index(BACK) < order.index(SERVES)
    assert single.cloud.violations() == []


def test_a_server_that_crashed_is_started_again(pet: Any) -> None:
    former, before = pet.server("db_a"), len(pet.told("done"))

    patiently(pet, "on_alarm", **pet.fails("crash", "db_a")).assert_succeeded()

    assert pet.server("db_a") == former
    assert (pet.holders(), pet.runs_on()) == (["db_a"], ["db_a"])
    status = pet.status()
    assert (status["roles"], status["lost"]) == ({"active": "db_a"}, [])
    assert status["status"] == "COMPLETE"
    order = [line.removesuffix(": done") for line in pet.told("done")[before:]]
    steps = [next(o for o in order if o.startswith(s)) for s in (PROOF, RELEASE, BACK, SERVES)]
    assert [o for o in order if o in steps] == steps
    assert pet.cloud.violations() == []


def test_it_is_started_again_as_often_as_it_crashes(pet: Any) -> None:
    former = pet.server("db_a")

    for _ in range(3):
        pet.fails("crash", "db_a")
        patiently(pet, "failover", group=pet.name, lost=["db_a"]).assert_succeeded()
        assert (pet.holders(), pet.runs_on()) == (["db_a"], ["db_a"])

    assert pet.server("db_a") == former
    assert pet.cloud.violations() == []


def test_a_server_of_a_dead_host_is_not_waited_for(protect: Callable[..., Any]) -> None:
    members = {"servers": ["db_a"], "replace": "lost"}
    on = {"server": {"get_param": "active"}, "when_host_is_down": "delete_server"}
    data = {"type": "volume_attachment", "properties": {"volume": "data_volume", **on}}
    group = protect({"data": data}, servers=("db_a",), members=members)
    group.activate()
    former = group.server("db_a")
    group.run("on_alarm", **group.fails("power_off")).assert_failed_with("BLOCKED")

    confirmed = {"group": group.name, "member": "db_a", "because": "its power is off"}
    group.run("confirm_fenced", **confirmed).assert_succeeded()

    assert group.server("db_a") != former
    assert group.holders() == ["db_a"]
    assert group.cloud.violations() == []


def test_a_server_that_nova_cannot_start_gets_a_successor(pet: Any) -> None:
    former = pet.server("db_a")
    pet.cloud.api_fault("start", "fail", times=10_000)

    patiently(pet, "on_alarm", **pet.fails("crash", "db_a")).assert_succeeded()

    assert pet.server("db_a") != former
    assert pet.runs_on() == pet.holders() == ["db_a"]


def test_a_guest_that_does_not_come_up_gets_a_successor(protect: Callable[..., Any]) -> None:
    members = {"servers": ["db_a"], "replace": "lost"}
    group = protect(servers=("db_a",), members=members, limits={"boot": 3})
    group.activate()
    former, alarm = group.server("db_a"), group.fails("crash", "db_a")
    group.cloud.api_fault("start", "hang")
    assert "3 s at most" in group.plan(lost=["db_a"])["ways_back"][0]["sentence"]

    patiently(group, "on_alarm", **alarm).assert_succeeded()

    assert group.server("db_a") != former
    assert group.runs_on() == group.holders() == ["db_a"]


def test_a_guest_that_boots_is_waited_for_no_longer_if_a_new_server_is_ordered(pet: Any) -> None:
    former, alarm = pet.server("db_a"), pet.fails("crash", "db_a")
    pet.cloud.api_fault("start", "hang")
    execution = pet.start("on_alarm", **alarm)
    until(lambda: pet.cloud.guests()[former]["condition"] == "booting")

    patiently(pet, "replace_member", group=pet.name, member="db_a").assert_succeeded()

    assert pet.server("db_a") != former
    assert pet.runs_on() == pet.holders() == ["db_a"]
    assert pet.cloud.violations() == []
    assert "Bring back db_a: failed" not in " ".join(pet.told())
    pet.workflows.wait(execution, timeout=90)


def test_a_guest_that_boots_is_waited_for_no_longer_if_its_group_is_removed(pet: Any) -> None:
    former, alarm = pet.server("db_a"), pet.fails("crash", "db_a")
    pet.cloud.api_fault("start", "hang")
    execution = pet.start("on_alarm", **alarm)
    until(lambda: pet.cloud.guests()[former]["condition"] == "booting")

    patiently(pet, "remove", group=pet.name).assert_succeeded()

    assert (pet.server("db_a"), pet.status()["status"]) == (former, "COMPLETE")
    assert pet.cloud.violations() == []
    pet.workflows.wait(execution, timeout=90)


@pytest.mark.parametrize("ends", ["off", "in error", "deleted"])
def test_a_guest_that_ends_while_it_boots_is_waited_for_no_longer(pet: Any, ends: str) -> None:
    former, alarm, person = pet.server("db_a"), pet.fails("crash", "db_a"), Operator(pet.cloud)
    pet.cloud.api_fault("start", "hang")
    execution = pet.start("on_alarm", **alarm)
    until(lambda: pet.cloud.guests()[former]["condition"] == "booting")

    if ends == "off":
        person.stop_server(former)
    elif ends == "in error":
        person.reset_server(former, "error")
    else:
        person.delete_server(former)

    pet.workflows.wait(execution, timeout=90).assert_succeeded()
    assert pet.server("db_a") != former
    assert pet.runs_on() == pet.holders() == ["db_a"]
    assert pet.cloud.violations() == []


def test_a_group_that_only_starts_again_says_what_a_person_can_do(
    protect: Callable[..., Any],
) -> None:
    members = {"servers": ["db_a"], "replace": "lost", "restart": ["start"]}
    group = protect(servers=("db_a",), members=members)
    group.activate()
    former = group.server("db_a")
    group.cloud.api_fault("start", status=409, times=10_000)

    failed = patiently(group, "on_alarm", **group.fails("crash", "db_a"))

    failed.assert_failed_with("FAILED")
    assert group.server("db_a") == former
    assert group.status()["service"]["status"] == "DOWN"
    assert "failover replace" in group.status()["reason"]
    shown = [each.command for each in advice(group.status())]
    assert shown == [
        f"failover start {group.name}",
        f"failover start {group.name} --lost '' --recovered db_a",
        f"failover replace {group.name} db_a",
    ]
    patiently(group, "replace_member", group=group.name, member="db_a").assert_succeeded()
    assert group.runs_on() == group.holders() == ["db_a"]


def test_a_guest_that_dies_once_it_is_back_is_brought_back_by_the_command_that_is_shown(
    pet: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "SILENCE", 1.0)
    alarm = pet.fails("crash", "db_a")
    pet.cloud.api_fault("attach", status=503, times=10_000)
    execution = pet.start("on_alarm", **alarm)
    until(lambda: "Bring back db_a: done" in pet.told())
    pet.fails("crash", "db_a")
    pet.cloud.clear_api_faults()
    pet.workflows.wait(execution, timeout=90).assert_failed_with("FAILED")

    shown = [each.command for each in advice(pet.status()) if not each.optional]
    other = [each.command for each in advice(pet.status()) if each.optional]
    assert shown == [f"failover start {pet.name}"]
    assert f"failover start {pet.name} --lost db_a" in other
    patiently(pet, "failover", group=pet.name, lost=["db_a"]).assert_succeeded()

    assert pet.runs_on() == pet.holders() == ["db_a"]
    assert pet.cloud.violations() == []


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
    assert group.status()["lost"] == ["db_a"], "no operator said that it is well"
    assert group.cloud.violations() == []


def without_its_standby(protect: Callable[..., Any], **members: Any) -> tuple[Any, Operator]:
    """A group whose standby a person has stopped, and that person. ``members``: of the file."""
    group = protect(members={"servers": ["db_a", "db_b"], "replace": "lost", **members})
    group.activate()
    person = Operator(group.cloud)
    person.stop_server(group.server("db_b"))
    until(lambda: not group.member_list()["db_b"]["eligible"])
    return group, person


def test_a_standby_that_is_well_again_takes_the_role_before_the_new_server(
    protect: Callable[..., Any],
) -> None:
    group, person = without_its_standby(protect)
    execution = group.start("on_alarm", **group.fails("crash", "db_a"))
    until(lambda: "Fence db_a: done" in group.told("done"))

    person.start_server(group.server("db_b"))

    group.workflows.wait(execution, timeout=90).assert_succeeded()
    assert group.status()["lost"] == []
    assert group.runs_on() == group.holders()
    assert group.cloud.violations() == []


def test_of_two_that_are_lost_the_first_that_is_back_serves(protect: Callable[..., Any]) -> None:
    """The guest of the other one does not come up, which Nova does not see."""
    members = {"servers": ["db_a", "db_b"], "replace": "lost"}
    group = protect(members=members, limits={"cooldown": 0})
    group.activate()
    alarms = [group.fails("crash", member) for member in group.members]

    for alarm in alarms:
        group.start("on_alarm", **alarm)

    until(lambda: group.runs_on())
    assert group.runs_on() == group.holders() == ["db_a"]
    assert group.status()["lost"] == ["db_b"]
    assert "Bring back db_b: done" not in group.told()
    group.cloud.fault("server", group.server("db_b"), "revive")
    until(lambda: group.status()["status"] == "COMPLETE")
    assert (group.runs_on(), group.status()["lost"]) == (["db_a"], [])
    assert group.cloud.violations() == []


def test_a_standby_that_is_well_again_serves_while_the_lost_one_is_still_brought_back(
    protect: Callable[..., Any],
) -> None:
    group, person = without_its_standby(protect)
    alarm = group.fails("crash", "db_a")
    group.cloud.api_fault("start", "hang")
    group.start("on_alarm", **alarm)
    hung = group.server("db_a")
    until(lambda: "Bring back db_a: started" in group.told())
    until(lambda: group.cloud.guests()[hung]["condition"] == "booting")

    person.start_server(group.server("db_b"))

    until(lambda: group.runs_on())
    assert group.runs_on() == group.holders() == ["db_b"]
    assert "Bring back db_a: done" not in group.told()
    group.cloud.fault("server", hung, "revive")
    until(lambda: group.status()["status"] == "COMPLETE")
    assert (group.runs_on(), group.status()["lost"]) == (["db_b"], [])
    assert group.cloud.violations() == []


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent counts as silent at once, and a stop as failed."""
    monkeypatch.setattr(start, "SILENT", 1.0)
    monkeypatch.setattr(start, "STOP_LIMIT", 2.0)


@pytest.mark.usefixtures("quick")
def test_a_standby_whose_guest_is_dead_is_started_again(protect: Callable[..., Any]) -> None:
    """Its fence finds nothing to stop there, so Nova has it ACTIVE all the time."""
    group = protect(members={"servers": ["db_a", "db_b"], "replace": "lost"})
    group.activate()
    former = group.server("db_b")

    patiently(group, "on_alarm", **group.fails("crash", "db_b")).assert_succeeded()

    status = group.status()
    assert (status["lost"], [each["found"] for each in status["restarts"]]) == ([], ["start"])
    assert group.server("db_b") == former
    assert group.cloud.guests()[former]["answers"]
    assert group.runs_on() == group.holders() == ["db_a"]
    assert group.cloud.violations() == []


def test_a_standby_without_an_agent_is_started_again_if_it_is_declared_lost(
    protect: Callable[..., Any],
) -> None:
    """Nothing else would say whether its guest lives: Nova has it ACTIVE."""
    members = {"servers": ["db_a", "db_b"], "replace": "lost"}
    group = protect({"data": RESOURCES["data"]}, members=members)
    group.activate()
    former = group.server("db_b")

    patiently(group, "on_alarm", **group.fails("crash", "db_b")).assert_succeeded()

    assert (group.server("db_b"), group.status()["lost"]) == (former, [])
    until(lambda: group.cloud.guests()[former]["answers"])
    assert group.holders() == ["db_a"]


@pytest.mark.usefixtures("quick")
def test_a_standby_on_a_dead_host_is_replaced_although_its_fence_was_no_proof_of_that(
    protect: Callable[..., Any],
) -> None:
    group = protect(members={"servers": ["db_a", "db_b"], "replace": "lost"})
    group.activate()
    former = group.server("db_b")

    patiently(group, "on_alarm", **group.fails("power_off", "db_b")).assert_succeeded()

    status = group.status()
    assert (status["lost"], [each["found"] for each in status["restarts"]]) == ([], ["replace"])
    assert group.server("db_b") != former
    assert group.runs_on() == group.holders() == ["db_a"]


@pytest.mark.usefixtures("quick")
def test_a_standby_that_is_well_is_not_stopped_by_a_false_alarm(
    protect: Callable[..., Any],
) -> None:
    group = protect(members={"servers": ["db_a", "db_b"], "replace": "lost"})
    group.activate()
    since = max(each["seq"] for each in group.cloud.audit())
    alarm = group.cloud.alarm_body(group.server("db_b"))

    patiently(group, "on_alarm", **alarm).assert_succeeded()

    assert group.status()["lost"] == []
    assert not [each for each in group.cloud.audit(since) if each["kind"] == "server_stopped"]


@pytest.mark.usefixtures("quick")
def test_a_guest_that_was_started_since_its_fence_is_not_stopped_while_it_boots(
    protect: Callable[..., Any],
) -> None:
    """By a person, or by an attempt whose end was not recorded."""
    group = protect(members={"servers": ["db_a", "db_b"], "replace": "lost"})
    group.activate()
    former, person = group.server("db_b"), Operator(group.cloud)
    alarm = group.fails("crash", "db_b")
    person.stop_server(former)
    group.cloud.api_fault("start", "hang")
    person.act(former, "os-start")
    since = max(each["seq"] for each in group.cloud.audit())

    execution = group.start("on_alarm", **alarm)
    until(lambda: "Bring back db_b: started" in group.told())
    group.cloud.fault("server", former, "revive")

    group.workflows.wait(execution, timeout=90).assert_succeeded()
    assert not [each for each in group.cloud.audit(since) if each["kind"] == "server_stopped"]
    assert group.status()["lost"] == []


def test_a_group_that_waits_for_a_standby_replaces_nothing(protect: Callable[..., Any]) -> None:
    members = {"servers": ["db_a"], "replace": "lost", "when_no_standby": "wait"}
    group = protect(servers=("db_a",), members=members)
    group.activate()
    former = group.server("db_a")

    run = patiently(group, "on_alarm", **group.fails("crash", "db_a"))

    run.assert_failed_with("NO_ELIGIBLE_MEMBER")
    assert group.server("db_a") == former


def test_a_group_that_waits_names_what_gives_its_only_member_another_server(
    protect: Callable[..., Any],
) -> None:
    members = {"servers": ["db_a"], "replace": "lost", "when_no_standby": "wait"}
    group = protect(servers=("db_a",), members=members)
    group.activate()
    Operator(group.cloud).stop_server(group.server("db_a"))
    group.run("sweep", group=group.name).assert_succeeded()

    (shown,) = advice(group.status())
    patiently(group, "failover", group=group.name, lost=["db_a"]).assert_failed_with(
        "NO_ELIGIBLE_MEMBER"
    )
    patiently(group, "replace_member", group=group.name, member="db_a").assert_succeeded()

    assert shown.command == f"failover replace {group.name} db_a"
    assert group.runs_on() == group.holders() == ["db_a"]


def test_what_is_shown_while_an_alarm_waits_gives_a_dead_guest_another_server(
    protect: Callable[..., Any],
) -> None:
    """Nova shows its server as running."""
    members = {"servers": ["db_a"], "replace": "lost", "when_no_standby": "wait"}
    group = protect(servers=("db_a",), members=members)
    group.activate()
    former = group.server("db_a")
    patiently(group, "on_alarm", **group.fails("crash", "db_a"))
    group.run("sweep", group=group.name)

    shown = advice(group.status())[0].command
    assert shown == f"failover replace {group.name} db_a"
    patiently(group, "replace_member", group=group.name, member="db_a").assert_succeeded()

    assert group.server("db_a") != former
    assert group.runs_on() == group.holders() == ["db_a"]
    assert group.cloud.violations() == []


@pytest.mark.parametrize("waits", ["admitted", "held"])
def test_the_order_that_gives_it_another_server_closes_the_alarm(
    protect: Callable[..., Any], waits: str
) -> None:
    members = {"servers": ["db_a"], "replace": "lost", "when_no_standby": "wait"}
    group = protect(servers=("db_a",), members=members)
    group.activate()
    if waits == "held":
        group.run("pause", group=group.name, because="a test").assert_succeeded()
    patiently(group, "on_alarm", **group.fails("crash", "db_a"))
    Operator(group.cloud).stop_server(group.server("db_a"))
    status = group.status()
    assert (len(status["unstarted"]), status["held"]) == ((1, 0) if waits == "admitted" else (0, 1))

    said = {"group": group.name, "member": "db_a", "because": "it is dead"}
    patiently(group, "replace_member", **said).assert_succeeded()

    status = group.status()
    assert (status["unstarted"], status["held"], status["status"]) == ([], 0, "COMPLETE")
    assert status["service"]["reasons"] == ["no member can take over (there is no other member)"]
    (closed,) = [line for line in group.told() if "answered, since db_a gets" in line]
    assert "by an unknown user: it is dead" in closed


def test_an_alarm_that_waits_says_nothing_about_another_server(
    protect: Callable[..., Any],
) -> None:
    """An operator gives the member another server by the stack. It is not fenced for its
    predecessor."""
    members = {"servers": ["db_a"], "replace": "lost", "when_no_standby": "wait"}
    group = protect(servers=("db_a",), members=members)
    group.activate()
    patiently(group, "on_alarm", **group.fails("crash", "db_a"))
    assert len(group.status()["unstarted"]) == 1
    Operator(group.cloud).replace_server(group.name, "db_a")
    new = group.server("db_a")

    for _ in range(2):  # the first one sees the new server
        group.run("sweep", group=group.name).assert_succeeded()

    assert group.status()["unstarted"] == []
    (told,) = [line for line in group.told() if line.startswith("DISMISSED")]
    assert "db_a has another server since" in told
    assert (group.server("db_a"), group.status()["lost"]) == (new, [])
    assert not any("REPLACE" in each["code"] for each in group.status()["service"]["needs"])


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
    assert [step["what"] for step in plan["steps"]][-1] == "Bring back db_a"


def test_it_can_happen_again(single: Any) -> None:
    for _ in range(2):
        patiently(single, "failover", group=single.name, lost=["db_a"]).assert_succeeded()

    assert single.runs_on() == single.holders() == ["db_a"]
    assert {m["epoch"] for m in single.status()["members"]} == {5}
    assert single.cloud.violations() == []


def test_a_standby_serves_also_after_the_new_server_failed(protect: Callable[..., Any]) -> None:
    group, person = without_its_standby(protect, restart=["replace"])
    group.cloud.api_fault("boot", "fail", times=10_000)
    patiently(group, "on_alarm", **group.fails("crash", "db_a")).assert_failed_with("FAILED")
    assert group.status()["service"]["status"] == "DOWN"

    person.start_server(group.server("db_b"))
    group.run("sweep", group=group.name)

    until(lambda: "Start database on db_b: done" in group.told("done"))
    assert group.status()["roles"] == {"active": "db_b"}
    assert group.cloud.violations() == []


def test_who_is_only_marked_by_heat_is_not_replaced_while_it_serves(single: Any) -> None:
    former = single.server("db_a")
    Operator(single.cloud).mark(single.name, "db_a")

    run = patiently(single, "replace_member", group=single.name)

    run.assert_failed_with("NO_ELIGIBLE_MEMBER")
    assert (single.server("db_a"), single.runs_on()) == (former, ["db_a"])


def test_no_rollback_goes_to_a_goal_in_which_nothing_serves(single: Any) -> None:
    patiently(single, "failover", group=single.name, lost=["db_a"]).assert_succeeded()
    goals = done(reports.Goals(single.name).run(context()))
    (room,) = [each["version"] for each in goals if not each["roles"]]

    single.run("rollback", group=single.name, goal=room).assert_failed_with("BAD_INPUT")


def test_the_advice_while_nothing_serves_is_no_deletion(single: Any) -> None:
    single.cloud.api_fault("boot", "fail", times=10_000)
    patiently(single, "on_alarm", **single.fails("crash", "db_a")).assert_failed_with("FAILED")

    advised = [each.command for each in advice(single.status())]

    assert advised
    assert not any("delete" in each for each in advised)


def test_who_heat_has_marked_is_not_started_again(pet: Any) -> None:
    """A replacement that failed half-way leaves the mark: the next update removes the server."""
    former = pet.server("db_a")
    alarm = pet.fails("crash", "db_a")
    pet.cloud.api_fault("start", "fail", times=2)
    pet.cloud.api_fault("stack_patch", "fail", times=10_000)
    patiently(pet, "on_alarm", **alarm).assert_failed_with("FAILED")
    pet.cloud.clear_api_faults()

    pet.run("sweep", group=pet.name)

    until(lambda: pet.status()["status"] == "COMPLETE")
    assert pet.server("db_a") != former
    assert pet.runs_on() == pet.holders() == ["db_a"]
    assert pet.cloud.violations() == []


def test_a_server_is_not_started_long_after_its_fence(
    pet: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its host may be dead by then."""
    former = pet.server("db_a")
    monkeypatch.setattr(start, "PROOF_LASTS", 0.0)

    patiently(pet, "on_alarm", **pet.fails("crash", "db_a")).assert_succeeded()

    assert pet.server("db_a") != former
