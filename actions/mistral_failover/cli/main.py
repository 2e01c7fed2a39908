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

Begin with:  failover drill               a whole failover on this machine, and its audit
Install:     failover workflows install   the workflows, into your project of a Mistral
Protect:     failover group create FILE   a group, by its file
Look:        failover status              where all groups stand; doctor, watch, history, show
Act:         failover plan GROUP          what would happen; start, switchover, replace, rollback
Learn:       failover help COMMAND        what a command does, and what to do next

Exit codes: 0 it did; 1 it failed, and said why; 2 the command line is wrong; 3 it is BLOCKED and
waits for a person; 4 it was still under way when the command stopped waiting.
"""


class FailoverApp(App):
    """The application; its commands are the entry points ``failover.cli``."""

    CONSOLE_MESSAGE_FORMAT = "%(message)s"
    DEFAULT_VERBOSE_LEVEL = 0  # warnings: what the libraries tell is for -v

    def __init__(self, argv: Sequence[str] = ()) -> None:
        self._argv = argv
        super().__init__(
            description=DESCRIPTION,
            version=version("mistral-failover"),
            command_manager=CommandManager("failover.cli"),
            deferred_help=True,
        )

    def build_option_parser(self, *args: Any, **kwargs: Any) -> argparse.ArgumentParser:
        """Where Mistral is; the lines of the description as they are."""
        kwargs["argparse_kwargs"] = {
            "formatter_class": argparse.RawDescriptionHelpFormatter,
            # The program's options may stand behind the command: a command's own must not be taken
            # for the beginning of one of them.
            "allow_abbrev": False,
        }
        parser: argparse.ArgumentParser = super().build_option_parser(*args, **kwargs)
        connection.add_options(parser, self._argv)
        return parser

    def initialize_app(self, argv: list[str]) -> None:
        """Refuse options that contradict each other, as any wrong command line: exit code 2."""
        if wrong := connection.contradiction(self.options):
            self.parser.error(wrong)


def main(argv: list[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    words = sys.argv[1:] if argv is None else argv
    return int(FailoverApp(words).run(words))


if __name__ == "__main__":
    sys.exit(main())
