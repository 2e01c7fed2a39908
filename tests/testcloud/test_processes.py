# SPDX-License-Identifier: Apache-2.0
"""A process is ended only if it is the one that was started."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from support.waiting import until
from testcloud import pids, service_processes, status
from testcloud.errors import CloudError
from testcloud.machines import power
from testcloud.processes import Processes
from testcloud.settings import Settings, write_private

SLEEP = (sys.executable, "-S", "-c", "import time; print('here', flush=True); time.sleep(600)")
DEAF = (
    *(sys.executable, "-S", "-c"),
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
    "print('here', flush=True); time.sleep(600)",
)
PARENT = (
    *(sys.executable, "-S", "-c"),
    f"import subprocess, sys; child = subprocess.Popen({list(SLEEP)!r}); child.wait()",
)


@pytest.fixture
def processes(settings: Settings) -> Iterator[Processes]:
    made = Processes(settings)
    yield made
    made.stop_all(made.running(), grace=0.1)


def start(processes: Processes, name: str, command: tuple[str, ...]) -> int:
    assert processes.start(name, command, {}, Path("/"))
    pid = processes.pid(name)
    assert pid is not None
    return pid


def says(settings: Settings, name: str) -> None:
    until(lambda: "here" in (settings.log / f"{name}.log").read_text())


def test_what_runs_is_found_by_its_name_and_not_started_twice(processes: Processes) -> None:
    pid = start(processes, "sleeper", SLEEP)

    assert not processes.start("sleeper", SLEEP, {}, Path("/"))
    assert processes.pid("sleeper") == pid
    assert processes.running() == ["sleeper"]
    assert os.getsid(pid) == pid


def test_term_ends_it_and_its_file_goes(settings: Settings, processes: Processes) -> None:
    pid = start(processes, "sleeper", SLEEP)
    identity = pids.identify(pid)

    assert processes.stop("sleeper")

    assert processes.find("sleeper") is None
    assert pids.identify(pid) != identity
    assert list(settings.run.glob("*.json")) == []
    assert not processes.stop("sleeper")


def test_who_ignores_term_is_killed_after_the_grace(
    settings: Settings, processes: Processes
) -> None:
    start(processes, "deaf", DEAF)
    says(settings, "deaf")

    assert processes.stop("deaf", grace=0.1)

    assert processes.running() == []


def test_children_end_with_it_also_when_it_is_killed(
    settings: Settings, processes: Processes
) -> None:
    start(processes, "parent", PARENT)
    says(settings, "parent")

    processes.stop("parent", kill=True)

    assert processes.running() == []


def test_children_that_outlived_it_are_still_known_and_ended(
    settings: Settings, processes: Processes
) -> None:
    pid = start(processes, "parent", PARENT)
    says(settings, "parent")
    os.kill(pid, signal.SIGKILL)
    until(lambda: processes.find("parent") is None)

    assert processes.running() == ["parent"]
    assert processes.stop("parent")
    assert processes.running() == []


def test_somebody_who_got_its_id_later_is_left_alone(
    settings: Settings, processes: Processes
) -> None:
    bystander = subprocess.Popen(SLEEP, stdout=subprocess.DEVNULL, start_new_session=True)
    try:
        now = pids.identify(bystander.pid)
        assert now is not None
        before = replace(now, started=now.started - 1000)
        write_private(settings.run / "sleeper.json", json.dumps(asdict(before)))

        assert processes.find("sleeper") is None
        assert processes.running() == []
        assert not processes.stop("sleeper", kill=True)
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_nothing_of_an_earlier_boot_runs(settings: Settings, processes: Processes) -> None:
    mine = pids.identify(os.getpid())
    assert mine is not None
    earlier = replace(mine, boot="another")
    write_private(settings.run / "sleeper.json", json.dumps(asdict(earlier)))

    assert processes.find("sleeper") is None
    assert processes.running() == []


def test_a_damaged_file_is_an_error_not_a_guess(settings: Settings, processes: Processes) -> None:
    write_private(settings.run / "sleeper.json", "{}")

    with pytest.raises(CloudError, match="BAD_RUN_FILE"):
        processes.find("sleeper")
    (settings.run / "sleeper.json").unlink()


def test_the_status_shows_everybody(settings: Settings, processes: Processes) -> None:
    pid = start(processes, "mistral-executor-1", SLEEP)

    rows = {row["name"]: row for row in status.rows(settings)}

    everybody = {
        *service_processes.INFRASTRUCTURE,
        *(p.name for p in service_processes.services(settings)),
    }
    assert set(rows) == everybody
    assert rows["mistral-executor-1"]["state"] == "up"
    assert rows["mistral-executor-1"]["pid"] == pid
    assert rows["mistral-executor-1"]["memory"] is not None
    assert rows["keystone"] == {
        "name": "keystone",
        "pid": None,
        "port": settings.port("keystone"),
        "state": "down",
        "age": None,
        "memory": None,
    }
    assert f"1 of {len(everybody)} up" in status.table(list(rows.values()))


def test_a_host_that_never_had_a_network_is_switched_off(settings: Settings) -> None:
    machines = replace(settings, machines=True)

    power.off(machines, machines.hosts[0])

    assert not power.is_on(machines, machines.hosts[0])
