# SPDX-License-Identifier: Apache-2.0
"""What a drill's real guests are made of, and that their witnesses see what must not happen."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mistral_failover.agent.daemon.journal import Journal
from mistral_failover.agent.daemon.runner import process_identity
from mistral_failover.agent.daemon.settings import Account
from mistral_failover.lab.drill import application, audit, rehearsals
from mistral_failover.lab.drill.agent_files import JOURNAL
from mistral_failover.lab.drill.audit import Violation
from mistral_failover.lab.drill.guest import Guest, Volumes
from mistral_failover.lab.drill.processes import Process, below, kill_below
from mistral_failover.lab.drill.rehearsals import GuestIsolating
from support.waiting import until

VOLUME = "8b6ee9dc-9b4c-4b4d-9e67-6b8d3f2f3a01"


@pytest.fixture
def volumes(tmp_path: Path) -> Volumes:
    return Volumes(tmp_path / "volumes")


@pytest.fixture
def guest(tmp_path: Path) -> Iterator[Guest]:
    """A guest whose agent has no file, and starts in vain."""
    made = Guest(tmp_path / "servers" / "db-a")
    made.prepare()
    yield made
    made.kill()


def run(guest: Guest, verb: str, **more: str) -> int:
    """The application's command, as the agent would run it."""
    mount = guest.folder / "devices" / VOLUME
    environment = {**os.environ, "DRILL_GUEST": str(guest.folder), "VOLUME_MOUNT": str(mount)}
    argv = [sys.executable, "-m", "mistral_failover.lab.drill.application", verb]
    done = subprocess.run(argv, env=environment | more, capture_output=True, timeout=60)
    return done.returncode


def written(volumes: Volumes) -> list[str]:
    return (volumes.content(VOLUME) / application.JOURNAL).read_text().splitlines()


def seen(volumes: Volumes, *disks: Path) -> list[Violation]:
    return list(audit.guest_violations(disks, volumes, []))


# -- processes


def test_who_daemonised_himself_dies_with_its_guest() -> None:
    script = """
import subprocess, sys, time
from mistral_failover.lab.drill.processes import adopt_orphans
adopt_orphans()
subprocess.run(["sh", "-c", "setsid sleep 100 & setsid sh -c 'sleep 100 & exec sleep 100' &"])
print("ready", flush=True)
time.sleep(100)
"""
    argv = [sys.executable, "-c", script]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as first:
        assert first.stdout is not None
        first.stdout.readline()
        until(lambda: len(below(first.pid)) == 3)
        found = below(first.pid)
        assert kill_below(first.pid) == set(found)
        until(lambda: not any(process.runs for process in found))
        first.kill()


def test_a_number_that_another_process_has_by_now_is_not_the_process() -> None:
    mine = Process.of(os.getpid())
    assert mine is not None
    assert Process.parse(str(mine)) == mine
    assert mine.runs
    assert not Process(mine.pid, mine.started - 1).runs


# -- a guest


def test_a_guest_boots_once_for_each_boot_and_nothing_of_it_outlives_its_end(guest: Guest) -> None:
    cloud = Process.of(os.getpid())
    assert cloud is not None
    guest.boot(cloud, 1)
    first = Process.parse((guest.folder / "init.pid").read_text())
    until(lambda: (guest.folder / "agent.pid").exists())
    guest.boot(cloud, 1)
    assert first.runs, "that boot took place already"
    guest.boot(cloud, 2)
    assert not first.runs
    guest.kill()
    assert not Process.parse((guest.folder / "init.pid").read_text()).runs
    assert [p for p in below(os.getpid()) if "lab.drill.guest_init" in command_line(p)] == []


def test_a_guest_ends_with_its_cloud(guest: Guest) -> None:
    with subprocess.Popen(["sleep", "100"]) as cloud:
        process = Process.of(cloud.pid)
        assert process is not None
        guest.boot(process, 1)
        first = Process.parse((guest.folder / "init.pid").read_text())
        assert first.runs
        cloud.kill()
    until(lambda: not first.runs)


def command_line(process: Process) -> str:
    return Path(f"/proc/{process.pid}/cmdline").read_text()


def test_an_application_writes_from_its_start_to_its_stop(guest: Guest, volumes: Volumes) -> None:
    assert run(guest, "start") == application.REFUSED, "the volume is not attached"
    guest.plug(VOLUME, volumes.content(VOLUME))
    for _ in range(2):
        assert run(guest, "start") == 0
        assert run(guest, "is-running") == 0
    until(lambda: len(written(volumes)) > 3)
    for _ in range(2):
        assert run(guest, "stop") == 0
        assert run(guest, "is-stopped") == 0
    count = len(written(volumes))
    assert {line.split()[0] for line in written(volumes)} == {"db-a"}
    time.sleep(5 * application.EVERY)
    assert len(written(volumes)) == count
    assert seen(volumes, guest.folder) == []


def test_an_application_that_dies_is_found_to_be_dead(guest: Guest, volumes: Volumes) -> None:
    guest.plug(VOLUME, volumes.content(VOLUME))
    assert run(guest, "start") == 0
    (guest.folder / "data").symlink_to(guest.folder / "devices" / VOLUME)
    guest.end_application()
    assert run(guest, "is-running") == 1


def test_a_writer_whose_start_was_cut_off_does_not_begin(guest: Guest, volumes: Volumes) -> None:
    guest.plug(VOLUME, volumes.content(VOLUME))
    assert run(guest, "write", DRILL_STARTER="1") == application.FAILED
    assert not (volumes.content(VOLUME) / application.JOURNAL).exists()


# -- its witnesses


def test_what_is_written_on_a_volume_that_was_taken_is_lost_and_told(
    guest: Guest, volumes: Volumes
) -> None:
    guest.plug(VOLUME, volumes.content(VOLUME))
    assert run(guest, "start") == 0
    writer = Process.parse((guest.folder / "application.pid").read_text())
    try:
        writer.signal(signal.SIGSTOP)
        guest.unplug(VOLUME)
        assert volumes.tear(VOLUME) == [writer]
        count = len(written(volumes))
        writer.signal(signal.SIGCONT)
        time.sleep(5 * application.EVERY)
        assert len(written(volumes)) == count
    finally:
        assert run(guest, "stop") == 0
    assert volumes.tear(VOLUME) == [], "no process uses it now"


def test_a_writer_that_comes_again_after_another_is_seen(tmp_path: Path, volumes: Volumes) -> None:
    def write(*lines: str) -> list[str]:
        (volumes.content(VOLUME) / application.JOURNAL).write_text("\n".join(lines) + "\n")
        return [str(violation) for violation in seen(volumes)]

    assert write("a 1 1 0.1", "a 1 2 0.2", "b 7 1 0.3", "b 7 2 0.4", "a 3 1 0.5") == []
    (told,) = write("a 1 1 0.1", "b 7 1 0.2", "a 1 2 0.3", "b 7 2 0.4")[:1]
    assert told.startswith("invariant 2: a, process 1, wrote on volume")


def test_a_command_that_ran_twice_or_in_an_epoch_that_was_over_is_seen(
    tmp_path: Path, volumes: Volumes
) -> None:
    disk = tmp_path / "db-a"
    with Journal(disk / JOURNAL) as journal:
        journal.start(1, "first", "pg-start", {}, "")
        journal.done(1, "first", exit_code=0)
        assert seen(volumes, disk) == []
        journal.raise_epoch(2)
        journal.start(1, "late", "pg-start", {}, "")
    (disk / application.RAN).write_text("start first\nstop own\nstop own\nstart first\n")

    assert [str(violation) for violation in seen(volumes, disk)] == [
        "invariant 4: command first, start, ran 2 times on db-a",
        "invariant 8: pg-start of epoch 1 began in 2 on db-a",
    ]


# -- rehearsals


def test_a_volume_from_a_snapshot_has_what_was_written_until_then(volumes: Volumes) -> None:
    file = volumes.content(VOLUME) / application.JOURNAL
    file.write_text("before")
    volumes.snapshot(VOLUME, "s1")
    file.write_text("after")

    volumes.make_from("s1", "copy")
    copy = volumes.content("copy") / application.JOURNAL
    assert copy.read_text() == "before"

    copy.write_text("rehearsed")
    volumes.make_from("s1", "copy")
    assert (copy.read_text(), file.read_text()) == ("rehearsed", "after")


def test_a_rehearsal_in_a_guest_is_apart_and_ends_with_all_its_processes(
    guest: Guest, volumes: Volumes
) -> None:
    (guest.folder / "rehearsals" / "r1" / "data").mkdir(parents=True)
    isolation = GuestIsolating(guest.folder).make("r1", lambda _process: None)
    account = Account("", os.getuid(), os.getgid(), (), "/")
    argv = [sys.executable, "-m", "mistral_failover.lab.drill.application", "start"]
    command = isolation.wrap(argv, "/", account, "PWD OLDPWD")
    done = subprocess.run(command, capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert run(guest, "is-running") == 1, "the real one does not run"
    (violation,) = seen(volumes, guest.folder)
    assert violation.invariant == 10

    isolation.kill()
    until(lambda: not isolation.remains())

    assert seen(volumes, guest.folder) == []
    assert not (guest.folder / "rehearsals" / "r1").exists()


def test_an_agent_that_starts_ends_what_an_earlier_one_left(guest: Guest) -> None:
    isolating = GuestIsolating(guest.folder)
    isolation = isolating.make("r1", lambda _process: None)
    words = ["/bin/sleep", "100"]
    account = Account("", os.getuid(), os.getgid(), (), "/")
    with subprocess.Popen(isolation.wrap(words, "/", account, "PWD")) as process:
        until(lambda: bool(list(rehearsals.processes(guest.folder))))
        isolating.end_leftovers(process_identity(os.getpid()))
        process.wait(10)

    assert process.returncode == -signal.SIGKILL
