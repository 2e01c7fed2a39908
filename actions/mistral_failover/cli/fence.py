# SPDX-License-Identifier: Apache-2.0
"""``failover fence`` and ``failover unfence``: what an operator of the cloud does to a host."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from cliff.show import ShowOne

from mistral_failover.cli.arguments import Adding, Declared, argument, one_of
from mistral_failover.cli.base import ActionCommand, for_people, given, worded
from mistral_failover.model.rungs import HostRung

if TYPE_CHECKING:  # a command starts without the code of the actions
    from mistral_failover.orders.fence_host import FenceDevice, OpenVolume
    from mistral_failover.orders.unfence_host import BlockedRow


class _HostCommand(ActionCommand, ShowOne):
    """An order about a compute host, or a dry run of it.

    ``action`` carries it out; ``options`` are the order's own inputs; ``rows`` formats the rows of
    each list in the answer for people.
    """

    action: str
    options: tuple[str, ...]
    rows: ClassVar[Mapping[str, Callable[[Any], str]]]

    arguments: Declared = (
        argument("target", help="the compute host as Nova names it, or a member"),
        argument("--group", help="the group of the member"),
    )

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[list[str], list[Any]]:
        """Ask the action."""
        named = {"group": parsed_args.group, "member": parsed_args.target}
        where = named if parsed_args.group else {"host": parsed_args.target}
        inputs = ("because", "dry_run", *self.options)
        more = {each: getattr(parsed_args, each) for each in inputs}
        facts = dict(self.run_action(self.action, **given({**where, **more})))
        if for_people(parsed_args):
            for name, row in self.rows.items():
                facts[name] = [row(each) for each in facts[name]]
            facts = worded(facts)
        return list(facts), list(facts.values())


def _how(dry_run: str) -> Adding:
    return one_of(
        argument("--dry-run", action="store_true", help=dry_run),
        argument("--because", metavar="TEXT", help="the reason, for the log"),
        required=True,
    )


def _level(row: list[FenceDevice]) -> str:
    return " and ".join(f"{each['agent']}: {each['power']}" for each in row)


def _open_volume(row: OpenVolume) -> str:
    return f"{row['client']} of volume {row['volume']} of server {row['server']}"


def _blocked_client(row: BlockedRow) -> str:
    return f"{row['client']} of volume {row['volume']}"


class Fence(_HostCommand):
    """Fence a compute host by the operator's fence devices, and prove it.

    TARGET is a compute host, or with --group a member, whose host is meant. By default the host is
    switched off: all its servers lose their power. Then Nova learns it, and releases what the host
    holds. With --rung storage, for a host whose power switch is out of reach, Ceph blocks
    the clients of its servers' volumes: the guests run on and can write nothing there, until
    failover unfence. To continue a BLOCKED failover: failover start GROUP.

    Only for administrators: Nova must let you change compute services.
    """

    action = "failover.fence_host"
    options = ("even_if_up", "rung")
    rows: ClassVar = {"levels": _level, "clients": _open_volume}

    arguments = (
        _how("only ask the devices, and show what would happen"),
        argument(
            "--even-if-up",
            action="store_true",
            help="switch it off also if Nova reports its compute service up",
        ),
        argument(
            "--rung",
            choices=[str(each) for each in HostRung],
            help="switch the host off (host_power, the default), or block its clients in Ceph",
        ),
    )


class Unfence(_HostCommand):
    """Lift what fences left behind on a compute host, once that is safe.

    TARGET is a compute host, or with --group a member, whose host is meant. Ceph accepts the
    clients of the host again that the rung storage has blocked, if the host was proven off since:
    by failover fence, by the rung host_power, or by your word (--power-cycled). If a fence told
    Nova that the host is down, Nova learns that it is back when its compute service reports. The
    sweep does the same by itself, except for your word.

    Only for administrators: Nova must let you change compute services.
    """

    action = "failover.unfence_host"
    options = ("power_cycled",)
    rows: ClassVar = {"clients": _blocked_client}

    arguments = (
        _how("only show what would be lifted"),
        argument(
            "--power-cycled",
            action="store_true",
            help="you have switched the host off and on since its clients were blocked",
        ),
    )
