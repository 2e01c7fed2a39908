# SPDX-License-Identifier: Apache-2.0
"""Who a process is: its id, when it started, and in which boot of the machine.

An id alone is not enough, since the kernel gives it to somebody else later. All processes of the
test cloud lead a session of their own, so their children are found by the session.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")


@dataclass(frozen=True)
class Identity:
    """One process.

    :ivar started: clock ticks from the machine's boot to the process's start.
    :ivar boot: the kernel's random id of that boot.
    """

    pid: int
    started: int
    boot: str

    def alive(self) -> bool:
        """Whether this very process exists and is no zombie."""
        found = _stat(self.pid)
        return (
            self.boot == boot_id()
            and found is not None
            and found.started == self.started
            and not _ended(self.pid, found)
        )

    def members(self) -> list[int]:
        """The processes of the session that it leads or led, itself included.

        Its id stays reserved as long as a member lives. So, if somebody else has it, none is left.
        """
        if self.boot != boot_id():
            return []
        leader = _stat(self.pid)
        if leader is not None and leader.started != self.started:
            return []
        found = []
        for entry in PROC.iterdir():
            if entry.name.isdigit():
                stat = _stat(int(entry.name))
                if (
                    stat is not None
                    and stat.session == self.pid
                    and not _ended(int(entry.name), stat)
                    and stat.started >= self.started
                ):
                    found.append(int(entry.name))
        return sorted(found)

    def age(self) -> float:
        """Seconds since its start."""
        uptime = time.clock_gettime(time.CLOCK_BOOTTIME)
        return max(0.0, uptime - self.started / os.sysconf("SC_CLK_TCK"))


@dataclass(frozen=True)
class _Stat:
    state: str
    session: int
    started: int


def identify(pid: int) -> Identity | None:
    """Who has this id now; None if nobody."""
    found = _stat(pid)
    return None if found is None else Identity(pid, found.started, boot_id())


def boot_id() -> str:
    """The kernel's id of this boot."""
    return (PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def memory(pids: list[int]) -> int:
    """Their resident memory in bytes, pages that they share counted once (PSS); 0 if unreadable."""
    total = 0
    for pid in pids:
        try:
            text = (PROC / str(pid) / "smaps_rollup").read_text(encoding="ascii")
        except OSError:
            continue
        total += sum(
            int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("Pss:")
        )
    return total


def _ended(pid: int, found: _Stat) -> bool:
    """Whether nothing of a process is left but its exit code: a zombie of which a thread is still
    ending holds its files and ports."""
    if found.state not in "ZX":
        return False
    try:
        return len(list((PROC / str(pid) / "task").iterdir())) <= 1
    except OSError:
        return True


def _stat(pid: int) -> _Stat | None:
    try:
        text = (PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The name, in brackets, may hold anything. Then: state, ppid, pgrp, session, ..., starttime.
    fields = text[text.rindex(")") + 2 :].split()
    return _Stat(fields[0], int(fields[3]), int(fields[19]))
