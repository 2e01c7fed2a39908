# SPDX-License-Identifier: Apache-2.0
"""Rehearsals in a drill's guest, whose agent may have any user, so it has no namespaces.

What a guest runs and mounts is in its folder. A rehearsal has a folder of its own in it, and its
processes are known by a variable of their environment.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from mistral_failover.agent.daemon.journal import ProcessIdentity
from mistral_failover.agent.daemon.runner import process_identity
from mistral_failover.agent.daemon.settings import Account
from mistral_failover.lab.drill.application import BROKEN
from mistral_failover.lab.drill.processes import Process

FOLDER = "rehearsals"
"""The folder in a guest's with one for each rehearsal; one that has ended is removed."""
MOUNT = "data"
"""What a rehearsal mounts, in its folder."""
_MARK = "DRILL_REHEARSAL"
_RUN = 'cd -- "$0" || exit 127; unset {names}; exec "$@"'


class GuestIsolating:
    """The way to isolate in a drill's guest (`agent.daemon.isolation.Isolating`)."""

    def __init__(self, guest: Path) -> None:
        self._folder = guest / FOLDER

    def why_not(self) -> str | None:
        """See Isolating."""
        return None

    def why_unlimited(self) -> str | None:
        """See Isolating."""
        return "the guests of a drill have no control groups"

    def make(self, name: str, began: Callable[[ProcessIdentity], None]) -> GuestIsolation:
        """See Isolating."""
        began(process_identity(os.getpid()))
        made = GuestIsolation(self._folder / name)
        with suppress(FileNotFoundError):
            shutil.copy(self._folder.with_name(BROKEN), self._folder / name)
        return made

    def end_leftovers(self, process: ProcessIdentity) -> None:
        """See Isolating."""
        del process
        for folder in self._folder.glob("*"):
            GuestIsolation(folder).end()


class GuestIsolation:
    """One rehearsal's folder and processes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.lives = True
        folder.mkdir(parents=True, exist_ok=True)

    def wrap(self, argv: Sequence[str], folder: str, account: Account, names: str) -> list[str]:
        """See `agent.daemon.runner.Enclosure`."""
        del account
        variables = {
            _MARK: self._folder,
            "DRILL_GUEST": self._folder,
            "VOLUME_MOUNT": self._folder / MOUNT,
        }
        words = ["/bin/sh", "-c", _RUN.format(names=names), folder]
        return [*words, "/usr/bin/env", *(f"{k}={v}" for k, v in variables.items()), *argv]

    def add(self, pid: int) -> None:
        """See `agent.daemon.runner.Enclosure`."""

    def kill(self) -> None:
        """See Isolation."""
        self.lives = False
        self.end()

    def remains(self) -> str:
        """See Isolation."""
        return "" if self.end() else "some of its processes still run"

    def end(self) -> bool:
        """Kill its processes and remove its folder; return whether nothing is left."""
        found = list(processes(self._folder))
        for process in found:
            process.signal(signal.SIGKILL)
        if found:
            return False
        shutil.rmtree(self._folder, ignore_errors=True)
        return True


def processes(folder: Path) -> Iterator[Process]:
    """Return the processes of the rehearsals whose folders are in a folder, or are this one."""
    for place in Path("/proc").glob("[0-9]*"):
        try:
            words = (place / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        for word in words:
            name, _, value = word.partition(b"=")
            if name.decode(errors="replace") != _MARK:
                continue
            process = Process.of(int(place.name))
            if process is not None and Path(os.fsdecode(value)).is_relative_to(folder):
                yield process
