# SPDX-License-Identifier: Apache-2.0
"""``failover locks`` and ``failover lock break``: lock owners, and breaking a lock by hand."""

from __future__ import annotations

import argparse
from typing import Any

from cliff.lister import Lister
from cliff.show import ShowOne

from mistral_failover.cli.arguments import BECAUSE, GROUPS, argument
from mistral_failover.cli.base import ActionCommand, for_people, given
from mistral_failover.cli.order import FOLLOWED, exit_code, follow, worded

_WHOLE = (
    "group",
    "resource",
    "id",
    "type",
    "owner",
    "token",
    "alive",
    "why",
    "lease_left",
    "since",
    "execution",
    "operation",
    "traversal",
)


class List(ActionCommand, Lister):
    """List the locks that are held, their owners, and whether the owners are alive.

    The next worker breaks a dead owner's lock; 'failover sweep' triggers one at once. Only if that
    does not help: failover lock break ID --owner OWNER.
    """

    arguments = (GROUPS,)

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[list[str], list[list[Any]]]:
        """Query and format: in words for people, unabridged for machines."""
        rows = self.run_action("failover.locks", group=parsed_args.group)
        if not for_people(parsed_args):
            return list(_WHOLE), [[row[name] for name in _WHOLE] for row in rows]
        if not rows:
            self.app.stderr.write("No locks are held.\n")
        columns = ["group", "resource", "id", "alive", "why", "owner", "token"]
        return columns, [
            [
                row["group"],
                row["resource"],
                row["id"],
                "yes" if row["alive"] else "no",
                row["why"],
                row["owner"],
                row["token"],
            ]
            for row in rows
        ]


class Break(ActionCommand, ShowOne):
    """Break the lock on a resource, and continue the work that waits for it.

    Name the owner as 'failover locks' shows it; if the lock has another owner by then, nothing
    happens. A live owner's lock is broken only with --force: make sure that its process is dead or
    stopped. From then on it changes nothing in the cloud, but a request that it has already sent
    may still take effect within the duration of one call (http_timeout), and a command that runs on
    a member ends by itself.

    Exit code 1 when the traversal fails, 3 when it is BLOCKED, 4 when it is still running.
    """

    arguments = (
        argument("resource", help="the resource's id, or at least its first 8 digits"),
        argument("--owner", required=True, help=("the lock's owner, as 'failover locks' shows it")),
        argument("--token", type=int, help="break it only under this token"),
        argument(
            "--force", action="store_true", help="also if the owner is alive; requires --because"
        ),
        BECAUSE,
        *FOLLOWED,
    )

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[list[str], list[Any]]:
        """Find the resource's group, break, follow."""
        found = self.run_action("failover.show", id=parsed_args.resource)
        inputs = given(
            {
                "resource": found["id"],
                "owner": parsed_args.owner,
                "token": parsed_args.token,
                "force": parsed_args.force,
                "because": parsed_args.because,
            }
        )
        wait = 0.0 if parsed_args.no_wait else parsed_args.timeout
        facts = follow(self.app, "failover.break_lock", inputs, group=found["group"], wait=wait)
        if wait:
            self.exit_code = exit_code(facts)
        shown = worded(facts) if for_people(parsed_args) else facts
        return list(shown), list(shown.values())
