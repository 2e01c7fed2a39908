# SPDX-License-Identifier: Apache-2.0
"""A Mistral that can be told where to go wrong: a program, see :func:`main`.

It takes the arguments of ``mistral_failover.embedded`` and obeys STATE_DIR/plan.json, as
``support.injected_faults`` says. A further mode is ``duplicate``.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mistral_failover import fault_points
from mistral_failover.actions.base import FailoverAction
from mistral_failover.embedded import __main__ as embedded
from mistral_failover.embedded.server import EmbeddedMistral
from mistral_failover.runtime import process
from support import injected_faults

STOPS_WITHIN = 30.0  # seconds
STOPPING = "stopping"
"""The file that is there while a process is being stopped; only then may it be woken up."""
_STOP = """
import os, signal, sqlite3, sys, time
store = sqlite3.connect(sys.argv[1], timeout=0.5, isolation_level=None)
try:
    store.execute("BEGIN IMMEDIATE")
except sqlite3.OperationalError:
    pass  # the thread that is at the fault point holds it
try:
    os.kill(int(sys.argv[2]), signal.SIGSTOP)
    while open(f"/proc/{sys.argv[2]}/stat").read().rpartition(")")[2].split()[0] not in "TZ":
        time.sleep(0.001)
finally:
    os.unlink(sys.argv[3])
"""
"""Stops a process while nobody writes to a database: this program has its lock until it has seen
the process stopped. If that were woken up earlier, it would wait for that forever."""
DUPLICATE_HEAD_START = 0.5  # seconds that the duplicate gets before the first goes on


class Running(threading.local):
    """What this thread runs: actions with their contexts, the outermost first."""

    def __init__(self) -> None:
        self.actions: list[tuple[FailoverAction, Any]] = []


class Faults(injected_faults.FaultInjector):
    """The hook: does at a point what the plan says."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.running = Running()
        self._stopping = folder / STOPPING
        self.latest: list[tuple[FailoverAction, Any]] = []
        # A duplicate ends with its process: another fault may have killed that in the middle.
        for mark in [
            path for path in self._fired.iterdir() if path.suffix not in injected_faults.MARKS
        ]:
            _ended(mark).touch()

    def duplicate(self, point: str, mark: Path) -> None:
        """Have another thread do what this one is doing: the action that Mistral delivered, and
        the one that it carries out in place."""
        doing = self.running.actions or self.latest
        twin = threading.Thread(target=self._repeat, args=(doing[:1] + doing[1:][-1:], mark))
        twin.start()
        twin.join(DUPLICATE_HEAD_START)

    def freeze(self, point: str, mark: Path) -> None:
        """Stop at once, with SQLite's write lock in no other thread's hands: it lets one process
        write at a time, so the others could do nothing."""
        path = process.runtime().database.engine.url.database
        assert path is not None
        self._stopping.touch()
        arguments = [path, str(os.getpid()), str(self._stopping)]
        # It goes on once this process does.
        subprocess.run([sys.executable, "-I", "-S", "-c", _STOP, *arguments], check=True)

    def stop(self, point: str, mark: Path) -> None:
        """Have the process end in good order; this thread goes on once its pool gives work back."""
        super().stop(point, mark)
        deadline = time.monotonic() + STOPS_WITHIN
        while not process.runtime().workers.stopping and time.monotonic() < deadline:
            time.sleep(0.02)

    @staticmethod
    def _repeat(doing: list[tuple[FailoverAction, Any]], mark: Path) -> None:
        try:
            for action, context in reversed(doing):
                twin = type(action).__new__(type(action))
                vars(twin).update(vars(action))
                twin.run(context)
        finally:
            _ended(mark).touch()

    def remember(self, run: Any) -> Any:
        """Wrap ``FailoverAction.run`` so that it is known what runs."""

        def wrapper(action: FailoverAction, context: Any) -> Any:
            self.running.actions.append((action, context))
            self.latest = list(self.running.actions)
            try:
                return run(action, context)
            finally:
                self.running.actions.pop()

        return wrapper


def _ended(mark: Path) -> Path:
    return mark.with_name(f"{mark.name}{injected_faults.ENDED}")


class Restarted(EmbeddedMistral):
    """Ends what a killed process left RUNNING, as the drill does."""

    def start(self) -> Restarted:
        super().start()
        self.cancel_stale()
        return self


@contextlib.contextmanager
def armed_at(folder: Path) -> Iterator[None]:
    """Obey the folder's plan meanwhile."""
    faults, run = Faults(folder), FailoverAction.run
    fault_points.arm(faults)
    FailoverAction.run = faults.remember(run)  # type: ignore[method-assign]
    try:
        yield
    finally:
        FailoverAction.run = run  # type: ignore[method-assign]
        fault_points.disarm()


def main() -> None:
    """Serve as ``mistral_failover.embedded`` does, with the hook armed."""
    folder = Path(sys.argv[1])
    # SIGUSR1 has every thread's stack written down: for those who wonder why nothing moves.
    faulthandler.register(signal.SIGUSR1, (folder / "stacks").open("a"), all_threads=True)
    embedded.EmbeddedMistral = Restarted  # type: ignore[misc]
    with armed_at(folder):
        embedded.main()
