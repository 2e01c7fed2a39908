# SPDX-License-Identifier: Apache-2.0
"""Starts, stops and finds the cloud's processes by name."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

from testcloud import pids
from testcloud.errors import CloudError
from testcloud.pids import Identity
from testcloud.settings import write_private

_FIRST = -10  # the niceness of whom the others wait for
GRACE = 10.0
"""Seconds from TERM to KILL, unless the process is given longer."""


class Folders(Protocol):
    """Where processes leave their traces."""

    @property
    def run(self) -> Path:
        """One file for each process."""
        ...

    @property
    def log(self) -> Path:
        """One log for each process."""
        ...


class Processes:
    """The processes of one cloud, each with a file ``run/NAME.json`` and a log ``log/NAME.log``."""

    def __init__(self, folders: Folders) -> None:
        self._folders = folders

    def find(self, name: str) -> Identity | None:
        """The process of this name, None when it is not running."""
        found = self._recorded(name)
        return found if found is not None and found.alive() else None

    def pid(self, name: str) -> int | None:
        """Its id, None when it is not running."""
        found = self.find(name)
        return None if found is None else found.pid

    def running(self) -> list[str]:
        """The names of all that run, or of which a child still runs."""
        names = []
        for path in sorted(self._folders.run.glob("*.json")):
            found = self._recorded(path.stem)
            if found is not None and found.members():
                names.append(path.stem)
        return names

    def start(
        self,
        name: str,
        command: Sequence[str],
        environment: Mapping[str, str],
        folder: Path,
        *,
        first: bool = False,
    ) -> bool:
        """Start it in a session of its own; False when it runs already.

        `first`: the others wait for it, so let it have the processor first (root only).
        """
        if self.find(name) is not None:
            return False
        self.stop(name, kill=True)  # children of one that was killed hold its port
        self._folders.log.mkdir(parents=True, exist_ok=True)
        with self._log(name).open("ab") as log:
            # The services' logs may hold what a caller sent.
            os.fchmod(log.fileno(), 0o600)
            child = subprocess.Popen(
                list(command),
                env=dict(environment),
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        if first:
            # Where the kernel shares the processor out by sessions, a priority within one is moot.
            with contextlib.suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, child.pid, _FIRST)
                Path(f"/proc/{child.pid}/autogroup").write_text(str(_FIRST), encoding="ascii")
        identity = pids.identify(child.pid)
        if identity is None:
            raise self.died(name)
        write_private(self._folders.run / f"{name}.json", json.dumps(asdict(identity)))
        _Children.of_this_process.append(child)
        return True

    def stop(self, name: str, *, kill: bool = False, grace: float = GRACE) -> bool:
        """End it and its children: TERM, and KILL after `grace` seconds; False when none ran.

        `kill`: KILL at once, as a crash would.
        """
        found = self._recorded(name)
        members = [] if found is None else found.members()
        if found is None or not members:
            (self._folders.run / f"{name}.json").unlink(missing_ok=True)
            return False
        if not kill:
            _signal([found.pid] if found.alive() else members, signal.SIGTERM)
            members = _wait_for_end(found, grace)
        limit = time.monotonic() + 10
        while members:
            _signal(members, signal.SIGKILL)
            members = _wait_for_end(found, 1.0)
            if members and time.monotonic() > limit:
                raise CloudError(
                    "STILL_RUNNING",
                    f"{name} (pid {found.pid}) does not end.",
                    f"See cat /proc/{found.pid}/stack.",
                )
        _Children.reap()
        (self._folders.run / f"{name}.json").unlink(missing_ok=True)
        return True

    def stop_all(self, names: Iterable[str], *, grace: float = GRACE) -> None:
        """End several at once."""
        wanted = list(names)
        if wanted:
            with ThreadPoolExecutor(len(wanted)) as pool:
                list(pool.map(lambda name: self.stop(name, grace=grace), wanted))

    def died(self, name: str) -> CloudError:
        """What to say of a process that ended by itself."""
        log = self._log(name)
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
        last = next((line for line in reversed(lines) if line.strip()), "")
        return CloudError("PROCESS_DIED", f"{name} ended: {last[:300]}", f"See {log}.")

    def _log(self, name: str) -> Path:
        return self._folders.log / f"{name}.log"

    def _recorded(self, name: str) -> Identity | None:
        path = self._folders.run / f"{name}.json"
        try:
            raw: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            return Identity(int(raw["pid"]), int(raw["started"]), str(raw["boot"]))
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError):
            raise CloudError(
                "BAD_RUN_FILE", f"{path} is damaged.", f"See ps, end {name}, and remove the file."
            ) from None


class _Children:
    """Processes whose parent is this one: they stay zombies until somebody asks for their end."""

    of_this_process: list[subprocess.Popen[bytes]] = []

    @classmethod
    def reap(cls) -> None:
        cls.of_this_process = [child for child in cls.of_this_process if child.poll() is None]


def _signal(members: Iterable[int], number: signal.Signals) -> None:
    for pid in members:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _wait_for_end(found: Identity, limit: float) -> list[int]:
    """Wait for the end of a session; return who is left after `limit` seconds."""
    deadline = time.monotonic() + limit
    pause = 0.01
    while (members := found.members()) and time.monotonic() < deadline:
        time.sleep(pause)
        pause = min(0.2, pause * 1.5)
    return members
