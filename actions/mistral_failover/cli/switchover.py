# SPDX-License-Identifier: Apache-2.0
"""``failover switchover``: a planned move while all members are healthy."""

from __future__ import annotations

import argparse
from typing import Any

from mistral_failover.cli import plan


class Switchover(plan.PlannableOrder):
    """Move a role to another member as planned, for example before work on a host.

    No member is declared lost. The agent of the member that holds the role stops the application,
    the volumes follow, and nothing is forced. If anything fails on the way, the group returns to
    where it was; the command then ends with exit code 1, RETURNED and the reason. If the member is
    dead, use failover start instead. Check first with --dry-run, or see failover member list for
    the members that may take a role.
    """

    workflow = "failover.switchover"
    verb = "switchover"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the target, and the role."""
        parser.add_argument(
            "--to", metavar="MEMBER", help="the member that takes it (default: the group's choice)"
        )
        parser.add_argument(
            "--role", metavar="ROLE", help="the role to move; required if the group has several"
        )

    def inputs(self, parsed_args: argparse.Namespace) -> dict[str, Any]:
        """Return the target, and the role."""
        return {"to": parsed_args.to, "role": parsed_args.role}
