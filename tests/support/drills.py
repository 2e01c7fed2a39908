# SPDX-License-Identifier: Apache-2.0
"""Drills as a user starts them, for machines: with an outcome in JSON."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from mistral_failover.cli.main import main
from mistral_failover.lab.emulator.client import EmulatorClient
from mistral_failover.lab.emulator.latency import MEASURED
from mistral_failover.store.database import Database
from mistral_failover.store.tables import journal
from support import forked
from support.waiting import until

_DRILL = ("drill", "-f", "json")
HANGS = 280.0
"""Seconds after which a drill counts as hung. It takes some 25, and many times that beside other
lanes on a busy machine."""


def drill(*options: str, timeout: float = HANGS) -> tuple[int, dict[str, Any], str]:
    """Exit code, outcome, and what was told."""
    done = forked.run(main, *_DRILL, *options, timeout=timeout)
    return done.returncode, json.loads(done.stdout or "{}"), done.stderr


def start_drill(*options: str) -> forked.Forked:
    """Start a drill; what it prints is not kept."""
    return forked.Forked(main, [*_DRILL, *options], output=Path(os.devnull))


def cloud(state_dir: Path) -> EmulatorClient:
    """The cloud of a drill, which outlives it."""
    announced = state_dir / "cloud" / "emulator.json"
    return EmulatorClient(json.loads(announced.read_text())["url"])


def at_once(state_dir: Path) -> None:
    """Have the cloud take no time from now on: only the kill needed it to be slow."""
    cloud(state_dir).set_latency(**dict.fromkeys(MEASURED, 0.0))


def slow_down(state_dir: Path, operation: str) -> None:
    """Have this operation take so long that a kill hits it; wait for the cloud to be there."""

    def is_slow() -> bool:
        with suppress(OSError, ValueError):  # it does not answer yet
            cloud(state_dir).set_latency(**{operation: 2.0})
            return True
        return False

    until(is_slow, "there never was a cloud", limit=90)


def wait_for_sentence(path: Path, sentence: str) -> None:
    """Wait until the journal says it."""
    query = sa.select(sa.func.count()).where(journal.c.sentence == sentence)

    def is_said() -> bool:
        if not path.exists():
            return False
        with closing(Database(f"sqlite:///{path}")) as database:
            with suppress(sa.exc.OperationalError):  # the tables are only being made
                return database.reading(lambda tx: bool(tx.connection.execute(query).scalar_one()))
            return False

    until(is_said, f"the journal never said: {sentence}", limit=90)


@contextmanager
def killed_cloud_afterwards(state_dir: Path) -> Iterator[None]:
    """A test that fails half way must leave no emulated cloud behind."""
    try:
        yield
    finally:
        with suppress(OSError, ValueError, ProcessLookupError):
            pid = json.loads((state_dir / "cloud" / "emulator.json").read_text())["pid"]
            os.kill(pid, signal.SIGKILL)
