# SPDX-License-Identifier: Apache-2.0
"""``failover alarms``, ``failover admit``, ``failover dismiss``: alarms that wait for an
operator."""

from __future__ import annotations

import argparse
import shlex
from typing import Any

from cliff.lister import Lister

from mistral_failover.cli.base import Asking, for_people, when
from mistral_failover.cli.connection import CommandFailed
from mistral_failover.cli.order import Order


def add_reason(parser: argparse.ArgumentParser) -> None:
    """A decision goes into the record with its reason."""
    parser.add_argument(
        "--because", required=True, metavar="TEXT", help=("the reason, for the record")
    )


class List(Asking, Lister):
    """List the alarms that are held, with the commands that admit them.

    The latest comes first. Each can be admitted or dismissed.

    An alarm is held when its group is paused or in maintenance, when too many came, or when it is
    unknown which member it is about. A held alarm starts nothing. Admit it to start its failover;
    dismiss it to remove it from the list.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """The options."""
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        parser.add_argument("group", nargs="?", help="the group's name (default: all groups)")
        parser.add_argument(
            "--limit",
            type=int,
            default=100,
            metavar="N",
            help="maximum number of alarms to list, the latest (default 100, at most 1000)",
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[list[str], list[list[Any]]]:
        """Query and format."""
        answer = self.ask("failover.held", group=parsed_args.group, limit=parsed_args.limit)
        rows, total = answer["held"], answer["total"]
        if total > len(rows):
            self.app.stderr.write(f"These are {len(rows)} of {total}.\n")
        if not rows:
            self.app.stderr.write("No alarm is held.\n")
        self._commands = []
        if for_people(parsed_args):
            self._commands = [row[what] for row in rows for what in ("admit", "dismiss")]
            columns = ["group", "lost", "heard", "last", "alarm"]
            return columns, [
                [
                    row["group"] or "?",
                    ", ".join(row["lost"] or ["?"]),
                    row["heard"],
                    when(row["last_at"]),
                    row["sentence"],
                ]
                for row in rows
            ]
        columns = ["incident", "group", "lost", "sentence", "rule", "source", "heard"]
        columns += ["first_at", "last_at", "admit", "dismiss"]
        return columns, [[row[column] for column in columns] for row in rows]

    def produce_output(self, parsed_args: argparse.Namespace, column_names: Any, data: Any) -> int:
        """The table, and below it the commands in full, to copy."""
        code = int(super().produce_output(parsed_args, column_names, data))
        for command in self._commands:
            self.app.stdout.write(f"{command}\n")
        return code


class Admit(Order):
    """Admit an alarm that is held.

    Its failover starts, regardless of the rules of admission, and is followed to its end.

    The id is in 'failover alarms'. 'failover plan' shows what would happen.
    """

    workflow = "failover.failover"

    def add_group(self, parser: argparse.ArgumentParser) -> None:
        """The alarm names its group and member."""
        parser.add_argument(
            "incident", help="the alarm's id from 'failover alarms', or its first 8 digits"
        )

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add what the alarm does not say."""
        parser.add_argument("--group", help="the group, if the alarm does not name it")
        parser.add_argument(
            "--lost",
            action="append",
            metavar="MEMBER",
            help="a lost member, if the alarm does not name it or is wrong; may be repeated",
        )
        parser.add_argument(
            "--to",
            metavar="MEMBER",
            help=("the member that takes over (default: as the group file says)"),
        )

    def add_because(self, parser: argparse.ArgumentParser) -> None:
        """It bypasses the rules, so a reason is required."""
        add_reason(parser)

    def inputs(self, parsed_args: argparse.Namespace) -> dict[str, Any]:
        """What the alarm and the operator say."""
        return {
            "incident": parsed_args.incident,
            "lost": parsed_args.lost,
            "to": parsed_args.to,
        }

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[list[str], list[Any]]:
        """Find the group and the member, then start and follow."""
        if parsed_args.group is None:
            parsed_args.group = self._group(parsed_args.incident)
        return super().take_action(parsed_args)

    def _group(self, incident: str) -> str:
        found = self.ask("failover.show", id=incident)
        if found["kind"] != "incident" or found["decision"] != "HELD":
            what = f"{found['kind']} {found['id']}"
            stands = f", which is {found['decision']}" if "decision" in found else ""
            raise CommandFailed(
                f"Alarm {incident} is not held: it is the {what}{stands}. 'failover alarms' lists "
                f"the held ones, 'failover show {found['id']}' shows what happened to it. "
                "[NOT_HELD]"
            )
        if found["group"] is None:
            lost = shlex.quote(found["fact"]["lost"] or "MEMBER")
            raise CommandFailed(
                f"The alarm does not name its group. Name it: failover admit {found['id']} --group "
                f"GROUP --lost {lost} --because WHY [UNKNOWN_GROUP]"
            )
        return str(found["group"])


class Dismiss(Asking, Lister):
    """Remove held alarms from the list; who did it and why is recorded."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """The options."""
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        parser.add_argument(
            "incidents",
            nargs="+",
            metavar="incident",
            help="ids from 'failover alarms', or their first 8 digits",
        )
        add_reason(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[list[str], list[list[Any]]]:
        """Dismiss them one after the other."""
        answer = self.ask(
            "failover.dismiss", incident=parsed_args.incidents, because=parsed_args.because
        )
        columns = ["incident", "sentence"]
        return columns, [[row[column] for column in columns] for row in answer["dismissed"]]
