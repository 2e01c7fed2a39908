# SPDX-License-Identifier: Apache-2.0
"""An agent whose journal cannot be written says so, and still stops what it has to. The file
systems are real: one that is full, one that is read-only."""

from __future__ import annotations

import logging
import sqlite3
import subprocess
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from mistral_failover.agent.channel.interface import ChannelError, Heartbeat
from mistral_failover.agent.daemon import journal, readiness
from mistral_failover.agent.daemon.journal import Journal
from mistral_failover.agent.daemon.main import main
from mistral_failover.agent.daemon.readiness import Readiness
from support.agents import Node
from support.waiting import until

SIZE = 4 * 2**20


class Disk:
    """A small file system of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ballast = folder / "ballast"

    def fill(self) -> None:
        """Leave not one byte."""
        with self._ballast.open("wb", buffering=0) as file:
            try:
                while file.write(bytes(4096)):
                    pass
            except OSError:
                return

    def free(self) -> None:
        """Leave space again."""
        self._ballast.unlink()

    def refuse(self, *, writes: bool) -> None:
        """Become read-only, or writable again."""
        options = f"remount,{'ro' if writes else 'rw'}"
        subprocess.run(["mount", "-o", options, self.folder], check=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE},mode=700", "failover-test", folder]
    try:
        subprocess.run(mount, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this user or machine cannot mount a file system")
    try:
        yield Disk(folder)
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


@pytest.fixture
def node(tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch) -> Node:
    monkeypatch.setattr(readiness, "EVERY", 0.1)
    made = Node(tmp_path / "node", f"memory://{uuid.uuid4().hex}")
    made.journal = disk.folder / "journal"
    return made


def heard(node: Node, holds: Callable[[Heartbeat], object]) -> Heartbeat:
    """The first heartbeat for which this holds."""
    found = until(lambda: (beat := node.channel.heard(node.address)) and holds(beat) and beat)
    assert isinstance(found, Heartbeat)
    return found


def test_a_full_disk_is_heard_in_a_heartbeat_and_that_it_is_over_too(
    node: Node, disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    with node.agent():
        assert node.run().exit_code == 0
        disk.fill()
        why = heard(node, lambda beat: beat.not_ready).not_ready
        assert why is not None
        assert "No space left" in why or "full" in why
        with pytest.raises(ChannelError):
            node.run(id="key-2", limit=1.0)
        disk.free()
        heard(node, lambda beat: beat.not_ready is None)
        assert node.run(id="key-3").exit_code == 0
    assert [r.name for r in caplog.records if r.name.endswith(".defects")] == []
    assert node.count() == 2


def test_an_agent_that_starts_on_a_read_only_disk_stops_what_a_fence_wants_stopped(
    node: Node, disk: Disk
) -> None:
    with node.agent():
        assert node.run().exit_code == 0
    disk.refuse(writes=True)
    with node.agent(on_deposed=["stop"]):
        assert "writ" in str(heard(node, lambda beat: beat.not_ready).not_ready)
        node.channel.depose(node.address, 2)
        until(node.stops)
        # What is not recorded is no proof: the next agent would not know of it.
        assert heard(node, lambda beat: beat.deposed and beat.epoch == 2).stopping

        disk.refuse(writes=False)
        heard(node, lambda beat: beat.not_ready is None and not beat.stopping)
    with closing(Journal(node.journal, hold=False)) as journal:
        assert journal.epoch(1) == 2


def test_an_agent_starts_on_a_read_only_disk_with_all_that_it_knew(disk: Disk) -> None:
    folder = disk.folder / "journal"
    with Journal(folder) as journal:
        journal.belong_to("me")
        journal.raise_epoch(7)
        journal.start(7, "key-1", "increment", {}, "replies")
    disk.refuse(writes=True)
    with Journal(folder) as journal:
        assert not journal.belong_to("me")
        assert journal.epoch(1) == 7
        found = journal.find(7, "key-1")
        assert found is not None
        assert found.has_begun


def test_the_journal_of_another_server_is_not_taken_over_from_a_read_only_disk(
    disk: Disk,
) -> None:
    folder = disk.folder / "journal"
    with Journal(folder) as journal:
        journal.belong_to("another")
        journal.raise_epoch(7)
    disk.refuse(writes=True)
    with Journal(folder) as journal:
        assert journal.belong_to("me")
        assert journal.epoch(1) == 1
        disk.refuse(writes=False)
        journal.probe()
        assert journal.epoch(1) == 1
        journal.raise_epoch(2)
    with Journal(folder) as journal:
        assert not journal.belong_to("me")
        assert journal.epoch(1) == 2


def test_a_write_that_hangs_makes_the_agent_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness, "LONGEST", 0.05)
    gate = threading.Event()

    class Hangs(Journal):
        def __init__(self) -> None:
            pass

        def probe(self) -> None:
            gate.wait(30)

    probes = Readiness(Hangs(), every=0.0)
    probes.start()
    try:
        assert "has not ended for" in until(lambda: probes.why_not() or "")
    finally:
        gate.set()
        probes.finish()


def test_check_names_a_full_disk(
    node: Node, disk: Disk, capsys: pytest.CaptureFixture[str]
) -> None:
    with Journal(node.journal):
        pass
    disk.fill()
    assert main(["check", "--config", str(node.write())]) == 1
    assert f"the journal in {node.journal} is not usable" in capsys.readouterr().err


def test_readiness_is_logged_when_it_changes_and_not_each_time(
    disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    with Journal(disk.folder / "journal") as journal:
        probes = Readiness(journal)
        probes.look()
        disk.fill()
        with caplog.at_level(logging.ERROR):
            probes.look()
            probes.look()
    assert len([r for r in caplog.records if r.name == readiness.__name__]) == 1


def test_a_journal_of_another_server_is_not_taken_over_by_halves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cloned server starts on a full disk. Then there is room for opening its journal, but not
    for making it its own."""
    tmp_path.chmod(0o700)
    with closing(Journal(tmp_path)) as of_another:
        of_another.belong_to("g/another")
        of_another.raise_epoch(9)

    def full(*_: Any) -> Any:
        raise sqlite3.OperationalError("database or disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(journal, "open_file", full)
        own = Journal(tmp_path)
    own.belong_to("g/own")
    with monkeypatch.context() as patch:
        patch.setattr(Journal, "_change_owner", full)
        with pytest.raises(sqlite3.OperationalError):
            own.probe()

    own.probe()
    assert own.epoch(1) == 1
    own.close()


def test_a_probe_that_fails_in_an_unknown_way_is_taken_back_by_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o700)
    with closing(Journal(tmp_path)) as own:
        watch = Readiness(own)
        with monkeypatch.context() as patch:
            patch.setattr(own, "probe", lambda: 1 / 0)
            watch.look()
        assert "ZeroDivisionError" in str(watch.why_not())

        watch.look()
        assert watch.why_not() is None
