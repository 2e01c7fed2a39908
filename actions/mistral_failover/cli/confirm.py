# SPDX-License-Identifier: Apache-2.0
"""``failover confirm-fenced``: an operator's confirmation that a lost member no longer writes."""

from __future__ import annotations

import argparse
from typing import Any

from mistral_failover.cli.order import Order


class ConfirmFenced(Order):
    """Confirm that a lost member no longer writes, so that its failover continues.

    The failover that was BLOCKED because the proof is missing continues, and is followed to its
    end.

    Be sure that the member's power is off or its host is gone. Your reason is recorded.

    Exit code 1 when the failover fails, 3 when it is BLOCKED again.
    """

    workflow = "failover.confirm_fenced"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the member that is off."""
        parser.add_argument("member", help="the lost member")

    def add_because(self, parser: argparse.ArgumentParser) -> None:
        """A confirmation requires a reason."""
        parser.add_argument(
            "--because", required=True, metavar="TEXT", help="how you know that the member is off"
        )

    def inputs(self, parsed_args: argparse.Namespace) -> dict[str, Any]:
        """The confirmed member."""
        return {"member": parsed_args.member}
