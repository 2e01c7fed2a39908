# SPDX-License-Identifier: Apache-2.0
"""The command line, what systemd is told, and what must be installed on a node."""

from __future__ import annotations

import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import uuid
from importlib.metadata import version
from pathlib import Path

import pytest

from mistral_failover.agent import systemd
from mistral_failover.agent.daemon.journal import Journal
from mistral_failover.agent.daemon.main import main
from mistral_failover.agent.systemd import Notifier
from support.agents import SERVER, Node, killed_at_the_end
from support.pages import AGENT
from support.waiting import until

# What a node has: kombu with what it needs, and PyYAML.
INSTALLED = ("kombu", "amqp", "vine", "packaging", "tzdata", "yaml", "_yaml")


@pytest.fixture
def node(tmp_path):
    return Node(tmp_path / "node", f"filesystem://{tmp_path}/broker")


def call(node, *words):
    return main([*words[:1], "--config", str(node.file), *words[1:]])


def test_a_file_that_is_wrong_is_exit_code_2(node, capsys):
    node.write(heartbeats=3)
    assert call(node, "check") == 2
    assert 'Did you mean "heartbeat"?' in capsys.readouterr().err


def test_a_command_line_that_is_wrong_is_exit_code_2(node):
    node.write()
    with pytest.raises(SystemExit) as raised:
        call(node, "settle", "key-1")
    assert raised.value.code == 2


def test_the_version_is_told_without_a_file(capsys):
    with pytest.raises(SystemExit) as raised:
        main(["--version"])
    assert raised.value.code == 0
    assert capsys.readouterr().out == f"failover-agent {version('mistral-failover-agent')}\n"


def test_the_file_may_be_named_before_the_command_too(node, capsys):
    node.write()
    assert main(["--config", str(node.file), "check"]) == 0
    assert SERVER in capsys.readouterr().out


def test_check_says_what_it_looked_at(node, capsys):
    node.write()
    assert call(node, "check") == 0
    said = capsys.readouterr().out
    assert "the file is valid" in said
    assert "the broker filesystem://" in said
    assert "clock" in said


def test_check_finds_that_the_journals_folder_cannot_be_made(node, capsys):
    node.journal = Path("/proc/journal")
    node.write()
    assert call(node, "check") == 1
    assert "the journal in /proc/journal is not usable" in capsys.readouterr().err


def test_check_finds_programs_folders_and_brokers_that_are_missing(node, capsys):
    node.commands["lost"] = {"argv": ["/nowhere/program"], "folder": "/nowhere"}
    node.write(broker="amqp://node:Tr0ub4dor@127.0.0.1:1/f")
    assert call(node, "check") == 1
    said = capsys.readouterr()
    assert "/nowhere/program is not executable" in said.err
    assert "/nowhere does not exist" in said.err
    assert "amqp://127.0.0.1:1/f is not usable" in said.err
    assert "Tr0ub4dor" not in said.out + said.err


def test_status_shows_the_epoch_and_the_latest_commands(node, capsys):
    node.commands["say"] = {"argv": ["/bin/echo", "{x}"], "arguments": {"x": ".*"}}
    with node.agent(on_deposed=["stop"]):
        node.run("say", arguments={"x": "an-argument"}, epoch=3)
        assert call(node, "status", "-f", "json") == 0
        shown = json.loads(capsys.readouterr().out)
    assert (shown["epoch"], shown["agent"], shown["server_id"]) == (3, "running", SERVER)
    assert "stop" in shown["deposed"]["message"]
    assert [row["name"] for row in shown["commands"]] == ["say", "stop"]
    assert "arguments" not in shown["commands"][0]
    assert call(node, "status") == 0
    said = capsys.readouterr().out
    assert "the agent is not running" in said
    assert "exit 0" in said
    assert "an-argument" not in said


def test_status_says_that_there_was_no_agent_yet(node, capsys):
    node.write()
    assert call(node, "status") == 1
    assert "systemctl start failover-agent" in capsys.readouterr().err
    assert not node.journal.exists()


def test_settle_says_that_nothing_is_unknown(node, capsys):
    with node.agent():
        node.run()
    assert call(node, "settle", "key-1", "--done") == 1
    assert "failover-agent status" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("method", "words"),
    [
        ("settle", ("settle", "key-1", "--done")),
        ("latest", ("status",)),
        ("belong_to", ("run",)),
    ],
)
def test_a_journal_that_can_not_be_used_is_said_in_one_line(
    node, capsys, monkeypatch, method, words
):
    with node.agent():
        node.run()

    def fails(*_args, **_more):
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(Journal, method, fails)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr("mistral_failover.agent.daemon.main.log_to_stderr", lambda: None)
    assert call(node, *words) == 1
    said = capsys.readouterr().err
    assert "database or disk is full" in said
    assert "space" in said
    assert str(node.journal) in said
    assert "Traceback" not in said


def test_status_makes_no_journal_where_no_agent_began(node, capsys):
    node.write()
    node.journal.mkdir(mode=0o700)
    assert call(node, "status") == 1
    assert list(node.journal.iterdir()) == []


# -- systemd


@pytest.fixture
def notifications(tmp_path, monkeypatch):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        path = f"\0{uuid.uuid4().hex}"
        listening.bind(path)
        listening.settimeout(10)
        monkeypatch.setenv("NOTIFY_SOCKET", "@" + path[1:])
        yield lambda: listening.recv(100).decode()


def test_systemd_is_told_when_the_agent_works_lives_and_ends(node, notifications, monkeypatch):
    monkeypatch.setenv("WATCHDOG_USEC", "300000")
    with killed_at_the_end(node.process()) as agent:
        assert [notifications() for _ in range(3)] == ["READY=1", "WATCHDOG=1", "WATCHDOG=1"]
        agent.send_signal(signal.SIGTERM)
        assert agent.wait(20) == 0
        assert "STOPPING=1" in until(lambda: notifications() == "STOPPING=1" and "STOPPING=1")


def test_without_systemd_no_notification_is_sent(monkeypatch):
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    notifier = Notifier()
    notifier.ready()
    notifier.alive()
    notifier.stopping()


def test_a_systemd_that_is_gone_does_no_harm(monkeypatch, tmp_path):
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "gone"))
    Notifier().ready()


def test_the_kernel_says_whether_the_clock_is_set():
    assert systemd.clock_is_set() in (True, False)


def test_the_log_is_lines_without_secrets(node):
    with killed_at_the_end(node.process()) as agent:
        node.run()
        agent.send_signal(signal.SIGTERM)
        assert agent.wait(20) == 0
    log = node.log()
    assert "INFO increment (key-1) begins" in log
    assert "INFO increment (key-1) ended with 0" in log
    assert "Traceback" not in log
    assert node.file.read_text().split("key: ")[1].split()[0] not in log


# -- what a node needs


def test_the_agent_starts_where_only_kombu_and_pyyaml_are_installed(node):
    """Each module that is imported is the standard library's, one of those, or the project's."""
    node.write()
    script = f"""
import importlib.abc, sys
sys.path[:0] = {[str(AGENT.parent), *_site_packages()]!r}
allowed = set(sys.stdlib_module_names) | set({INSTALLED!r}) | {{"mistral_failover"}}
class Refuse(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in allowed:
            raise ModuleNotFoundError(f"not on a node: {{name}}", name=name)
sys.meta_path.insert(0, Refuse())
from mistral_failover.agent.daemon.main import main
import kombu.transport.pyamqp
sys.exit(main(["--config", {str(node.file)!r}, "check"]))
"""
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
        env={"PATH": os.environ["PATH"]},
    )
    assert done.returncode == 0, done.stderr
    assert "the broker filesystem://" in done.stdout


def _site_packages():
    import yaml

    return [str(Path(yaml.__file__).parents[1])]
