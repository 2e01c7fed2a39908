# SPDX-License-Identifier: Apache-2.0
"""Whole drills whose nodes are real: processes with an agent each, commanded through files."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.drills

DRILL = [sys.executable, "-m", "mistral_failover.cli.main", "drill", "--agents"]


def drill(folder: Path, *options: str) -> tuple[int, dict[str, Any], str]:
    """Exit code, outcome, and what was told, with the agents' logs."""
    argv = [*DRILL, "-f", "json", "--latency", "zero", "--state-dir", str(folder), *options]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=110)
    logs = "".join(path.read_text() for path in folder.glob("nodes/servers/*/agent.log"))
    return done.returncode, json.loads(done.stdout or "{}"), done.stderr + logs


@pytest.mark.parametrize("fault", ["hang", "slow"])
def test_the_standby_s_agent_starts_the_application_once_the_other_one_s_ended(
    fault: str, tmp_path: Path
) -> None:
    code, outcome, told = drill(tmp_path, "--fault", fault, "--volumes", "2")
    assert code == 0, (outcome, told)
    assert (outcome["status"], outcome["active"]) == ("COMPLETE", "db_b")
    assert outcome["holders"] == {"data": "db_b", "data_2": "db_b"}
    assert outcome["violations"] == []
    assert len(writers(tmp_path)) == 2, "each of them wrote on the volume, one after the other"


def test_an_agent_that_comes_back_after_the_failover_finds_itself_deposed(tmp_path: Path) -> None:
    code, outcome, told = drill(tmp_path, "--fault", "returns")
    assert code == 0, (outcome, told)
    assert outcome["status"] == "COMPLETE"
    assert "epoch 2 replaces epoch 1" in told
    assert outcome["violations"] == []


def test_a_false_word_of_a_person_is_seen_and_the_frozen_agent_stops_what_it_left_running(
    tmp_path: Path,
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FALSE_WORD, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    seen = json.loads(done.stdout)
    assert seen["status"] == "BLOCKED"
    assert seen["wrote_on"] is True, "the frozen node's application still ran"
    (lie,) = seen["violations"]
    assert lie.startswith("invariant 2: process")
    assert "when it was detached" in lie
    assert seen["deposed"].startswith("stopped before epoch 2 began")
    assert seen["writes_still"] is False
    assert len(writers(tmp_path)) == 2, "what it wrote since is not on the volume"


def writers(folder: Path) -> list[str]:
    """Who wrote on the volume, in order, each time it was another."""
    journals = folder.glob("nodes/volumes/*/*/journal")
    journal = max(journals, key=lambda path: int(path.parent.name))
    changes: list[str] = []
    for line in journal.read_text().splitlines():
        writer = line.split()[0]
        if changes[-1:] != [writer]:
            changes.append(writer)
    return changes


FALSE_WORD = """
import json, sys, time
from pathlib import Path
from mistral_failover.drill import rejoin
from mistral_failover.drill.application import Application
from mistral_failover.drill.scene import Scene

def without_nova(definition):
    return definition | {"fence": [{"kind": "quiesce", "limit": 1}, "confirm"]}

def until(look):
    deadline = time.monotonic() + 30
    while not look():
        assert time.monotonic() < deadline
        time.sleep(0.05)

folder = Path(sys.argv[1])
with Scene(folder, latency="zero", agents=True) as scene:
    def status():
        return scene.action("failover.status", group="payments")["status"]

    scene.add_group("payments", 1, without_nova)
    scene.run("failover.activate_first", group="payments")
    server = scene.server("payments", "db_a")
    node = folder / "nodes" / "servers" / server
    application = Application(node, node / "data")
    scene.cloud.fault("server", server, "hang")
    scene.run("failover.failover", group="payments", lost=["db_a"])
    seen = {"status": status()}
    scene.run("failover.confirm_fenced", group="payments", member="db_a", because="I think so")
    until(lambda: status() == "COMPLETE")
    seen["wrote_on"] = application.process() is not None
    scene.cloud.fault("server", server, "thaw")
    found = lambda: rejoin.deposed(scene, "payments", "db_a", server, 2).deposed
    until(lambda: not found().endswith("is being stopped"))
    seen["deposed"] = found()
    seen["violations"] = [str(v) for v in scene.violations()]
    seen["writes_still"] = application.process() is not None
print(json.dumps(seen))
"""
