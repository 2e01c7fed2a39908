# SPDX-License-Identifier: Apache-2.0
"""``failover fence``: an operator of the cloud switches a compute host off."""

from __future__ import annotations

import argparse
from typing import Any

from cliff.show import ShowOne

from mistral_failover.cli.base import ActionCommand, for_people, given, worded


class Fence(ActionCommand, ShowOne):
    """Switch a compute host off by the operator's fence devices, and prove it.

    TARGET is a compute host, or with --group a member, whose host is meant. All servers of the host
    lose their power. Then Nova learns it, and releases what the host holds. To continue a
    BLOCKED failover: failover start GROUP.

    Only for administrators: Nova must let you change compute services.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser with the options of the command."""
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        parser.add_argument("target", help="the compute host as Nova names it, or a member")
        parser.add_argument("--group", help="the group of the member")
        how = parser.add_mutually_exclusive_group(required=True)
        how.add_argument(
            "--dry-run",
            action="store_true",
            help="only ask the devices, and show what would happen",
        )
        how.add_argument("--because", metavar="TEXT", help="the reason, for the log")
        parser.add_argument(
            "--even-if-up",
            action="store_true",
            help="also if Nova reports its compute service up",
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
                "even_if_up": parsed_args.even_if_up,
            }
        )
        facts = self.run_action("failover.fence_host", **inputs)
        if for_people(parsed_args):
            facts["levels"] = [
                " and ".join(f"{each['agent']}: {each['power']}" for each in level)
                for level in facts["levels"]
            ]
            facts = worded(facts)
        return list(facts), list(facts.values())
