# SPDX-License-Identifier: Apache-2.0
"""``failover sweep``."""

from __future__ import annotations

import argparse
from typing import Any

from cliff.lister import Lister

from mistral_failover.cli import base, connection, order
from mistral_failover.cli.arguments import GROUPS
from mistral_failover.cli.base import ActionCommand
from mistral_failover.cli.connection import CommandFailed

_LISTS = (
    "started",
    "released",
    "held",
    "dismissed",
    "refused",
    "ended",
    "restarted",
    "observed",
    "told",
    "unable",
)


class Sweep(ActionCommand, Lister):
    """Continue the work of dead processes, and show what was found.

    In all groups of the project or in one. Several may run at once, and a repeat does no harm.

    A cron trigger of Mistral does this regularly; run it by hand when nothing moves.
    """

    arguments = (
        GROUPS,
        *order.FOLLOWED,
    )

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[list[str], list[list[Any]]]:
        """Start, follow, and show what was found."""
        inputs = base.given({"group": parsed_args.group})
        wait = 0.0 if parsed_args.no_wait else parsed_args.timeout
        execution = order.execute(
            self.app, "failover.sweep", inputs, group=parsed_args.group, wait=wait
        )
        output = execution.get("output") or {}
        columns = ["found", "group", "sentence"]
        if error := output.get("error"):
            told = connection.with_full_stop(error["message"])
            raise CommandFailed(f"{told} {error['remedy']} [{error['code']}]")
        if not parsed_args.no_wait:
            self.exit_code = order.exit_code(execution)
        if self.exit_code == base.FAILED:
            raise CommandFailed(
                f"The sweep was ended ({execution['state']}) before it had reported. Run it again: "
                f"failover sweep {parsed_args.group or ''}".rstrip()
                + " [CUT_SHORT]"
            )
        if self.exit_code == base.UNDER_WAY or parsed_args.no_wait:
            return columns, [["running", parsed_args.group, f"execution {execution['id']}"]]
        swept = output.get("swept") or {}
        rows = [_row(kind, row) for kind in _LISTS for row in swept.get(kind, ())]
        if not rows:
            self.app.stderr.write("No stalled work found.\n")
        return columns, rows


def _row(kind: str, row: Any) -> list[Any]:
    if isinstance(row, str):
        return [kind, None, row]
    return [kind, row.get("group"), row["sentence"]]
