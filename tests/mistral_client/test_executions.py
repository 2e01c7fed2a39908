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


def test_all_of_it_is_seen_where_mistral_answers(seen: Callable[..., Any]) -> None:
    found = seen("nothing of this kind")

    assert shown(found) == {"one": 1, "two": 1}
    assert found["left_out"] == ""


def test_a_tree_that_was_found_stays_where_the_next_one_can_not_be(
    seen: Callable[..., Any],
) -> None:
    found = seen("executions/two")

    assert shown(found) == {"one": 1}
    assert "request to Mistral failed" in found["left_out"]
    assert found["left_out"].endswith("the rest is not shown")


def test_an_execution_is_shown_though_its_tasks_can_not_be(seen: Callable[..., Any]) -> None:
    found = seen("workflow_execution_id=one")

    assert shown(found) == {"one": 0}
    assert "request to Mistral failed" in found["left_out"]
