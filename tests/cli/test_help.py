# SPDX-License-Identifier: Apache-2.0
"""``failover --help``: a line for each command, whole."""

from __future__ import annotations

import inspect
from importlib.metadata import EntryPoint, entry_points

import pytest

from support.commands import failover

COMMANDS = sorted(entry_points(group="failover.cli"), key=lambda command: command.name)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_the_first_line_of_a_command_is_a_sentence_that_says_what_it_does(
    command: EntryPoint,
) -> None:
    first, *more = (inspect.getdoc(command.load()) or "").splitlines()
    assert first.endswith(".")
    assert len(first) <= 78
    assert not more or more[0] == ""


@pytest.mark.parametrize("words", [(), ("--embedded",)], ids=["bare", "only options"])
def test_without_a_command_the_program_shows_its_help(words: tuple[str, ...]) -> None:
    done = failover(*words, typed="")

    assert done.returncode == 0
    assert "Learn:       failover help COMMAND" in done.stdout
    assert "  group create" in done.stdout
