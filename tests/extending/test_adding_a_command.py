# SPDX-License-Identifier: Apache-2.0
"""A command is one module and its entry points, one for each of the two programs."""

from __future__ import annotations

import re

import pytest
from cliff.commandmanager import CommandManager

from mistral_failover.cli import osc
from support.commands import failover
from support.packages import Install

COMMAND = '''
from cliff.show import ShowOne

class Greet(ShowOne):
    """Greet a group.

    It does no more than that.
    """

    def get_parser(self, prog_name):
        parser = super().get_parser(prog_name)
        parser.add_argument("group", help="the group's name")
        return parser

    def take_action(self, parsed_args):
        return ["greeting"], [f"Good evening, {parsed_args.group}"]
'''
ENTRY_POINTS = {
    "failover.cli": "greet = house_greet:Greet",
    "openstack.failover.v1": "failover_greet = house_greet:Greet",
}


@pytest.fixture(autouse=True)
def house(install: Install) -> None:
    """A package with the command ``greet``."""
    install({"house_greet.py": COMMAND}, ENTRY_POINTS)


def test_the_program_runs_it_and_its_help_lists_it() -> None:
    ran = failover("greet", "payments", "-f", "value")
    listed = failover("--help")
    helped = failover("help", "greet")

    assert (ran.returncode, ran.stdout) == (0, "Good evening, payments\n")
    assert re.search(r"^  greet +Greet a group$", listed.stdout, re.M)
    assert "It does no more than that." in helped.stdout
    assert "the group's name" in helped.stdout


def test_the_openstack_client_has_it() -> None:
    manager = CommandManager(f"openstack.{osc.API_NAME}.v{osc.DEFAULT_API_VERSION}")

    command, name, left = manager.find_command(["failover", "greet", "payments"])

    assert (command.__name__, name, left) == ("Greet", "failover greet", ["payments"])


def test_the_documentation_lists_it() -> None:
    """docs/commands.rst shows every command of this group of entry points."""
    names = [name for name, _ in CommandManager("failover.cli")]

    assert "greet" in names


def test_a_command_that_cannot_be_imported_says_so_and_keeps_no_other_from_being_used(
    install: Install,
) -> None:
    install({}, {"failover.cli": "greet = house_greet:Greet\ngone = house_gone:Gone"})

    gone = failover("gone")
    listed = failover("--help")

    assert gone.returncode == 1
    assert "The command 'gone' cannot be loaded: No module named 'house_gone'" in gone.stderr
    assert re.search(r"^  greet +Greet a group$", listed.stdout, re.M)
    assert failover("greet", "payments").returncode == 0
