# SPDX-License-Identifier: Apache-2.0
"""``failover goals``: what a group was given, what came of it, how two of them differ."""

from __future__ import annotations

import argparse
from typing import Any

from cliff.lister import Lister

from mistral_failover.cli.base import Asking, for_people, when

SHOWN_DIGITS = 12


class List(Asking, Lister):
    """List the goals that a group was given, the latest first.

    A rollback without a goal goes to the last one that was reached before the present one.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """The options."""
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        parser.add_argument("group", help="the group's name")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[list[str], list[list[Any]]]:
        """Ask, and lay out: for people shortened, for machines whole."""
        goals = self.ask("failover.goals", group=parsed_args.group)
        people = for_people(parsed_args)
        columns = ["version", "roles", "lost", "status", "given", "reached", "now", "cause"]
        return columns, [_row(goal, people=people) for goal in goals]


class Diff(Asking, Lister):
    """Show what differs between two goals of a group.

    Each is given by the first digits of its version; + is only in the second, - only in the first,
    ~ in both.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """The options."""
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        parser.add_argument("group", help="the group's name")
        parser.add_argument("before", help="the first goal's version, 7 digits at least")
        parser.add_argument("after", help="the second goal's version")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[list[str], list[list[Any]]]:
        """Ask, and lay out."""
        found = self.ask(
            "failover.compare_goals",
            group=parsed_args.group,
            before=parsed_args.before,
            after=parsed_args.after,
        )
        if for_people(parsed_args):
            return ["difference"], [[line] for line in found["lines"]]
        rows = [[d["path"], d.get("before"), d.get("after")] for d in found["differences"]]
        return ["path", "before", "after"], rows


def _row(goal: dict[str, Any], *, people: bool) -> list[Any]:
    now = "current" if goal["current"] else ""
    if goal["last_complete"]:
        now = f"{now}, last complete" if now else "last complete"
    if not people:
        return [
            goal["version"],
            goal["roles"],
            goal["lost"],
            goal["status"],
            goal["given_at"],
            goal["reached_at"],
            now,
            goal["cause"],
        ]
    return [
        goal["version"][:SHOWN_DIGITS],
        ", ".join(f"{role}: {member}" for role, member in goal["roles"].items()) or "-",
        ", ".join(goal["lost"]) or "-",
        goal["status"],
        when(goal["given_at"]),
        when(goal["reached_at"]),
        now,
        goal["cause"],
    ]
