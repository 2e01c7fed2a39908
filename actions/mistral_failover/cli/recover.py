# SPDX-License-Identifier: Apache-2.0
"""``failover recover``: lost members are healthy again."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from mistral_failover.cli import base, order

_UNFINISHED = frozenset({"IN_PROGRESS", "BLOCKED", "FAILED"})


class Recover(order.Order):
    """Confirm that lost members are healthy again, so that they may take over.

    No role moves. If a failover that treats a member as lost has not reached its goal, it asks,
    because the order takes that failover back. To move the roles home, see failover failback, which
    takes --recovered as well. A member that was replaced needs no confirmation.
    """

    workflow = "failover.failover"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the members."""
        parser.add_argument("member", nargs="+", help="a lost member that you found healthy")
        base.add_yes(parser)

    def inputs(self, parsed_args: argparse.Namespace) -> dict[str, Any]:
        """No further member is lost, and these are lost no more."""
        return {"lost": [], "recovered": parsed_args.member}

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[list[str], list[Any]]:
        """Ask if a failover would be taken back, then start and follow."""
        group = parsed_args.group
        status = self.run_action("failover.status", group=group)
        going = status["status"] in _UNFINISHED and set(parsed_args.member) & set(status["lost"])
        if going and not parsed_args.yes:
            lost = ", ".join(sorted(going))
            sys.stderr.write(
                f"{group} is {status['status']}: a failover that treats {lost} as lost has not "
                "reached its goal. This order takes it back.\n"
            )
            base.confirm(f"Does {lost} certainly serve again", yes=False)
        if parsed_args.because is None:
            parsed_args.because = f"declared healthy: {', '.join(parsed_args.member)}"
        return super().take_action(parsed_args)
