# SPDX-License-Identifier: Apache-2.0
"""What an id stands for, and what is told about it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from mistral_lib.actions import Result
from mistral_lib.actions.context import ActionContext

from mistral_failover.actions import alarms, reports, suspensions
from mistral_failover.convergence.records import Outcome, Ready
from mistral_failover.model.alarm_fact import AlarmFact
from mistral_failover.model.ids import derived_id, group_id
from mistral_failover.model.order import Order
from mistral_failover.runtime.process import Runtime
from mistral_failover.store import incidents, plans
from mistral_failover.store.incidents import Incident
from mistral_failover.store.plans import StoredPlan
from support.driving import conclude, handed_out


def show(context: ActionContext, identity: str, group: str | None = None) -> dict[str, Any]:
    answer = reports.Show(identity, group).run(context)
    found: dict[str, Any] = answer.error if isinstance(answer, Result) else answer
    return found


@pytest.fixture
def done(state: Runtime, begun: Ready, context: ActionContext) -> dict[str, Any]:
    """The ticket of the traversal's one operation, which is done."""
    document = handed_out(state, context, begun)
    conclude(state, document, Outcome(physical_id="x1"))
    ticket: dict[str, Any] = document["ticket"]
    return ticket


def test_a_traversal_is_told_with_its_operations_stages_and_way(
    begun: Ready, done: dict[str, Any], context: ActionContext
) -> None:
    found = show(context, begun.traversal_id[:8])

    assert (found["kind"], found["id"]) == ("traversal", begun.traversal_id)
    assert (found["status"], found["cause"], found["group"]) == ("COMPLETE", "a test", "payments")
    (operation,) = found["operations"]
    assert (operation["verb"], operation["resource"]) == ("create", "thing")
    assert operation["result"] == "done (id: x1)"
    assert operation["execution"] == context.execution.workflow_execution_id
    assert (operation["stage"], operation["resource_id"]) == ("fence", begun.node.resource_id)
    (stage,) = found["stages"]
    assert (stage["stage"], stage["operations"]) == ("fence", 1)
    assert found["critical_path"]["steps"][0]["key"] == operation["key"]
    assert found["critical_path"]["steps"][0]["resource"] == "thing"
    assert found["lock_waits"] == {"count": 0, "seconds": 0}
    assert [row["kind"] for row in found["history"]][-1] == "complete"
    assert found["executions"]["trees"] == []
    assert found["executions"]["left_out"]


def test_a_caller_that_needs_no_executions_lets_mistral_alone(
    begun: Ready, done: dict[str, Any], context: ActionContext
) -> None:
    found = reports.Show(begun.traversal_id, executions=False).run(context)

    assert found["status"] == "COMPLETE"
    assert "executions" not in found


def test_each_kind_of_thing_is_found_by_its_first_digits(
    begun: Ready, done: dict[str, Any], context: ActionContext
) -> None:
    goal = show(context, begun.traversal_id)["goal"]

    kinds = {
        identity: show(context, identity[:8])["kind"]
        for identity in (begun.traversal_id, goal, done["key"], begun.node.resource_id)
    }

    assert list(kinds.values()) == ["traversal", "goal", "operation", "resource"]
    assert show(context, goal)["last_complete"] is True
    assert show(context, begun.node.resource_id)["operations"][0]["key"] == done["key"]
    assert show(context, done["key"])["intent"]["properties"] == {"holder": "db_a"}


def test_an_incident_is_told_with_what_arrived_and_how_often(
    serve: Callable[..., str], context: ActionContext
) -> None:
    group = serve("alarmed")
    suspensions.Pause(group, because="work").run(context)
    body = {"previous": "ok", "current": "alarm", "alarm_id": "x", "severity": "low"}
    held = alarms.Admit(body, group=group, member="db_b").run(context)
    alarms.Admit(body, group=group, member="db_b").run(context)

    found = show(context, held["incident"], group)

    assert (found["kind"], found["decision"], found["rule"]) == ("incident", "HELD", "paused")
    assert found["heard"] == 2
    assert found["said"]["alarm_id"] == "x"
    assert found["traversals"] == []


def test_an_id_that_fits_several_things_names_them(
    state: Runtime, project: str, context: ActionContext
) -> None:
    tail = derived_id(project)[8:]
    both = [f"abcdef0{digit}{tail}" for digit in (1, 2)]
    for identity in both:
        held = Incident(identity, project, None, "aodh", AlarmFact(), {}, "HELD", "a word")
        state.database.atomically(partial(incidents.add, incident=held))

    error = show(context, "abcdef0")
    assert error["code"] == "UNKNOWN_ID"  # seven digits are too few
    assert show(context, both[0].upper())["id"] == both[0]
    third = f"{both[0][:-1]}x"
    found = Incident(third, project, None, "aodh", AlarmFact(), {}, "HELD", "a word")
    state.database.atomically(lambda tx: incidents.add(tx, found))

    error = show(context, both[0][:8])

    assert error["code"] == "AMBIGUOUS_ID"
    assert f"incident {both[0]}" in error["message"]
    assert f"incident {third}" in error["message"]
    assert both[1] not in error["message"]


def test_an_id_of_no_object_is_reported_as_unknown(state: Runtime, context: ActionContext) -> None:
    assert show(context, "0badc0de")["code"] == "UNKNOWN_ID"
    assert show(context, "%")["code"] == "UNKNOWN_ID"


def test_a_plan_is_found_by_its_id(
    define: Callable[..., str], state: Runtime, project: str, context: ActionContext
) -> None:
    identity = group_id(project, define())
    plan = StoredPlan(
        derived_id("plan", project),
        project,
        identity,
        Order("failover", to="db_b"),
        "f",
        {},
        "0" * 64,
    )
    state.database.atomically(partial(plans.keep, plan=plan, lifetime=60.0))

    found = show(context, plan.id[:13])

    assert (found["kind"], found["verb"], found["expired"]) == ("plan", "failover", False)
    assert found["steps"] == f"failover plan --plan {plan.id}"
