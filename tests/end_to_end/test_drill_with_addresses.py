# SPDX-License-Identifier: Apache-2.0
"""A service moves with its floating and its virtual address, as a client sees it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.drills, pytest.mark.timeout(240)]

TESTS = Path(__file__).parents[1]


def test_a_client_finds_one_member_at_each_address_and_after_a_gap_the_next_one(
    tmp_path: Path,
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "support.address_drill", str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        capture_output=True,
        text=True,
        timeout=220,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    seen = json.loads(done.stdout)

    for move, gaps in seen["gaps"].items():
        for kind, gap in gaps.items():
            print(f"{move}: no answer at the {kind} address for {gap} s")
    assert seen["active"] == ["db_b", "db_a"]
    assert all(gap for gaps in seen["gaps"].values() for gap in gaps.values()), seen
    assert seen["samples"] > 50
    assert seen["crowded"] == []
    assert seen["violations"] == []
