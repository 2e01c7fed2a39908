# SPDX-License-Identifier: Apache-2.0
"""One guest of a drill: real processes below its init, and the volumes that it can reach."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from mistral_failover.lab.drill import guest_init
from mistral_failover.lab.drill.application import BROKEN, Application
from mistral_failover.lab.drill.processes import Process, kill_below, users
from mistral_failover.lab.emulator.guests import BREAKAGES

_LIMIT = 20.0
ADDRESSES = "addresses"
"""The folder of a guest with a file for each address that its agent has set."""


class DrillError(Exception):
    """The drill cannot continue: its scene cannot be set up, or a guest does not do what it
    should."""


class Volumes:
    """The drill's volumes: each a folder, which is renamed when the volume is detached from a
    process that uses it. ``FOLDER/VOLUME/GENERATION``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def content(self, volume: str) -> Path:
        """Return the folder of a volume's files."""
        return self.generations(volume)[-1]

    def generations(self, volume: str) -> list[Path]:
        """Return all folders of a volume, oldest first; at least one."""
        place = self.folder / volume
        (place / "1").mkdir(parents=True, exist_ok=True)
        found = [path for path in place.iterdir() if path.name.isdigit()]
        return sorted(found, key=lambda path: int(path.name))

    def snapshot(self, volume: str, snapshot: str) -> None:
        """Keep what is on a volume now; what writes on it goes on."""
        self._copy(self.content(volume), self._snapshots / snapshot)

    def make_from(self, snapshot: str, volume: str) -> None:
        """Make a volume with what a snapshot kept, unless it exists."""
        place = self.folder / volume / "1"
        if (self._snapshots / snapshot).is_dir() and not place.exists():
            self._copy(self._snapshots / snapshot, place)

    @property
    def _snapshots(self) -> Path:
        return self.folder.with_name("snapshots")

    @staticmethod
    def _copy(content: Path, to: Path) -> None:
        """Copy a folder completely or not at all: whoever does it may be killed."""
        aside = to.with_name(f"{to.name}.copying")
        shutil.rmtree(aside, ignore_errors=True)
        aside.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(content, aside)
        shutil.rmtree(to, ignore_errors=True)
        aside.rename(to)

    def tear(self, volume: str) -> list[Process]:
        """Detach a volume from the processes that use it: what they write is lost from now on.
        Return them."""
        content = self.content(volume)
        using = list(users(content))
        if using:
            aside = content.with_name("copying")
            shutil.rmtree(aside, ignore_errors=True)
            shutil.copytree(content, aside)
            aside.rename(content.with_name(str(int(content.name) + 1)))
        return using


class Guest:
    """A server's guest. Its folder is its disk, and outlives its processes; its name is the
    server's id."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.server = folder.name
        self._devices = folder / "devices"
        self._pid = folder / guest_init.PID
        self._started: subprocess.Popen[bytes] | None = None

    def break_it(self, how: str) -> None:
        """Keep its application from being started, in a way of `BREAKAGES`; empty: repair it."""
        code, said = BREAKAGES.get(how, (0, ""))
        if code:
            (self.folder / BROKEN).write_text(f"{code} {said}", encoding="utf-8")
        else:
            (self.folder / BROKEN).unlink(missing_ok=True)

    def prepare(self) -> None:
        """Create its disk."""
        self._devices.mkdir(parents=True, exist_ok=True)
        (self.folder / "own").mkdir(exist_ok=True)

    def boot(self, cloud: Process, number: int) -> None:
        """Start it, for as long as the cloud runs; ``number``: the number of the boot. A boot that
        was done already is ignored."""
        boot = self.folder / "boot"
        running = self._process(self._pid)
        if running and boot.exists() and boot.read_text(encoding="ascii") == str(number):
            return
        self.kill()
        with suppress(FileNotFoundError):  # what is mounted does not outlive a boot
            (self.folder / "data").unlink()
        shutil.rmtree(self.folder / ADDRESSES, ignore_errors=True)  # nor do these
        boot.write_text(str(number), encoding="ascii")
        argv = [
            sys.executable,
            "-m",
            "mistral_failover.lab.drill.guest_init",
            str(self.folder),
            str(cloud),
        ]
        with (self.folder / guest_init.LOG).open("ab") as log:
            self._started = subprocess.Popen(  # noqa: S603 - our own module, no shell
                argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        self._wait(self._is_up, "start")

    def kill(self) -> None:
        """Kill everything on it, like a loss of power; return once nothing of it runs."""
        first = self._process(self._pid)
        if first is not None:
            first.signal(signal.SIGSTOP)
            killed = kill_below(first.pid)
            first.signal(signal.SIGKILL)
            self._wait(lambda: not any(p.runs for p in [first, *killed]), "die")
        if self._started is not None:
            self._started.wait(_LIMIT)
            self._started = None

    def hang(self) -> None:
        """Freeze its agent, which then answers nothing; its application continues."""
        self._signal_agent(signal.SIGSTOP)

    def thaw(self) -> None:
        """Thaw its agent."""
        self._signal_agent(signal.SIGCONT)

    def end_application(self) -> None:
        """Kill its application, and nothing else."""
        process = Application(self.folder, self.folder / "data").process()
        if process is not None:
            process.signal(signal.SIGKILL)
            self._wait(lambda: not process.runs, "lose its application")

    def plug(self, volume: str, content: Path) -> None:
        """Make a volume reachable."""
        link = self._devices / volume
        link.unlink(missing_ok=True)
        link.symlink_to(content)

    def unplug(self, volume: str) -> None:
        """Make a volume unreachable."""
        (self._devices / volume).unlink(missing_ok=True)

    def destroy(self) -> None:
        """End it. Its disk is kept for people and the audit."""
        self.kill()
        for link in self._devices.iterdir():
            link.unlink()

    def _is_up(self) -> bool:
        assert self._started is not None
        if self._started.poll() is not None:
            raise DrillError(f"{self.server} ended with {self._started.returncode}; see its log")
        process = self._process(self._pid)
        return process is not None and process.pid == self._started.pid

    def _signal_agent(self, number: signal.Signals) -> None:
        agent = self._process(self.folder / guest_init.AGENT)
        if agent is not None:
            agent.signal(number)

    @staticmethod
    def _process(file: Path) -> Process | None:
        try:
            process = Process.parse(file.read_text(encoding="ascii"))
        except (OSError, ValueError):
            return None
        return process if process.runs else None

    def _wait(self, done: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + _LIMIT
        while not done():
            if time.monotonic() > deadline:
                raise DrillError(f"{self.server} does not {what} within {_LIMIT:g} s")
            time.sleep(0.005)
