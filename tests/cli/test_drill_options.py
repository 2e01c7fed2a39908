# SPDX-License-Identifier: Apache-2.0
"""What ``failover drill`` refuses before it starts anything."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from support.commands import failover


@pytest.mark.parametrize(
    "url", ["nonsense", "http://broker.example.org", "amqp://", "filesystem:///tmp/broker"]
)
def test_a_broker_that_is_no_rabbitmq_is_a_wrong_command_line(url: str) -> None:
    done = failover("drill", "--broker", url)

    assert done.returncode == 2
    assert "argument --broker: expected amqp://user:password@host/vhost" in done.stderr


def test_a_url_that_is_refused_is_not_shown_with_its_password() -> None:
    done = failover("drill", "--broker", "http://failover:hunter2@broker.example.org")

    assert "hunter2" not in done.stdout + done.stderr


def test_a_broker_that_does_not_answer_ends_the_drill_before_it_starts(tmp_path: Path) -> None:
    with socket.socket() as taken:  # bound, but it does not listen
        taken.bind(("127.0.0.1", 0))
        url = f"amqp://failover:hunter2@127.0.0.1:{taken.getsockname()[1]}/vhost"

        done = failover("drill", "--broker", url, "--state-dir", str(tmp_path / "state"))

    assert done.returncode == 1
    assert "is not usable" in done.stderr
    assert "[UNREACHABLE]" in done.stderr
    assert "hunter2" not in done.stdout + done.stderr
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize(
    ("option", "more"),
    [
        ("--active-active", ["--agents"]),
        ("--active-active", ["--fault", "host"]),
        ("--active-active", ["--broker", "amqp://b"]),
        ("--single", ["--agents"]),
        ("--single", ["--fault", "returns"]),
    ],
)
def test_a_scene_is_played_with_what_it_can_be_played_with(option: str, more: list[str]) -> None:
    done = failover("drill", option, *more)

    assert done.returncode == 2
    assert f"{option} works only with --fault crash, hang, app" in done.stderr


def test_a_bad_option_is_refused_with_exit_code_2() -> None:
    done = failover("drill", "--volumes", "0")

    assert done.returncode == 2
    assert "0 is not between 1 and 100" in done.stderr
