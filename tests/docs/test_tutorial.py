# SPDX-License-Identifier: Apache-2.0
"""docs/tutorial.md: its commands, as they stand there, do what it says."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.pages import blocks, page

PAGE = page("tutorial")
_START = re.compile(r"^failover (server .*)$", re.M)
_MARK = "-- next block --"

pytestmark = pytest.mark.drills


@pytest.fixture
def empty_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home directory, as on a machine where none of these programs has run yet."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    for name in [name for name in os.environ if name.startswith("XDG_")]:
        monkeypatch.delenv(name)
    return home


@pytest.fixture
def started(tmp_path: Path, empty_home: Path) -> Iterator[tuple[Path, subprocess.Popen[bytes]]]:
    """A folder in which the page's server runs, and that server; the ports are whichever are
    free."""
    (command,) = _START.findall(PAGE)
    server = subprocess.Popen(
        [
            *(sys.executable, "-m", "mistral_failover.cli.main", *command.split()),
            *("--listen", "127.0.0.1:0", "--webhook-listen", "127.0.0.1:0"),
        ],
        cwd=tmp_path,
        stdout=(tmp_path / "out").open("w"),
        stderr=subprocess.STDOUT,
    )
    ready = tmp_path / "tutorial-state" / "server.json"
    deadline = time.monotonic() + 90
    while not ready.exists():
        assert server.poll() is None, (tmp_path / "out").read_text()
        assert time.monotonic() < deadline, (tmp_path / "out").read_text()
        time.sleep(0.1)
    yield tmp_path, server
    end(server)


def end(server: subprocess.Popen[bytes]) -> None:
    """What Ctrl-C does."""
    server.send_signal(signal.SIGTERM)
    server.wait(30)


@pytest.mark.timeout(600)
def test_the_commands_of_the_tutorial_do_what_it_says_and_leave_nothing(
    started: tuple[Path, subprocess.Popen[bytes]], empty_home: Path
) -> None:
    folder, server = started
    *commands, removal = blocks(PAGE, "sh")
    told = played(commands, folder)

    looked, made, seen, planned, happened, home, unproven, proven, ended = told
    assert re.search(r"\d+ findings: 0 errors, 1 warning", looked), looked
    assert "active on db_a" in made
    assert re.search(r"status +COMPLETE", made), made
    assert "payments-db_a" in seen
    assert "in-use" in seen
    assert "active: db_a" in seen
    assert "Fence db_a" in planned
    assert "failover start --plan" in planned
    assert re.search(r"active +active on db_b", happened), happened
    assert re.search(r"lost +db_a", happened), happened
    assert "Attach data to db_b: done" in happened
    assert "active: db_a" in home
    assert "exit code 3" in unproven
    assert re.search(r"status +BLOCKED", unproven), unproven
    assert "failover confirm-fenced payments db_a --because" in unproven
    assert re.search(r"active +active on db_b", proven), proven
    assert "COMPLETE" in ended
    end(server)
    played([f"FAILOVER_STATE_DIR=$PWD/tutorial-state; {removal}"], folder)
    assert [each.name for each in folder.iterdir() if each.name != "out"] == [empty_home.name]
    # Every OpenStack command keeps there which entry points are installed, unless its Python is
    # below /tmp: stevedore's cache, which the page names.
    left = {str(each.relative_to(empty_home)) for each in empty_home.rglob("*") if each.is_file()}
    assert {each for each in left if not each.startswith(".cache/python-entrypoints/")} == set()


def played(commands: list[str], folder: Path) -> list[str]:
    """What each block told; they share one shell."""
    script = f"\necho '{_MARK}'\n".join(commands)
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-eu", "-o", "pipefail", "-c", script],
        cwd=folder,
        env=os.environ | {"PATH": programs, "COLUMNS": "200"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=580,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout.split(_MARK)
