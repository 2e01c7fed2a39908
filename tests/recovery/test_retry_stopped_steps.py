# SPDX-License-Identifier: Apache-2.0
"""When a sweep tries again what has stopped: what a volume has blocked once that has changed, and
all else from time to time."""

from __future__ import annotations

from typing import Any

import pytest
from mistral_lib.actions.context import ActionContext

from mistral_failover.actions import recovery
from mistral_failover.actions import reports as report_actions
from mistral_failover.cloud.errors import CloudError
from mistral_failover.convergence.records import Ready
from mistral_failover.convergence.waiting import next_look
from mistral_failover.mistral.operation_documents import outcome_of
from mistral_failover.recovery import sweep
from mistral_failover.runtime.process import Runtime
from mistral_failover.runtime.request import Request
from mistral_failover.store.tables import nodes
from support.driving import ready_nodes
from support.no_cloud import NoCloud
from support.together import together

ABOUT = {"volume": "v1", "server": "s-a", "sight": "it is in error"}
ERROR = {
    "code": "VOLUME_ERROR",
    "message": "it can not be used",
    "remedy": "Repair it.",
    "blocked": True,
}


@pytest.fixture
def sight(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What there is to be seen of the volume: ``now``; who asked: ``asked``."""
    seen: dict[str, Any] = {"now": ABOUT["sight"], "asked": []}

    def look(_cloud: Any, volume: str, server: str) -> str:
        seen["asked"].append((volume, server))
        if isinstance(seen["now"], Exception):
            raise seen["now"]
        return str(seen["now"])

    monkeypatch.setattr(sweep, "volume_fingerprint", look)
    monkeypatch.setattr(Request, "cloud", lambda *_: NoCloud())
    return seen


def block(state: Runtime, ready: Ready, **more: Any) -> None:
    """Let the node's operation end blocked."""
    step = state.engine.check(ready, "e/a@h:1")
    assert step.operation is not None
    state.engine.conclude(step.operation.ticket, outcome_of(None, {**ERROR, **more}))


def swept(
    context: ActionContext, group: str | None = None
) -> tuple[list[dict[str, Any]], list[str]]:
    report = recovery.Sweep(group).run(context)
    others = ("Mistral", "observation: ")
    told = [each for each in report["unable"] if not any(other in each for other in others)]
    return report["restarted"], told


def test_a_volume_that_did_not_change_is_left_alone(
    state: Runtime, begun: Ready, context: ActionContext, sight: dict[str, Any]
) -> None:
    block(state, begun, about=ABOUT)

    assert swept(context) == ([], [])

    assert sight["asked"] == [("v1", "s-a")]
    assert report_actions.Status("payments").run(context)["status"] == "BLOCKED"


def test_a_volume_that_somebody_touched_is_tried_again_once(
    state: Runtime, begun: Ready, context: ActionContext, sight: dict[str, Any]
) -> None:
    block(state, begun, about=ABOUT)
    sight["now"] = "it is available"

    reports = together(6, lambda _: swept(context)[0])

    # Once it is reopened, another sweep may find it without a worker.
    (row,) = [row for report in reports for row in report if "reopened" in row["sentence"]]
    sentence = "thing: reopened by a sweep, because it has changed: it is available"
    assert row == {
        "traversal": begun.traversal_id,
        "group": "payments",
        "workflow": "failover.converge",
        "sentence": sentence,
    }
    assert ready_nodes(state, begun.traversal_id) == [begun]
    assert report_actions.Status("payments").run(context)["status"] == "IN_PROGRESS"
    told = [row["sentence"] for row in report_actions.History("payments").run(context)]
    assert told.count(sentence) == 1


def test_what_a_server_blocks_alone_is_tried_again_when_the_server_has_changed(
    state: Runtime,
    begun: Ready,
    context: ActionContext,
    sight: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = iter(["it is ACTIVE, locked", "it is ACTIVE"])
    monkeypatch.setattr(sweep, "server_fingerprint", lambda _cloud, _server: next(seen))
    block(state, begun, about={"server": "s-a", "sight": "it is ACTIVE, locked"})

    assert swept(context) == ([], [])
    (row,) = swept(context)[0]

    assert row["sentence"].endswith("because it has changed: it is ACTIVE")
    assert sight["asked"] == [], "it has no volume"


def test_what_blocks_it_now_counts_and_not_what_did_before(
    state: Runtime, begun: Ready, context: ActionContext, sight: dict[str, Any]
) -> None:
    block(state, begun, about=ABOUT)
    sight["now"] = "it is detaching"
    assert len(swept(context)[0]) == 1
    block(state, begun, about={**ABOUT, "sight": "it is detaching"})

    assert swept(context) == ([], [])


def test_what_waits_for_something_else_is_left_until_it_is_due(
    state: Runtime, begun: Ready, context: ActionContext, sight: dict[str, Any]
) -> None:
    block(state, begun)

    assert swept(context) == ([], [])

    assert sight["asked"] == []


def test_a_cloud_that_can_not_be_asked_does_not_keep_a_sweep_from_the_rest(
    state: Runtime, begun: Ready, context: ActionContext, sight: dict[str, Any]
) -> None:
    block(state, begun, about=ABOUT)
    sight["now"] = CloudError("UNREACHABLE", "Cinder is away")

    assert swept(context) == ([], ["stopped steps: Cinder is away"])


# -- a compute host that is out of reach, of which the project sees nothing

HOST_DOWN = {
    "code": "HOST_DOWN",
    "message": "Nova cannot reach the guest",
    "remedy": "Start the host again.",
    "blocked": True,
    "transient": True,
    "patience": 600.0,
}


def lasted(state: Runtime, seconds: float, *, ended: float) -> None:
    """Let the nodes of the store have waited for so long, and have stopped so long ago."""

    def write(tx: Any) -> None:
        since, stopped = tx.now() - ended - seconds, tx.now() - ended
        again = next_look(since, stopped)
        tx.execute(nodes.update().values(stopped_since=since, again_at=again))

    state.database.atomically(write)


@pytest.fixture
def waited(state: Runtime, begun: Ready) -> Ready:
    """A node that was blocked after it had waited for its host for ten minutes."""
    block(state, begun, **{**HOST_DOWN, "patience": 0.0}, about=ABOUT)
    return begun


def test_what_waited_for_a_host_is_tried_again_after_half_of_the_time_that_it_has_lasted(
    state: Runtime, waited: Ready, context: ActionContext, sight: dict[str, Any]
) -> None:
    lasted(state, 600, ended=290)
    assert swept(context) == ([], [])

    lasted(state, 600, ended=310)
    ((row,), unable) = swept(context)

    assert unable == []
    assert row["sentence"] == ("thing: reopened by a sweep, because what it waits for may be back")
    assert ready_nodes(state, waited.traversal_id) == [waited]


def test_a_host_that_is_still_away_blocks_at_once_and_keeps_its_time(
    state: Runtime, waited: Ready, context: ActionContext, sight: dict[str, Any]
) -> None:
    lasted(state, 600, ended=310)
    assert len(swept(context)[0]) == 1

    block(state, waited, **HOST_DOWN, about=ABOUT)

    assert report_actions.Status("payments").run(context)["status"] == "BLOCKED"
    assert swept(context) == ([], []), "the next try is due after half of 910 s"


def test_a_service_that_is_away_at_the_retry_is_waited_for(
    state: Runtime, waited: Ready, context: ActionContext, sight: dict[str, Any]
) -> None:
    lasted(state, 600, ended=310)
    assert len(swept(context)[0]) == 1
    away = {"code": "UNREACHABLE", "transient": True, "blocked": False, "patience": None}

    block(state, waited, **{**HOST_DOWN, **away})

    assert report_actions.Status("payments").run(context)["status"] == "IN_PROGRESS"


def test_what_only_an_operator_can_change_is_tried_again_as_well(
    state: Runtime, begun: Ready, context: ActionContext, sight: dict[str, Any]
) -> None:
    """He may have changed something that shows nowhere."""
    block(state, begun, about=ABOUT)
    lasted(state, 600, ended=290)
    assert swept(context) == ([], [])

    lasted(state, 600, ended=310)
    assert len(swept(context)[0]) == 1


@pytest.mark.parametrize("about", [ABOUT, None])
@pytest.mark.parametrize("blocked", [True, False])
def test_an_operator_who_names_the_group_need_not_wait(
    state: Runtime,
    begun: Ready,
    context: ActionContext,
    sight: dict[str, Any],
    about: dict[str, str] | None,
    blocked: bool,
) -> None:
    block(state, begun, about=about, blocked=blocked)

    assert len(swept(context, "payments")[0]) == 1

    assert ready_nodes(state, begun.traversal_id) == [begun]


def test_what_fails_ever_again_is_tried_ever_less_often_and_at_least_once_an_hour(
    state: Runtime, begun: Ready, context: ActionContext, sight: dict[str, Any]
) -> None:
    block(state, begun, blocked=False)
    lasted(state, 86_400, ended=3590)
    assert swept(context) == ([], [])

    lasted(state, 86_400, ended=3610)
    assert len(swept(context)[0]) == 1


def test_a_step_that_is_due_is_tried_though_nothing_is_to_be_seen(
    state: Runtime, begun: Ready, context: ActionContext, sight: dict[str, Any]
) -> None:
    block(state, begun, about=ABOUT)
    lasted(state, 86_400, ended=80_000)
    sight["now"] = CloudError("NOT_OFFERED", "the cell of the server is down")

    swept(context)

    assert ready_nodes(state, begun.traversal_id) == [begun]


def test_a_change_reopens_a_step_once_also_if_it_stops_again_without_an_operation(
    state: Runtime, begun: Ready, context: ActionContext, sight: dict[str, Any]
) -> None:
    block(state, begun, about=ABOUT)
    sight["now"] = "it is available"

    for times in (1, 0, 0):
        reopened, _ = swept(context)
        assert len(reopened) == times
        state.engine.give_up(begun, {"code": "X", "message": "its package is gone"})
