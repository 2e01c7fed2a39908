# SPDX-License-Identifier: Apache-2.0
"""``failover member``: the members of a group, and whether they may take a role. And
``failover agent``: the keys of the members' agents, and their latest heartbeats."""

from __future__ import annotations

import argparse
from typing import Any

from cliff.lister import Lister
from cliff.show import ShowOne

from mistral_failover.cli.arguments import argument
from mistral_failover.cli.base import GroupCommand, for_people

_KEYS = (
    "member",
    "server",
    "epoch",
    "roles",
    "age",
    "host",
    "priority",
    "eligible",
    "why_not",
    "doubt",
)
_SHOWN = 8  # digits of a host's id: enough to tell which members share one


class List(GroupCommand, Lister):
    """List the members of a group: their roles, and whether they may take one.

    The first one is the group's first choice. "no" comes with the reason; "rather not" means
    that the member is a last resort. The command changes nothing. Next: correct
    the cause under why, end a maintenance, or move a role with failover switchover.
    """

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[list[str], list[list[Any]]]:
        """Query and format: in words for people, unabridged for machines."""
        rows = self.run_action("failover.members", group=parsed_args.group)
        if not for_people(parsed_args):
            return list(_KEYS), [[row[key] for key in _KEYS] for row in rows]
        columns = ["member", "roles", "takes a role", "why", "age", "host", "priority", "epoch"]
        return columns, [_readable(row) for row in rows]


def _readable(row: dict[str, Any]) -> list[Any]:
    takes = "no" if not row["eligible"] else "rather not" if row["doubt"] else "yes"
    return [
        row["member"],
        ", ".join(row["roles"]) or "-",
        takes,
        row["why_not"] or row["doubt"] or "",
        _age(row["age"]),
        (row["host"] or "-")[:_SHOWN],
        row["priority"],
        row["epoch"] or "-",
    ]


def _age(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    for unit, length in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


class AgentKey(GroupCommand, ShowOne):
    """Show the key of a member's agent, or that of all agents of a group.

    The key alone, for a file: failover agent key GROUP MEMBER -f value -c key

    The group need not be defined yet. Mistral does not store the answer.
    """

    arguments = (
        argument(
            "member", nargs="?", help="the member's name; without it, the key of the whole group"
        ),
    )

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[list[str], list[str]]:
        """Query and show."""
        found: dict[str, str] = self.run_action(
            "failover.enroll",
            save_result=False,
            group=parsed_args.group,
            member=parsed_args.member,
        )
        return list(found), list(found.values())


class AgentList(GroupCommand, Lister):
    """List the members of a group and the latest heartbeats of their agents."""

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[list[str], list[list[Any]]]:
        """Query and format: in words for people, unabridged for machines."""
        rows = self.run_action("failover.agents", group=parsed_args.group)
        people = for_people(parsed_args)
        columns = ["member", "server", "epoch", "sentence" if people else "agent"]
        shown = columns if people else [*columns, "sentence"]
        return shown, [[row[column] for column in shown] for row in rows]
