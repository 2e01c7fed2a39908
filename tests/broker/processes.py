# SPDX-License-Identifier: Apache-2.0
"""The processes that a test may kill, freeze and start again."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from broker import executor
from support import injected_faults
from support.forked import Forked
from support.injected_faults import FaultPlan


class Armed:
    """One process that obeys the plan of its folder; what it prints is in FOLDER/output."""

    def __init__(
        self, folder: Path, main: Callable[[], object], arguments: Sequence[str] = ()
    ) -> None:
        self.folder = folder
        self.plan = FaultPlan(folder)
        self._main = main
        self._arguments = [str(folder), *arguments]
        self._process: Forked | None = None
        folder.mkdir(parents=True, exist_ok=True)

    def start(self) -> None:
        """Start it."""
        self._process = Forked(
            self._main, self._arguments, output=self.folder / "output", env=os.environ
        )

    @property
    def pid(self) -> int:
        """Its id."""
        assert self._process is not None
        return self._process.pid

    @property
    def dead(self) -> bool:
        """Whether it has ended, or was never started."""
        return self._process is None or self._process.poll() is not None

    @property
    def frozen(self) -> bool:
        """Whether it is stopped."""
        return not self.dead and injected_faults.stopped(self.pid)

    @property
    def runs_something(self) -> bool:
        """Whether a process that it started runs."""
        return len(self._family()) > 1

    def freeze(self) -> None:
        """Stop it (SIGSTOP), with everything that it started: as a hypervisor does."""
        for pid in self._family():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)

    def wake(self) -> None:
        """Let it go on, with everything that it started; the process itself first."""
        for pid in self._family():
            with contextlib.suppress(ProcessLookupError):
                injected_faults.wake(pid)

    def kill(self) -> None:
        """End it with SIGKILL, and it alone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def terminate(self, limit: float = 20.0) -> int:
        """Ask it to end; returns its exit code."""
        assert self._process is not None
        self._process.terminate()
        return self._process.wait(limit)

    def crash(self) -> None:
        """End it and everything that it started, as a node's loss of power does."""
        for pid in self._family():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.kill()

    def write_stacks_down(self) -> None:
        """Have FOLDER/stacks tell what every thread is doing."""
        if not self.dead:
            os.kill(self.pid, signal.SIGUSR1)

    def _family(self) -> list[int]:
        found = [] if self.dead else [self.pid]
        for pid in found:
            with contextlib.suppress(OSError):
                for task in Path(f"/proc/{pid}/task").iterdir():  # each thread has its own
                    found += map(int, (task / "children").read_text().split())
        return found


@dataclass(frozen=True)
class Outcome:
    """What came of an order: ``code`` is "" where there is a result."""

    code: str
    document: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.code or 'result'}: {self.document}"


class Executor(Armed):
    """A process that carries one order out, once for each start."""

    def __init__(self, folder: Path, order: dict[str, Any]) -> None:
        super().__init__(folder, executor.main)
        self.order = order
        (folder / "order.json").write_text(json.dumps(order))

    def start(self) -> None:
        """Start it; what came of an earlier start is forgotten."""
        (self.folder / "outcome.json").unlink(missing_ok=True)
        super().start()

    @property
    def outcome(self) -> Outcome | None:
        """What came of it; None where it has not said so."""
        try:
            said = json.loads((self.folder / "outcome.json").read_text())
        except FileNotFoundError:
            return None
        return Outcome(said.get("error", {}).get("code", ""), said.get("error") or said["result"])
