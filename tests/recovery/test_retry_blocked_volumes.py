# SPDX-License-Identifier: Apache-2.0
"""When a sweep tries again what a volume has blocked."""

from __future__ import annotations

from typing import Any

import pytest
from mistral_lib.actions.context import ActionContext

from mistral_failover.actions import recovery
from mistral_failover.actions import reports as report_actions
from mistral_failover.cloud.errors import CloudError
from mistral_failover.convergence.records import Ready
from mistral_failover.mistral.operation_documents import outcome_of
from mistral_failover.recovery import retry_blocked_volumes
from mistral_failover.runtime.process import Runtime
from mistral_failover.runtime.request import Request
from support.driving import ready_nodes
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

    monkeypatch.setattr(retry_blocked_volumes, "volume_fingerprint", look)
    monkeypatch.setattr(Request, "cloud", lambda *_: None)
    return seen


def block(state: Runtime, ready: Ready, **more: Any) -> None:
    """Let the node's operation end blocked."""
    step = state.engine.check(ready, "e/a@h:1")
    assert step.operation is not None
    state.engine.conclude(step.operation.ticket, outcome_of(None, {**ERROR, **more}))


def swept(context: ActionContext) -> tuple[list[dict[str, Any]], list[str]]:
    report = recovery.Sweep("payments").run(context)
    told = [sentence for sentence in report["unable"] if "Mistral" not in sentence]
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


def test_what_blocks_it_now_counts_and_not_what_did_before(
    state: Runtime, begun: Ready, context: ActionContext, sight: dict[str, Any]
) -> None:
    block(state, begun, about=ABOUT)
    sight["now"] = "it is detaching"
    assert len(swept(context)[0]) == 1
    block(state, begun, about={**ABOUT, "sight": "it is detaching"})

    assert swept(context) == ([], [])


def test_what_waits_for_something_else_is_none_of_its_business(
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

    assert swept(context) == ([], ["blocked volumes: Cinder is away"])
