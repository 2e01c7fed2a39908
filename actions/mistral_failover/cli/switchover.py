# SPDX-License-Identifier: Apache-2.0
"""``failover switchover`` and ``failover failback``: planned moves, while everybody is well."""

from __future__ import annotations

import argparse
from typing import Any

from mistral_failover.cli import plan


class Switchover(plan.Plannable):
    """Move a role to another member as planned, before work on a host, say.

    Nobody is declared lost: the member that holds the role stops by its own agent's word, its
    volumes follow, and nothing is forced. Whatever fails on the way takes the group back to where
    it was; the command then ends with exit code 1, RETURNED and the reason. If the member is dead,
    that is no switchover: see failover start. Look first with --dry-run, or at failover member
    list for who may take a role.
    """

    workflow = "failover.switchover"
    verb = "switchover"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Where to, and what."""
        parser.add_argument(
            "--to", metavar="MEMBER", help="who takes it (default: as the group chooses)"
        )
        parser.add_argument(
            "--role", metavar="ROLE", help="which role moves; needed where the group has several"
        )

    def inputs(self, parsed_args: argparse.Namespace) -> dict[str, Any]:
        """Where to, and what."""
        return {"to": parsed_args.to, "role": parsed_args.role}


class Failback(plan.Plannable):
    """Move the roles home, to where they would be if every member were well.

    Home is the first member that a role prefers in the group file, else the group's choice. Nothing
    goes home by itself: look at the old member first, then name it with --recovered, which is your
    word that it is sound (one that was replaced needs no such word). Its server must be ACTIVE, its
    agent heard, nobody at work on it. Whatever fails on the way takes all roles back to where they
    were: exit code 1, RETURNED and the reason. Look first with --dry-run.
    """

    workflow = "failover.failback"
    verb = "failback"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """What goes home, and who is sound again."""
        parser.add_argument(
            "--to", metavar="MEMBER", help="only the roles that are at home on this member"
        )
        parser.add_argument("--role", metavar="ROLE", help="only this role (default: all)")
        parser.add_argument(
            "--recovered",
            metavar="MEMBER",
            action="append",
            help="a lost member that you vouch for; may be repeated",
        )

    def inputs(self, parsed_args: argparse.Namespace) -> dict[str, Any]:
        """What goes home, and who is sound again."""
        return {
            "to": parsed_args.to,
            "role": parsed_args.role,
            "recovered": parsed_args.recovered,
        }
