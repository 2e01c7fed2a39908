# SPDX-License-Identifier: Apache-2.0
"""``failover failback``: the roles go home."""

from __future__ import annotations

import argparse
from typing import Any

from mistral_failover.cli import plan


class Failback(plan.PlannableOrder):
    """Move the roles home, to where they would be if all members were healthy.

    Home is the first member that a role prefers in the group file, else the group's choice. No role
    moves home by itself. First check the old member, then confirm it as healthy with --recovered
    (one that was replaced needs no confirmation). Its server must be ACTIVE, its agent must send
    heartbeats, and no operation may run on it. If anything fails on the way, all roles return to
    where they were: exit code 1, RETURNED and the reason. Check first with --dry-run.
    """

    workflow = "failover.failback"
    verb = "failback"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the roles, and the recovered members."""
        parser.add_argument(
            "--to", metavar="MEMBER", help="only the roles whose home is this member"
        )
        parser.add_argument("--role", metavar="ROLE", help="only this role (default: all)")
        plan.add_recovered(parser)

    def inputs(self, parsed_args: argparse.Namespace) -> dict[str, Any]:
        """Return the roles, and the recovered members."""
        return {
            "to": parsed_args.to,
            "role": parsed_args.role,
            "recovered": parsed_args.recovered,
        }
