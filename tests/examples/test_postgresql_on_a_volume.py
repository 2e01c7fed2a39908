# SPDX-License-Identifier: Apache-2.0
"""The commands of the example, with a directory in the place of the volume."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import ModuleType

import pytest

from support import postgresql
from support.postgresql import POSTGRESQL, VOLUME, query, run
from support.waiting import until

DATA, OTHER = "8b6ee9dc-9b4c-4b4d-9e67-6b8d3f2f3a01", "5f8a7c11-0c55-4d05-8f0b-1d2c3e4f5a02"
REFUSED, FAILED, USAGE = 3, 4, 2

needs_postgresql = pytest.mark.skipif(bool(postgresql.why_not()), reason=postgresql.why_not())


class Node:
    """What the commands know of their node."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.devices, self.mount = folder / "devices", folder / "mnt"
        self.devices.mkdir()
        self.env = {
            "VOLUME_MODE": "directory",
            "VOLUME_DEVICES": str(self.devices),
            "VOLUME_MOUNT": str(self.mount),
            "VOLUME_WAIT": "2",
            "PG_SOCKETS": str(folder),
            "PG_INIT": "yes",
            "PG_LIMIT": "20",
            "PG_OPTIONS": "-c listen_addresses=",
        }

    def attach(self, volume: str = DATA) -> Path:
        place = self.devices / volume
        place.mkdir()
        return place

    def volume(self, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        return run(VOLUME, *arguments, env=self.env | more)

    def postgresql(self, verb: str, **more: str) -> subprocess.CompletedProcess[str]:
        return run(POSTGRESQL, verb, env=self.env | more, user=postgresql.owner())

    def up(self) -> None:
        assert self.volume("up", DATA, "/dev/vdb").returncode == 0


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


@pytest.fixture
def guest() -> Iterator[Node]:
    """A node whose folder the database's user can reach, with the volume mounted."""
    # A socket's path has 107 bytes at most, and other users may not enter pytest's folders.
    folder = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))
    folder.chmod(0o755)
    if postgresql.IS_ROOT:
        shutil.chown(folder, postgresql.owner())
    node = Node(folder)
    place = node.attach()
    if postgresql.IS_ROOT:
        shutil.chown(place, postgresql.owner())
    node.up()
    try:
        yield node
    finally:
        node.postgresql("stop", PG_LIMIT="5")
        shutil.rmtree(folder)


# -- the volume


def test_a_volume_that_is_attached_late_is_waited_for(node: Node) -> None:
    waiting = subprocess.Popen(
        [VOLUME, "up", DATA, "/dev/vdb"], env={"PATH": os.environ["PATH"], **node.env}
    )
    place = node.attach()
    assert waiting.wait(20) == 0
    assert node.mount.resolve() == place


def test_every_verb_may_be_repeated_and_the_checks_say_what_is_true(node: Node) -> None:
    node.attach()
    assert node.volume("is-up", DATA, "/dev/vdb").returncode == 1
    assert node.volume("is-down").returncode == 0
    for _ in range(2):
        node.up()
        assert node.volume("is-up", DATA, "/dev/vdb").returncode == 0
        assert node.volume("is-down").returncode == 1
    for _ in range(2):
        assert node.volume("down").returncode == 0
        assert node.volume("is-down").returncode == 0


def test_another_volume_in_its_place_is_left_there(node: Node) -> None:
    node.attach()
    node.attach(OTHER)
    node.up()
    refused = node.volume("up", OTHER, "/dev/vdc")
    assert refused.returncode == REFUSED
    assert DATA in refused.stderr
    assert node.volume("is-up", DATA, "/dev/vdb").returncode == 0
    assert node.volume("is-up", OTHER, "/dev/vdc").returncode == 1


def test_a_volume_that_never_comes_is_a_failure(node: Node) -> None:
    failed = node.volume("up", DATA, "/dev/vdb", VOLUME_WAIT="0.2")
    assert failed.returncode == FAILED
    assert DATA in failed.stderr
    assert node.volume("is-down").returncode == 0


def stubborn(mount: Path) -> subprocess.Popen[bytes]:
    """A process that writes to the volume, and ends only when it is killed."""
    log = mount / "log"
    code = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
        "print('ready', flush=True); time.sleep(60)"
    )
    made = subprocess.Popen([sys.executable, "-c", code], stdout=log.open("wb"))
    until(lambda: log.read_text() == "ready\n", "it did not begin")
    return made


def test_who_still_uses_the_volume_is_named_and_ended_only_where_that_is_allowed(
    node: Node,
) -> None:
    node.attach()
    node.up()
    polite = subprocess.Popen(["sleep", "60"], cwd=node.mount)
    rude = stubborn(node.mount)
    try:
        failed = node.volume("down", VOLUME_WAIT="0.3")
        assert failed.returncode == FAILED
        assert str(polite.pid) in failed.stderr
        assert str(rude.pid) in failed.stderr
        assert node.volume("is-up", DATA, "/dev/vdb").returncode == 0

        assert node.volume("down", VOLUME_KILL="yes").returncode == 0
        assert polite.wait(10) != 0
        assert rude.wait(10) == -9
    finally:
        polite.kill()
        rude.kill()
    assert node.volume("is-down").returncode == 0


@pytest.mark.parametrize("wrong", [[], ["up"], ["up", "../etc", "/dev/vdb"], ["sideways"]])
def test_what_is_no_verb_or_no_volume_is_refused(node: Node, wrong: list[str]) -> None:
    told = node.volume(*wrong)
    assert told.returncode == USAGE
    assert "failover-volume up VOLUME DEVICE" in told.stderr


# -- what is taken for an empty volume


@pytest.fixture
def volume(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """The command as a module, whose mount point is a folder."""
    spec = importlib.util.spec_from_file_location("example_volume", VOLUME)
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    monkeypatch.setattr(found, "MOUNT", tmp_path / "mnt")
    return found


def disk(folder: Path, at: int | None = None) -> Path:
    """One of 64 MiB with nothing on it, or with a few bytes that no tool knows."""
    made = folder / "disk"
    with made.open("wb") as new:
        new.truncate(64 << 20)
        if at is not None:
            new.seek(at, os.SEEK_SET if at >= 0 else os.SEEK_END)
            new.write(b"mine")
    return made


needs_blkid = pytest.mark.skipif(shutil.which("blkid") is None, reason="needs blkid")


@needs_blkid
@pytest.mark.parametrize("at", [0, (1 << 20) - 4, (63 << 20) * 8 // 17, -(1 << 20), -4])
def test_a_volume_with_anything_to_be_seen_on_it_is_not_taken_for_an_empty_one(
    volume: ModuleType, tmp_path: Path, at: int
) -> None:
    assert volume._file_system(disk(tmp_path)) is None
    with pytest.raises(volume.Refused, match="not changed"):
        volume._file_system(disk(tmp_path, at))


@needs_blkid
@pytest.mark.parametrize("size", [0, 1, 4096, (1 << 20) + 1])
def test_a_small_one_is_read_as_a_whole(volume: ModuleType, tmp_path: Path, size: int) -> None:
    small = tmp_path / "small"
    for place in {0, size // 2, max(0, size - 1)}:
        small.write_bytes(bytes(size))
        assert volume._is_blank(small)
        content = bytearray(size)
        if size:
            content[place] = 1
            small.write_bytes(content)
            assert not volume._is_blank(small)


@pytest.mark.parametrize(("there", "given"), [("ext4", []), (None, ["somebody"])])
def test_only_the_root_of_a_file_system_that_was_just_made_is_given_away(
    volume: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    there: str | None,
    given: list[str],
) -> None:
    device, owners = disk(tmp_path), []
    for name, answer in {
        "_file_system": there,
        "_made": "ext4",
        "_mounts": [],
        "_run": None,
    }.items():
        monkeypatch.setattr(volume, name, lambda *_, answer=answer: answer)
    monkeypatch.setattr(volume.Devices, "_found", lambda *_: device)
    monkeypatch.setattr(volume.Devices, "_check", lambda *_: None)
    monkeypatch.setattr(volume, "_give_to_owner", lambda: owners.append("somebody"))
    volume.Devices().up(DATA, str(device))
    assert owners == given


def test_on_a_machine_on_which_a_look_takes_long_the_processes_are_ended_all_the_same(
    volume: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = volume._users

    def slowly(uses: object) -> list[int]:
        time.sleep(volume.WAIT)
        return list(look(uses))

    monkeypatch.setenv("VOLUME_KILL", "yes")
    monkeypatch.setattr(volume, "WAIT", 0.2)
    monkeypatch.setattr(volume, "_users", slowly)
    (tmp_path / "data").mkdir()
    volume.MOUNT.symlink_to(tmp_path / "data")
    rude = stubborn(volume.MOUNT)
    try:
        volume.down(volume.Directories())
        assert rude.wait(10) == -9
    finally:
        rude.kill()
    assert volume.Directories().is_down()


# -- the database


@pytest.mark.parametrize("there", ["nothing", "a mount point", "a data directory"])
def test_on_a_node_without_postgresql_or_its_data_nothing_runs(tmp_path: Path, there: str) -> None:
    node = Node(tmp_path)
    if there != "nothing":
        (node.mount / ("data" if "data" in there else "")).mkdir(parents=True)
    for verb in ("stop", "is-stopped"):
        done = run(POSTGRESQL, verb, env=node.env | {"PG_BIN": "/no/such/folder"})
        assert (done.returncode, done.stderr) == (0, "")
    assert run(POSTGRESQL, "is-running", env=node.env | {"PG_BIN": "/no"}).returncode == 1


@needs_postgresql
def test_what_may_not_be_looked_into_is_not_said_to_have_stopped(guest: Node) -> None:
    (guest.mount / "data").mkdir(mode=0o700)  # ours, not the database's user's
    if not postgresql.IS_ROOT:
        (guest.mount / "data").chmod(0)
    for verb in ("stop", "is-stopped"):
        refused = guest.postgresql(verb)
        assert refused.returncode == REFUSED
        assert "may not look into" in refused.stderr
    (guest.mount / "data").chmod(0o700)


@needs_postgresql
def test_a_database_is_started_by_the_programs_of_its_own_version(guest: Node) -> None:
    data = guest.mount / "data"
    data.mkdir(mode=0o755)
    (data / "PG_VERSION").write_text("9.1\n")
    refused = guest.postgresql("start")
    assert refused.returncode == REFUSED
    assert "there is no PostgreSQL 9.1 on this machine" in refused.stderr


def test_the_shell_can_read_the_command() -> None:
    subprocess.run(["sh", "-n", POSTGRESQL], check=True)


@needs_postgresql
def test_without_the_volume_or_a_database_on_it_nothing_is_started(guest: Node) -> None:
    refused = guest.postgresql("start", PG_INIT="no")
    assert refused.returncode == REFUSED
    assert "PG_INIT" in refused.stderr

    guest.volume("down")
    refused = guest.postgresql("start")
    assert refused.returncode == REFUSED
    assert "no volume is mounted" in refused.stderr


@needs_postgresql
def test_it_starts_and_stops_however_often_it_is_told_so(guest: Node) -> None:
    assert guest.postgresql("is-running").returncode == 1
    assert guest.postgresql("is-stopped").returncode == 0
    assert guest.postgresql("stop").returncode == 0
    started = guest.postgresql("start")
    assert started.returncode == 0, started.stderr
    first = query("SELECT pg_postmaster_start_time()", guest.env)
    assert guest.postgresql("start").returncode == 0
    assert query("SELECT pg_postmaster_start_time()", guest.env) == first
    assert guest.postgresql("is-running").returncode == 0
    assert guest.postgresql("is-stopped").returncode == 1
    for _ in range(2):
        assert guest.postgresql("stop").returncode == 0
        assert guest.postgresql("is-stopped").returncode == 0


@needs_postgresql
def test_what_another_host_left_neither_hinders_the_start_nor_is_taken_for_the_server(
    guest: Node,
) -> None:
    assert guest.postgresql("start").returncode == 0
    query("CREATE TABLE kept AS SELECT 42 AS answer", guest.env)
    data = guest.mount / "data"
    left = (data / "postmaster.pid").read_text()
    assert guest.postgresql("stop", PG_LIMIT="20").returncode == 0

    # On this host somebody else has the id by now, and belongs to the same user.
    argv = ["sleep", "60"]
    if postgresql.IS_ROOT:
        argv = ["setpriv", f"--reuid={postgresql.owner()}", "--clear-groups", *argv]
    bystander = subprocess.Popen(argv, cwd="/")
    try:
        file = data / "postmaster.pid"
        file.write_text(left.replace(left.splitlines()[0], str(bystander.pid), 1))
        if postgresql.IS_ROOT:
            shutil.chown(file, postgresql.owner())
        assert guest.postgresql("is-running").returncode == 1
        assert guest.postgresql("stop").returncode == 0
        assert bystander.poll() is None, "its bystander was taken for the server"
        started = guest.postgresql("start")
        assert started.returncode == 0, started.stderr
    finally:
        bystander.kill()
    assert query("SELECT answer FROM kept", guest.env) == "42"


@needs_postgresql
def test_after_a_crash_it_starts_with_what_was_committed(guest: Node) -> None:
    assert guest.postgresql("start").returncode == 0
    query("CREATE TABLE kept AS SELECT 42 AS answer", guest.env)
    pid = int((guest.mount / "data" / "postmaster.pid").read_text().splitlines()[0])
    os.kill(pid, 9)
    deadline = time.monotonic() + 20
    with suppress(ProcessLookupError):
        while time.monotonic() < deadline:
            os.kill(pid, 0)
            time.sleep(0.02)
    assert guest.postgresql("start").returncode == 0
    assert query("SELECT answer FROM kept", guest.env) == "42"
