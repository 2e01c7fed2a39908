# SPDX-License-Identifier: Apache-2.0
"""What docs/recovery.md tells to type can be typed, and what it says is checked is."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from cliff.commandmanager import CommandManager

from mistral_failover.actions.doctoring import CHECKS, GROUP_CHECKS

PAGE = (Path(__file__).parents[2] / "docs" / "recovery.md").read_text(encoding="utf-8")
TYPED = sorted(
    set(re.findall(r"`failover (\w[^`]*)`", PAGE)) | set(re.findall(r"^failover (.*)$", PAGE, re.M))
)


@pytest.mark.parametrize("words", TYPED)
def test_every_command_exists_and_takes_what_is_written(words: str) -> None:
    factory, name, rest = CommandManager("failover.cli").find_command(words.split())
    app: Any = None
    parser = factory(app, None).get_parser(name)

    if rest:  # else it is only named
        parser.parse_args(rest)


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
