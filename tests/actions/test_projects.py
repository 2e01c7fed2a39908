# SPDX-License-Identifier: Apache-2.0
"""Nothing of one project is there for another."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from mistral_lib.actions import Action
from mistral_lib.actions.context import ActionContext

from mistral_failover.actions import (
    alarms,
    groups,
    operations,
    orders,
    recovery,
    reports,
)
from mistral_failover.cloud.errors import CloudError
from mistral_failover.convergence.records import Outcome, Ready
from mistral_failover.mistral.operation_documents import read_ticket, ticket_document
from mistral_failover.orders import define_group
from mistral_failover.runtime.process import Runtime
from mistral_failover.runtime.request import DEFAULT_PROJECT, Request
from support.driving import handed_out, ready_nodes
from support.group_fixtures import HOUSE

NAMING_A_GROUP: list[Action] = [
    orders.Begin("payments"),
    orders.Begin("payments", lost=[]),
    recovery.Report("payments", "t"),
    recovery.Sweep("payments"),
    orders.ConfirmFenced("payments", "db_a", "sure"),
    orders.Plan("payments"),
    reports.Status("payments"),
    reports.History("payments"),
]


@pytest.fixture
def stranger(context_of: Callable[..., ActionContext], project: str) -> ActionContext:
    """A request of another project."""
    return context_of(f"not-{project}")


@pytest.mark.parametrize("action", NAMING_A_GROUP, ids=lambda a: type(a).__name__)
def test_another_project_s_group_is_unknown(
    begun: Ready, stranger: ActionContext, action: Action
) -> None:
    assert action.run(stranger).error["code"] == "UNKNOWN_GROUP"


@pytest.mark.parametrize("action", NAMING_A_GROUP, ids=lambda a: type(a).__name__)
def test_a_group_that_does_not_exist_reads_the_same(
    state: Runtime, begun: Ready, context: ActionContext, stranger: ActionContext, action: Action
) -> None:
    other = type(action)(**{**inputs_of(action), "group": "unknown"})

    mine, theirs = other.run(context).error, action.run(stranger).error
    assert mine["message"].replace("unknown", "payments") == theirs["message"]


def inputs_of(action: Action) -> dict[str, Any]:
    return {k: v for k, v in vars(action).items() if not k.startswith("_")}


def test_another_project_s_groups_are_not_listed(
    begun: Ready, context: ActionContext, stranger: ActionContext
) -> None:
    mine, theirs = (reports.Status().run(each) for each in (context, stranger))

    assert (mine["groups"], mine["total"]) == (["payments"], 1)
    assert [row["name"] for row in mine["overview"]] == ["payments"]
    assert (theirs["groups"], theirs["total"], theirs["overview"]) == ([], 0, [])


def test_an_alarm_naming_another_project_s_group_or_server_concerns_no_group(
    begun: Ready, context: ActionContext, stranger: ActionContext
) -> None:
    event = {"message_id": "m", "traits": [["instance_id", 1, "s-a"]]}
    alarm = {"previous": "ok", "current": "alarm", "reason_data": {"event": event}}

    by_group = alarms.Admit(alarm, group="payments").run(stranger)
    by_server = alarms.Admit(alarm).run(stranger)

    assert by_group["decision"] == by_server["decision"] == "HELD"
    assert "this project has no group payments" in by_group["sentence"]
    assert "no group of this project is known to have s-a" in by_server["sentence"]
    assert by_server["traversal"] is None
    assert alarms.Held().run(context)["held"] == []
    assert {row["group"] for row in alarms.Held().run(stranger)["held"]} == {None}


def test_another_project_s_traversals_are_not_swept(
    begun: Ready, context: ActionContext, stranger: ActionContext
) -> None:
    theirs, mine = (recovery.Sweep().run(each) for each in (stranger, context))

    assert (theirs["restarted"], theirs["chains"]) == ([], [])
    assert mine["chains"] == [
        {"traversal": begun.traversal_id, "workflow": "failover.converge"},
    ]


def test_another_project_s_traversal_can_not_be_advanced(
    state: Runtime, begun: Ready, stranger: ActionContext
) -> None:
    refused = recovery.Advance(begun.traversal_id, "end").run(stranger)

    assert refused.error["code"] == "UNKNOWN_TRAVERSAL"
    assert refused.error["message"] == f"there is no traversal {begun.traversal_id}"
    assert ready_nodes(state, begun.traversal_id) == [begun]
    record = state.database.reading(lambda tx: tx.record(begun.node.resource_id))
    assert (record.token, record.owner) == (0, None), "its node was not looked at"


def test_another_project_s_operation_can_not_be_carried_out(
    state: Runtime, begun: Ready, context: ActionContext, stranger: ActionContext
) -> None:
    document = handed_out(state, context, begun)

    assert operations.AttachVolume(document).run(stranger).error["code"] == "UNKNOWN_OPERATION"


def test_a_token_without_a_project_is_refused(
    state: Runtime, context_of: Callable[..., ActionContext]
) -> None:
    answer = reports.Status().run(context_of(None))

    assert answer.error["code"] == "NO_PROJECT"
    assert "scoped to a project" in answer.error["remedy"]


def test_without_authentication_everything_belongs_to_one_project(
    state: Runtime, context_of: Callable[..., ActionContext]
) -> None:
    assert Request(state, context_of(None, authenticated=False)).project_id == DEFAULT_PROJECT


def test_a_server_s_mistral_is_that_of_its_credential_s_project_alone(
    state: Runtime, context_of: Callable[..., ActionContext]
) -> None:
    served = SimpleNamespace(settings=replace(state.settings, project="mine"))

    for said in (None, "", DEFAULT_PROJECT, "mine"):
        assert Request(served, context_of(said, authenticated=False)).project_id == "mine"
    assert Request(served, context_of("mine")).project_id == "mine"
    for stranger in (context_of("other"), context_of("other", authenticated=False)):
        with pytest.raises(CloudError) as refused:
            _ = Request(served, stranger).project_id
        assert refused.value.code == "FORBIDDEN"


def test_the_owner_of_a_lock_names_execution_and_process(
    state: Runtime, context_of: Callable[..., ActionContext]
) -> None:
    assert Request(state, context_of("p", execution="e1")).owner.startswith("e1/-@")


def test_a_ticket_is_the_same_after_its_journey_through_json(state: Runtime, begun: Ready) -> None:
    step = state.engine.check(begun, "o")
    assert step.operation is not None
    document = json.loads(json.dumps(ticket_document(step.operation.ticket)))

    assert "done" in state.engine.conclude(read_ticket(document), Outcome()).sentence


def test_a_project_has_so_many_groups_and_keeps_those_that_it_has(
    state: Runtime,
    context: ActionContext,
    stranger: ActionContext,
    define: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("payments", "shop"):
        define(name)
    monkeypatch.setattr(state, "settings", replace(state.settings, groups_per_project=1))
    document = define_group.definition(Request(state, context), "shop")["document"]

    for dry_run in (False, True):
        refused = groups.Define(document, name="web", types=[HOUSE], dry_run=dry_run).run(context)
        assert refused.error["code"] == "TOO_MANY_GROUPS"
        assert "failover group delete" in refused.error["remedy"]
    assert reports.Status("web").run(context).error["code"] == "UNKNOWN_GROUP"
    define("shop", priority=3)
    define("web", by=stranger)
    refused = groups.Define(document, name="shop", types=[HOUSE] * 101).run(context)
    assert "the limit is 100" in refused.error["message"]
