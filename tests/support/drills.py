# SPDX-License-Identifier: Apache-2.0
"""Drills as a user starts them, for machines: with an outcome in JSON."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from mistral_failover.cli.main import main
from support import forked

_DRILL = ("drill", "-f", "json")
HANGS = 280.0
"""Seconds after which a drill counts as hung. It takes some 25, and many times that beside other
lanes on a busy machine."""


def drill(*options: str, timeout: float = HANGS) -> tuple[int, dict[str, Any], str]:
    """Exit code, outcome, and what was told."""
    done = forked.run(main, *_DRILL, *options, timeout=timeout)
    return done.returncode, json.loads(done.stdout or "{}"), done.stderr


def start_drill(*options: str) -> forked.Forked:
    """Start a drill; what it prints is not kept."""
    return forked.Forked(main, [*_DRILL, *options], output=Path(os.devnull))
