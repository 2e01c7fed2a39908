# SPDX-License-Identifier: Apache-2.0
"""An agent dies at any line: what a command did is done once, or reported as unknown."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

import pytest

from mistral_failover.agent.channel.interface import ChannelError
from mistral_failover.agent.daemon.main import main
from support.agents import Node, killed_at_the_end, shell
from support.waiting import until

pytestmark = pytest.mark.faults

BEFORE_IT_RAN = ["agent.received"]
ALMOST = ["agent.journaled", "agent.acknowledged"]
UNDER_WAY = ["agent.running", "agent.ended"]
WRITTEN_DOWN = ["agent.recorded", "agent.answered"]


@pytest.fixture
def node(tmp_path):
    return Node(tmp_path / "node", f"filesystem://{tmp_path}/broker")


class Asking(threading.Thread):
    """An executor that waits for a command."""

    def __init__(self, node, name, **more):
        super().__init__(daemon=True)
        self.node, self.name_, self.more = node, name, more
        self.result = self.error = None
        self.start()

    def run(self):
        try:
            self.result = self.node.run(self.name_, **{"limit": 6.0, **self.more})
        except ChannelError as error:
            self.error = error

    def outcome(self):
        self.join(40)
        assert not self.is_alive()
        return self.result or self.error


def die_and_begin_anew(node, point, name, **settings):
    """The outcome of a command whose agent dies at a point, and is started again."""
    with killed_at_the_end(node.process(point, **settings)) as first:
        asking = Asking(node, name)
        assert first.wait(20) == -signal.SIGKILL
    with killed_at_the_end(node.process(**settings)):
        return asking.outcome()


@pytest.mark.parametrize("point", BEFORE_IT_RAN + ALMOST + UNDER_WAY + WRITTEN_DOWN)
def test_a_command_with_a_check_takes_effect_once_wherever_the_agent_dies(node, point):
    outcome = die_and_begin_anew(node, point, "checked")
    assert outcome.exit_code == 0
    assert node.count() == 1


@pytest.mark.parametrize("point", ALMOST + UNDER_WAY)
def test_without_a_check_its_end_is_unknown_and_it_never_runs_again(node, point):
    outcome = die_and_begin_anew(node, point, "increment")
    assert outcome.code == "UNKNOWN_OUTCOME"
    assert "settle" in outcome.remedy
    assert node.count() <= 1
    assert [row.state for row in node.rows()] == ["unknown"]


def test_a_command_that_may_be_repeated_is_run_again(node):
    node.commands["increment"]["repeatable"] = True
    outcome = die_and_begin_anew(node, "agent.acknowledged", "increment")
    assert outcome.exit_code == 0
    assert node.count() == 1


def test_a_check_that_can_not_tell_leaves_it_unknown(node):
    node.commands["checked"]["check"] = shell("exit 2")
    outcome = die_and_begin_anew(node, "agent.ended", "checked")
    assert outcome.code == "UNKNOWN_OUTCOME"
    assert "its check ended with 2" in outcome.message
    assert node.count() == 1


def test_what_a_dead_agent_left_running_is_killed_before_anything_else(node):
    pid_file = node.folder / "pid"
    node.commands["checked"] = {
        "argv": shell(f"echo $$ > {pid_file}; echo x >> {node.counter}; sleep 600"),
        "check": shell("exit 1"),
        "limit": 1.0,
    }
    with killed_at_the_end(node.process()) as first:
        asking = Asking(node, "checked")
        until(node.count)
        former = int(pid_file.read_text())
        first.kill()
    with killed_at_the_end(node.process()):
        assert asking.outcome().exit_code == 124
    assert not is_alive(former)
    assert "were killed" in node.log()
    assert node.count() == 2


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.mark.parametrize("point", ["agent.deposed", "agent.quiet"])
def test_a_deposed_agent_that_dies_goes_on_with_stopping(node, point):
    with killed_at_the_end(node.process(point, on_deposed=["stop"])) as first:
        assert Asking(node, "increment").outcome().exit_code == 0
        node.channel.depose(node.address, 2)
        assert first.wait(20) == -signal.SIGKILL
    with killed_at_the_end(node.process(on_deposed=["stop"])):
        assert Asking(node, "increment", id="key-2", epoch=2).outcome().exit_code == 0
    assert node.stops() == 1
    assert node.count() == 2


def test_what_is_unknown_is_settled_by_a_person(node):
    die_and_begin_anew(node, "agent.running", "increment")
    assert main(["--config", str(node.file), "settle", "key-1", "--not-done"]) == 0
    assert main(["--config", str(node.file), "settle", "key-1", "--done"]) == 1
    node.counter.unlink(missing_ok=True)
    with killed_at_the_end(node.process()):
        assert node.run().exit_code == 0
    assert node.count() == 1


def test_an_agent_that_is_asked_to_end_finishes_what_it_runs(node):
    node.commands["slow"] = {"argv": shell(f"echo x >> {node.counter}; sleep 1; echo end")}
    with killed_at_the_end(node.process()) as agent:
        asking = Asking(node, "slow")
        until(node.count)
        agent.send_signal(signal.SIGTERM)
        assert agent.wait(20) == 0
        assert asking.outcome().stdout == "end\n"


def test_two_agents_never_share_a_journal(node):
    with killed_at_the_end(node.process()) as first:
        until(lambda: (node.journal / "lock").exists() and "epoch" in node.log())
        with killed_at_the_end(node.process()) as second:
            assert second.wait(20) == 1
        assert first.poll() is None
    assert "JOURNAL_HELD" in node.log()
