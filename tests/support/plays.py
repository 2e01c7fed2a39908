# SPDX-License-Identifier: Apache-2.0
"""Simulated plays, in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]
FIRST = 100_000
"""The first seed of the plays of each run: the same ones, until the product or a move changes.
`make simulate` plays new ones, which no change should have to wait for."""


def simulate(*arguments: str, module: str = "simulation") -> subprocess.CompletedProcess[str]:
    """Play as `make simulate` does."""
    return subprocess.run(
        [sys.executable, "-m", module, *arguments],
        capture_output=True,
        text=True,
        cwd=TESTS,
        env={**os.environ, "PYTHONPATH": str(TESTS)},
    )
