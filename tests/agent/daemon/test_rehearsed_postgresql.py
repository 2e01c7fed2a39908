# SPDX-License-Identifier: Apache-2.0
"""A real PostgreSQL and a rehearsed one on a copy of its data: the same port, the same sockets."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from mistral_failover.agent.daemon.isolation import Namespaces
from mistral_failover.agent.daemon.settings import RehearsalSettings
from mistral_failover.agent.wire import END_REHEARSAL
from support.agents import Node

BINARIES = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
SCRIPT = Path(__file__).parents[3] / "examples" / "postgresql-on-a-volume" / "postgresql.sh"
SOCKETS = Path("/run/postgresql")
REHEARSAL = "33333333-3333-4333-8333-333333333333"
PORT = "54329"


def _why_not() -> str:
    if os.geteuid() != 0 or not BINARIES or not SOCKETS.is_dir():
        return "it needs root and Debian's PostgreSQL"
    namespaces = Namespaces(RehearsalSettings())
    namespaces.try_it(["any"])
    return namespaces.why_not() or ""


pytestmark = pytest.mark.skipif(bool(_why_not()), reason=_why_not() or "never")


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that PostgreSQL's user may reach."""
    with tempfile.TemporaryDirectory(prefix="failover-test-", dir="/srv") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.fixture
def node(place: Path, tmp_path: Path) -> Node:
    node = Node(tmp_path / "node", f"filesystem://{tmp_path}/broker")
    node.settings["rehearsals"] = {"private": ["/run", "/tmp", "/var/tmp", "/var/spool"]}
    script = place / "failover-postgresql"
    shutil.copy(SCRIPT, script)
    script.chmod(0o755)
    copy = place / "copy"
    environment = {
        "VOLUME_MOUNT": str(place / "volume"),
        "VOLUME_MODE": "directory",
        "PGPORT": PORT,
        "PG_INIT": "yes",
        "PG_OPTIONS": "-c fsync=off",
    }
    common = {"environment": environment, "user": "postgres", "repeatable": True}
    sql = ["/usr/bin/psql", "-p", PORT, "-Atc", "select max(id) from t", "postgres"]
    node.commands = {
        "copy-up": {
            "argv": ["/bin/false"],
            "rehearse": ["/bin/sh", "-c", f"mount --bind {copy} {place}/real"],
        },
        "pg-start": {"argv": [str(script), "start"], "rehearse": "same", **common},
        "pg-stop": {"argv": [str(script), "stop"], "rehearse": "same", **common},
        "pg-max": {"argv": sql, "rehearse": "same", **common},
        "pg-check": {"argv": [str(script), "check"], "rehearse": "same", **common},
    }
    (place / "real").mkdir()
    shutil.chown(place / "real", "postgres")
    (place / "volume").symlink_to(place / "real")
    return node


@pytest.fixture
def serving(node: Node) -> Iterator[Node]:
    """The node whose agent serves; its PostgreSQL ends with the test."""
    with node.agent():
        yield node
        node.run("pg-stop", id=uuid.uuid4().hex, limit=60.0)


def psql(sql: str) -> str:
    """Ask the real one."""
    words = ["runuser", "-u", "postgres", "--", "psql", "-p", PORT, "-Atc", sql, "postgres"]
    return subprocess.run(words, check=True, capture_output=True, text=True, cwd="/").stdout.strip()


def test_a_real_postgresql_and_a_rehearsed_one_run_side_by_side(
    serving: Node, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def rehearse(name: str) -> str:
        done = serving.run(name, id=uuid.uuid4().hex, rehearsal=REHEARSAL, limit=60.0)
        assert done.exit_code == 0, done.stderr
        return done.stdout.strip()

    assert serving.run("pg-start", limit=60.0).exit_code == 0
    psql("create table t (id int primary key); insert into t values (1), (2)")
    psql("checkpoint")
    # What a snapshot has: the files as they are, of a server that runs.
    subprocess.run(["cp", "-a", place / "real", place / "copy"], check=True)
    psql("insert into t values (3)")

    began = time.monotonic()
    rehearse("copy-up")
    rehearse("pg-start")
    started = time.monotonic() - began
    assert rehearse("pg-max") == "2", "the copy's"
    assert psql("select max(id) from t") == "3"
    rehearse("pg-check")

    began = time.monotonic()
    rehearse(END_REHEARSAL)
    ended = time.monotonic() - began

    assert psql("insert into t values (4) returning id").splitlines()[0] == "4"
    assert psql("select max(id) from t") == "4"
    running = [
        process.name
        for process in Path("/proc").iterdir()
        if process.name.isdigit() and _uses(process, place / "copy")
    ]
    assert running == []
    with capsys.disabled():
        sys.stdout.write(
            f"\na second PostgreSQL on port {PORT}: recovered and started in {started:.2f} s, "
            f"ended in {ended * 1000:.0f} ms\n"
        )
    assert ended < 1.0


def _uses(process: Path, folder: Path) -> bool:
    try:
        return str((process / "cwd").readlink()).startswith(str(folder))
    except OSError:
        return False
