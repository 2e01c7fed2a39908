# SPDX-License-Identifier: Apache-2.0
"""``failover alarms``, ``failover admit``, ``failover dismiss``: what waits for a person."""

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
    parser.add_argument("--because", required=True, metavar="TEXT", help="why, for the record")


class List(Asking, Lister):
    """List the alarms that are held back, with the commands that let them through.

    The latest comes first; each can be admitted or dismissed.

    An alarm is held when its group is paused or in maintenance, when too many came, or when nobody
    knows whom it is about. Nothing happens by itself: admit it, and the failover that it asks for
    starts; dismiss it, and it is off the list.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """The options."""
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        parser.add_argument("group", nargs="?", help="the group's name; all, if left out")
        parser.add_argument(
            "--limit",
            type=int,
            default=100,
            metavar="N",
            help="so many at most, the latest (default 100, at most 1000)",
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[list[str], list[list[Any]]]:
        """Ask, and lay out."""
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
        """The table, and below it, to be copied whole, what can be typed."""
        code = int(super().produce_output(parsed_args, column_names, data))
        for command in self._commands:
            self.app.stdout.write(f"{command}\n")
        return code


class Admit(Order):
    """Let an alarm through that is held back.

    The failover that it asks for starts, past every rule of admission, and is followed to its end.

    Its id is in 'failover alarms'. See with 'failover plan' what would happen.
    """

    workflow = "failover.failover"

    def add_group(self, parser: argparse.ArgumentParser) -> None:
        """The alarm says whom it is about."""
        parser.add_argument(
            "incident", help="the alarm's id, from 'failover alarms'; its first 8 digits do"
        )

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """What the alarm does not say."""
        parser.add_argument("--group", help="the group, where the alarm does not say it")
        parser.add_argument(
            "--lost",
            action="append",
            metavar="MEMBER",
            help="who is lost, where the alarm does not say it or is wrong; may be repeated",
        )
        parser.add_argument(
            "--to", metavar="MEMBER", help="who takes over (default: as the group's file says)"
        )

    def add_because(self, parser: argparse.ArgumentParser) -> None:
        """It passes by the rules: somebody must say why."""
        add_reason(parser)

    def inputs(self, parsed_args: argparse.Namespace) -> dict[str, Any]:
        """What the alarm and the person say."""
        return {
            "incident": parsed_args.incident,
            "lost": parsed_args.lost,
            "to": parsed_args.to,
        }

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[list[str], list[Any]]:
        """Find whom it is about, then start and follow."""
        if parsed_args.group is None:
            parsed_args.group = self._group(parsed_args.incident)
        return super().take_action(parsed_args)

    def _group(self, incident: str) -> str:
        found = self.ask("failover.show", id=incident)
        if found["kind"] != "incident" or found["decision"] != "HELD":
            what = f"{found['kind']} {found['id']}"
            stands = f", which is {found['decision']}" if "decision" in found else ""
            raise CommandFailed(
                f"No alarm {incident} is held: it is the {what}{stands}. 'failover alarms' lists "
                f"those that are, 'failover show {found['id']}' says what became of it. [NOT_HELD]"
            )
        if found["group"] is None:
            lost = shlex.quote(found["fact"]["lost"] or "MEMBER")
            raise CommandFailed(
                "It is not known which group the alarm is about. Say it: failover admit "
                f"{found['id']} --group GROUP --lost {lost} --because WHY [UNKNOWN_GROUP]"
            )
        return str(found["group"])


class Dismiss(Asking, Lister):
    """Take alarms that are held back off the list; who did it and why is recorded."""

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
        """Dismiss, one after the other."""
        answer = self.ask(
            "failover.dismiss", incident=parsed_args.incidents, because=parsed_args.because
        )
        columns = ["incident", "sentence"]
        return columns, [[row[column] for column in columns] for row in answer["dismissed"]]
