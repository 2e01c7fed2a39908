# SPDX-License-Identifier: Apache-2.0
"""``failover exporter``: what it refuses before it asks anybody anything."""

from __future__ import annotations

import argparse
import socket
from typing import Any

import pytest

from mistral_failover.cli.exporter import _MetricsQuery, address, seconds
from mistral_failover.cli.main import main


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("127.0.0.1:9798", "127.0.0.1", 9798),
        ("[::1]:0", "::1", 0),
        (":9798", "127.0.0.1", 9798),
    ],
)
def test_an_address_is_a_host_and_a_port(text: str, host: str, port: int) -> None:
    assert address(text) == (host, port)


@pytest.mark.parametrize("text", ["9798", "127.0.0.1:", "127.0.0.1:http", "127.0.0.1:70000"])
def test_anything_else_is_no_address(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        address(text)


@pytest.mark.parametrize("text", ["0", "-1", "soon", "nan", "4000"])
def test_an_interval_is_bounded(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        seconds(text)


def test_it_refuses_to_listen_where_others_reach_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["exporter", "--listen", "0.0.0.0:0"]) == 1

    said = capsys.readouterr().err
    assert "--listen-anywhere" in said
    assert "LOOPBACK_ONLY" in said


def test_it_says_that_a_port_is_taken(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]

        assert main(["exporter", "--listen", f"127.0.0.1:{port}"]) == 1

    assert f"Cannot listen on 127.0.0.1:{port}" in capsys.readouterr().err


def test_of_its_questions_no_record_stays_and_none_is_answered_by_the_engine(
    deployment: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in deployment.environment.items():
        monkeypatch.setenv(name, value)
    client = deployment.mistral.client
    asked: list[dict[str, Any]] = []
    real = type(client).request

    def request(self: Any, method: str, path: str, **more: Any) -> Any:
        asked.append({"method": method, **more.get("json", {})})
        return real(self, method, path, **more)

    monkeypatch.setattr(type(client), "request", request)
    answer = _MetricsQuery(None, 500)()

    assert answer["families"]
    assert asked[0]["params"] == '{"save_result": true, "run_sync": false}'
    assert asked[-1]["method"] == "DELETE"
    left = client.request("GET", "action_executions", params={"name": "failover.metrics"})
    assert left["action_executions"] == []
