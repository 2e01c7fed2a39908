# SPDX-License-Identifier: Apache-2.0
"""Processes that go wrong where a test wants them to: what is planned, and the hook that does it.

The test writes FOLDER/plan.json: ``{"id", "faults": [{"point", "mode", "nth"}]}``. The process
obeys it at the points of ``mistral_failover.fault_points``. Each fault happens once, also when the
process is started again in between: FOLDER/fired/ID.NUMBER says that it has.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
import time
import uuid
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mistral_failover.cloud.transport import LeaseLost

HELD_AT_MOST = 60.0  # seconds
ENDED, GO = ".ended", ".go"
MARKS = frozenset({ENDED, GO})
"""What the name of a fault's mark ends with where it says more than that the fault happened."""


@dataclass(frozen=True)
class Fault:
    """What happens to a process: at the nth time that it reaches the point.

    ``mode``: kill (SIGKILL), freeze (SIGSTOP), stop (SIGTERM), exception, lose (it finds that its
    lease is lost, and leaves its lock as it is), or hold: the thread stands there until the test
    lets it go on.
    """

    point: str
    mode: str
    nth: int = 1

    def __str__(self) -> str:
        return f"{self.mode} at {self.point} ({self.nth})"


class FaultPlan:
    """The test's side."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "plan.json"
        self._fired = folder / "fired"
        self.id = ""
        self.faults: tuple[Fault, ...] = ()

    def set(self, *faults: Fault) -> None:
        """Have these faults happen from now on, and no others."""
        self.id, self.faults = uuid.uuid4().hex, faults
        plan = {"id": self.id, "faults": [vars(fault) for fault in faults]}
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._path.with_suffix(".new").write_text(json.dumps(plan))
        self._path.with_suffix(".new").replace(self._path)

    def fired(self, number: int = 0) -> bool:
        """Whether the fault of that number has happened."""
        return self._mark(number).exists()

    def ended(self, number: int) -> bool:
        """Whether what the fault of that number began is over, also because its process is."""
        return self._mark(number, ENDED).exists()

    def go_on(self, number: int = 0) -> None:
        """Let the thread go on that the fault of that number holds."""
        self._mark(number, GO).touch()

    def _mark(self, number: int, suffix: str = "") -> Path:
        return self._fired / f"{self.id}.{number}{suffix}"


class Injected(Exception):
    """What a bug could raise."""


class FaultInjector:
    """The process's side: the hook, which does at a point what the plan says."""

    def __init__(self, folder: Path) -> None:
        self._plan = folder / "plan.json"
        self._fired = folder / "fired"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._fired.mkdir(exist_ok=True)
        self._mutex = threading.Lock()
        self._seen: Counter[tuple[str, str]] = Counter()

    def __call__(self, point: str) -> None:
        due = self._due(point)
        if due is not None:
            mode, mark = due
            getattr(self, mode)(point, mark)

    def _due(self, point: str) -> tuple[str, Path] | None:
        """The fault that happens here and now, marked as having happened."""
        try:
            plan: dict[str, Any] = json.loads(self._plan.read_text())
        except (FileNotFoundError, ValueError):
            return None
        with self._mutex:
            self._seen[plan["id"], point] += 1
            for number, fault in enumerate(plan["faults"]):
                if fault["point"] != point or self._seen[plan["id"], point] < fault["nth"]:
                    continue
                mark = self._fired / f"{plan['id']}.{number}"
                with contextlib.suppress(FileExistsError):
                    mark.touch(exist_ok=False)
                    return fault["mode"], mark
        return None

    def kill(self, point: str, mark: Path) -> None:
        """Die at once."""
        signal.pthread_kill(threading.get_ident(), signal.SIGKILL)

    def freeze(self, point: str, mark: Path) -> None:
        """Stop at once, until somebody sends SIGCONT."""
        signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)

    def stop(self, point: str, mark: Path) -> None:
        """Have the process end in good order; this thread goes on meanwhile."""
        os.kill(os.getpid(), signal.SIGTERM)

    def exception(self, point: str, mark: Path) -> None:
        """Raise."""
        raise Injected(f"injected at {point}")

    def lose(self, point: str, mark: Path) -> None:
        """Find that the lease is lost."""
        raise LeaseLost(f"injected at {point}")

    def hold(self, point: str, mark: Path) -> None:
        """Stand here until the test says so; the process's other threads go on."""
        word = mark.with_name(f"{mark.name}{GO}")
        deadline = time.monotonic() + HELD_AT_MOST
        while not word.exists() and time.monotonic() < deadline:
            time.sleep(0.02)


def stopped(pid: int) -> bool:
    """Whether a process is frozen."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):  # it has just ended
        return False
    return stat.rpartition(")")[2].split()[0] == "T"


def wake(pid: int) -> None:
    """Let a frozen process go on."""
    os.kill(pid, signal.SIGCONT)
