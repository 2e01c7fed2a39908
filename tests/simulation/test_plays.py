# SPDX-License-Identifier: Apache-2.0
"""``make test-simulation``: plays of the whole system in virtual time."""

from __future__ import annotations

import re

import pytest

from support.plays import FIRST, simulate

pytestmark = pytest.mark.simulated

PLAYS = 40
FOUND = (4, 1033, 2055, 11076, 40231, 60199, 300042, 60000794, 60000976)
"""Seeds of plays that once broke a promise, or showed a fault of the simulation."""
CHOSEN = "release-before-proof"
"""The mutant that each run plays; the others by `make simulate-mutants`."""


@pytest.mark.timeout(0)
def test_the_same_seed_plays_the_same_line_by_line() -> None:
    first, second = (simulate("--seed", "7", "--verbose") for _ in range(2))
    journal = [line for line in first.stdout.splitlines() if re.match(r" +\d+\.\d{3} ", line)]
    assert len(journal) > 50
    again = [line for line in second.stdout.splitlines() if re.match(r" +\d+\.\d{3} ", line)]
    assert journal == again


@pytest.mark.timeout(0)
def test_plays_that_once_failed_keep_the_promises() -> None:
    ended = simulate("--seeds", ",".join(map(str, FOUND)), "--quick")
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.timeout(0)
def test_plays_keep_the_promises() -> None:
    ended = simulate("--seed", str(FIRST), "--count", str(PLAYS))
    print(ended.stdout)
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.timeout(0)
def test_a_deliberate_fault_is_found() -> None:
    ended = simulate(CHOSEN, module="simulation.mutants")
    print(ended.stdout)
    assert ended.returncode == 0, ended.stdout + ended.stderr
