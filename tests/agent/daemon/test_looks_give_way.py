# SPDX-License-Identifier: Apache-2.0
"""The checks that an agent runs by itself, again and again, keep nothing waiting: no command, no
stop of what an earlier epoch left, no other check, and no end of the agent."""

from __future__ import annotations

import os
import signal
import sqlite3
import uuid
from pathlib import Path

import pytest

from mistral_failover.agent.channel.interface import Heartbeat
from mistral_failover.agent.daemon import effects
from mistral_failover.agent.daemon.journal import Journal
from support.agents import Node, shell
from support.waiting import until


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    monkeypatch.setattr(effects, "FIRST_PAUSE", 0.1)
    monkeypatch.setattr(effects, "LONGEST_PAUSE", 0.1)
    monkeypatch.setattr(effects, "GONE_FOR", 0.0)
    return Node(tmp_path / "node", f"memory://{uuid.uuid4().hex}")


@pytest.fixture
def disk(node: Node) -> Path:
    """A file that a check of ``app`` holds for a minute, like a file system that it reads."""
    disk = node.folder / "disk"
    hold = f"exec 9>{disk}; flock 9; echo $$ >{node.folder}/looks; exec sleep 60"
    node.commands["app"] = {"argv": shell("exit 0"), "check": shell(hold), "limit": 60}
    node.commands["stop"] = {"argv": shell(f"flock --nonblock {disk} true")}
    return disk


def looking(node: Node) -> int:
    """The process of a check that runs."""
    file = node.folder / "looks"
    until(lambda: file.exists() and file.read_text().strip(), 30)
    return int(file.read_text())


def beat(node: Node) -> Heartbeat:
    found = until(lambda: node.channel.heard(node.address))
    assert isinstance(found, Heartbeat)
    return found


def test_a_check_gives_way_to_a_command_of_its_lane(node: Node, disk: Path) -> None:
    with node.agent():
        node.run("app", id="first")
        looking(node)

        assert node.run("stop", id="second").exit_code == 0


def test_none_begins_while_a_command_of_its_lane_runs(node: Node, disk: Path) -> None:
    node.commands["stop"] = {
        "argv": shell(f"rm {node.folder}/looks; sleep 1; test ! -e {node.folder}/looks")
    }
    with node.agent():
        node.run("app", id="first")
        looking(node)

        assert node.run("stop", id="second").exit_code == 0


def test_a_command_of_another_lane_lets_it_be(node: Node, disk: Path) -> None:
    node.commands["backup"] = {"argv": shell("sleep 0.5"), "lane": "backup"}
    with node.agent():
        node.run("app", id="first")
        process = looking(node)
        node.run("backup", id="second")

        assert Path(f"/proc/{process}").exists()


def test_a_check_gives_way_to_what_a_deposed_agent_stops(node: Node, disk: Path) -> None:
    node.commands["stop"]["lane"] = "other"
    with node.agent(on_deposed=["stop"]):
        node.run("app", id="first")
        looking(node)
        node.channel.depose(node.address, 2)
        until(lambda: beat(node).deposed and not beat(node).stopping)
    with Journal(node.journal, hold=False) as journal:
        deposition = journal.deposition(2)

    assert deposition is not None
    assert deposition.attempts == 1, "the first try found the disk free"


def test_a_check_that_hangs_keeps_no_other_waiting(
    node: Node, disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(effects, "LONGEST_LOOK", 0.2)
    runs = node.folder / "runs"
    node.commands["other"] = {"argv": shell(f"echo >{runs}"), "check": shell(f"test -e {runs}")}
    with node.agent():
        node.run("other", id="first")
        node.run("app", id="second")
        until(lambda: any(row.seen_at for row in node.rows()), 10)
        runs.unlink()
        until(lambda: beat(node).ended == {"first"}, 10)


def test_a_check_does_not_outlive_the_agent_that_ran_it(node: Node, disk: Path) -> None:
    stubborn = f"trap '' TERM; echo $$ >{node.folder}/looks; while :; do sleep 0.1; done"
    node.commands["app"]["check"] = shell(stubborn)
    with node.agent():
        node.run("app", id="first")
        process = looking(node)

    assert not Path(f"/proc/{process}").exists()


def test_a_check_of_an_agent_that_died_is_ended_by_the_next(
    node: Node, disk: Path, tmp_path: Path
) -> None:
    with node.agent():
        node.run("app", id="first")
    (node.folder / "looks").unlink(missing_ok=True)
    agent = node.process()
    process = looking(node)
    os.kill(agent.pid, signal.SIGKILL)
    agent.wait(10)
    assert Path(f"/proc/{process}").exists()

    del node.commands["app"]["check"]
    with node.agent():
        until(lambda: not Path(f"/proc/{process}").exists(), 5)


def test_what_the_journal_cannot_record_hides_nothing_else(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = node.folder / "runs"
    node.commands["app"] = {"argv": shell(f"echo >{runs}"), "check": shell(f"test -e {runs}")}

    def full(*_args: object, **_more: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    with node.agent():
        node.run("app", id="first")
        until(lambda: any(row.seen_at for row in node.rows()), 10)
        monkeypatch.setattr(Journal, "seen", full)
        node.run("checked", id="second")
        runs.unlink()
        until(lambda: beat(node).ended == {"first"}, 10)


def test_a_check_that_says_nothing_is_logged_once(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    looks = node.folder / "looks"
    node.commands["app"] = {
        "argv": shell("exit 0"),
        "check": shell(f"echo . >>{looks}; echo no such file >&2; exit 3"),
    }
    with node.agent():
        node.run("app", id="first")
        until(lambda: looks.exists() and len(looks.read_text().split()) > 3, 10)
    said = [each.getMessage() for each in caplog.records if "check of app" in each.getMessage()]

    assert said == ["The check of app does not tell whether it runs: it ended with 3"]
