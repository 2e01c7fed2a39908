# SPDX-License-Identifier: Apache-2.0
"""``failover pause``, ``resume`` and ``maintenance on|off``: holding a group's alarms back."""

from __future__ import annotations

import argparse
from typing import Any

from cliff.show import ShowOne

from mistral_failover.cli import status_screen
from mistral_failover.cli.alarms import add_reason
from mistral_failover.cli.base import Asking, for_people


class _Suspending(Asking, ShowOne):
    """Say what holds for a group from now on."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """The options."""
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        parser.add_argument("group", help="the group's name")
        self.add_arguments(parser)
        return parser

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add what this command needs besides the group."""

    def said(self, parsed_args: argparse.Namespace, action: str, **inputs: Any) -> tuple[Any, Any]:
        """Say it, and show what holds then."""
        answer = self.ask(action, group=parsed_args.group, because=parsed_args.because, **inputs)
        if not for_people(parsed_args):
            return list(answer), list(answer.values())
        facts = {
            "group": answer["group"],
            "said": answer["sentence"],
            "alarms": "\n".join(status_screen.suspended(answer)) or "are judged as they come",
        }
        return list(facts), list(facts.values())


class Pause(_Suspending):
    """Hold every alarm of a group back until 'failover resume'.

    What you order goes on, and so does what is under way.

    For work that has an end, 'failover maintenance on' is better: it can not be forgotten.
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Why."""
        add_reason(parser)

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        """Pause it."""
        return self.said(parsed_args, "failover.pause")


class Resume(_Suspending):
    """End a group's pause.

    Nothing starts by that: what was held stays in 'failover alarms', and what is said again is
    judged again. A maintenance goes on until its time.
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Why, and what else."""
        parser.add_argument(
            "--because", default="resumed", metavar="TEXT", help="why, for the record"
        )
        parser.add_argument("--all", action="store_true", help="end its maintenance as well")

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        """Resume it."""
        only = None if parsed_args.all else "pause"
        return self.said(parsed_args, "failover.resume", only=only)


class MaintenanceOn(_Suspending):
    """Hold the alarms of a group, or of MEMBERs of it, back until a time.

    Members that are named are not chosen to take a role over meanwhile.

    A maintenance that the group has is replaced: name all members that are worked on. It ends by
    itself, at the latest after 28 days.
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Who, until when, and why."""
        parser.add_argument(
            "members", nargs="*", metavar="member", help="who is worked on; all, if left out"
        )
        end = parser.add_mutually_exclusive_group(required=True)
        end.add_argument("--minutes", type=int, metavar="N", help="how long, from now")
        end.add_argument(
            "--until", metavar="T", help="a time in ISO 8601, such as 2026-11-22T06:00+01:00"
        )
        add_reason(parser)

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        """Begin it."""
        return self.said(
            parsed_args,
            "failover.maintenance",
            minutes=parsed_args.minutes,
            until=parsed_args.until,
            members=parsed_args.members or None,
        )


class MaintenanceOff(_Suspending):
    """End a group's maintenance before its time, or take MEMBERs out of it.

    Nothing starts by that, and a pause stays.
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Who, and why."""
        parser.add_argument(
            "members", nargs="*", metavar="member", help="who is done; all, if left out"
        )
        parser.add_argument(
            "--because", default="the work is done", metavar="TEXT", help="why, for the record"
        )

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        """End it."""
        return self.said(
            parsed_args,
            "failover.resume",
            only="maintenance",
            members=parsed_args.members or None,
        )
