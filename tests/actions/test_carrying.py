# SPDX-License-Identifier: Apache-2.0
"""Carrying a node on: what was done is concluded, even when the database is away for a moment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa
from mistral_lib.actions.context import ActionContext

from mistral_failover.actions import carrying, in_place
from mistral_failover.actions.runtime import Request, Runtime
from mistral_failover.convergence.records import Outcome, Ready, Step, Ticket

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
