# SPDX-License-Identifier: Apache-2.0
"""``failover agent``: the keys of the members' agents, and their latest heartbeats."""

from __future__ import annotations

import argparse
from typing import Any

from cliff.lister import Lister
from cliff.show import ShowOne

from mistral_failover.cli.base import ActionCommand, for_people


class Key(ActionCommand, ShowOne):
    """Show the key of a member's agent, or that of all agents of a group.

    The key alone, for a file: failover agent key GROUP MEMBER -f value -c key

    The group need not be defined yet. Mistral does not store the answer.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser with the options of the command."""
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        parser.add_argument("group", help="the group's name")
        parser.add_argument(
            "member", nargs="?", help="the member's name; without it, the key of the whole group"
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[list[str], list[str]]:
        """Query and show."""
        found: dict[str, str] = self.run_action(
            "failover.enroll",
            save_result=False,
            group=parsed_args.group,
            member=parsed_args.member,
        )
        return list(found), list(found.values())


class List(ActionCommand, Lister):
    """List the members of a group and the latest heartbeats of their agents."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser with the options of the command."""
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        parser.add_argument("group", help="the group's name")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[list[str], list[list[Any]]]:
        """Query and format: in words for people, unabridged for machines."""
        rows = self.run_action("failover.agents", group=parsed_args.group)
        people = for_people(parsed_args)
        columns = ["member", "server", "epoch", "sentence" if people else "agent"]
        shown = columns if people else [*columns, "sentence"]
        return shown, [[row[column] for column in shown] for row in rows]
