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
TOO_LATE = "the lease was lost in the middle: whoever breaks the lock goes on"


def record_of(state: Runtime, ready: Ready) -> Record:
    return state.database.reading(lambda tx: tx.record(ready.node.resource_id))


def test_an_operation_in_place_that_lost_its_lease_leaves_the_lock_to_be_broken(
    state: Runtime,
    context: ActionContext,
    started: Callable[..., Ready],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(in_place, "run", lambda *_: Outcome(error=LOST))
    ready = started(resources=VOLUME)
    request = Request(state, context)

    answer = carrying.work(request, ready)

    assert answer["said"][-1] == TOO_LATE
    assert (answer["spread"], answer["operation"]) == ([], None)
    record = record_of(state, ready)
    assert (record.status, record.generation) == ("IN_PROGRESS", 0)
    assert record.owner == request.owner


def test_a_workflow_that_lost_its_lease_leaves_the_lock_to_be_broken(
    state: Runtime, context: ActionContext, begun: Ready
) -> None:
    step = state.engine.check(begun, "a workflow")
    assert step.operation is not None
    ticket = ticket_document(step.operation.ticket)

    # As Mistral hands on the output of a workflow that failed.
    answer = converge.Conclude(ticket, error={"result": {"error": LOST}}).run(context)

    assert answer == {"spread": [], "operation": None, "said": [TOO_LATE]}
    record = record_of(state, begun)
    assert (record.status, record.owner) == ("IN_PROGRESS", "a workflow")
