# SPDX-License-Identifier: Apache-2.0
"""The console script ``failover``."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from cliff.app import App
from cliff.command import Command
from cliff.commandmanager import CommandManager
from stevedore import NamedExtensionManager

from mistral_failover.cli import connection

DESCRIPTION = """High availability for applications on OpenStack, by Mistral.

Try:         failover drill               a whole failover on this machine, and its audit
Install:     failover workflows install   the workflows, into your project in Mistral
Protect:     failover group create FILE   an application, described by a group file
Look:        failover status              the status of all groups; doctor, watch, history, show, ui
Act:         failover plan GROUP          what would happen; start, switchover, replace, rollback
Learn:       failover help COMMAND        what a command does, and what to do next

Exit codes: 0 success; 1 failure, with the reason; 2 wrong command line; 3 BLOCKED, waits for an
operator; 4 still running when the command stopped waiting.
"""


class Commands(CommandManager):
    """The commands of a group of entry points. cliff's own manager imports every command at each
    start; this one imports a command when it is used."""

    def load_commands(self, namespace: str) -> None:
        """List the commands of ``namespace`` by name."""
        self.group_list.append(namespace)
        for point in NamedExtensionManager(namespace, names=[]).list_entry_points():
            self.commands[point.name.replace("_", " ")] = point

    def find_command(self, argv: list[str]) -> tuple[type[Command], str, list[str]]:
        """Import the command that the words name. Raises ValueError if there is none, and
        CommandFailed if it cannot be imported."""
        try:
            found: tuple[type[Command], str, list[str]] = super().find_command(argv)
        except (ImportError, AttributeError) as error:
            raise connection.CommandFailed(
                f"The command '{' '.join(argv)}' cannot be loaded: {error}",
                "Install its package again, or remove it.",
            ) from None
        return found


class FailoverApp(App):
    """The application; its commands are the entry points ``failover.cli``."""

    CONSOLE_MESSAGE_FORMAT = "%(message)s"
    DEFAULT_VERBOSE_LEVEL = 0  # warnings: messages of libraries need -v

    def __init__(self, argv: Sequence[str] = ()) -> None:
        self._argv = argv
        super().__init__(
            description=DESCRIPTION,
            version=version("mistral-failover"),
            command_manager=Commands("failover.cli"),
            deferred_help=True,
        )

    def build_option_parser(self, *args: Any, **kwargs: Any) -> argparse.ArgumentParser:
        """Add the options for Mistral's address; keep the lines of the description."""
        kwargs["argparse_kwargs"] = {
            "formatter_class": argparse.RawDescriptionHelpFormatter,
            # The program's options may follow the command: do not take a command's own option for
            # an abbreviation of one.
            "allow_abbrev": False,
        }
        parser: argparse.ArgumentParser = super().build_option_parser(*args, **kwargs)
        connection.add_options(parser, self._argv)
        return parser

    def configure_logging(self) -> None:
        """Show what cliff's own method shows; it has every library also prepare the messages that
        no handler wants."""
        root = logging.getLogger()
        before = root.handlers[:]
        super().configure_logging()
        root.setLevel(min(each.level for each in root.handlers if each not in before))

    def run_subcommand(self, argv: list[str]) -> int:
        """Run one command; return its exit code."""
        try:
            return int(super().run_subcommand(argv))
        except connection.CommandFailed as error:
            self.LOG.error(error)
            return 1

    def initialize_app(self, argv: list[str]) -> None:
        """Refuse contradictory options like any wrong command line: exit code 2. Without a command,
        show the help, where cliff would open a shell of its own."""
        if wrong := connection.contradiction(self.options):
            self.parser.error(wrong)
        if self.interactive_mode:
            self.options.deferred_help = True


def main(argv: list[str] | None = None) -> int:
    """Run one command; return its exit code."""
    words = sys.argv[1:] if argv is None else argv
    return int(FailoverApp(words).run(words))


if __name__ == "__main__":
    sys.exit(main())
