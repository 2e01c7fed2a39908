# SPDX-License-Identifier: Apache-2.0
"""``failover availability``: how much of the last day or month groups served."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from cliff.show import ShowOne

from mistral_failover.cli.arguments import GROUPS, argument
from mistral_failover.cli.base import for_people, lasted, when
from mistral_failover.cli.plain import PlainFacts
from mistral_failover.model.availability import percent
from mistral_failover.model.observation import Service

if TYPE_CHECKING:  # a command starts without the code of the actions
    from mistral_failover.reports.availability import AvailabilityReport

_UNITS = {"m": 60, "h": 3600, "d": 86400}
_SIGNS = {
    Service.SERVING: "=",
    Service.DEGRADED: "-",
    Service.DOWN: "X",
    Service.UNKNOWN: "?",
    Service.OUT_OF_SERVICE: ".",
}
"""How the bar shows the worst word of a part of the time."""
WORDS = {
    Service.SERVING: "served",
    Service.DEGRADED: "degraded",
    Service.DOWN: "down",
    Service.UNKNOWN: "not known",
    Service.OUT_OF_SERVICE: "out of service",
}
"""The words as people read them."""


def _seconds(text: str) -> int:
    found = re.fullmatch(r"(\d{1,6})([mhd])", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"expected a time such as 90m, 24h or 30d, got {text!r}")
    return int(found[1]) * _UNITS[found[2]]


class Show(PlainFacts, ShowOne):
    """Show how much of the last 24 hours, or longer, a group or all groups served.

    Availability is the time served or degraded, of the time for which it is known. Time in which
    nothing looked at a group is not known. Time out of service does not count. In the bar: =
    served, - degraded, X down, ? not known, . out of service; each sign is the worst of its time.
    """

    arguments = (
        GROUPS,
        argument(
            "--last",
            type=_seconds,
            default="24h",
            metavar="TIME",
            help="how long, up to now: 90m, 24h (default), 30d; at most 31d",
        ),
    )

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[list[str], list[Any]]:
        """Query and format."""
        report: AvailabilityReport = self.run_action(
            "failover.availability", group=parsed_args.group, seconds=parsed_args.last
        )
        facts = dict(lines(report)) if for_people(parsed_args) else dict(report)
        return list(facts), list(facts.values())


def lines(report: AvailabilityReport) -> Iterator[tuple[str, str]]:
    """Yield the lines for people: what each is about, and its text. Each is about something else,
    however a group is named."""
    whole = sum(report["seconds"].values()) or 1.0  # of all groups, though not all have a line
    yield "time", f"{when(report['since'])} to {when(report['until'])}"
    yield "availability", percent(report["availability"])
    yield "bar", "".join(_SIGNS[Service(slot["worst"])] for slot in report["slots"])
    for service, word in WORDS.items():
        if seconds := report["seconds"][service]:
            yield word, f"{lasted(seconds)} ({percent(seconds / whole)} of the time)"
    if report["not_served"]:
        yield (
            "when",
            "\n".join(
                f"{WORDS[Service(each['service'])]} from {when(each['since'])}"
                f" for {lasted(each['until'] - each['since'])}"
                for each in report["not_served"]
            ),
        )
    for row in report["groups"]:
        down, hidden = row["seconds"][Service.DOWN], row["seconds"][Service.UNKNOWN]
        more = [f"down {lasted(down)}"] if down else []
        more += [f"not known {lasted(hidden)}"] if hidden else []
        yield f"group {row['name']}", "; ".join([percent(row["availability"]), *more])
