# SPDX-License-Identifier: Apache-2.0
"""``failover rollback``."""

from __future__ import annotations

import argparse
from typing import Any

from mistral_failover.cli import plan


class Rollback(plan.PlannableOrder):
    """Return a group to a goal that it reached before the present one.

    By default to the last one: the same roles, resources and parameters. Followed to its end.

    Lost members stay lost and fenced, unless you confirm them as healthy with --recovered.
    'failover goals' lists the goals, 'failover diff' shows their differences. Check first with
    --dry-run.
    """

    workflow = "failover.rollback"
    verb = "rollback"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the goal."""
        parser.add_argument(
            "--goal",
            metavar="VERSION",
            help="the goal's version, or at least its first 7 digits (default: the one before)",
        )
        plan.add_recovered(parser)

    def inputs(self, parsed_args: argparse.Namespace) -> dict[str, Any]:
        """Return the goal, and the recovered members."""
        return {"goal": parsed_args.goal, "recovered": parsed_args.recovered}
