# SPDX-License-Identifier: Apache-2.0
"""``failover capacity``: what a number of groups needs, calculated from what was measured.

Every constant is a measurement, with the benchmark that prints it. What was not measured is not
calculated. The page docs/capacity.md explains the lines and says on which machine.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from cliff.lister import Lister

from mistral_failover.alarms.storm import per_minute
from mistral_failover.cli.arguments import argument
from mistral_failover.cli.base import FittedOutput, for_people

FAILOVER_CPU, VOLUME_CPU = 0.50, 0.03
"""CPU seconds of one failover with a volume, and of each further volume: Mistral and the package in
one process."""
LOOK_CPU = 0.0064
"""CPU seconds of one look at a group at rest."""
REPEAT_CPU, EXECUTION_CPU = 0.0047, 0.070
"""CPU seconds of a repeated alarm: decided by the webhook, and as an execution of Mistral."""
FAILOVER_REQUESTS = 38
"""Requests of one failover with a volume to the cloud and to the agents."""
ROUND_REQUESTS = 3
"""Requests to the cloud of one round of looks at all groups of a project."""
GROUP_KIB, VOLUME_KIB = 11.0, 5.5
"""KiB of the state store that a group with a volume takes, and each further volume."""
HISTORY_KIB, HISTORY_VOLUME_KIB = 27.0, 6.2
"""KiB of the state store that one failover adds, and each further volume."""
BASE_MIB, GROUP_MIB = 193.0, 0.8
"""MiB of memory of a server's process, and for each group that fails over at the same time."""
MEMBER_KIB = 393.0
"""KiB of the broker's memory for each agent."""
MEMBERS = 2
"""Members of a group, as in the benchmarks."""


@dataclass(frozen=True)
class Line:
    """One quantity: ``what`` in words, ``value`` in ``unit``, and the benchmark that measured the
    constants in it."""

    name: str
    what: str
    value: float
    unit: str
    measured_by: str


def estimate(groups: int, volumes: int, failing: int, interval: float) -> Iterator[Line]:
    """Yield what so many groups need, each with so many volumes, of which ``failing`` fail over at
    the same time, if each is looked at every ``interval`` seconds; in one process on one core."""
    more = volumes - 1
    each = FAILOVER_CPU + more * VOLUME_CPU
    looking = groups * LOOK_CPU / interval
    yield Line("observation", "CPU of looking", looking * 100, "% of a core", "observe")
    yield Line(
        "observation_requests",
        "requests of looking, for each project",
        ROUND_REQUESTS / interval * 60,
        "a minute",
        "observe",
    )
    yield Line("failover_cpu", "CPU of a failover", each, "s", "many")
    busy = failing * each / max(0.01, 1 - looking)
    yield Line("all_failed_over", "until all failing groups are done, at least", busy, "s", "many")
    requests = FAILOVER_REQUESTS * failing / busy
    yield Line(
        "requests", "requests to cloud and agents then, one volume", requests, "a second", "many"
    )
    yield Line(
        "repeats", "repeated alarms decided by a webhook", 1 / REPEAT_CPU, "a second", "webhook"
    )
    yield Line(
        "executions", "alarms decided by executions", 1 / EXECUTION_CPU, "a second", "admission"
    )
    yield Line(
        "let_go",
        "until the storm guard has released all alarms, if their servers died",
        failing / per_minute(failing) * 60,
        "s",
        "many",
    )
    store = groups * (GROUP_KIB + more * VOLUME_KIB) / 1024
    yield Line("store", "state store, groups", store, "MiB", "capacity")
    history = failing * (HISTORY_KIB + more * HISTORY_VOLUME_KIB) / 1024
    yield Line("store_history", "state store, these failovers", history, "MiB", "capacity")
    memory = BASE_MIB + failing * GROUP_MIB
    yield Line("memory", "memory of the process", memory, "MiB", "zone")
    yield Line(
        "broker", "memory of the broker", groups * MEMBERS * MEMBER_KIB / 1024, "MiB", "broker"
    )


def next_limit(groups: int, volumes: int, failing: int, interval: float) -> str:
    """Return in a sentence what limits one process first when there are more groups."""
    looking = groups * LOOK_CPU / interval
    most = int(interval / LOOK_CPU)
    if looking >= 0.5:
        return (
            f"Looking at groups takes {looking:.0%} of a core; at {most} groups it takes all of "
            "it. Raise [failover] observe_interval, or divide the projects between servers."
        )
    each = FAILOVER_CPU + (volumes - 1) * VOLUME_CPU
    within = int(STALE * (1 - looking) / each)
    if failing > within:
        return (
            f"One process fails {within} groups over in {STALE / 60:.0f} minutes. Alarms that "
            "could not be started until then are held. Divide the projects between servers."
        )
    return (
        f"The CPU of failovers: one process fails {within} groups over in {STALE / 60:.0f} "
        "minutes, after which alarms that could not be started are held."
    )


STALE = 600.0
"""Seconds after which an admitted alarm that could not be started is held (``recovery.sweep``)."""


def _rounded(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}"


def _whole(text: str) -> int:
    """Read an option."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"it must be a whole number from 1, got {text!r}")
    return int(text)


def _add_interval(parser: argparse.ArgumentParser) -> None:
    from mistral_failover.settings import Settings  # other commands would wait for oslo.config

    parser.add_argument(
        "--interval",
        type=_whole,
        default=Settings().observe_interval,
        metavar="S",
        help="seconds between two looks at a group, [failover] observe_interval (default 60)",
    )


class Capacity(FittedOutput, Lister):
    """Calculate the CPU, time and memory that groups need, and the next limit.

    The numbers follow from benchmarks on one machine, in one process on one core. It asks no
    server.
    """

    arguments = (
        argument("--groups", type=_whole, required=True, metavar="N", help="groups"),
        argument(
            "--volumes", type=_whole, default=1, metavar="N", help="volumes of a group (default 1)"
        ),
        argument(
            "--failing",
            type=_whole,
            metavar="N",
            help="groups that fail at the same time (default: all)",
        ),
        _add_interval,
    )

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[list[str], list[list[Any]]]:
        """Calculate and format: rounded for people."""
        groups, volumes = parsed_args.groups, parsed_args.volumes
        failing = groups if parsed_args.failing is None else parsed_args.failing
        asked = (groups, volumes, min(failing, groups), parsed_args.interval)
        lines = list(estimate(*asked))
        self.app.stderr.write(f"{next_limit(*asked)}\n")
        if for_people(parsed_args):
            rows = [
                [each.what, f"{_rounded(each.value)} {each.unit}", each.measured_by]
                for each in lines
            ]
            return ["what", "value", "measured by"], rows
        columns = ["name", "what", "value", "unit", "measured_by"]
        return columns, [[getattr(each, column) for column in columns] for each in lines]
