# SPDX-License-Identifier: Apache-2.0
"""The trees of executions: what Mistral said stays, though it says nothing more."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from mistral_lib.actions.context import ActionContext

from cloud.conftest import server
from mistral_failover.mistral.executions import trees
from mistral_failover.runtime.process import Runtime
from mistral_failover.runtime.request import Request
from support.scripted_http import Request as Asked
from support.scripted_http import ScriptedServer

__all__ = ["server"]
WHEN = {"created_at": "2026-11-21 10:00:00", "updated_at": "2026-11-21 10:00:01"}


def execution(identity: str) -> dict[str, Any]:
    more = {"id": identity, "state": "RUNNING", "root_execution_id": None, "input": "{}"}
    return {**WHEN, **more, "workflow_name": f"of {identity}", "task_execution_id": None}


@pytest.fixture
def seen(
    state: Runtime,
    server: ScriptedServer,
    monkeypatch: pytest.MonkeyPatch,
    context_of: Callable[..., ActionContext],
    project: str,
) -> Callable[[str], dict[str, Any]]:
    """What is seen of the executions one and two, where Mistral refuses what holds this text."""
    settings = replace(state.settings, mistral_url=f"{server.url}/v2", http_timeout=30.0)
    monkeypatch.setattr(state, "settings", settings)
    request = Request(state, context_of(project, authenticated=False))

    def look(refused: str) -> dict[str, Any]:
        def reply(asked: Asked) -> tuple[int, dict[str, str], Any]:
            path = asked.path.partition("?")[0]
            if refused in asked.path:
                return 403, {}, {"faultstring": "not now"}
            if path.endswith("/tasks"):
                identity = asked.path.rpartition("workflow_execution_id=")[2].partition("&")[0]
                task = {**WHEN, "id": "t", "name": identity, "state": "IDLE", "processed": False}
                return 200, {}, {"tasks": [task]}
            if path.endswith("/executions"):
                return 200, {}, {"executions": []}
            return 200, {}, execution(path.rpartition("/")[2])

        server.reply = reply
        return trees(request, ["one", "two"], {})

    return look


def shown(found: dict[str, Any]) -> dict[str, int]:
    """The executions on top, each with the number of its tasks."""
    return {tree["id"]: len(tree["tasks"]) for tree in found["trees"]}


@pytest.mark.parametrize(
    ("refused", "trees_and_tasks", "left_out"),
    [
        ("nothing of this kind", {"one": 1, "two": 1}, ""),
        ("executions/two", {"one": 1}, "the rest is not shown"),
        ("workflow_execution_id=one", {"one": 0}, "request to Mistral failed"),
    ],
)
def test_what_was_found_stays_where_mistral_refuses_the_rest(
    seen: Callable[..., Any], refused: str, trees_and_tasks: dict[str, int], left_out: str
) -> None:
    found = seen(refused)

    assert shown(found) == trees_and_tasks
    assert left_out in found["left_out"]
    assert bool(left_out) == ("request to Mistral failed" in found["left_out"])
