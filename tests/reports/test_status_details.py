# SPDX-License-Identifier: Apache-2.0
"""What a group's status tells besides where it stands."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from mistral_lib.actions import Result
from mistral_lib.actions.context import ActionContext

from mistral_failover.actions import alarms, reports, suspensions
from mistral_failover.convergence.records import Outcome, Ready
from mistral_failover.mistral import action_runner
from mistral_failover.reports import status_details
from mistral_failover.runtime.process import Request, Runtime
from support.driving import work_all

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

    def run(name: str, operation: dict[str, Any], context: Any) -> Outcome:
        if name == "failover.attach_volume":
            return Outcome(physical_id="v1", attributes={"server_id": "s-a"})
        return Outcome(error={"code": "X", "message": "a person must look"}, blocked=True)

    monkeypatch.setattr(action_runner, "run", run)
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
    monkeypatch.setattr(Request, "cloud", lambda self, guard: SimpleNamespace())
    monkeypatch.setattr(status_details, "ASK", 0.1)

    found = status(context, agents=True)

    over.set()
    assert list(found["agents"]) == [""]
    assert "within 0 s" in found["agents"][""]
