# SPDX-License-Identifier: Apache-2.0
"""Debian's servers: where their programs are, and whether they answer."""

from __future__ import annotations

import os
import shutil
import socket
import time
from collections.abc import Callable

from testcloud.errors import CloudError
from testcloud.processes import Processes

PLACES = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/usr/lib/rabbitmq/bin"
LIMIT = 90.0
"""Seconds until a server must answer."""


def program(name: str) -> str:
    """The path of a program.

    :raises CloudError: PACKAGES_MISSING.
    """
    found = shutil.which(name, path=PLACES)
    if found is None:
        raise CloudError("PACKAGES_MISSING", f"There is no {name}.", "As root: make cloud-install")
    return found


def listens(host: str, port: int) -> bool:
    """Whether a server takes connections at a port of this machine."""
    try:
        with socket.create_connection((host, port), timeout=1):
            return True
    except OSError:
        return False


def until(processes: Processes, name: str, true: Callable[[], bool]) -> None:
    """Wait until something is true of a process that runs.

    :raises CloudError: PROCESS_DIED, NOT_READY.
    """
    deadline = time.monotonic() + LIMIT
    while not true():
        if processes.find(name) is None:
            raise processes.died(name)
        if time.monotonic() > deadline:
            raise CloudError("NOT_READY", f"{name} does not answer after {LIMIT:g} s.")
        time.sleep(0.1)
