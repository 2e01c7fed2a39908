# SPDX-License-Identifier: Apache-2.0
"""What a command accepts: its class says it as ``arguments``."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

Adding = Callable[[Any], object]
Declared = tuple[Adding, ...]
"""What adds to a parser, or to a group of one; what a class of commands adds."""


def argument(*names: str, **how: Any) -> Adding:
    """An argument of a command, in the words of argparse's ``add_argument``."""
    return lambda parser: parser.add_argument(*names, **how)


def one_of(*arguments: Adding, required: bool = False) -> Adding:
    """Arguments of which at most one is given; if ``required``, exactly one."""

    def add(parser: Any) -> None:
        group = parser.add_mutually_exclusive_group(required=required)
        for each in arguments:
            each(group)

    return add


GROUP = argument("group", help="the group's name")
GROUPS = argument("group", nargs="?", help="the group's name (default: all groups)")
BECAUSE = argument("--because", metavar="TEXT", help="the reason, for the record")
REASON = argument("--because", required=True, metavar="TEXT", help="the reason, for the record")
YES = argument("--yes", action="store_true", help="do not ask")  # see confirm


class Arguments:
    """A command with the ``arguments`` of its class, after those of the classes that it extends."""

    arguments: Declared = ()

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser, for cliff."""
        parser: argparse.ArgumentParser = super().get_parser(prog_name)  # type: ignore[misc]
        for kind in reversed(type(self).__mro__):
            for add in vars(kind).get("arguments", ()):
                add(parser)
        return parser


def as_written(parser: argparse.ArgumentParser) -> None:
    """Among a command's arguments: its help has the lines of its docstring."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
