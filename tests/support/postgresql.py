# SPDX-License-Identifier: Apache-2.0
"""The PostgreSQL of this machine, if it has one, and somebody who may run it."""

from __future__ import annotations

import os
import pwd
import subprocess
from collections.abc import Mapping
from pathlib import Path

COMMANDS = Path(__file__).parents[2] / "examples" / "postgresql-on-a-volume"
VOLUME, POSTGRESQL = COMMANDS / "volume.py", COMMANDS / "postgresql.sh"

INSTALLED = sorted(Path("/usr/lib/postgresql").glob("*/bin/pg_ctl"))
IS_ROOT = os.geteuid() == 0


def owner() -> str | None:
    """Who runs the server: us, or, as PostgreSQL refuses root, Debian's own user. None: no user."""
    if not IS_ROOT:
        return pwd.getpwuid(os.geteuid()).pw_name
    try:
        return pwd.getpwnam("postgres").pw_name
    except KeyError:
        return None


def why_not() -> str:
    """Why nothing of PostgreSQL can be tried here; empty where it can."""
    if not INSTALLED:
        return "PostgreSQL is not installed: apt-get install postgresql"
    return "" if owner() else "root may not run PostgreSQL, and there is no user postgres"


def run(
    program: Path, *arguments: str, env: Mapping[str, str], user: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command of the example; as another user if one is named."""
    argv = [str(program), *arguments]
    if user is not None and IS_ROOT:
        argv = ["runuser", "-u", user, "--", *argv]
    return subprocess.run(
        argv,
        env={"PATH": os.environ["PATH"], **env},
        capture_output=True,
        text=True,
        timeout=60,
        cwd="/",
    )


def query(sql: str, env: Mapping[str, str]) -> str:
    """What a statement returns, over the server's socket."""
    psql = INSTALLED[-1].with_name("psql")
    done = run(
        psql,
        *("--no-psqlrc", "-tAq", "-h", env["PG_SOCKETS"], "-d", "postgres", "-c", sql),
        env=env,
        user=owner(),
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
