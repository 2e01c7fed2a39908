# SPDX-License-Identifier: Apache-2.0
"""Whole drills whose guests are real: processes with an agent each, commanded through files."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support import drills

pytestmark = [pytest.mark.drills, pytest.mark.timeout(240)]


def drill(folder: Path, *options: str) -> tuple[int, dict[str, Any], str]:
    """Exit code, outcome, and what was told, with the agents' logs."""
    given = ("--agents", "--latency", "zero", "--state-dir", str(folder), *options)
    code, outcome, told = drills.drill(*given)
    logs = "".join(path.read_text() for path in folder.glob("guests/servers/*/agent.log"))
    return code, outcome, told + logs


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


def test_agents_rehearse_beside_what_serves_and_find_a_broken_standby(tmp_path: Path) -> None:
    code, outcome, told = drill(tmp_path, "--rehearse")
    assert code == 0, (outcome, told)
    assert [each.partition(":")[0] for each in outcome["rehearsals"]] == ["PASSED", "FAILED"]
    assert "there is no PostgreSQL" in outcome["rehearsals"][1]
    assert outcome["violations"] == []
    assert list(tmp_path.glob("guests/servers/*/rehearsals/*")) == []


def test_a_false_word_of_a_person_does_no_harm_to_a_frozen_guest_that_keeps_its_volume(
    tmp_path: Path,
) -> None:
    """It still writes. So it is stopped, before another server gets the volume."""
    done = subprocess.run(
        [sys.executable, "-c", FALSE_WORD, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout) == {
        "status": "BLOCKED",
        "wrote_before": True,
        "writes_still": False,
        "violations": [],
    }
    assert len(writers(tmp_path)) == 2


def writers(folder: Path) -> list[str]:
    """Who wrote on the volume, in order, each time it was another."""
    journals = folder.glob("guests/volumes/*/*/journal")
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
from mistral_failover.lab.drill.application import Application
from mistral_failover.lab.drill.scene import Scene

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
    guest = folder / "guests" / "servers" / server
    application = Application(guest, guest / "data")
    scene.cloud.fault("server", server, "hang")
    scene.run("failover.failover", group="payments", lost=["db_a"])
    seen = {"status": status()}
    seen["wrote_before"] = application.process() is not None
    scene.run("failover.confirm_fenced", group="payments", member="db_a", because="I think so")
    until(lambda: status() == "COMPLETE")
    scene.cloud.fault("server", server, "thaw")
    seen["writes_still"] = application.process() is not None
    seen["violations"] = [str(v) for v in scene.violations()]
print(json.dumps(seen))
"""
