# SPDX-License-Identifier: Apache-2.0
"""``make test-simulation``: plays of the whole system in virtual time."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.simulated

TESTS = Path(__file__).parents[1]
FIRST, PLAYS = 100_000, 60
"""The plays of each run: the same seeds, until the product or a move changes. `make simulate`
plays new ones, which no change should have to wait for."""
FOUND = (4, 1033, 2055, 11076, 40231, 60199)
"""Seeds of plays that once broke a promise, or showed a fault of the simulation."""
CHOSEN = "release-before-proof"
"""The mutant that each run plays; the others by `make simulate-mutants`."""


def _simulate(*arguments: str, module: str = "simulation") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", module, *arguments],
        capture_output=True,
        text=True,
        cwd=TESTS,
        env={**os.environ, "PYTHONPATH": str(TESTS)},
    )


@pytest.mark.timeout(0)
def test_the_same_seed_plays_the_same_line_by_line() -> None:
    first, second = (_simulate("--seed", "7", "--verbose") for _ in range(2))
    journal = [line for line in first.stdout.splitlines() if re.match(r" +\d+\.\d{3} ", line)]
    assert len(journal) > 50
    again = [line for line in second.stdout.splitlines() if re.match(r" +\d+\.\d{3} ", line)]
    assert journal == again


@pytest.mark.timeout(0)
def test_plays_that_once_failed_keep_the_promises() -> None:
    ended = _simulate("--seeds", ",".join(map(str, FOUND)), "--quick")
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.timeout(0)
def test_plays_keep_the_promises() -> None:
    ended = _simulate("--seed", str(FIRST), "--count", str(PLAYS))
    print(ended.stdout)
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.timeout(0)
def test_a_deliberate_fault_is_found() -> None:
    ended = _simulate(CHOSEN, module="simulation.mutants")
    print(ended.stdout)
    assert ended.returncode == 0, ended.stdout + ended.stderr
