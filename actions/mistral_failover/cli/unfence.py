# SPDX-License-Identifier: Apache-2.0
"""``failover unfence``: an operator of the cloud lifts what fences left behind on a host."""

from __future__ import annotations

import argparse
from typing import Any

from cliff.show import ShowOne

from mistral_failover.cli.base import ActionCommand, for_people, given, worded


class Unfence(ActionCommand, ShowOne):
    """Lift what fences left behind on a compute host, once that is safe.

    TARGET is a compute host, or with --group a member, whose host is meant. Ceph accepts the
    clients of the host again that the rung storage has blocked, if the host was proven off since:
    by failover fence, by the rung host_power, or by your word (--power-cycled). If a fence told
    Nova that the host is down, Nova learns that it is back when its compute service reports. The
    sweep does the same by itself, except for your word.

    Only for administrators: Nova must let you change compute services.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser with the options of the command."""
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        parser.add_argument("target", help="the compute host as Nova names it, or a member")
        parser.add_argument("--group", help="the group of the member")
        how = parser.add_mutually_exclusive_group(required=True)
        how.add_argument("--dry-run", action="store_true", help="only show what would be lifted")
        how.add_argument("--because", metavar="TEXT", help="the reason, for the log")
        parser.add_argument(
            "--power-cycled",
            action="store_true",
            help="you have switched the host off and on since its clients were blocked",
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[list[str], list[Any]]:
        """Ask the action."""
        named = {"group": parsed_args.group, "member": parsed_args.target}
        where = named if parsed_args.group else {"host": parsed_args.target}
        inputs = given(
            {
                **where,
                "because": parsed_args.because,
                "dry_run": parsed_args.dry_run,
                "power_cycled": parsed_args.power_cycled,
            }
        )
        facts = self.run_action("failover.unfence_host", **inputs)
        if for_people(parsed_args):
            facts["clients"] = [
                f"{each['client']} of volume {each['volume']}" for each in facts["clients"]
            ]
            facts = worded(facts)
        return list(facts), list(facts.values())
