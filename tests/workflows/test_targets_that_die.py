# SPDX-License-Identifier: Apache-2.0
"""The compute host of the target dies after it was chosen and before it has the volume, or Nova
refuses it the volume: the failover goes to another standby, and nothing is left at the first
one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import sqlalchemy as sa
from mistral_lib.actions import Result
from mistral_lib.actions.context import ActionContext, ExecutionContext, SecurityContext

from mistral_failover.actions import groups, recovery, suspensions
from mistral_failover.cloud.volume_holders import UNANSWERED
from mistral_failover.groups import agent_health
from mistral_failover.orders import other_target
from mistral_failover.recovery import advance
from mistral_failover.resources import commands
from mistral_failover.runtime.process import Runtime
from mistral_failover.runtime.request import own_project
from mistral_failover.store import groups as store
from mistral_failover.store.tables import operations
from mistral_failover.store.transaction import SqlTransaction
from support.operators import Operator
from support.waiting import until

pytestmark = pytest.mark.faults

SLOW = 0.5
DETACHING = "Detach data from db_a: started"
ATTACHING = "Attach data to db_b: started"
WAITING = "Attach data to db_b: waiting for "
THREE = ("db_a", "db_b", "db_c")


@pytest.fixture(autouse=True)
def slowly(cloud: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A detach takes long enough for a host to die meanwhile, and agents are soon missed."""
    cloud.set_latency(detach=SLOW)
    monkeypatch.setattr(agent_health, "SILENT", 0.1)
    yield
    cloud.set_latency(detach=0, attach=0)


@pytest.fixture
def active(protect: Callable[..., Any], cloud: Any) -> Callable[..., Any]:
    """Make a group that serves on db_a; db_b is alone on its host."""

    def make(servers: tuple[str, ...] = THREE, **more: Any) -> Any:
        made = protect(servers=servers, **{"limits": {"cooldown": 0}, **more})
        hosts = [cloud.guests()[made.server(member)]["host"] for member in servers]
        if hosts.count(hosts[1]) > 1:  # what earlier tests deleted left the hosts unequally full
            return make(servers, **more)
        made.activate()
        return made

    return make


def fails_over(group: Any, moment: str = DETACHING, **more: Any) -> str:
    """Begin a failover from a dead db_a; the host of its target dies at that moment."""
    group.fails("crash")
    execution = group.start("failover", group=group.name, **{"lost": ["db_a"], **more})
    group.wait_until_told(moment)
    group.fails("power_off", "db_b")
    return str(execution)


def revive(group: Any) -> None:
    group.cloud.fault("host", group.cloud.guests()[group.server("db_b")]["host"], "revive")


def settled(group: Any, member: str) -> None:
    """The group serves on this member, which alone has the volume."""
    status = group.status()
    assert status["status"] == "COMPLETE", status["reason"]
    assert status["roles"] == {"active": member}
    assert (group.holders(), group.runs_on()) == ([member], [member])
    assert {row["goal"] for row in status["resources"]} <= {status["goal"]}


def waited_for(group: Any) -> list[str]:
    return [row["waiting_for"] for row in group.status()["waiting"]]


def wait_until_it_waits(group: Any) -> None:
    until(lambda: waited_for(group))


def test_the_next_standby_takes_over_and_the_history_says_why(active: Callable[..., Any]) -> None:
    group = active(limits={"cooldown": 0, "per_hour": 1})  # one other target is within the limit

    execution = fails_over(group)

    group.ended(execution).assert_succeeded()
    settled(group, "db_c")
    assert group.status()["lost"] == ["db_a"], "db_b has nothing that would need a fence"
    cause = group.traversals()[-1]
    assert cause.startswith("db_b is passed over (its agent has sent no heartbeat for")
    assert cause.endswith("active goes to db_c")
    assert group.status()["traversal"]["cause"] == cause

    revive(group)

    settled(group, "db_c")
    assert group.cloud.violations() == [], "a host that comes back gets no late volume"


REFUSALS = [
    (400, "Instance and volume are not in the same availability_zone."),
    (403, "The maximum allowed number of disk devices (26) has been exceeded."),
    (409, "Instance is locked"),
]


@pytest.mark.parametrize(("status", "says"), REFUSALS)
def test_a_target_to_which_nova_refuses_the_volume_is_passed_over(
    active: Callable[..., Any], cloud: Any, status: int, says: str
) -> None:
    group = active()
    cloud.api_fault("attach", status=status, says=says)
    group.fails("crash")

    group.ended(group.start("failover", group=group.name, lost=["db_a"])).assert_succeeded()

    settled(group, "db_c")
    assert group.status()["lost"] == ["db_a"], "db_b lives and needs no fence"
    cause = group.traversals()[-1]
    assert says.rstrip(".") in cause
    assert cause.endswith("active goes to db_c")


def test_an_attach_that_nova_accepts_and_drops_goes_to_the_next_standby(
    active: Callable[..., Any], cloud: Any
) -> None:
    group = active()
    cloud.api_fault("attach", "fail", times=3)
    group.fails("crash")

    group.ended(group.start("failover", group=group.name, lost=["db_a"])).assert_succeeded()

    settled(group, "db_c")
    assert group.status()["lost"] == ["db_a"]


def test_a_refusal_without_another_standby_ends_the_failover_with_novas_words(
    active: Callable[..., Any], cloud: Any
) -> None:
    group = active(("db_a", "db_b"))
    cloud.api_fault("attach", status=403, says="The maximum number of disks is reached", times=99)
    group.fails("crash")
    run = group.ended(group.start("failover", group=group.name, lost=["db_a"], to="db_b"))
    cloud.clear_api_faults()

    run.assert_failed_with("FAILED")
    failure = group.status()["failure"]
    assert failure["code"] == "TARGET_DOWN"
    assert "number of disks" in failure["message"]


def test_what_changes_while_another_target_is_chosen_counts(
    active: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process that chooses may be frozen meanwhile."""
    group = active()
    context = ActionContext(SecurityContext(), ExecutionContext())
    refuse = other_target.refuse_unmovable_new_volumes
    chosen: list[Any] = []

    def pause(*args: Any) -> None:
        refuse(*args)
        if not chosen:
            suspensions.Pause(group.name, because="work").run(context)
        chosen.append(args)

    monkeypatch.setattr(other_target, "refuse_unmovable_new_volumes", pause)
    execution = fails_over(group)
    until(lambda: chosen)
    until(lambda: group.told("no_other_target"))
    assert len(group.traversals()) == 2, "it was activated, and fails over to db_b"

    suspensions.Resume(group.name, because="done").run(context)

    group.ended(execution).assert_succeeded()
    settled(group, "db_c")


def test_what_may_arrive_late_is_fenced_before_another_gets_the_volume(
    active: Callable[..., Any], cloud: Any, operator: Operator
) -> None:
    """Nova accepted the attach; the host died with it. The volume stays reserved for db_b."""
    group = active(fence=[{"kind": "stop", "limit": 1}, "confirm"])
    cloud.set_latency(attach=3)
    volume = str(group.cloud.resources(group.name)["data_volume"]["physical_resource_id"])

    def holders() -> set[str]:
        return {row["instance"] for row in operator.attachments(volume)}

    group.fails("crash")
    execution = group.start("failover", group=group.name, lost=["db_a"])
    until(lambda: holders() == {group.server("db_b")})
    group.fails("power_off", "db_b")

    run = group.ended(execution)

    run.assert_failed_with("BLOCKED")
    status = group.status()
    assert sorted(status["lost"]) == ["db_a", "db_b"]
    assert status["roles"] == {"active": "db_c"}
    assert group.traversals()[-1].startswith("db_b is passed over")
    assert "declared lost, because it may still get the volume" in group.traversals()[-1]
    assert holders() == {group.server("db_b")}, "db_c has not asked for it"

    cloud.set_latency(attach=0)
    because = "its power is off"
    group.run("confirm_fenced", group=group.name, member="db_b", because=because)
    operator.delete_server(group.server("db_b"))  # which the group does not allow by itself
    group.run("sweep", group=group.name).assert_succeeded()
    settled(group, "db_c")


def test_without_another_standby_it_waits_and_names_the_server(active: Callable[..., Any]) -> None:
    group = active(("db_a", "db_b"))
    execution = fails_over(group)
    wait_until_it_waits(group)

    (waiting,) = waited_for(group)
    assert group.server("db_b") in waiting
    assert "its agent has sent no heartbeat" in waiting
    assert group.status()["status"] == "IN_PROGRESS"
    revive(group)

    group.ended(execution).assert_succeeded()
    settled(group, "db_b")
    (said,) = group.told("no_other_target")
    assert 'no member can take the role "active"' in said


def loses_its_target(group: Any, operator: Operator, **more: Any) -> str:
    """Begin a failover from a dead db_a; the server of its target is deleted before it is used."""
    group.fails("crash")
    execution = group.start("failover", group=group.name, **{"lost": ["db_a"], **more})
    group.wait_until_told(DETACHING)
    operator.delete_server(group.server("db_b"))
    return str(execution)


@pytest.mark.parametrize("more", [{}, {"to": "db_b"}], ids=["chosen", "named by the order"])
def test_a_deleted_target_without_another_standby_fails_at_once(
    active: Callable[..., Any], operator: Operator, more: dict[str, Any]
) -> None:
    group = active(("db_a", "db_b"))
    gone = group.server("db_b")

    group.ended(loses_its_target(group, operator, **more)).assert_failed_with("FAILED")

    status = group.status()
    assert status["waiting"] == []
    failure = status["failure"]
    assert (failure["resource"], failure["code"]) == ("data", "TARGET_DOWN")
    assert gone in failure["message"]
    for command in ("failover replace", "failover start"):
        assert f"{command} {group.name}" in failure["remedy"]

    group.run("replace_member", group=group.name, member="db_b").assert_succeeded()
    group.run("failover", group=group.name, lost=[]).assert_succeeded()
    settled(group, "db_b")


def test_of_a_target_that_a_person_paused_meanwhile_it_is_said_what_ends_that(
    active: Callable[..., Any],
    operator: Operator,
    cloud: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(commands, "SILENCE", 0.5)
    group = active(("db_a", "db_b"))
    group.fails("crash")
    cloud.set_latency(command_start=3)
    execution = group.start("failover", group=group.name, lost=["db_a"])
    group.wait_until_told("Start database on db_b: started")
    operator.act(group.server("db_b"), "pause")

    group.ended(execution).assert_failed_with("FAILED")

    failure = group.status()["failure"]
    assert [each["code"] for each in failure["needs"]] == ["UNPAUSE_SERVER"]
    assert f"openstack server unpause {group.server('db_b')}" in failure["remedy"]
    assert "--lost" not in failure["remedy"], "it is not lost"
    cloud.set_latency(command_start=0)
    operator.act(group.server("db_b"), "unpause")
    group.run("failover", group=group.name, lost=["db_a"]).assert_succeeded()
    settled(group, "db_b")


@pytest.fixture
def waiting(active: Callable[..., Any], operator: Operator) -> tuple[Any, str]:
    """A group whose target was deleted, and whose third member is off; the failover's
    execution."""
    group = active()
    operator.stop_server(group.server("db_c"))
    execution = loses_its_target(group, operator)
    wait_until_it_waits(group)
    return group, execution


def test_a_deleted_target_is_not_waited_for_but_another_member_is(
    waiting: tuple[Any, str], operator: Operator
) -> None:
    group, execution = waiting
    (what,) = waited_for(group)
    assert what.startswith(f"server {group.server('db_b')}: its server does not exist")
    assert f"failover replace {group.name} db_b" in what, "what helps at once"

    operator.start_server(group.server("db_c"))

    group.ended(execution).assert_succeeded()
    assert group.status()["roles"] == {"active": "db_c"}
    volume = str(group.cloud.resources(group.name)["data_volume"]["physical_resource_id"])
    assert group.cloud.writers(volume) == [group.server("db_c")]


def test_a_deleted_target_that_heat_makes_again_meanwhile_is_used(
    waiting: tuple[Any, str], operator: Operator
) -> None:
    group, execution = waiting

    operator.replace_server(group.name, "db_b")

    group.ended(execution).assert_succeeded()
    settled(group, "db_b")


def test_a_deleted_target_gets_another_server_by_the_command_that_is_shown(
    waiting: tuple[Any, str],
) -> None:
    group, execution = waiting

    group.run("replace_member", group=group.name, member="db_b").assert_succeeded()

    group.ended(execution)
    settled(group, "db_b")


def define(document: dict[str, Any]) -> None:
    """Change the definition of a group."""
    answer = groups.Define(document).run(ActionContext(SecurityContext(), ExecutionContext()))
    assert not isinstance(answer, Result), answer.error


def test_a_member_that_is_added_meanwhile_is_used(
    protect: Callable[..., Any], operator: Operator, state: Runtime
) -> None:
    """db_c may come back, so the failover waits; db_d becomes a member before that. An order that
    asks for what is defined uses it: a failover moves what is in force."""
    group = protect(servers=(*THREE, "db_d"), members={"servers": list(THREE)})
    group.activate()
    operator.stop_server(group.server("db_c"))
    execution = loses_its_target(group, operator)
    wait_until_it_waits(group)
    identity = store.group_id(own_project(state.settings), group.name)
    stored = state.database.reading(lambda tx: tx.definition(identity))["document"]

    define({**stored, "members": {"servers": [*THREE, "db_d"]}})
    refused = group.run("activate_first", group=group.name).assert_failed_with("HOLDER_GONE")
    assert refused.output["error"]["remedy"].endswith("--lost db_b --definition defined")
    order = {"lost": ["db_b"], "definition": "defined"}
    group.run("failover", group=group.name, **order).assert_succeeded()

    group.ended(execution)
    assert group.status()["roles"] == {"active": "db_d"}
    volume = str(group.cloud.resources(group.name)["data_volume"]["physical_resource_id"])
    assert group.cloud.writers(volume) == [group.server("db_d")]


def test_when_the_patience_is_over_the_failure_names_the_server(
    active: Callable[..., Any],
) -> None:
    group = active(("db_a", "db_b"), limits={"cooldown": 0, "patience": 0})

    run = group.ended(fails_over(group)).assert_failed_with("FAILED")

    message = run.output["error"]["message"]
    assert "[TARGET_DOWN]" in message
    assert group.server("db_b") in message
    assert f"failover start {group.name} --lost db_b" in message


@pytest.fixture
def given_up(active: Callable[..., Any]) -> Callable[..., Any]:
    """Make a group whose failover has waited for its target until its patience was over."""

    def make(
        servers: tuple[str, ...] = ("db_a", "db_b"),
        *,
        heal: str = "repair",
        per_hour: int = 20,
        **order: Any,
    ) -> Any:
        limits = {"cooldown": 0, "patience": 0, "per_hour": per_hour}
        group = active(servers, limits=limits, heal=heal)
        group.ended(fails_over(group, **order)).assert_failed_with("FAILED")
        return group

    return make


def heals(group: Any) -> list[dict[str, Any]]:
    """What a look at the group finds to be started; it starts nothing."""
    rows = recovery.Observe(group.name).run(ActionContext(SecurityContext(), ExecutionContext()))
    assert isinstance(rows, list), rows
    return [row["heal"] for row in rows if row["heal"]]


def test_a_target_that_returns_after_the_patience_is_over_is_used_without_an_order(
    given_up: Callable[..., Any],
) -> None:
    group = given_up()
    assert heals(group) == [], "it can still take nothing"

    revive(group)
    (heal,) = heals(group)
    assert heals(group) == [], "it is started once"
    assert "to" not in heal["input"], "another one may be chosen if it goes down again"
    group.run(heal["workflow"].removeprefix("failover."), **heal["input"]).assert_succeeded()

    settled(group, "db_b")
    assert group.status()["lost"] == ["db_a"]
    assert "db_b can take data now" in group.traversals()[-1]


def test_the_continuation_overrules_no_order(given_up: Callable[..., Any]) -> None:
    group = given_up(THREE, to="db_b")
    revive(group)

    (heal,) = heals(group)
    assert heal["input"]["to"] == {"active": "db_b"}, "the order named it"

    group.run("failover", group=group.name, lost=[], to="db_c").assert_succeeded()
    late = group.run(heal["workflow"].removeprefix("failover."), **heal["input"])
    late.assert_failed_with("CONTENDED")
    settled(group, "db_c")


def test_what_holds_healing_back_leaves_a_returned_target_to_an_operator(
    given_up: Callable[..., Any], state: Runtime
) -> None:
    for changed in ({"heal": "report"}, {"per_hour": 2}):
        held = given_up(**changed)
        revive(held)
        assert heals(held) == [], changed
    group = given_up()
    revive(group)
    identity = store.group_id(own_project(state.settings), group.name)
    group.run("pause", group=group.name, because="an audit")
    assert heals(group) == [], "paused"
    group.run("resume", group=group.name, because="the audit is over").assert_succeeded()
    state.database.atomically(lambda tx: set_evidence(tx, identity, UNANSWERED))
    assert heals(group) == [], "whether requests are answered cannot be observed"
    state.database.atomically(lambda tx: set_evidence(tx, identity, "agent"))
    assert len(heals(group)) == 1, "nothing holds it back"


def set_evidence(tx: SqlTransaction, group: str, evidence: str) -> None:
    """Write into the ledger what showed that a target was down."""
    of_group = operations.c.group_id == group
    rows = tx.connection.execute(sa.select(operations.c.key, operations.c.result).where(of_group))
    for key, result in rows.all():
        if target := ((result or {}).get("error") or {}).get("target"):
            target["evidence"] = evidence
            tx.execute(operations.update().where(operations.c.key == key).values(result=result))


def test_a_planned_move_returns_at_once(active: Callable[..., Any]) -> None:
    group = active()
    move = group.start("switchover", group=group.name, to="db_b")
    group.wait_until_told(DETACHING)
    group.fails("power_off", "db_b")

    group.ended(move).assert_failed_with("RETURNED")

    settled(group, "db_a")
    assert not group.told("no_other_target")


def test_an_order_that_names_its_target_waits_for_it(active: Callable[..., Any]) -> None:
    group = active()
    execution = fails_over(group, to="db_b")
    wait_until_it_waits(group)

    revive(group)

    group.ended(execution).assert_succeeded()
    settled(group, "db_b")
    (said,) = group.told("no_other_target")
    assert "the order names it" in said


@pytest.mark.parametrize("planned", [False, True])
def test_a_rollback_waits_for_the_member_of_its_goal(
    active: Callable[..., Any], planned: bool
) -> None:
    group = active()
    group.run("switchover", group=group.name, to="db_b").assert_succeeded()
    before = group.status()["goal"]
    group.run("switchover", group=group.name, to="db_c").assert_succeeded()
    if planned:
        plan = group.plan(verb="rollback", goal=before)["plan"]
        execution = group.start("start_plan", plan=plan)
    else:
        execution = group.start("rollback", group=group.name, goal=before)
    group.wait_until_told("Detach data from db_c: started")
    group.fails("power_off", "db_b")
    wait_until_it_waits(group)

    revive(group)

    group.ended(execution).assert_succeeded()
    settled(group, "db_b")


def test_while_the_group_is_paused_no_other_standby_is_chosen(active: Callable[..., Any]) -> None:
    group = active()
    group.fails("crash")
    execution = group.start("failover", group=group.name, lost=["db_a"])
    group.run("pause", group=group.name, because="an audit")
    group.wait_until_told(DETACHING)
    group.fails("power_off", "db_b")
    wait_until_it_waits(group)

    revive(group)

    group.ended(execution).assert_succeeded()
    settled(group, "db_b")


def test_a_sweep_chooses_where_the_process_died_before_it_did(
    active: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    group = active()
    with monkeypatch.context() as dead:
        dead.setattr(advance, "choose_other_target", _die)
        alarm = group.start("on_alarm", **group.fails("crash"))
        group.wait_until_told(DETACHING)
        group.fails("power_off", "db_b")
        group.ended(alarm)
    assert waited_for(group)

    deadline = time.monotonic() + 30
    while group.status()["status"] != "COMPLETE":
        assert time.monotonic() < deadline
        group.run("sweep", group=group.name).assert_succeeded()
    settled(group, "db_c")


def _die(request: Any, traversal: str) -> bool:
    raise RuntimeError("the process died")
