# SPDX-License-Identifier: Apache-2.0
"""Orders of people that did not start: said to be refused, and never taken for alarms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from mistral_lib.actions.context import ActionContext

from mistral_failover.actions import alarms, orders, reports
from mistral_failover.convergence.records import Ready
from mistral_failover.model.goal import render_goal
from mistral_failover.model.order import Order
from mistral_failover.orders import operator_order
from mistral_failover.runtime.errors import ActionError
from mistral_failover.runtime.process import Runtime
from mistral_failover.runtime.request import Request
from mistral_failover.store import incidents as store

MOVE = Order("switchover")


def incidents(context: ActionContext) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = reports.Status("payments").run(context)["incidents"]
    return found


@pytest.fixture
def refused(begun: Ready, context: ActionContext) -> str:
    """The incident of a planned move that was refused: the group is not COMPLETE."""
    answer = orders.Switchover("payments", to="db_b", because="new disks").run(context)
    assert answer.error["code"] == "NOT_COMPLETE"
    return str(incidents(context)[0]["id"])


def test_a_refused_order_says_so_and_why(refused: str, context: ActionContext) -> None:
    (order,) = incidents(context)

    assert order["decision"] == "REFUSED"
    assert order["sentence"].startswith("payments is IN_PROGRESS")
    assert order["sentence"].endswith("[NOT_COMPLETE] (order: new disks)")
    told = [row for row in reports.History("payments").run(context) if row["kind"] == "refused"]
    assert [row["sentence"] for row in told] == [f"REFUSED: {order['sentence']}"]
    assert alarms.Held().run(context)["total"] == 0


def test_a_refused_order_is_no_alarm_by_which_somebody_could_be_fenced(
    refused: str, context_of: Callable[..., ActionContext], project: str
) -> None:
    other = context_of(project)

    answer = orders.Begin("payments", incident=refused, because="it was listed").run(other)

    assert answer.error["code"] == "NOT_AN_ALARM"
    assert reports.Status("payments").run(other)["lost"] == []


def test_an_order_whose_process_died_before_it_began_is_no_alarm_either(
    begun: Ready, state: Runtime, context_of: Callable[..., ActionContext], project: str
) -> None:
    context = context_of(project)

    def dies(snapshot: Any) -> Any:
        raise RuntimeError("the process is gone")

    with pytest.raises(RuntimeError):
        operator_order.start_order(Request(state, context), "payments", dies, MOVE, "a move")

    (order,) = incidents(context)
    assert order["decision"] == "ADMITTED", "it is unknown how far it came"
    answer = orders.Begin("payments", incident=order["id"]).run(context_of(project))
    assert answer.error["code"] == "NOT_AN_ALARM"


def test_the_same_execution_may_give_a_refused_order_again(
    begun: Ready, state: Runtime, context: ActionContext
) -> None:
    request = Request(state, context)

    def unable(snapshot: Any) -> Any:
        raise ActionError("UNREACHABLE", "the cloud is away", "Wait.")

    def able(snapshot: Any) -> Any:
        return render_goal(snapshot.group, {"active": "db_b"}, [])

    with pytest.raises(ActionError):
        operator_order.start_order(request, "payments", unable, MOVE, "a move")
    assert incidents(context)[0]["decision"] == "REFUSED"

    begun_now = operator_order.start_order(request, "payments", able, MOVE, "a move")

    (order,) = incidents(context)
    assert (order["id"], order["decision"]) == (begun_now["incident"], "ADMITTED")


def test_an_order_that_another_delivery_has_begun_is_not_refused(
    begun: Ready, state: Runtime, context: ActionContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the start of its traversal and the note of that in the incident."""
    request = Request(state, context)

    def able(snapshot: Any) -> Any:
        return render_goal(snapshot.group, {"active": "db_b"}, [])

    def too_late(snapshot: Any) -> Any:
        with monkeypatch.context() as patch:
            patch.setattr(store, "link", lambda *_: None)
            operator_order.start_order(request, "payments", able, MOVE, "a move")
        raise ActionError("UNREACHABLE", "the cloud is away", "Wait.")

    with pytest.raises(ActionError):
        operator_order.start_order(request, "payments", too_late, MOVE, "a move")

    (order,) = incidents(context)
    assert (order["decision"], order["sentence"]) == ("ADMITTED", "a move")


def test_an_order_of_what_is_so_already_asked_for_nothing(
    begun: Ready, state: Runtime, context: ActionContext
) -> None:
    def there(snapshot: Any) -> Any:
        raise operator_order.NothingToDo("db_a holds active already")

    with pytest.raises(operator_order.NothingToDo):
        operator_order.start_order(Request(state, context), "payments", there, MOVE, "a move")

    (order,) = incidents(context)
    assert order["decision"] == "IGNORED"
    assert order["sentence"] == "db_a holds active already (order: a move)"
