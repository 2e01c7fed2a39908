# SPDX-License-Identifier: Apache-2.0
"""What a group's status says."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from mistral_lib.actions import Result
from mistral_lib.actions.context import ActionContext

from mistral_failover.actions import alarms, reports, suspensions
from mistral_failover.convergence.records import JournalKind, Outcome, Ready
from mistral_failover.reports import status as status_report
from mistral_failover.resources import worker
from mistral_failover.runtime.process import Runtime
from mistral_failover.runtime.request import Request
from mistral_failover.store.transaction import SqlTransaction
from support.driving import handed_out, work_all
from support.no_cloud import NoCloud

RESOURCES = {
    "data": {
        "type": "volume_attachment",
        "properties": {"volume": "data_volume", "server": {"get_param": "active"}},
    },
    "database": {
        "type": "activation",
        "depends_on": "data",
        "properties": {"member": {"get_param": "active"}, "start": "on", "stop": "off"},
    },
}


def status(context: ActionContext, **more: Any) -> dict[str, Any]:
    answer = reports.Status("payments", **more).run(context)
    assert not isinstance(answer, Result), answer.error
    return dict(answer)


@pytest.fixture
def attached(
    state: Runtime,
    context: ActionContext,
    started: Callable[..., Ready],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The volume is attached to db_a, and the application can not be started."""

    def run(_request: Any, _guard: Any, function: str, _operation: Any) -> Outcome:
        if function == "attach_volume":
            return Outcome(physical_id="v1", attributes={"server_id": "s-a"})
        return Outcome(error={"code": "X", "message": "a person must look"}, blocked=True)

    monkeypatch.setattr(worker, "carried_out", run)
    work_all(state, lambda: context, started(resources=RESOURCES).traversal_id)


@pytest.mark.usefixtures("attached")
def test_a_status_tells_who_has_each_volume_and_since_when_the_group_is_blocked(
    context: ActionContext,
) -> None:
    found = status(context)

    (holder,) = found["holders"]
    since = holder.pop("since")
    assert holder == {
        "volume": "data",
        "physical_id": "v1",
        "member": "db_a",
        "server": "s-a",
        "status": "CREATE_COMPLETE",
    }
    assert found["traversal"]["started_at"] <= since <= found["now"]
    assert found["status"] == "BLOCKED"
    assert since <= found["since"] <= found["now"]
    assert found["agents"] == {}


@pytest.mark.usefixtures("attached")
def test_a_step_that_fails_later_does_not_change_since_when_a_group_is_blocked(
    state: Runtime, context: ActionContext
) -> None:
    def fail_another(tx: SqlTransaction) -> None:
        group = found["traversal"]["group_id"]
        tx.journal(group, "x", kind=JournalKind.FAILED, traversal_id=found["traversal"]["id"])

    found = status(context)
    state.database.atomically(fail_another)

    (row,) = reports.Status().run(context)["overview"]
    assert found["traversal"]["started_at"] < found["since"]
    assert (row["since"], status(context)["since"]) == (found["since"], found["since"])


def test_a_status_counts_the_alarms_that_are_held(begun: Ready, context: ActionContext) -> None:
    assert status(context)["held"] == 0
    suspensions.Pause("payments", because="work").run(context)
    body = {"previous": "ok", "current": "alarm", "alarm_id": "x"}
    alarms.Admit(body, group="payments", member="db_b").run(context)

    assert status(context)["held"] == 1


@pytest.mark.usefixtures("attached")
def test_agents_that_do_not_answer_in_time_hold_no_status_up(
    context: ActionContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    over = threading.Event()
    channel = SimpleNamespace(heard=lambda to: over.wait(60))
    monkeypatch.setattr(Request, "channel", lambda self, cloud, guard: channel)
    monkeypatch.setattr(Request, "cloud", lambda self, guard: NoCloud())
    monkeypatch.setattr(status_report, "ASK", 0.1)

    found = status(context, agents=True)

    over.set()
    assert list(found["agents"]) == [""]
    assert "within 0 s" in found["agents"][""]


# -- all groups


WORK = ("under_way", "waiting", "deferred", "ready")


def test_the_answer_about_all_groups_has_the_work_of_each_as_its_own_status(
    state: Runtime, context: ActionContext, begun: Ready
) -> None:
    handed_out(state, context, begun)

    (row,) = reports.Status().run(context)["overview"]
    mine = status(context)

    (step,) = row["under_way"]
    (same,) = mine["under_way"]
    assert step["sentence"] == same["sentence"]
    assert (step["status"], step["attempts"]) == ("started", 1)
    assert step["limit"] == same["limit"] > 0
    assert 0 <= step["seconds"] < 60
    assert "group_id" not in step
    assert (row["waiting"], row["deferred"]) == ([], [])


def test_a_step_that_may_start_and_has_not_is_shown_with_the_services_that_it_asks(
    state: Runtime, context: ActionContext, started: Callable[..., Ready]
) -> None:
    begun = started(resources=RESOURCES)
    shown = {"resource": "data", "member": "db_a", "services": ["Cinder", "Nova"]}

    assert status(context)["ready"] == [{"node": begun.node.key, **shown}]

    handed_out(state, context, begun)
    assert status(context)["ready"] == []


def test_a_step_of_a_stage_that_is_not_open_waits_for_its_chain_and_not_for_its_turn(
    context: ActionContext, started: Callable[..., Ready]
) -> None:
    started(resources=RESOURCES, workflow="own.chain")

    assert status(context)["ready"] == []
    assert status(context)["chain"] is not None


@pytest.mark.usefixtures("attached")
def test_the_answer_about_all_groups_has_the_work_of_a_blocked_group(
    context: ActionContext,
) -> None:
    (row,) = reports.Status().run(context)["overview"]

    mine = status(context)
    assert row["status"] == "BLOCKED"
    assert {key: row[key] for key in WORK} == {key: mine[key] for key in WORK}


def test_a_group_without_a_goal_has_no_work(define: Any, context: ActionContext) -> None:
    define("payments")

    (row,) = reports.Status().run(context)["overview"]

    assert [row[key] for key in WORK] == [[], [], [], []]
