# SPDX-License-Identifier: Apache-2.0
"""Carrying a node on: what was done is concluded, even when the database is away for a moment;
whoever lost the lease concludes nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa
from mistral_lib.actions.context import ActionContext

from mistral_failover.actions import carrying, converge, in_place
from mistral_failover.actions.documents import ticket_document
from mistral_failover.actions.runtime import Request, Runtime
from mistral_failover.convergence.records import Outcome, Ready, Record, Step, Ticket

VOLUME = {
    "data": {
        "type": "volume_attachment",
        "properties": {"volume": "data_volume", "server": {"get_param": "active"}},
    }
}


def test_an_outcome_survives_a_database_that_is_away_for_a_moment(
    state: Runtime,
    context: ActionContext,
    started: Callable[..., Ready],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    conclude, refused = state.engine.conclude, []

    def away(ticket: Ticket, outcome: Outcome) -> Step:
        if len(refused) < 2:
            refused.append(ticket)
            raise sa.exc.OperationalError("UPDATE", {}, Exception("the server has gone away"))
        return conclude(ticket, outcome)

    monkeypatch.setattr(state.engine, "conclude", away)
    monkeypatch.setattr(in_place, "run", lambda *_: Outcome(physical_id="v1"))

    answer: dict[str, Any] = carrying.work(Request(state, context), started(resources=VOLUME))

    assert len(refused) == 2
    assert "attach volume: data on db_a: done" in answer["said"]


LOST = {"code": "LEASE_LOST", "message": "the lease on resource r is lost"}


def record_of(state: Runtime, ready: Ready) -> Record:
    return state.database.reading(lambda tx: tx.record(ready.node.resource_id))


def test_an_operation_in_place_that_lost_its_lease_is_given_up_and_taken_up_again(
    state: Runtime,
    context: ActionContext,
    started: Callable[..., Ready],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    operations: list[dict[str, Any]] = []

    def run(name: str, operation: dict[str, Any], context: Any) -> Outcome:
        operations.append(operation)
        return Outcome(error=LOST) if len(operations) == 1 else Outcome(physical_id="v1")

    monkeypatch.setattr(in_place, "run", run)
    ready = started(resources=VOLUME)

    answer = carrying.work(Request(state, context), ready)

    assert (
        "attach volume: data on db_a: given up, its lease was lost in the middle"
        in (answer["said"])
    )
    first, again = operations
    assert again["key"] == first["key"]
    assert (first["unknown"], again["unknown"]) == (False, True)
    record = record_of(state, ready)
    assert (record.status, record.owner, record.generation) == ("COMPLETE", None, 1)


def test_a_workflow_that_lost_its_lease_frees_its_lock_and_its_node_is_handed_out_again(
    state: Runtime, context: ActionContext, begun: Ready
) -> None:
    step = state.engine.check(begun, "a workflow")
    assert step.operation is not None
    ticket = ticket_document(step.operation.ticket)

    # As Mistral hands on the output of a workflow that failed.
    answer = converge.Conclude(ticket, error={"result": {"error": LOST}}).run(context)

    assert answer["said"][0].endswith("given up, its lease was lost in the middle")
    handed = answer["operation"]["input"]["operation"]
    assert (handed["key"], handed["unknown"]) == (ticket["key"], True)
    assert handed["ticket"]["lock"]["token"] == ticket["lock"]["token"] + 1


def test_who_lost_its_lock_to_somebody_else_gives_up_nothing(
    state: Runtime, context: ActionContext, begun: Ready
) -> None:
    step = state.engine.check(begun, "a workflow")
    assert step.operation is not None
    ticket = ticket_document(step.operation.ticket)
    converge.Conclude(ticket, error={"result": {"error": LOST}}).run(context)
    held = record_of(state, begun)

    answer = converge.Conclude(ticket, error={"result": {"error": LOST}}).run(context)

    assert "somebody else has broken the lock" in answer["said"][0]
    assert (answer["spread"], answer["operation"]) == ([], None)
    assert record_of(state, begun) == held
