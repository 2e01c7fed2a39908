# SPDX-License-Identifier: Apache-2.0
"""``failover confirm-fenced``: an operator's confirmation that a lost member no longer writes."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from mistral_failover.cli import base
from mistral_failover.cli.order import Order
from mistral_failover.model.text import clean


class ConfirmFenced(Order):
    """Confirm that a lost member no longer writes, so that its failover continues.

    The failover that was BLOCKED because the proof is missing continues, and is followed to its
    end.

    Be sure that the member's power is off or its host is gone: it shows what is known of the
    member, and asks. Your reason is recorded.

    Exit code 1 when the failover fails, 3 when it is BLOCKED again.
    """

    workflow = "failover.confirm_fenced"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the member that is off."""
        parser.add_argument("member", help="the lost member")
        base.add_yes(parser)

    def add_because(self, parser: argparse.ArgumentParser) -> None:
        """A confirmation requires a reason."""
        parser.add_argument(
            "--because", required=True, metavar="TEXT", help="how you know that the member is off"
        )

    def inputs(self, parsed_args: argparse.Namespace) -> dict[str, Any]:
        """Return the confirmed member."""
        return {"member": parsed_args.member}

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[list[str], list[Any]]:
        """Ask, then start and follow."""
        if not parsed_args.yes:
            group, member = parsed_args.group, parsed_args.member
            status = self.run_action("failover.status", group=group, agents=True)
            said = clean(status["agents"].get(member, "says nothing"))
            sys.stderr.write(
                f"{group} will treat {member} as off, and give its volumes to another member. If "
                f"{member} still writes, data is damaged.\nAgent of {member}: {said}\n"
            )
            base.confirm(f"Is {member} certainly off", yes=False)
        return super().take_action(parsed_args)
