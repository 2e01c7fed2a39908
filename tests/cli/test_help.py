# SPDX-License-Identifier: Apache-2.0
"""``failover --help``: a line for each command, whole."""

from __future__ import annotations

import inspect
from importlib.metadata import EntryPoint, entry_points

import pytest

COMMANDS = sorted(entry_points(group="failover.cli"), key=lambda command: command.name)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_the_first_line_of_a_command_is_a_sentence_that_says_what_it_does(
    command: EntryPoint,
) -> None:
    first, *more = (inspect.getdoc(command.load()) or "").splitlines()
    assert first.endswith(".")
    assert len(first) <= 78
    assert not more or more[0] == ""
