# SPDX-License-Identifier: Apache-2.0
"""Drills as a user starts them, for machines: with an outcome in JSON."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

DRILL = [sys.executable, "-m", "mistral_failover.cli.main", "drill"]
HANGS = 280.0
"""Seconds after which a drill counts as hung. It takes some 25, and many times that beside other
lanes on a busy machine."""


def drill(*options: str, timeout: float = HANGS) -> tuple[int, dict[str, Any], str]:
    """Exit code, outcome, and what was told."""
    done = subprocess.run(
        [*DRILL, "-f", "json", *options], capture_output=True, text=True, timeout=timeout
    )
    return done.returncode, json.loads(done.stdout or "{}"), done.stderr
