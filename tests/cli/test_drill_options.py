# SPDX-License-Identifier: Apache-2.0
"""What ``failover drill`` refuses before it starts anything."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from support.commands import failover

NO_BROKER = "argument --broker: expected amqp://user:password@host/vhost"
SCENES = "{} works only with --fault crash, hang, app"


@pytest.mark.parametrize(
    ("option", "more", "why"),
    [
        ("--broker", ["nonsense"], NO_BROKER),
        ("--broker", ["http://broker.example.org"], NO_BROKER),
        ("--broker", ["amqp://"], NO_BROKER),
        ("--broker", ["filesystem:///tmp/broker"], NO_BROKER),
        ("--active-active", ["--agents"], SCENES),
        ("--active-active", ["--fault", "host"], SCENES),
        ("--active-active", ["--broker", "amqp://b"], SCENES),
        ("--single", ["--agents"], SCENES),
        ("--single", ["--fault", "returns"], SCENES),
        ("--volumes", ["0"], "0 is not between 1 and 100"),
    ],
)
def test_a_wrong_command_line_is_refused(option: str, more: list[str], why: str) -> None:
    done = failover("drill", option, *more)

    assert done.returncode == 2
    assert why.format(option) in done.stderr


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
