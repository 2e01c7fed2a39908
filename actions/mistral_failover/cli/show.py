# SPDX-License-Identifier: Apache-2.0
"""``failover show``: everything about one object, by the first digits of its id."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from cliff.show import ShowOne

from mistral_failover.cli.arguments import argument
from mistral_failover.cli.base import ActionCommand, for_people

if TYPE_CHECKING:
    from mistral_failover.reports.documents import Details


class Show(ActionCommand, ShowOne):
    """Show everything about any object by its id, or by the first 8 digits of it.

    An incident, a traversal, a goal, an operation, a plan, or a locked resource.

    For a traversal: each operation with its time and result, the stages, the critical path, the
    waits for locks, and its executions in Mistral. The ids come from: failover status, history,
    goals, alarms, locks.

    For machines: -f json.
    """

    arguments = (
        argument("id", help="the id, or at least its first 8 digits"),
        argument("--group", metavar="GROUP", help="the group that it belongs to"),
    )

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[list[str], list[Any]]:
        """Query; the action itself asks Mistral, so the engine must not wait for it."""
        found = self.run_action("failover.show", id=parsed_args.id, group=parsed_args.group)
        return list(found), list(found.values())

    def produce_output(
        self, parsed_args: argparse.Namespace, column_names: Sequence[str], data: Sequence[Any]
    ) -> int:
        """Show a page for people, all of it for machines."""
        if not for_people(parsed_args):
            return int(super().produce_output(parsed_args, column_names, data))
        from rich.console import Console

        from mistral_failover.cli.show_pages import page

        console = Console(file=self.app.stdout, highlight=False)
        if not console.is_terminal:
            console.width = 200
        found = dict(zip(column_names, data, strict=True))
        console.print(page(cast("Details", found)))
        return 0
