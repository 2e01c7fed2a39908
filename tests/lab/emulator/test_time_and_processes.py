# SPDX-License-Identifier: Apache-2.0
"""How long things take, and what a killed process leaves behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.emulator.emulated_clients import PAIR, clients_of
from mistral_failover.lab.emulator.client import EmulatorClient, EmulatorError
from mistral_failover.lab.emulator.core import Audit
from mistral_failover.lab.emulator.latency import profile
from mistral_failover.lab.emulator.server import EmulatedCloud
from mistral_failover.lab.emulator.state import CloudState
from support.waiting import until

FAST = dict.fromkeys(("api", "boot", "volume_create", "stack_create"), 0.0)
Start = Callable[..., tuple["subprocess.Popen[str]", EmulatorClient]]


def parts_of(emulator: EmulatorClient) -> dict[str, str]:
    emulator.create_stack("st", PAIR)
    return {name: row["physical_resource_id"] for name, row in emulator.resources("st").items()}


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts the emulator as a process on one state directory."""
    running: list[subprocess.Popen[str]] = []

    def run(*options: str) -> tuple[subprocess.Popen[str], EmulatorClient]:
        command = [sys.executable, "-W", "ignore", "-m", "mistral_failover.lab.emulator"]
        command += ["--state-dir", str(tmp_path), *options]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        running.append(process)
        assert process.stdout is not None
        announced = json.loads(process.stdout.readline())
        assert announced["pid"] == process.pid
        assert announced == json.loads((tmp_path / "emulator.json").read_text())
        return process, EmulatorClient(announced["url"])

    yield run
    for process in running:
        if process.poll() is None:
            process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def test_a_state_that_is_written_now_and_then_is_complete_at_the_end(tmp_path: Path) -> None:
    saved = tmp_path / "state.json"

    with EmulatedCloud(tmp_path, save_every=1000) as cloud:
        cloud.client.mint_token()
        first = saved.read_text()
        made = parts_of(cloud.client)
        assert saved.read_text() == first

    state = CloudState.loads(saved.read_text())
    assert set(made.values()) <= state.servers.keys() | state.volumes.keys()


def test_an_attach_in_flight_survives_kill_9(start: Start) -> None:
    fast = [f"--latency-set={name}=0" for name in FAST]
    process, emulator = start("--latency", "measured", *fast, "--latency-set", "attach=2")
    ids = parts_of(emulator)
    demo = clients_of(emulator.url)
    assert demo.volumes.volumes.get(ids["data"]).status == "available"  # and it has its token
    demo.compute.create_volume_attachment(ids["a"], volume_id=ids["data"])
    assert demo.volumes.volumes.get(ids["data"]).status == "attaching"
    emulator.add_application("pg", start="start", stop="stop", needs_volume=True)
    before = emulator.audit()
    os.kill(process.pid, signal.SIGKILL)
    process.wait()

    _, emulator = start("--latency", "measured", *fast)
    demo = clients_of(emulator.url)
    until(lambda: demo.volumes.volumes.get(ids["data"]).status == "in-use")
    assert emulator.audit()[: len(before)] == before
    (attached,) = emulator.audit(kind="attached")
    assert attached["server"] == ids["a"]
    (row,) = [row for row in emulator.critical() if row["kind"] == "attach"]
    assert row["finished_at"] > row["accepted_at"]
    assert emulator.run_command(ids["a"], "start", command_id="s")["exit_code"] == 0
    assert emulator.writers(ids["data"]) == [ids["a"]]


def test_a_command_ends_with_the_process_of_its_guest_and_takes_effect_once(
    tmp_path: Path,
) -> None:
    slow = {**FAST, "command_start": 0.3}
    with EmulatedCloud(tmp_path, "measured", overrides=slow) as cloud:
        ids = parts_of(cloud.client)
        cloud.client.add_application("pg", start="start", stop="stop")
        with pytest.raises(EmulatorError, match="still running"):
            cloud.client.run_command(ids["a"], "start", command_id="s", limit=0.01)
    with EmulatedCloud(tmp_path, "measured", overrides=slow) as cloud:
        again = cloud.client.run_command(ids["a"], "start", command_id="s")
        assert (again["exit_code"], again["replayed"]) == (0, False)
        again = cloud.client.run_command(ids["a"], "start", command_id="s")
        assert (again["exit_code"], again["replayed"]) == (0, True)
        assert len(cloud.client.audit(kind="application_started")) == 1


def test_two_clouds_on_one_state_directory_are_refused(tmp_path: Path) -> None:
    with EmulatedCloud(tmp_path), pytest.raises(OSError, match="another emulator"):
        EmulatedCloud(tmp_path)


def test_a_process_ends_by_itself_without_requests(start: Start) -> None:
    process, emulator = start("--idle-exit", "0.1", "--latency", "zero")
    assert process.wait(timeout=10) == 0
    with pytest.raises(OSError, match="refused"):
        emulator.status()


@pytest.mark.parametrize(
    "options",
    [["--host", "0.0.0.0"], ["--latency-set", "lunch=1"], ["--latency-set", "boot=-1"]],  # noqa: S104
)
def test_what_cannot_be_served_is_refused_at_the_start(
    tmp_path: Path, options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    from mistral_failover.lab.emulator.__main__ import main

    with pytest.raises(SystemExit) as refused:
        main(["--state-dir", str(tmp_path), *options])
    assert refused.value.code == 2
    assert options[0] in capsys.readouterr().err or options[1].startswith("boot")


def attach_many(cloud: EmulatedCloud, count: int) -> list[dict[str, Any]]:
    """Attach `count` volumes to one server; return what the emulator noted of it."""
    ids = parts_of(cloud.client)
    demo = clients_of(cloud.url)
    volumes = [demo.volumes.volumes.create(1).id for _ in range(count)]
    until(lambda: {v.status for v in demo.volumes.volumes.list()} == {"available"})
    for volume in volumes:
        demo.compute.create_volume_attachment(ids["a"], volume_id=volume)
    until(lambda: [v.status for v in demo.volumes.volumes.list()].count("in-use") == count)
    return [row for row in cloud.client.critical() if row["kind"] == "attach"]


def test_measured_queues_the_attachments_of_a_server() -> None:
    with EmulatedCloud(latency="measured", overrides={**FAST, "attach": 0.1}) as cloud:
        rows = attach_many(cloud, 4)
        first, last = min(r["accepted_at"] for r in rows), max(r["finished_at"] for r in rows)
        assert last - first >= 0.4


def test_parallel_does_not_queue_them() -> None:
    with EmulatedCloud(latency="parallel", overrides={**FAST, "attach": 2}) as cloud:
        rows = attach_many(cloud, 4)
        assert max(r["accepted_at"] for r in rows) < min(r["finished_at"] for r in rows)


def test_a_time_can_be_set_while_it_runs() -> None:
    with EmulatedCloud() as cloud:
        assert cloud.client.set_latency(attach=0.25)["attach"] == 0.25
        assert cloud.client.status()["latency"]["attach"] == 0.25
        for wrong in ({"lunch": 1.0}, {"attach": -1.0}):
            with pytest.raises(EmulatorError) as refused:
                cloud.client.set_latency(**wrong)
            assert refused.value.code == "BAD_REQUEST"


def test_the_measured_times_lie_in_the_measured_ranges() -> None:
    times = profile("measured")
    ranges = {"boot": (1.0, 3.5), "attach": (0.3, 0.8), "detach": (0.2, 0.5)}
    for name, (least, most) in ranges.items():
        assert least <= times.of(name) <= most
    whole_stack = times.of("stack_create") + max(times.of("boot"), times.of("volume_create"))
    assert 7 <= whole_stack <= 14


def test_an_unknown_profile_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown latency profile"):
        EmulatedCloud(latency="warp")


def test_the_state_goes_to_json_and_back() -> None:
    with EmulatedCloud() as cloud:
        ids = parts_of(cloud.client)
        cloud.client.add_application("pg", start="start", stop="stop")
        cloud.client.run_command(ids["a"], "start", command_id="s")
        cloud.client.api_fault("attach", times=2)
        cloud.client.add_application_credential()
        state = cloud.emulation.state
    assert CloudState.loads(state.dumps()) == state


def test_a_line_that_a_crash_cut_short_is_dropped_from_the_audit(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    audit = Audit(path)
    audit.record("one", volume="v")
    audit.close()
    with path.open("a") as file:
        file.write('{"seq": 2, "t')
    audit = Audit(path)
    audit.record("two")
    audit.close()
    rows: list[dict[str, Any]] = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(row["seq"], row["kind"]) for row in rows] == [(1, "one"), (2, "two")]
