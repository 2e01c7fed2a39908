# SPDX-License-Identifier: Apache-2.0
"""Where the program looks for Mistral: what is typed beats what the environment says."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mistral_failover.cli import connection
from mistral_failover.cli.main import FailoverApp
from mistral_failover.lab.emulator.client import write_clouds_yaml
from support.commands import failover

EMBEDDED, TYPED, MEANT = "http://embedded/v2", "http://typed/v2", "http://variable/v2"
CLOUD = "http://cloud/v2"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """The Mistral that a command line finds, with these variables set."""
    server = {"url": EMBEDDED}
    (tmp_path / connection.SERVER_FILE).write_text(json.dumps(server), encoding="utf-8")
    clouds = {"clouds": {"home": {"auth": {"auth_url": "http://127.0.0.1:1"}}}}
    (tmp_path / "clouds.json").write_text(json.dumps(clouds), encoding="utf-8")
    in_the_cloud = SimpleNamespace(url=CLOUD)
    monkeypatch.setattr(connection, "in_the_cloud", lambda _region: in_the_cloud)

    def ask(words: list[str], variables: dict[str, str]) -> str:
        for name in (connection.EMBEDDED_VARIABLE, connection.URL_VARIABLE, "OS_CLOUD"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv(connection.STATE_VARIABLE, str(tmp_path))
        monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(tmp_path / "clouds.json"))
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        app = FailoverApp(words)
        app.options, _ = app.parser.parse_known_args(words)
        with connection.mistral(app) as client:
            return str(client.url)

    return ask


@pytest.mark.parametrize(
    ("words", "variables", "found"),
    [
        (["--mistral-url", TYPED], {"FAILOVER_EMBEDDED": "1"}, TYPED),
        ([f"--mistral-url={TYPED}"], {"FAILOVER_MISTRAL_URL": MEANT}, TYPED),
        (["--embedded"], {"FAILOVER_MISTRAL_URL": MEANT, "OS_CLOUD": "home"}, EMBEDDED),
        (["--os-cloud", "home"], {"FAILOVER_EMBEDDED": "1"}, CLOUD),
        (["--os-cloud=home"], {"FAILOVER_MISTRAL_URL": MEANT}, CLOUD),
        (
            ["--os-auth-url", "http://127.0.0.1:1"],
            {"FAILOVER_EMBEDDED": "1", "OS_CLOUD": "home"},
            CLOUD,
        ),
        ([], {"FAILOVER_EMBEDDED": "1", "FAILOVER_MISTRAL_URL": MEANT}, EMBEDDED),
        ([], {"FAILOVER_EMBEDDED": "0", "FAILOVER_MISTRAL_URL": MEANT}, MEANT),
        ([], {"FAILOVER_MISTRAL_URL": MEANT, "OS_CLOUD": "home"}, MEANT),
        ([], {"OS_CLOUD": "home"}, CLOUD),
    ],
)
def test_an_option_beats_every_variable(
    asked: Any, words: list[str], variables: dict[str, str], found: str
) -> None:
    assert asked(["group", "list", *words], variables) == found


def test_an_entry_of_clouds_yaml_may_name_a_failover_server(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    server = {"url": EMBEDDED, "emulator": "http://cloud"}
    (tmp_path / connection.SERVER_FILE).write_text(json.dumps(server), encoding="utf-8")
    write_clouds_yaml(tmp_path / "clouds.yaml", "home", "http://cloud", server_state=tmp_path)
    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(tmp_path / "clouds.yaml"))
    app = FailoverApp([])
    app.options, _ = app.parser.parse_known_args(["--os-cloud", "home"])

    with connection.mistral(app) as client:
        assert client.url == EMBEDDED
    assert connection.server_used(app) == server


@pytest.mark.parametrize(
    ("words", "both"),
    [
        (["--mistral-url", TYPED, "--embedded"], "--mistral-url and --embedded"),
        (["--embedded", "--os-cloud", "home"], "--embedded and --os-cloud"),
        (["--mistral-url", TYPED, "--os-cloud=home"], "--mistral-url and --os-cloud"),
    ],
)
def test_two_options_that_contradict_each_other_are_a_wrong_command_line(
    words: list[str], both: str
) -> None:
    done = failover("group", "list", *words)

    assert done.returncode == 2
    assert f"{both} name different Mistrals" in done.stderr
