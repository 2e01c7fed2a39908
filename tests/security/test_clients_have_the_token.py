# SPDX-License-Identifier: Apache-2.0
"""Every documented client finds the token of the API, or says what is missing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from keystoneauth1 import loading
from keystoneauth1.session import Session

from mistral_failover.cli import connection
from mistral_failover.lab.testing.engine import TestEngine
from support.commands import failover

VARIABLES = (
    connection.URL_VARIABLE,
    connection.TOKEN_VARIABLE,
    connection.EMBEDDED_VARIABLE,
    "OS_TOKEN",
)


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def asked(*words: str) -> Any:
    """What a command answers that asks Mistral for its workflows."""
    return failover(*words, "workflows", "diff", "-f", "json")


def answered(done: Any) -> bool:
    return bool(done.stdout) and "failover.sweep" in done.stdout


def test_a_command_takes_the_token_of_a_file(mistral: TestEngine) -> None:
    where = ("--mistral-url", mistral.url, "--mistral-token-file", str(mistral.token_file))

    assert answered(asked(*where))


@pytest.mark.parametrize("name", [connection.TOKEN_VARIABLE, "OS_TOKEN"])
def test_a_command_takes_the_token_of_a_variable(
    mistral: TestEngine, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    file = mistral.token_file
    monkeypatch.setenv(name, file.read_text("ascii").strip() if name == "OS_TOKEN" else str(file))

    assert answered(asked("--mistral-url", mistral.url))


def announce(folder: Path, facts: Mapping[str, str]) -> None:
    (folder / connection.SERVER_FILE).write_text(json.dumps(facts), encoding="utf-8")


def test_with_embedded_a_command_finds_address_and_token_by_itself(
    mistral: TestEngine, tmp_path: Path
) -> None:
    announce(tmp_path, {"url": mistral.url, "token_file": str(mistral.token_file)})

    assert answered(asked("--embedded", "--server-state", str(tmp_path)))


def test_a_command_without_the_token_is_told_where_it_is(mistral: TestEngine) -> None:
    done = asked("--mistral-url", mistral.url)

    assert (done.returncode, done.stdout) == (1, "")
    assert str(mistral.token_file) in done.stderr
    assert "--mistral-token-file" in done.stderr
    assert "[UNAUTHORISED]" in done.stderr


def test_a_token_that_others_may_read_is_not_used(mistral: TestEngine, tmp_path: Path) -> None:
    copy = tmp_path / "api-token"
    copy.write_text(mistral.token_file.read_text("ascii"), encoding="ascii")
    copy.chmod(0o644)

    done = asked("--mistral-url", mistral.url, "--mistral-token-file", str(copy))

    assert done.returncode == 1
    assert f"chmod 600 {copy}" in done.stderr


def test_a_token_that_this_user_may_not_read_is_explained(tmp_path: Path) -> None:
    announce(tmp_path, {"url": "http://127.0.0.1:9/v2", "token_file": str(tmp_path / "gone")})

    done = asked("--embedded", "--server-state", str(tmp_path))

    assert done.returncode == 1
    assert "[TOKEN_UNREADABLE]" in done.stderr
    assert "as the user of 'failover server'" in done.stderr


def test_openstack_s_clients_send_it_as_the_page_says(mistral: TestEngine) -> None:
    """``OS_AUTH_TYPE=admin_token OS_ENDPOINT=... OS_TOKEN=...``, which is keystoneauth's."""
    token = mistral.token_file.read_text("ascii").strip()
    auth = loading.get_plugin_loader("admin_token").load_from_options(
        endpoint=mistral.url, token=token
    )

    answer = Session(auth=auth).get("/workflows", endpoint_filter={"service_type": "workflowv2"})

    assert answer.status_code == 200
    assert "workflows" in answer.json()
