# SPDX-License-Identifier: Apache-2.0
"""``failover goals``: the goals of a group, their results, and their differences."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from cliff.lister import Lister

from mistral_failover.cli.arguments import argument
from mistral_failover.cli.base import GroupCommand, for_people, when, wrapped
from mistral_failover.convergence.records import TraversalStatus

SHOWN_DIGITS = 12
KEYS = (
    *("version", "roles", "lost", "status", "cause", "walked", "given_at", "reached_at"),
    *("current", "last_complete"),
)
"""What machines get of a goal: what failover.goals answers."""
_MARKS = {"current": "current", "last_complete": "last complete"}
_TO_THE_MINUTE = 16  # characters of a time
_CAUSE, _LINE = 40, 76  # characters of a line of a cause; of a difference, on 80 columns


class List(GroupCommand, Lister):
    """List the goals that a group was given, the latest first.

    A rollback without a goal goes to the last one reached before the present one. 'failover
    rollback', 'diff' and 'show' accept the digits shown here. -f json has each goal in full, with
    the time at which it was reached.
    """

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[list[str], list[list[Any]]]:
        """Query and format: shortened for people, complete for machines."""
        goals = self.run_action("failover.goals", group=parsed_args.group)
        return rows(goals, people=for_people(parsed_args))


class Diff(GroupCommand, Lister):
    """Show what differs between two goals of a group.

    Each is given by the first digits of its version; + is only in the second, - only in the first,
    ~ in both.
    """

    arguments = (
        argument("before", help="the first goal's version, at least 7 digits"),
        argument("after", help="the second goal's version"),
    )

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[list[str], list[list[Any]]]:
        """Query and format."""
        found = self.run_action(
            "failover.compare_goals",
            group=parsed_args.group,
            before=parsed_args.before,
            after=parsed_args.after,
        )
        if for_people(parsed_args):
            return ["difference"], [[wrapped(line, _LINE)] for line in found["lines"]]
        differences = [[d["path"], d.get("before"), d.get("after")] for d in found["differences"]]
        return ["path", "before", "after"], differences


def rows(goals: list[dict[str, Any]], *, people: bool) -> tuple[list[str], list[list[Any]]]:
    """Return columns and rows of the answer of failover.goals: shortened for people, so that a
    version fits on 80 columns; unchanged for machines."""
    if not people:
        return list(KEYS), [[goal[key] for key in KEYS] for goal in goals]
    return ["version", "roles", "status", "given", "cause"], [_row(goal) for goal in goals]


def _row(goal: Mapping[str, Any]) -> list[str]:
    return [
        goal["version"][:SHOWN_DIGITS],
        "\n".join(places(goal)) or "-",
        "\n".join(status(goal)),
        when(goal["given_at"])[:_TO_THE_MINUTE],
        wrapped(goal["cause"], _CAUSE),
    ]


def places(goal: Mapping[str, Any]) -> list[str]:
    """Return where a goal has each role, and which members are lost in it, one clause each."""
    roles = [f"{role}: {member}" for role, member in goal["roles"].items()]
    return [*roles, *(f"lost: {member}" for member in goal["lost"])]


def status(goal: Mapping[str, Any]) -> list[str]:
    """Return the status of a goal, and what else is to know of it, one clause each."""
    found = [str(goal["status"])]
    if goal["reached_at"] is None:
        found.append("not reached")
    elif goal["status"] != TraversalStatus.COMPLETE:
        found.append("reached before")
    return [*found, *(words for key, words in _MARKS.items() if goal[key])]
