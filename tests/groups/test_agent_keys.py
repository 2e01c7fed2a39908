# SPDX-License-Identifier: Apache-2.0
"""The keys of members' agents: what both sides derive, for the caller's project alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mistral_lib.actions.context import ActionContext, ExecutionContext, SecurityContext

from mistral_failover.actions import agents
from mistral_failover.agent.wire import group_key, member_key
from mistral_failover.model.ids import group_id
from mistral_failover.runtime.process import Runtime

SECRET = b"5" * 40


@pytest.fixture
def secret(state: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with the installation's secret, which the configuration names."""
    file = tmp_path / "agents.key"
    file.write_bytes(SECRET)
    file.chmod(0o600)
    settings = dataclasses.replace(state.settings, agent_key_file=str(file))
    monkeypatch.setattr(state, "settings", settings)
    return file


def enroll(project: str, *inputs: Any, **execution: str) -> Any:
    """What the action answers to a request of the project that no execution asks for."""
    security = SecurityContext(project_id=project, auth_token="a-token")
    return agents.Enroll(*inputs).run(ActionContext(security, ExecutionContext(**execution)))


def test_a_member_gets_its_key_before_its_group_is_defined(secret: Path, project: str) -> None:
    identity = group_id(project, "payments")

    assert enroll(project, "payments", "db_a") == {
        "project": project,
        "group": "payments",
        "group_id": identity,
        "member": "db_a",
        "key": member_key(group_key(SECRET, identity), "db_a").hex(),
    }


def test_without_a_member_it_is_the_key_that_all_of_them_follow_from(
    secret: Path, project: str
) -> None:
    found = enroll(project, "payments")

    assert "key" not in found
    assert "member" not in found
    of_db_b = enroll(project, "payments", "db_b")["key"]
    assert member_key(bytes.fromhex(found["group_key"]), "db_b").hex() == of_db_b


def test_what_one_project_gets_is_of_no_use_to_another(secret: Path, project: str) -> None:
    mine, theirs = (enroll(each, "payments") for each in (project, f"not-{project}"))

    assert mine["group_key"] != theirs["group_key"]
    assert theirs["project"] == f"not-{project}"


@pytest.mark.parametrize("who", ["workflow_execution_id", "action_execution_id"])
def test_where_mistral_would_write_it_down_there_is_no_key(
    secret: Path, project: str, who: str
) -> None:
    error = enroll(project, "payments", **{who: "e-1"}).error

    assert error["code"] == "WOULD_BE_KEPT"
    assert "failover agent key" in error["remedy"]


@pytest.mark.parametrize("given", [("a/b",), ("payments", "a/b")])
def test_what_is_no_name_has_no_key(secret: Path, project: str, given: tuple[str, ...]) -> None:
    assert enroll(project, *given).error["code"] == "INVALID_DOCUMENT"


def test_without_a_secret_the_option_is_named(state: Runtime, project: str) -> None:
    error = enroll(project, "payments").error

    assert error["code"] == "CONFIG"
    assert "agent_key_file" in error["remedy"]


def test_the_settings_never_show_where_the_secret_is_or_what(
    secret: Path, state: Runtime, define: Callable[..., str], project: str
) -> None:
    define()

    assert SECRET.decode() not in repr(enroll(project, "payments", "db_a"))
    assert SECRET.decode() not in repr(state.settings)
