# SPDX-License-Identifier: Apache-2.0
"""Nothing of one project is there for another."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace

import pytest
from mistral_lib.actions.context import ActionContext

from mistral_failover.actions import (
    groups,
    reports,
)
from mistral_failover.cloud.errors import CloudError
from mistral_failover.convergence.records import Outcome, Ready
from mistral_failover.mistral.operation_documents import read_ticket, ticket_document
from mistral_failover.orders import define_group
from mistral_failover.runtime.process import Runtime
from mistral_failover.runtime.request import DEFAULT_PROJECT, Request
from support.group_fixtures import HOUSE


@pytest.fixture
def stranger(context_of: Callable[..., ActionContext], project: str) -> ActionContext:
    """A request of another project."""
    return context_of(f"not-{project}")


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
