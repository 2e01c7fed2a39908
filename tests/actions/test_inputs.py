# SPDX-License-Identifier: Apache-2.0
"""Every input of every action is checked, and a refusal names the input."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from mistral_lib.actions import Action, Result
from mistral_lib.actions.context import ActionContext

from mistral_failover.actions import (
    agents,
    alarms,
    groups,
    members,
    operations,
    orders,
    recovery,
    reports,
    suspensions,
)
from mistral_failover.model.order import Order
from mistral_failover.orders.verbs import verb_named
from mistral_failover.runtime.process import Runtime

OPERATIONS = [
    operations.AttachVolume,
    operations.DetachVolume,
    operations.AssociateFloatingIp,
    operations.DisassociateFloatingIp,
    operations.AttachPort,
    operations.DetachPort,
    operations.AllowAddress,
    operations.ForbidAddress,
    operations.Activate,
    operations.Reactivate,
    operations.Quiesce,
    operations.PatchStack,
    operations.PatchTemplate,
    operations.Fence,
]
LOCK = {"resource_id": "r", "owner": "o", "token": 1, "lease": 30.0}
TICKET = {
    "key": "k",
    "verb": "create",
    "traversal_id": "t",
    "node": "update:r",
    "lock": LOCK,
    "goal_version": "v",
}
LACKING = {"ticket": TICKET}
TEXT = [None, "", 5, ["g"], {"g": 1}]
OPTIONAL_TEXT = [5, ["g"], {"g": 1}, True]
NAMES = [5, {"a": 1}, [1], ["a", None], True]

# (class, its inputs, the input that is wrong, wrong values)
WRONG: list[tuple[type[Action], dict[str, Any], str, list[Any]]] = [
    (alarms.Admit, {"alarm": {}}, "group", OPTIONAL_TEXT),
    (alarms.Admit, {"alarm": {}}, "member", OPTIONAL_TEXT),
    (alarms.AdmitEvent, {"body": {"alarm_id": "a"}}, "group", OPTIONAL_TEXT),
    (alarms.AdmitEvent, {"body": {"alarm_id": "a"}}, "member", OPTIONAL_TEXT),
    (alarms.AdmitEvent, {"body": {"alarm_id": "a"}}, "kind", OPTIONAL_TEXT),
    (suspensions.Pause, {"because": "b"}, "group", TEXT),
    (suspensions.Pause, {"group": "g"}, "because", TEXT),
    (suspensions.Resume, {"because": "b"}, "group", TEXT),
    (suspensions.Resume, {"group": "g"}, "because", TEXT),
    (suspensions.Maintenance, {"because": "b", "minutes": 1}, "group", TEXT),
    (suspensions.Maintenance, {"group": "g", "minutes": 1}, "because", TEXT),
    (
        suspensions.Maintenance,
        {"group": "g", "because": "b"},
        "minutes",
        [0, 40321, "1", True, 1.5],
    ),
    (suspensions.Maintenance, {"group": "g", "because": "b"}, "until", [*OPTIONAL_TEXT, "soon"]),
    (suspensions.Maintenance, {"group": "g", "because": "b", "minutes": 1}, "members", NAMES),
    (alarms.Held, {}, "group", OPTIONAL_TEXT),
    (alarms.Held, {}, "limit", [0, 1001, "1", True]),
    (alarms.Dismiss, {"because": "b"}, "incident", [*NAMES, "", []]),
    (alarms.Dismiss, {"incident": "i"}, "because", TEXT),
    (agents.Agents, {}, "group", TEXT),
    (members.Members, {}, "group", TEXT),
    (orders.Failback, {}, "group", TEXT),
    (orders.Failback, {"group": "g"}, "to", OPTIONAL_TEXT),
    (orders.Failback, {"group": "g"}, "role", OPTIONAL_TEXT),
    (orders.Failback, {"group": "g"}, "recovered", NAMES),
    (orders.Failback, {"group": "g"}, "because", OPTIONAL_TEXT),
    (agents.Enroll, {}, "group", TEXT),
    (agents.Enroll, {"group": "g"}, "member", OPTIONAL_TEXT),
    (orders.Begin, {}, "group", TEXT),
    (orders.Begin, {"group": "g"}, "to", [5, ["a"], {"active": 5}, {"active": ["a"]}]),
    (orders.Begin, {"group": "g"}, "lost", NAMES),
    (orders.Begin, {"group": "g"}, "recovered", NAMES),
    (orders.Begin, {"group": "g"}, "incident", OPTIONAL_TEXT),
    (orders.Begin, {"group": "g"}, "because", OPTIONAL_TEXT),
    (recovery.Advance, {"through": "end"}, "traversal", TEXT),
    (recovery.Advance, {"traversal": "t"}, "through", [*TEXT, "later", "END"]),
    (recovery.Advance, {"traversal": "t", "through": "end"}, "hold", [None, 1, "yes", []]),
    (recovery.Report, {"traversal": "t"}, "group", TEXT),
    (recovery.Report, {"group": "g"}, "traversal", TEXT),
    (recovery.Sweep, {}, "group", OPTIONAL_TEXT),
    (orders.ConfirmFenced, {"member": "m", "because": "b"}, "group", TEXT),
    (orders.ConfirmFenced, {"group": "g", "because": "b"}, "member", TEXT),
    (orders.ConfirmFenced, {"group": "g", "member": "m"}, "because", TEXT),
    (groups.Define, {"definition": {}}, "name", OPTIONAL_TEXT),
    (groups.Define, {"definition": {}}, "types", [{}, "type", 5]),
    (orders.Plan, {}, "group", TEXT),
    (orders.Plan, {"group": "g"}, "to", [5, ["a"]]),
    (orders.Plan, {"group": "g"}, "lost", NAMES),
    (orders.Plan, {"group": "g"}, "recovered", NAMES),
    (orders.Plan, {"group": "g"}, "verb", [5, ["a"], "burn"]),
    (orders.Plan, {"group": "g"}, "goal", [5, "c0ffee00"]),
    (orders.Plan, {"group": "g", "verb": "rollback"}, "goal", [5, ["a"]]),
    (orders.Plan, {"group": "g", "verb": "switchover"}, "role", [5, ["a"]]),
    (orders.StartPlan, {}, "plan", TEXT),
    (orders.StartPlan, {"plan": "p"}, "because", OPTIONAL_TEXT),
    (reports.Status, {}, "group", OPTIONAL_TEXT),
    (reports.History, {}, "group", OPTIONAL_TEXT),
    (reports.History, {"group": "g"}, "after", [-1, "1", True, None, 1.5]),
    (reports.History, {"group": "g"}, "limit", [0, 1001, "1", True, None]),
    (reports.History, {"group": "g"}, "traversal", OPTIONAL_TEXT),
    *((action, {}, "operation", [None, 5, "o", [], {}, LACKING]) for action in OPERATIONS),
]


def cases() -> Iterator[Any]:
    for action, inputs, key, values in WRONG:
        for value in values:
            yield pytest.param(action, inputs, key, value, id=f"{action.__name__}-{key}-{value}")


@pytest.mark.parametrize(("action", "inputs", "key", "value"), cases())
def test_a_wrong_input_is_refused_by_its_name(
    state: Runtime,
    context: ActionContext,
    action: Callable[..., Action],
    inputs: dict[str, Any],
    key: str,
    value: Any,
) -> None:
    answer = action(**{**inputs, key: value}).run(context)

    assert isinstance(answer, Result)
    assert answer.error["code"] == "BAD_INPUT"
    assert key in answer.error["message"]
    assert answer.error["remedy"]


@pytest.mark.parametrize(
    "action",
    [
        *map(alarms.Admit, [None, "alarm", [1], {"current": 5}, {"reason_data": "x"}]),
        *map(groups.Define, [None, 5, "", "a: [", {}, {"stack": "s"}]),
        *(groups.Define({}, types=types) for types in ([5], ["a: ["], [{}], [None])),
    ],
    ids=lambda action: str(vars(action)),
)
def test_what_is_no_alarm_group_or_type_is_an_invalid_document(
    state: Runtime, context: ActionContext, action: Any
) -> None:
    assert action.run(context).error["code"] == "INVALID_DOCUMENT"


def order_of(**given: Any) -> Order:
    """The order of a failover with these inputs."""
    return orders.read_order(verb_named("failover"), vars(orders.Begin("g", **given)))


@pytest.mark.parametrize(
    ("given", "names"),
    [(None, ()), ("", ()), ([], ()), ("db_a", ("db_a",)), (["db_a", "db_b"], ("db_a", "db_b"))],
)
def test_one_name_or_a_list_of_names_may_be_given(given: Any, names: tuple[str, ...]) -> None:
    assert order_of(recovered=given).recovered == names


def test_an_unstated_lost_differs_from_no_member_lost() -> None:
    assert order_of().lost is None
    assert order_of(lost=[]).lost == ()


def test_an_operation_that_lacks_keys_is_told_which(state: Runtime, context: ActionContext) -> None:
    answer = operations.AttachVolume({"ticket": TICKET, "verb": "create"}).run(context)

    assert "missing: key, group, group_id, stack" in answer.error["message"]


def test_a_dry_run_does_nothing(state: Runtime, context: ActionContext) -> None:
    assert orders.Begin("no such group").test(context) is None
