# SPDX-License-Identifier: Apache-2.0
"""A chain of the group's own (examples/own_chain) on the real engine: its own tasks run between the
stages, and what ends it in the middle does not end the failover."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from mistral_lib.actions import Result
from mistral_lib.actions.context import ActionContext, ExecutionContext, SecurityContext
from oslo_config import cfg

from mistral_failover.actions import doctor, groups, orders, recovery, reports
from mistral_failover.lab.testing.engine import TestEngine
from mistral_failover.mistral.api import Mistral, mistral_for
from mistral_failover.model.stages import Stage
from mistral_failover.recovery import stuck_executions
from mistral_failover.runtime.request import DEFAULT_PROJECT
from mistral_failover.store.groups import group_id
from support.own_chain import CHAIN, ExternalServices

pytestmark = pytest.mark.faults


@pytest.fixture
def house() -> Iterator[ExternalServices]:
    """The services, listening; Mistral may call loopback addresses meanwhile."""
    cfg.CONF.set_override("denied_cidrs", [], group="action_std_http")
    with ExternalServices() as services:
        # A sweep of the project may start the chain of another test's group again.
        services.concerns = lambda traversal: False
        yield services
    cfg.CONF.clear_override("denied_cidrs", group="action_std_http")


@pytest.fixture
def group(protect: Callable[..., Any], house: ExternalServices) -> Iterator[Any]:
    """A group whose failovers the example's chain works off, in service on db_a."""
    made = protect(workflow=CHAIN)
    made.workflows.load(house.chain)
    made.activate()
    identity = group_id(DEFAULT_PROJECT, made.name)

    def concerns(traversal: str) -> bool:
        found = made.state.database.reading(lambda tx: tx.traversal(traversal))
        return found is not None and found.group_id == identity

    house.concerns = concerns
    yield made
    house.status.update({"/tickets": 201, "/check": 200})
    if made.status()["chain"]:  # else the sweeps of other tests would take it up
        made.run("sweep", group=made.name).assert_succeeded()


@pytest.fixture
def quiet(state: Any) -> Iterator[float]:
    """Sweeps leave alone what said something within so many seconds."""
    before = cfg.CONF.failover.sweep_after
    cfg.CONF.set_override("sweep_after", 0.5, group="failover")
    yield 0.5
    cfg.CONF.set_override("sweep_after", before, group="failover")


@pytest.fixture
def engine(mistral: TestEngine) -> TestEngine:
    """Mistral's engine."""
    return mistral


def test_the_ticket_is_sent_after_the_proof_and_the_data_is_checked_before_the_start(
    group: Any, house: ExternalServices
) -> None:
    seen: list[tuple[str, int]] = []
    meanwhile: dict[str, Any] = {}

    def called(path: str) -> None:
        seen.append((path, len(group.cloud.audit())))
        if path == "/check":
            meanwhile.update(status(group))

    house.called = called

    run = group.run("on_alarm", **group.fails("crash")).assert_succeeded()

    assert run.output["outcome"]["status"] == "COMPLETE"
    assert group.holders() == ["db_b"]
    assert group.runs_on() == ["db_b"]
    run.sub("converge").assert_tasks(
        "fence", "tell", "quiesce", "move_volumes", "check_data", "activate", "update_stack", "end"
    )
    (ticket, told_at), (check, checked_at) = seen
    assert (ticket, check) == ("/tickets", "/check")
    assert last(group, "server_stopped", "db_a") <= told_at < last(group, "detach_begin", "db_a")
    assert last(group, "attached", "db_b") <= checked_at < last(group, "command_started", "db_b")
    assert group.cloud.violations() == []
    shown = done(reports.Show(group.status()["traversal"]["id"]).run(context()))
    assert [row["stage"] for row in shown["stages"]] == list(Stage)[:-1]
    # A stage that waits for the chain is named while the chain is at a task of its own.
    assert meanwhile["reason"] == (
        "waits for its chain payments.failover (execution "
        f"{meanwhile['chain']['execution']}) to open the stage activate"
    )
    assert meanwhile["chain"]["remedy"] == ""
    assert status(group)["chain"] is None


def test_a_ticket_system_that_does_not_answer_does_not_stop_the_failover(
    group: Any, house: ExternalServices
) -> None:
    house.status["/tickets"] = 0

    run = group.run("on_alarm", **group.fails("crash")).assert_succeeded()

    assert run.sub("converge").task("tell").state == "ERROR"
    assert house.times("/tickets") == 3
    assert group.runs_on() == ["db_b"]


def test_a_wrong_expression_in_the_chain_is_named_with_its_task(
    group: Any, house: ExternalServices
) -> None:
    right, wrong = "json: {traversal: <% $.traversal %>}", "json: {traversal: <% $.traversal.no %>}"
    group.workflows.load(house.chain.replace(right, wrong, 1))

    group.run("on_alarm", **group.fails("crash"))

    reason = status(group)["reason"]
    assert "ended with ERROR in task check_data before it opened the stage activate" in reason
    assert "expression=$.traversal.no, error=" in reason
    assert "Traceback" not in reason


def test_a_chain_that_is_cancelled_between_its_own_tasks_is_started_again_by_one_sweep_once(
    group: Any, house: ExternalServices, quiet: float
) -> None:
    def cancelled_once(path: str) -> None:
        if path == "/check" and house.times("/check") == 1:
            mistral(group).end(group.status()["chain"]["execution"], "CANCELLED", "a test")

    house.called = cancelled_once
    alarmed = group.ended(group.start("on_alarm", **group.fails("crash")))
    assert alarmed.state == "CANCELLED"
    assert status(group)["chain"]["state"] == "CANCELLED"

    time.sleep(1.5 * quiet)
    sweeps = [group.start("sweep") for _ in range(2)]

    swept = [group.ended(sweep).assert_succeeded().output["swept"] for sweep in sweeps]
    assert [row["workflow"] for each in swept for row in mine(group, each)] == [CHAIN]
    assert group.status()["status"] == "COMPLETE"
    assert starts(group, "db_b") == 1
    assert house.times("/tickets") == 2, "tasks of its own run at least once"
    assert group.cloud.violations() == []


# As OS::Mistral::Workflow of examples/protected-servers.yaml, with a task of its user beside it.
CALLER = """
version: '2.0'
house.on_lost:
  input: [alarm]
  tasks:
    tell: {workflow: failover.on_alarm, input: <% $.alarm %>}
    other: {workflow: house.other}
house.other:
  tasks:
    wait: {action: std.async_noop}
"""


@contextmanager
def impatient() -> Iterator[None]:
    """Sweeps end what did nothing for a second."""
    before = cfg.CONF.failover.hang_after
    cfg.CONF.set_override("hang_after", 1.0, group="failover")
    yield
    cfg.CONF.set_override("hang_after", before, group="failover")


def test_a_sweep_that_takes_long_does_not_end_itself(
    group: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = stuck_executions.find_stuck

    def late(*given: Any, **more: Any) -> Iterator[Any]:
        time.sleep(2.5)
        yield from find(*given, **more)

    monkeypatch.setattr(stuck_executions, "find_stuck", late)
    with impatient():
        group.run("sweep").assert_succeeded()


@pytest.mark.parametrize("swept", [False, True], ids=["no sweep yet", "a sweep died"])
def test_a_chain_that_hangs_below_a_workflow_of_a_user_is_ended_and_started_again(
    group: Any, house: ExternalServices, quiet: float, swept: bool
) -> None:
    """Mistral sees no more of a task whose process died than of one that does not return. A sweep
    that dies after it ended ``on_alarm`` leaves the chain below it."""
    hangs, returns = threading.Event(), threading.Event()

    def hangs_once(path: str) -> None:
        if path == "/check" and house.times("/check") == 1:
            hangs.set()
            returns.wait(50)

    house.called = hangs_once
    group.workflows.load(CALLER)
    alarm = {"group": group.name, **group.fails("crash")}
    top = group.workflows.start("house.on_lost", {"alarm": alarm})
    try:
        assert hangs.wait(60)
        if swept:
            mistral(group).end(below(group, top, "failover.on_alarm"), "ERROR", "a sweep")
        chain, deadline = group.status()["chain"]["execution"], time.monotonic() + 40
        with impatient():
            while mistral(group).state(chain) != "CANCELLED":
                assert time.monotonic() < deadline, "the chain hangs"
                done(recovery.Sweep().run(context()))
                time.sleep(0.2)
        time.sleep(1.5 * quiet)
        group.run("sweep").assert_succeeded()
    finally:
        returns.set()

    assert group.status()["status"] == "COMPLETE"
    tree = {each.workflow: each.state for each in mistral(group).tree(top)}
    mistral(group).end(top, "CANCELLED", "the test is over")
    assert tree == {
        "house.on_lost": "RUNNING",
        "house.other": "RUNNING",
        "failover.on_alarm": "ERROR",
        CHAIN: "CANCELLED",
    }
    assert house.times("/check") == 2
    assert starts(group, "db_b") == 1
    assert group.cloud.violations() == []


# As examples/protected-servers.yaml has it, with a task of its user after ours.
RECEIVER = """
version: '2.0'
house.receiver:
  input: [alarm_name, alarm_id, severity, previous, current, reason, reason_data, group]
  tasks:
    on_alarm:
      workflow: failover.on_alarm
      input:
        alarm_name: <% $.alarm_name %>
        alarm_id: <% $.alarm_id %>
        previous: <% $.previous %>
        current: <% $.current %>
        reason_data: <% $.reason_data %>
        group: <% $.group %>
      on-success: tell
    tell: {action: std.noop}
"""


# Its user handles the error of a task.
HANDLES = RECEIVER.replace("house.receiver", "house.handles").replace(
    "    tell: {action: std.noop}",
    "    tell: {action: std.fail, on-error: tell_another}\n    tell_another: {action: std.noop}",
)
# Its output cannot be evaluated, so Mistral ends it in ERROR.
BROKEN = RECEIVER.replace("house.receiver", "house.broken").replace(
    "  tasks:", "  output: {said: <% 1 / 0 %>}\n  tasks:"
)


def test_a_receiver_whose_end_mistral_lost_ends_as_mistral_would_have_ended_it(
    group: Any, engine: TestEngine
) -> None:
    """An engine that dies after the last task has ended leaves its execution RUNNING, and Heat
    deletes no workflow that runs. What its user still wants to run is the user's."""
    for definition in (RECEIVER, HANDLES, BROKEN):
        group.workflows.load(definition)
    alarm = {"group": group.name, **group.fails("crash")}
    names = ("house.receiver", "house.receiver", "house.handles", "house.broken")
    tops = [group.workflows.wait(group.workflows.start(name, alarm), timeout=60) for name in names]
    decisions = [top.sub("on_alarm").output["admission"]["decision"] for top in tops]
    assert decisions == ["ADMITTED", "DUPLICATE", "DUPLICATE", "DUPLICATE"]
    assert [top.state for top in tops] == ["SUCCESS", "SUCCESS", "SUCCESS", "ERROR"]
    _, waits, *_ = executions = [top.id for top in tops]
    with engine.context():
        for execution in executions:
            _forgets(execution, next_task=execution == waits)

    answer = done(recovery.Sweep().run(context()))

    states = [mistral(group).state(execution) for execution in executions]
    mistral(group).end(waits, "CANCELLED", "the test is over")
    assert states == ["SUCCESS", "RUNNING", "SUCCESS", "ERROR"]
    assert answer["unable"] == []
    assert group.status()["status"] == "COMPLETE"


def _forgets(execution: str, *, next_task: bool) -> None:
    """Make Mistral's database look as if the engine had died, an hour ago, before it noted the end
    of an execution; ``next_task``: before it created the last task."""
    from mistral.db.v2 import api  # after the fixture has chosen a backend for oslo.service

    with api.transaction():
        if next_task:
            (last,) = api.get_task_executions(workflow_execution_id=execution, name="tell")
            api.delete_task_execution(last.id)
            (ours,) = api.get_task_executions(workflow_execution_id=execution, name="on_alarm")
            ours.processed = False
        api.update_workflow_execution(execution, {"state": "RUNNING"})
        below = api.get_workflow_executions(root_execution_id=execution)
        for row in (api.get_workflow_execution(execution), *below):
            row.updated_at -= timedelta(hours=1)
        for row in api.get_task_executions(workflow_execution_id=execution):
            row.updated_at -= timedelta(hours=1)


def test_a_chain_that_refuses_the_data_says_so_and_is_started_three_times_and_again_on_request(
    group: Any, house: ExternalServices
) -> None:
    house.status["/check"] = 409

    group.run("on_alarm", **group.fails("crash")).assert_failed_with("DATA_REFUSED")

    assert group.holders() == ["db_b"]
    assert group.runs_on() == []
    found = status(group)
    assert (found["status"], found["chain"]["stage"]) == ("IN_PROGRESS", "activate")
    assert found["chain"]["task"] == "check_data"
    execution = found["chain"]["execution"]
    assert found["reason"] == (
        f"its chain payments.failover (execution {execution}) ended with ERROR in "
        "task check_data before it opened the stage activate: the data on the volume did not pass "
        f"the check; next: failover sweep {group.name}"
    )
    shown = done(reports.Show(found["traversal"]["id"]).run(context()))
    assert shown["reason"] == found["reason"]

    again = [mine(group, group.run("sweep").output["swept"]) for _ in range(3)]

    assert [len(rows) for rows in again] == [1, 1, 0]
    assert house.times("/check") == 3
    assert group.runs_on() == []
    house.status["/check"] = 200
    group.run("sweep", group=group.name).assert_succeeded()
    assert house.times("/check") == 4
    assert group.status()["status"] == "COMPLETE"
    assert starts(group, "db_b") == 1


def test_a_chain_that_never_began_is_started_by_a_sweep(group: Any) -> None:
    done(orders.Begin(group.name, to="db_b", lost=[]).run(context()))
    found = status(group)
    assert found["chain"]["execution"] is None
    assert found["reason"] == (
        "waits for its chain payments.failover, which has not started, to open the stage quiesce; "
        f"next: failover sweep {group.name}"
    )

    group.run("sweep").assert_succeeded()

    assert group.status()["status"] == "COMPLETE"
    assert group.runs_on() == ["db_b"]


def test_a_chain_that_never_began_is_started_though_mistral_s_api_is_not_found(
    group: Any, quiet: float
) -> None:
    """A catalog without Mistral, for example. The sweep itself runs in Mistral, so its engine is
    there."""
    begun = done(orders.Begin(group.name, to="db_b", lost=[]).run(context()))
    time.sleep(2 * quiet)
    before = cfg.CONF.failover.mistral_token_file
    cfg.CONF.set_override("mistral_token_file", "/nowhere", group="failover")
    try:
        answer = done(recovery.Sweep().run(context()))
    finally:
        cfg.CONF.set_override("mistral_token_file", before, group="failover")

    assert "The request to Mistral failed" in answer["unable"][0]
    assert {"traversal": begun["traversal"], "workflow": CHAIN} in answer["chains"]


def test_a_chain_that_mistral_does_not_have_fails_the_order_and_works_once_it_is_there(
    protect: Callable[..., Any], house: ExternalServices
) -> None:
    group = protect(workflow=CHAIN)
    run = group.run("activate_first", group=group.name)
    assert run.state == "ERROR"
    assert group.status()["status"] == "IN_PROGRESS"
    assert "Failed to find workflow [name=payments.failover]" in run.tree()

    group.workflows.load(house.chain)
    group.run("sweep").assert_succeeded()

    assert group.status()["status"] == "COMPLETE"
    assert group.runs_on() == ["db_a"]


def test_an_order_runs_the_group_s_own_chain(group: Any, house: ExternalServices) -> None:
    run = group.run("switchover", group=group.name, to="db_b").assert_succeeded()

    assert run.output["outcome"]["status"] == "COMPLETE"
    assert [path for path, _ in house.calls] == ["/tickets", "/check"]


def test_a_word_for_a_fence_runs_the_group_s_own_chain(group: Any, house: ExternalServices) -> None:
    group.run("on_alarm", **group.fails("power_off")).assert_failed_with("BLOCKED")
    assert house.calls == [], "nothing is told before the proof"

    group.run("confirm_fenced", group=group.name, member="db_a", because="I pulled the plug")

    # The dead host keeps the volume; the group's status asks for an operator who frees it.
    assert [path for path, _ in house.calls] == ["/tickets"]
    assert group.status()["status"] == "BLOCKED"


def test_defining_a_group_names_the_workflows_that_mistral_does_not_have(
    group: Any, house: ExternalServices
) -> None:
    definition = done(reports.Status(group.name, definition=True).run(context()))["definition"]
    document = {**definition["document"], "workflow": "house.nowhere"}

    answer = done(groups.Define(document, dry_run=True).run(context()))
    known = done(groups.Define(definition["document"], dry_run=True).run(context()))

    assert (answer["missing"], known["missing"]) == (["house.nowhere"], [])


def test_the_doctor_says_that_mistral_does_not_have_the_chain(protect: Callable[..., Any]) -> None:
    group = protect(workflow="house.nowhere", on_event={"workflow": "house.tell"})

    found = done(doctor.Doctor(group.name).run(context()))["findings"]

    chain, hook = [row for row in found if row["check"] == "chain"]
    assert (chain["level"], "house.nowhere" in chain["sentence"]) == ("error", True)
    assert (hook["level"], "house.tell" in hook["sentence"]) == ("error", True)


def status(group: Any) -> dict[str, Any]:
    """What failover.status says when it may ask Mistral."""
    return dict(done(reports.Status(group.name, agents=True).run(context())))


def mistral(group: Any) -> Mistral:
    """The API of this test process's Mistral."""
    found = mistral_for(None, group.state.settings)
    assert found is not None
    return found


def below(group: Any, top: str, workflow: str) -> str:
    """The id of the execution of a workflow in a tree."""
    (found,) = [each.id for each in mistral(group).tree(top) if each.workflow == workflow]
    return found


def mine(group: Any, swept: dict[str, Any]) -> list[dict[str, Any]]:
    """What a sweep of the project has restarted of this group."""
    return [row for row in swept["restarted"] if row["group"] == group.name]


def starts(group: Any, member: str) -> int:
    """How often the application was started on a member, by the cloud's own word."""
    server = group.server(member)
    events = group.cloud.audit(kind="command_started")
    return [e["command"] for e in events if e["server"] == server].count("start")


def last(group: Any, kind: str, member: str) -> int:
    """The number of the audit's last event of a kind about a member's server."""
    server = group.server(member)
    return max(e["seq"] for e in group.cloud.audit(kind=kind) if e.get("server") == server)


def context() -> ActionContext:
    """What an action gets from a Mistral whose authentication is off."""
    return ActionContext(SecurityContext(), ExecutionContext())


def done(answer: Any) -> Any:
    """An action's answer, which must not be an error."""
    assert not isinstance(answer, Result), answer.error
    return answer
