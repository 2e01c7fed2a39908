# SPDX-License-Identifier: Apache-2.0
"""``failover sweep``."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator
from typing import Any

from cliff.lister import Lister

from mistral_failover.cli import base, connection, order
from mistral_failover.cli.arguments import GROUPS
from mistral_failover.cli.base import ActionCommand
from mistral_failover.cli.connection import CommandFailed
from mistral_failover.cli.status import SERVICES
from mistral_failover.cli.status_screen import summary

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
    "rehearsals",
    "unable",
)


class Sweep(ActionCommand, Lister):
    """Continue the work of dead processes, and show what was found.

    In all groups of the project or in one. Several may run at once, and a repeat does no harm.

    A cron trigger of Mistral does this regularly; run it by hand when nothing moves. What still
    does not serve afterwards is named on stderr, with the next command.
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
        for line in self._left(parsed_args.group):
            self.app.stderr.write(f"{line}\n")
        return columns, rows

    def _left(self, group: str | None) -> Iterator[str]:
        """Yield what a group, or each group of the project, waits for that does not serve: work
        that a person has to do is not stalled."""
        if group is not None:
            status = self.run_action("failover.status", group=group, agents=True)
            if status["service"]["status"] in SERVICES:
                yield from summary(status, base.width())
            return
        for row in self.run_action("failover.status")["overview"]:
            if row["service"] in SERVICES:
                name = shlex.quote(row["name"])
                yield f"{row['name']} is {row['service']}. Next: failover status {name}"


def _row(kind: str, row: Any) -> list[Any]:
    if isinstance(row, str):
        return [kind, None, row]
    return [kind, row.get("group"), row["sentence"]]
