# SPDX-License-Identifier: Apache-2.0
"""``failover pause``, ``resume`` and ``maintenance on|off``: holding a group's alarms."""

from __future__ import annotations

import argparse
from typing import Any

from cliff.show import ShowOne

from mistral_failover.cli import status_screen
from mistral_failover.cli.arguments import REASON, argument, one_of
from mistral_failover.cli.base import GroupCommand, for_people


class _SuspensionCommand(GroupCommand, ShowOne):
    """Change whether a group's alarms are held."""

    def said(self, parsed_args: argparse.Namespace, action: str, **inputs: Any) -> tuple[Any, Any]:
        """Set it, and show the result."""
        answer = self.run_action(
            action, group=parsed_args.group, because=parsed_args.because, **inputs
        )
        if not for_people(parsed_args):
            return list(answer), list(answer.values())
        facts = {
            "group": answer["group"],
            "said": answer["sentence"],
            "alarms": "\n".join(status_screen.suspended(answer)) or "are judged as they come",
        }
        return list(facts), list(facts.values())


class Pause(_SuspensionCommand):
    """Hold every alarm of a group until 'failover resume'.

    Your orders and running failovers continue.

    For work with a known end, prefer 'failover maintenance on': it ends by itself.
    """

    arguments = (REASON,)

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        """Pause it."""
        return self.said(parsed_args, "failover.pause")


class Resume(_SuspensionCommand):
    """End a group's pause.

    This starts nothing. Held alarms stay in 'failover alarms'; repeated ones are judged again. A
    maintenance lasts until its time.
    """

    arguments = (
        argument("--because", default="resumed", metavar="TEXT", help="the reason, for the record"),
        argument("--all", action="store_true", help="end its maintenance as well"),
    )

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        """Resume it."""
        only = None if parsed_args.all else "pause"
        return self.said(parsed_args, "failover.resume", only=only)


class MaintenanceOn(_SuspensionCommand):
    """Hold the alarms of a group, or of some MEMBERs, until a time.

    In that time the named members are not chosen to take over a role.

    It replaces an existing maintenance of the group: name all members you work on. It ends by
    itself, at the latest after 28 days.
    """

    arguments = (
        argument(
            "members", nargs="*", metavar="member", help="a member you work on (default: all)"
        ),
        one_of(
            argument("--minutes", type=int, metavar="N", help="how long, from now"),
            argument(
                "--until", metavar="T", help="a time in ISO 8601, such as 2026-11-22T06:00+01:00"
            ),
            required=True,
        ),
        REASON,
    )

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        """Begin it."""
        return self.said(
            parsed_args,
            "failover.maintenance",
            minutes=parsed_args.minutes,
            until=parsed_args.until,
            members=parsed_args.members or None,
        )


class MaintenanceOff(_SuspensionCommand):
    """End a group's maintenance before its time, or remove MEMBERs from it.

    This starts nothing, and a pause stays.
    """

    arguments = (
        argument(
            "members", nargs="*", metavar="member", help="a member that is done (default: all)"
        ),
        argument(
            "--because",
            default="the work is done",
            metavar="TEXT",
            help=("the reason, for the record"),
        ),
    )

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        """End it."""
        return self.said(
            parsed_args,
            "failover.resume",
            only="maintenance",
            members=parsed_args.members or None,
        )
