# SPDX-License-Identifier: Apache-2.0
"""What a sweep does about alarms whose failover could not be started for long."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from mistral_lib.actions.context import ActionContext

from mistral_failover.actions import converge, people, sweeping
from mistral_failover.actions.runtime import Runtime
from mistral_failover.convergence.records import Ready
from mistral_failover.store.tables import incidents

EVENT = {"message_id": "m1", "traits": [["instance_id", 1, "s-a"]]}
ALARM = {
    "alarm_name": "lost",
    "alarm_id": "a1",
    "previous": "ok",
    "current": "alarm",
    "reason_data": {"type": "event", "event": EVENT},
}


@pytest.fixture
def stuck(state: Runtime, begun: Ready, context: ActionContext) -> Callable[[float], str]:
    """Admit an alarm that can not be started, as no cloud is configured, and let it grow old."""

    def make(age: float) -> str:
        assert converge.Admit(ALARM).run(context).error["code"] == "CONFIG"
        (incident,) = people.Status("payments").run(context)["incidents"]
        aged = incidents.update().where(incidents.c.id == incident["id"])
        state.database.atomically(
            lambda tx: tx.execute(aged.values(first_at=tx.now() - age, last_at=tx.now() - age))
        )
        return str(incident["id"])

    return make


def sweep(context: ActionContext) -> tuple[list[str], dict[str, Any]]:
    """The incidents that a sweep was refused, and how the group's one incident stands then."""
    swept = converge.Sweep("payments").run(context)
    assert swept["started"] == []
    (incident,) = people.Status("payments").run(context)["incidents"]
    return [row["incident"] for row in swept["refused"]], incident


def test_an_alarm_is_tried_again_as_long_as_it_is_fresh(
    stuck: Callable[[float], str], context: ActionContext
) -> None:
    identity = stuck(sweeping.STALE - 60)

    refused, incident = sweep(context)

    assert refused == [identity]
    assert incident["decision"] == "ADMITTED"


def test_an_alarm_that_could_not_be_started_for_long_waits_for_a_person(
    stuck: Callable[[float], str], context: ActionContext
) -> None:
    stuck(sweeping.STALE + 1)

    refused, incident = sweep(context)

    assert refused == []
    assert incident["decision"] == "HELD"
    assert incident["sentence"].endswith("it could not be started for 10 minutes")
    kinds = [row["kind"] for row in people.History("payments").run(context)]
    assert kinds.count("held") == 1
    assert sweep(context) == ([], incident), "once"


def test_it_is_admitted_when_it_is_said_again(
    stuck: Callable[[float], str], context: ActionContext
) -> None:
    identity = stuck(sweeping.STALE + 1)
    sweep(context)

    assert converge.Admit(ALARM).run(context).error["code"] == "CONFIG"

    refused, incident = sweep(context)
    assert refused == [identity]
    assert incident["decision"] == "ADMITTED"
