# SPDX-License-Identifier: Apache-2.0
"""What docs/recovery.md says is checked is."""

from __future__ import annotations

import re
from pathlib import Path

from mistral_failover.actions.doctoring import CHECKS, GROUP_CHECKS

PAGE = (Path(__file__).parents[2] / "docs" / "recovery.md").read_text(encoding="utf-8")


def test_every_check_of_the_doctor_is_told() -> None:
    told = PAGE.split("## Before it happens")[1]
    named = {
        name
        for line in told.splitlines()
        if line.startswith("| `")
        for name in re.findall(r"`(\w+)`", line.split(" | ")[0])
    }

    checks = {name for name, _ in (*CHECKS, *GROUP_CHECKS)}
    assert named == checks | {"connection", "package"}
