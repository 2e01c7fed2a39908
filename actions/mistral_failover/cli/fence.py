# SPDX-License-Identifier: Apache-2.0
"""``failover fence`` and ``failover unfence``: what an operator of the cloud does to a host."""

from __future__ import annotations

import argparse
from typing import Any

from cliff.show import ShowOne

from mistral_failover.cli.base import ActionCommand, for_people, given, worded


class _HostCommand(ActionCommand, ShowOne):
    """An order about a compute host, or a dry run of it."""

    dry_run_help: str

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser with the options of the command."""
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        parser.add_argument("target", help="the compute host as Nova names it, or a member")
        parser.add_argument("--group", help="the group of the member")
        how = parser.add_mutually_exclusive_group(required=True)
        how.add_argument("--dry-run", action="store_true", help=self.dry_run_help)
        how.add_argument("--because", metavar="TEXT", help="the reason, for the log")
        return parser

    def ask(self, action: str, parsed_args: argparse.Namespace, **more: bool) -> dict[str, Any]:
        """Ask the action; return its answer."""
        named = {"group": parsed_args.group, "member": parsed_args.target}
        where = named if parsed_args.group else {"host": parsed_args.target}
        told = {"because": parsed_args.because, "dry_run": parsed_args.dry_run}
        return dict(self.run_action(action, **given({**where, **told, **more})))


class Fence(_HostCommand):
    """Switch a compute host off by the operator's fence devices, and prove it.

    TARGET is a compute host, or with --group a member, whose host is meant. All servers of the host
    lose their power. Then Nova learns it, and releases what the host holds. To continue a
    BLOCKED failover: failover start GROUP.

    Only for administrators: Nova must let you change compute services.
    """

    dry_run_help = "only ask the devices, and show what would happen"

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser with the options of the command."""
        parser = super().get_parser(prog_name)
        parser.add_argument(
            "--even-if-up",
            action="store_true",
            help="also if Nova reports its compute service up",
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[list[str], list[Any]]:
        """Ask the action."""
        facts = self.ask("failover.fence_host", parsed_args, even_if_up=parsed_args.even_if_up)
        if for_people(parsed_args):
            facts["levels"] = [
                " and ".join(f"{each['agent']}: {each['power']}" for each in level)
                for level in facts["levels"]
            ]
            facts = worded(facts)
        return list(facts), list(facts.values())


class Unfence(_HostCommand):
    """Lift what fences left behind on a compute host, once that is safe.

    TARGET is a compute host, or with --group a member, whose host is meant. Ceph accepts the
    clients of the host again that the rung storage has blocked, if the host was proven off since:
    by failover fence, by the rung host_power, or by your word (--power-cycled). If a fence told
    Nova that the host is down, Nova learns that it is back when its compute service reports. The
    sweep does the same by itself, except for your word.

    Only for administrators: Nova must let you change compute services.
    """

    dry_run_help = "only show what would be lifted"

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser with the options of the command."""
        parser = super().get_parser(prog_name)
        parser.add_argument(
            "--power-cycled",
            action="store_true",
            help="you have switched the host off and on since its clients were blocked",
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[list[str], list[Any]]:
        """Ask the action."""
        cycled = parsed_args.power_cycled
        facts = self.ask("failover.unfence_host", parsed_args, power_cycled=cycled)
        if for_people(parsed_args):
            facts["clients"] = [
                f"{each['client']} of volume {each['volume']}" for each in facts["clients"]
            ]
            facts = worded(facts)
        return list(facts), list(facts.values())
