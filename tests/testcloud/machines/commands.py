# SPDX-License-Identifier: Apache-2.0
"""Runs the programs of the machines, each with a limit."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from testcloud.errors import CloudError

LIMIT = 60.0
"""Seconds for one call. No command of Ceph has a limit of its own."""


def run(
    *command: str | Path,
    limit: float = LIMIT,
    given: str | None = None,
    accepted: Sequence[int] = (0,),
    folder: Path | None = None,
) -> str:
    """Run a program to its end and return its standard output; ``given`` is its standard input.

    :raises CloudError: COMMAND_FAILED, if it ends with another code than those ``accepted``, or not
        within ``limit`` seconds.
    """
    shown = " ".join(str(part) for part in command[:6])
    try:
        done = subprocess.run(
            [str(part) for part in command],
            input=given,
            stdin=subprocess.DEVNULL if given is None else None,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=limit,
            check=False,
            cwd=folder,
        )
    except subprocess.TimeoutExpired:
        raise CloudError("COMMAND_FAILED", f"{shown} did not end within {limit:g} s.") from None
    if done.returncode not in accepted:
        said = (done.stderr or done.stdout).strip()[-500:]
        raise CloudError("COMMAND_FAILED", f"{shown} ended with {done.returncode}: {said}")
    return done.stdout
