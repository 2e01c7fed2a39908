# SPDX-License-Identifier: Apache-2.0
"""``failover forget``: a resource is not managed any more."""

from __future__ import annotations

import argparse
from typing import Any

from cliff.show import ShowOne

from mistral_failover.cli.arguments import argument
from mistral_failover.cli.base import GroupCommand, for_people


class Forget(GroupCommand, ShowOne):
    """Forget a resource that is gone for good: its record, never its data.

    For what the group cannot delete because it does not exist any more. What can be checked is
    checked first: whatever still exists is not forgotten. The next goal creates the resource again
    if it wants it; continue with 'failover start GROUP'. Your reason is recorded.
    """

    arguments = (
        argument("resource", help="its name in the group file, or the id of a record"),
        argument("--because", required=True, metavar="TEXT", help="how you know that it is gone"),
    )

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[list[str], list[Any]]:
        """Check and forget."""
        answer = self.run_action(
            "failover.forget",
            group=parsed_args.group,
            resource=parsed_args.resource,
            because=parsed_args.because,
        )
        if for_people(parsed_args):
            answer["forgotten"] = " ".join(answer["forgotten"]) or "nothing"
        return list(answer), list(answer.values())
