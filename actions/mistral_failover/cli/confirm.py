# SPDX-License-Identifier: Apache-2.0
"""``failover confirm-fenced``: a person's word that a lost member no longer writes."""

from __future__ import annotations

import argparse
from typing import Any

from mistral_failover.cli.order import Order


class ConfirmFenced(Order):
    """Vouch that a lost member no longer writes, so that its failover goes on.

    The failover that was BLOCKED for want of a proof goes on, and is followed to its end.

    Be sure: its power is off, or its host is gone. What you say goes into the record.

    Exit code 1 when the failover fails, 3 when it is BLOCKED again.
    """

    workflow = "failover.confirm_fenced"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Who is off."""
        parser.add_argument("member", help="the lost member")

    def add_because(self, parser: argparse.ArgumentParser) -> None:
        """A word without a reason is none."""
        parser.add_argument(
            "--because", required=True, metavar="TEXT", help="what makes you sure of it"
        )

    def inputs(self, parsed_args: argparse.Namespace) -> dict[str, Any]:
        """Whom it is about."""
        return {"member": parsed_args.member}
