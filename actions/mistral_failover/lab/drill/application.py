# SPDX-License-Identifier: Apache-2.0
"""The application of a drill's guests: a process that writes on its volume as long as it can.

The agent runs ``python -m mistral_failover.lab.drill.application VERB``; VERB is start, stop,
is-running or is-stopped. Exit codes as of the commands in ``examples/postgresql-on-a-volume``.
Every line that it writes names its writer, so the file shows two writers. Environment:
VOLUME_MOUNT, and DRILL_GUEST, the guest's folder, whose name is the server's id.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from mistral_failover.lab.drill.processes import Process

JOURNAL = "journal"
"""The file on the volume: a line is server, process, its sequence number, and the time
(monotonic)."""
RAN = "ran"
"""The file in the guest's folder: a line is a verb that was run, and the id of the command."""

SLOW = "slow"
"""The optional file in the guest's folder that says how many seconds longer a stop takes."""

BROKEN = "broken"
"""The optional file in the guest's folder with what keeps a start from succeeding: an exit code and
a message."""

EVERY = 0.02  # seconds between two lines
_HELD, _PID, _STARTER = "held", "application.pid", "DRILL_STARTER"
_LIMIT = 10.0
REFUSED, FAILED = 3, 4


class Application:
    """The application of one guest."""

    def __init__(self, guest: Path, mount: Path) -> None:
        self._guest = guest
        self._mount = mount

    def start(self) -> int:
        """Start it; return after its first write."""
        if self.process():
            return 0
        if (self._guest / BROKEN).exists():
            code, _, said = (self._guest / BROKEN).read_text(encoding="utf-8").partition(" ")
            _say(said)
            return int(code)
        if not self._mount.is_dir():
            _say(f"refused: no volume is mounted at {self._mount}")
            return REFUSED
        environment = {k: v for k, v in os.environ.items() if k != "FAILOVER_COMMAND_ID"}
        environment[_STARTER] = str(os.getpid())
        writer = subprocess.Popen(  # noqa: S603 - our own module, no shell
            [sys.executable, "-m", "mistral_failover.lab.drill.application", "write"],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        assert writer.stdout is not None
        with writer.stdout:
            if not writer.stdout.readline():
                _say("failed: it did not start to write")
                return FAILED
        return 0

    def stop(self) -> int:
        """Stop it, by force if necessary; return once it is gone."""
        if self.process() is None:
            return 0
        with suppress(FileNotFoundError):
            time.sleep(float((self._guest / SLOW).read_text(encoding="ascii")))
        deadline = time.monotonic() + _LIMIT
        while process := self.process():
            late = time.monotonic() > deadline - _LIMIT / 2
            process.signal(signal.SIGKILL if late else signal.SIGTERM)
            if time.monotonic() > deadline:
                _say(f"failed: process {process.pid} did not end")
                return FAILED
            time.sleep(0.01)
        return 0

    def process(self) -> Process | None:
        """The process that writes, or is about to."""
        try:
            process = Process.parse((self._guest / _PID).read_text(encoding="ascii"))
        except (OSError, ValueError):
            return None
        return process if process.runs else None

    def write(self) -> int:
        """Write until it is stopped. The file is opened for each line: a volume that was detached
        can no longer be written."""
        starter = int(os.environ[_STARTER])
        aside = self._guest / f"{_PID}.new"
        aside.write_text(str(Process.of(os.getpid())), encoding="ascii")
        aside.rename(self._guest / _PID)
        # The stop command looks for the file after the start command was ended: either it finds
        # the file, or this process finds that it is no longer wanted.
        if os.getppid() != starter:
            return FAILED
        with (self._mount / _HELD).open("w", encoding="ascii"):  # who unmounts sees it in use
            number = 0
            while True:
                number += 1
                line = f"{self._guest.name} {os.getpid()} {number} {time.monotonic():.6f}\n"
                with suppress(OSError):
                    _append(self._mount / JOURNAL, line)
                if number == 1:
                    _report()
                time.sleep(EVERY)


def _report() -> None:
    """Report to the process that started it, and become independent of it."""
    os.write(1, b"it writes\n")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)


def _append(path: Path, line: str) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(handle, line.encode("ascii"))
    finally:
        os.close(handle)


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def main(verb: str) -> int:
    """See the module's text."""
    guest = Path(os.environ["DRILL_GUEST"])
    application = Application(guest, Path(os.environ["VOLUME_MOUNT"]))
    if verb in ("start", "stop"):
        _append(guest / RAN, f"{verb} {os.environ.get('FAILOVER_COMMAND_ID', '')}\n")
        return application.start() if verb == "start" else application.stop()
    if verb == "is-running":
        return 0 if application.process() else 1
    if verb == "is-stopped":
        return 1 if application.process() else 0
    return application.write() if verb == "write" else 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
