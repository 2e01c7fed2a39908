# SPDX-License-Identifier: Apache-2.0
"""A worker that carries an operation out hands in its document, and may have changed it. Its ticket
is looked up in the ledger; of whom and what it speaks says the state store."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from mistral_lib.actions.context import ActionContext

from mistral_failover.actions import operations as operation_actions
from mistral_failover.convergence.records import Ready
from mistral_failover.mistral.operation_documents import read_ticket
from mistral_failover.runtime.process import Runtime
from mistral_failover.runtime.request import Request
from support.driving import handed_out
from support.no_cloud import NoCloud

FOREIGN = {
    ("group",): "theirs",
    ("stack",): "their-stack",
    ("resource", "id"): "their-resource",
    ("resource", "physical_id"): "their-volume",
    ("resource", "attributes"): {"server_id": "their-server"},
    ("member", "name"): "their-member",
    ("member", "server_id"): "their-server",
    ("member", "epoch"): 99,
    ("properties", "start"): "their-command",
    ("key",): "their-key",
    ("verb",): "delete",
    ("timeout",): 1e9,
    ("ticket", "lock", "lease"): 1e9,
}
ANOTHER = ["key", "verb", "traversal_id"]


@pytest.fixture
def acted(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The operations that were acted on, and under which lease."""
    operations: list[dict[str, Any]] = []

    def perform(context: Any, operation: dict[str, Any]) -> dict[str, Any]:
        operations.append(operation)
        return {}

    monkeypatch.setattr(operation_actions.Activate, "perform", staticmethod(perform))
    monkeypatch.setattr(Request, "cloud", lambda self, guard: NoCloud(guard))
    monkeypatch.setattr(Request, "channel", lambda self, cloud, guard: None)
    return operations


@pytest.fixture
def document(
    state: Runtime, started: Callable[..., Ready], context: ActionContext
) -> dict[str, Any]:
    """The document of an operation that was handed out to a workflow."""
    house = {"type": "house", "properties": {"holder": {"get_param": "active"}}}
    return handed_out(state, context, started(resources={"thing": house}))


def changed(document: dict[str, Any], path: tuple[str, ...], value: Any) -> dict[str, Any]:
    """A copy of a document with another value at one place."""
    copied = copy.deepcopy(document)
    place = copied
    for key in path[:-1]:
        place[key] = place[key] or {}
        place = place[key]
    place[path[-1]] = value
    return copied


def test_a_document_as_it_was_handed_out_is_acted_on(
    context: ActionContext, document: dict[str, Any], acted: list[dict[str, Any]]
) -> None:
    assert operation_actions.Activate(document).run(context) == {}
    assert acted == [document]


@pytest.mark.parametrize("path", FOREIGN, ids=".".join)
def test_what_somebody_wrote_into_a_document_is_not_acted_on(
    context: ActionContext,
    document: dict[str, Any],
    acted: list[dict[str, Any]],
    path: tuple[str, ...],
) -> None:
    forged = changed(document, path, FOREIGN[path])

    assert operation_actions.Activate(forged).run(context) == {}

    (operation,) = acted
    lease = operation["ticket"]["lock"].pop("lease")
    assert lease <= document["ticket"]["lock"].pop("lease")
    assert operation == document


@pytest.mark.parametrize(
    ("path", "value", "code"),
    [
        *(
            (what, "update" if what == "verb" else "somebody-elses", "UNKNOWN_OPERATION")
            for what in ANOTHER
        ),
        *(("lock.token", token, "LEASE_LOST") for token in (0, 2, 99)),
        ("lock.owner", "somebody else", "LEASE_LOST"),
    ],
)
def test_a_ticket_that_the_ledger_does_not_have_carries_nothing_out(
    context: ActionContext,
    document: dict[str, Any],
    acted: list[dict[str, Any]],
    path: str,
    value: Any,
    code: str,
) -> None:
    forged = changed(document, ("ticket", *path.split(".")), value)

    assert operation_actions.Activate(forged).run(context).error["code"] == code
    assert acted == []


def test_an_operation_that_was_handed_out_again_is_the_new_holder_s(
    state: Runtime, context: ActionContext, document: dict[str, Any], acted: list[dict[str, Any]]
) -> None:
    step = state.engine.abandon(read_ticket(document["ticket"]), "its lease was lost")
    (ready,) = step.ready
    again = handed_out(state, context, ready)

    assert operation_actions.Activate(document).run(context).error["code"] == "LEASE_LOST"
    assert operation_actions.Activate(again).run(context) == {}
    assert acted == [again]
