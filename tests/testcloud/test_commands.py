# SPDX-License-Identifier: Apache-2.0
"""The command line: what it refuses, and how it says so."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from testcloud import cloud, packages
from testcloud.__main__ import main
from testcloud.errors import CloudError
from testcloud.settings import HERE, Settings


@pytest.fixture(autouse=True)
def _this_cloud(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAILOVER_CLOUD_STATE", str(settings.state))
    monkeypatch.setenv("FAILOVER_CLOUD_PORT", str(settings.first_port))


def test_the_status_of_no_cloud_is_all_down(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "-f", "json"]) == 0

    rows = json.loads(capsys.readouterr().out)
    assert {row["state"] for row in rows} == {"down"}


def test_an_unknown_name_ends_with_1_and_the_known_ones(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["stop", "novae"]) == 1

    said = capsys.readouterr().err
    assert "NO_SUCH_PROCESS" in said
    assert "nova-conductor" in said


def test_a_cloud_that_never_was_cannot_be_started_in_part(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["start", "mistral"]) == 1

    assert "make cloud-up" in capsys.readouterr().err


def test_a_wrong_command_line_ends_with_2() -> None:
    with pytest.raises(SystemExit) as ended:
        main(["sideways"])

    assert ended.value.code == 2


def test_stopping_what_does_not_run_is_no_error(settings: Settings) -> None:
    assert main(["down"]) == 0
    assert main(["down", "--wipe"]) == 0
    assert not settings.data.exists()


def test_a_service_stands_for_all_of_its_processes(settings: Settings) -> None:
    names = cloud.resolve(settings, ["mistral", "mariadb", "nova-api"])

    assert [n for n in names if n.startswith("mistral-executor")] == [
        "mistral-executor-1",
        "mistral-executor-2",
    ]
    assert names[-2:] == ["mariadb", "nova-api"]


def test_two_do_not_start_one_cloud(settings: Settings) -> None:
    with cloud.alone(settings), pytest.raises(CloudError, match="BUSY"), cloud.alone(settings):
        pass


def test_a_taken_port_is_named_before_anything_starts(settings: Settings) -> None:
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", 0))
        other.listen()
        first = other.getsockname()[1] - 4  # then nova-api's port is that one
        with pytest.raises(CloudError) as refused:
            cloud.check_ports(Settings(settings.state, first))

    assert refused.value.code == "PORT_TAKEN"
    assert "nova-api" in refused.value.message
    assert "ss -ltnp" in refused.value.remedy


def test_a_full_disk_is_seen_before_anything_starts(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=1 << 20))

    with pytest.raises(CloudError, match="LOW_DISK"):
        cloud.check_disk(settings)


def test_without_root_the_missing_packages_are_named(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packages, "DEBIAN", {"mariadb-server": "no-such-program"})
    monkeypatch.setattr("os.getuid", lambda: 1000)

    with pytest.raises(CloudError) as refused:
        packages.install_programs(settings, print)

    assert refused.value.code == "PACKAGES_MISSING"
    assert refused.value.remedy.startswith("sudo apt-get install")


INSTALLING = """
import runpy, sys, tempfile, time
from testcloud import cloud

def install(settings, tell):
    with tempfile.TemporaryDirectory(dir=settings.state) as folder:
        print(folder, flush=True)
        time.sleep(60)

cloud.install = install
sys.argv[1:] = ["install"]
runpy.run_module("testcloud", run_name="__main__")
"""


def test_an_installation_that_is_stopped_removes_what_it_has_unpacked(settings: Settings) -> None:
    settings.state.mkdir(parents=True, exist_ok=True)
    argv = [sys.executable, "-c", INSTALLING]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, cwd=HERE.parent) as installing:
        assert installing.stdout is not None
        unpacked = Path(installing.stdout.readline().strip())
        assert unpacked.is_dir()
        installing.terminate()

    assert installing.returncode == 128 + signal.SIGTERM
    assert not unpacked.exists()
