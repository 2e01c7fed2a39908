# SPDX-License-Identifier: Apache-2.0
"""A drill's guest as a tree of processes: what belongs to it, and its sudden end.

Linux only. An orphaned process of a guest becomes a child of its first process (see
:mod:`.guest_init`), so the tree stays complete even if something daemonises itself.
"""

from __future__ import annotations

import ctypes
import os
import signal
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36  # prctl(2)


@dataclass(frozen=True)
class Process:
    """A process, identified so that a later one with the same number is not confused with it:
    ``started`` counts the system's ticks since its boot."""

    pid: int
    started: int

    def __str__(self) -> str:
        return f"{self.pid} {self.started}"

    @classmethod
    def parse(cls, text: str) -> Process:
        """Parse the result of ``str``. Raises ValueError."""
        pid, started = text.split()
        return cls(int(pid), int(started))

    @classmethod
    def of(cls, pid: int) -> Process | None:
        """Return the process of that number; None if there is none, or if it only has to be
        reaped."""
        fields = _stat(pid)
        return None if fields is None or fields[0] in "ZX" else cls(pid, int(fields[19]))

    @property
    def runs(self) -> bool:
        """Whether it exists, even if it is stopped."""
        return Process.of(self.pid) == self

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal, if it still exists."""
        if self.runs:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)


def adopt_orphans() -> None:
    """Make this process the parent of every orphaned process below it."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def below(root: int) -> list[Process]:
    """Return everything below a process, without itself."""
    children = defaultdict(list)
    for place in Path("/proc").glob("[0-9]*"):
        fields = _stat(int(place.name))
        if fields is not None and fields[0] not in "ZX":
            children[int(fields[1])].append(Process(int(place.name), int(fields[19])))
    found: list[Process] = []
    waiting = [root]
    while waiting:
        for process in children[waiting.pop()]:
            found.append(process)
            waiting.append(process.pid)
    return found


def kill_below(root: int) -> set[Process]:
    """Kill everything below a process at once, so that none of it can react to another's end.
    Return them; they are gone shortly afterwards."""
    stopped: set[Process] = set()
    while new := [process for process in below(root) if process not in stopped]:
        for process in new:
            process.signal(signal.SIGSTOP)
        stopped.update(new)
    for process in stopped:
        process.signal(signal.SIGKILL)
    return stopped


def users(folder: Path) -> Iterator[Process]:
    """Return the processes that have a file in a folder open, or whose working directory it is."""
    folder = folder.resolve()
    for place in Path("/proc").glob("[0-9]*"):
        process = Process.of(int(place.name))
        if process is not None and _uses(place, folder):
            yield process


def _uses(place: Path, folder: Path) -> bool:
    links = [place / "cwd"]
    with suppress(OSError):
        links += (place / "fd").iterdir()
    for link in links:
        with suppress(OSError):
            if link.readlink().is_relative_to(folder):
                return True
    return False


def _stat(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat from the state on; the name before may hold anything."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return text.rpartition(")")[2].split()
