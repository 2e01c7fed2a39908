# SPDX-License-Identifier: Apache-2.0
"""The console script ``failover``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from cliff.app import App
from cliff.commandmanager import CommandManager

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


class FailoverApp(App):
    """The application; its commands are the entry points ``failover.cli``."""

    CONSOLE_MESSAGE_FORMAT = "%(message)s"
    DEFAULT_VERBOSE_LEVEL = 0  # warnings: messages of libraries need -v

    def __init__(self, argv: Sequence[str] = ()) -> None:
        self._argv = argv
        super().__init__(
            description=DESCRIPTION,
            version=version("mistral-failover"),
            command_manager=CommandManager("failover.cli"),
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
