# SPDX-License-Identifier: Apache-2.0
"""The server as a service of systemd: the unit of the examples."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from mistral_failover import http_server

UNIT = Path(__file__).parents[2] / "examples" / "failover-server.service"
LINES = UNIT.read_text("utf-8").replace("\\\n", "").splitlines()


def settings() -> dict[str, str]:
    return dict(line.split("=", 1) for line in LINES if "=" in line and line[0] != "#")


def test_the_unit_takes_away_what_the_server_does_not_need() -> None:
    found = settings()
    assert found["DynamicUser"] == "yes"
    assert found["StateDirectory"] == "failover-server"
    assert found["ProtectSystem"] == "strict"
    assert found["CapabilityBoundingSet"] == ""
    assert found["Restart"] == "always"
    assert found["LimitCORE"] == "0"
    assert int(found["LimitNOFILE"]) >= 10 * http_server.CONNECTIONS
    assert (found["Type"], int(found["WatchdogSec"])) == ("notify", 60)


def test_the_unit_gives_every_secret_as_a_credential() -> None:
    given = {line.split("=")[1].partition(":")[0] for line in LINES if "LoadCredential" in line}
    used = {
        word.removeprefix("%d/")
        for line in LINES
        if line.startswith(("ExecStart=", "Environment="))
        for word in line.replace("=", " ").split()
        if word.startswith("%d/")
    }
    assert used == given


def test_the_unit_s_command_is_understood() -> None:
    import argparse

    from mistral_failover.cli.server import Server

    words = settings()["ExecStart"].split()
    assert words[1] == "server"
    parsed = Server(None, argparse.Namespace(), None).get_parser("server").parse_args(words[2:])
    assert str(parsed.webhook_listen) == "0.0.0.0:8990"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_understands_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text("utf-8").replace("/opt/failover/bin/failover", "/bin/true"))
    argv = ["systemd-analyze", "verify", str(unit)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
