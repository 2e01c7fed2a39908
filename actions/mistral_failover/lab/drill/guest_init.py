# SPDX-License-Identifier: Apache-2.0
"""The first process of a drill's guest.

``python -m mistral_failover.lab.drill.guest_init FOLDER CLOUD``

It does for the agent what systemd does on a real server: it starts it, and restarts it when it has
ended. It becomes the parent of every orphaned process in the guest. The guest ends at once when its
cloud ends, that is, when the process CLOUD (see :class:`.processes.Process`) no longer exists.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from mistral_failover.lab.drill.processes import Process, adopt_orphans, kill_below

PID = "init.pid"
"""The file with this process, in the guest's folder."""
AGENT = "agent.pid"
"""The file with the agent's process, in the guest's folder."""
CONFIG = "failover-agent.yaml"
LOG = "agent.log"

_AGAIN = 0.5  # seconds until an agent that ended is started again
_LOOK = 0.5  # seconds between two looks for the cloud


def main(folder: Path, cloud: Process) -> None:
    """Run the guest until its cloud ends; otherwise only SIGKILL ends it."""
    adopt_orphans()
    _write_down(folder / PID, os.getpid())
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    agent, start_at = 0, 0.0
    while cloud.runs:
        if not agent and time.monotonic() >= start_at:
            agent = _start(folder)
        signal.sigtimedwait({signal.SIGCHLD}, _LOOK if agent else _AGAIN)
        if agent in _reap():
            agent, start_at = 0, time.monotonic() + _AGAIN
    kill_below(os.getpid())


def _start(folder: Path) -> int:
    argv = [sys.executable, "-m", "mistral_failover.lab.drill.guest_agent"]
    argv += ["run", "--config", str(folder / CONFIG)]
    with (folder / LOG).open("ab") as log:
        process = subprocess.Popen(  # noqa: S603 - our own module, no shell
            argv,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            preexec_fn=_unblock,  # noqa: PLW1509 - there are no threads here
        )
    _write_down(folder / AGENT, process.pid)
    process.returncode = 0  # it is reaped below, with all the others
    return process.pid


def _write_down(file: Path, pid: int) -> None:
    aside = file.with_suffix(".new")
    aside.write_text(str(Process.of(pid)), encoding="ascii")
    aside.rename(file)


def _unblock() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})


def _reap() -> set[int]:
    """Return the children that have ended since."""
    ended: set[int] = set()
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        ended.add(pid)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Process.parse(sys.argv[2]))
