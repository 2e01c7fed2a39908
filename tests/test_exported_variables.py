# SPDX-License-Identifier: Apache-2.0
"""The tests in the shell of a user who has just followed the tutorial."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXPORTED = {
    "FAILOVER_EMBEDDED": "1",
    "FAILOVER_STATE_DIR": "/nowhere/tutorial-state",
    "FAILOVER_MISTRAL_URL": "http://127.0.0.1:1/v2",
    "FAILOVER_MISTRAL_TOKEN_FILE": "/nowhere/token",
    "FAILOVER_NAMESPACE": "own",
    "OS_CLIENT_CONFIG_FILE": "/nowhere/clouds.yaml",
    "OS_CLOUD": "emulated",
    "OS_AUTH_TYPE": "admin_token",
    "OS_ENDPOINT": "http://127.0.0.1:1/v2",
    "OS_TOKEN": "a-token",
    "OS_FAILOVER__LEASE": "1",
}


@pytest.mark.skipif("INSIDE" not in os.environ, reason="the next test runs it in such a shell")
def test_no_variable_of_a_user_is_set() -> None:
    assert sorted(set(os.environ) & set(EXPORTED)) == []


def test_what_a_user_has_exported_does_not_reach_the_tests() -> None:
    inner = f"{Path(__file__)}::{test_no_variable_of_a_user_is_set.__name__}"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "0", inner],
        cwd=Path(__file__).parents[1],
        env=os.environ | EXPORTED | {"INSIDE": "yes"},
        capture_output=True,
        text=True,
        timeout=100,
    )

    assert done.returncode == 0, done.stdout[-3000:]
