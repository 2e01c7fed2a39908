# SPDX-License-Identifier: Apache-2.0
"""The view of how much of the last day and month was served: bars, and the same in words."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from markupsafe import Markup

from mistral_failover.cli.availability import WORDS
from mistral_failover.cli.base import lasted, when
from mistral_failover.model.availability import percent
from mistral_failover.model.observation import Service
from mistral_failover.model.text import counted
from mistral_failover.ui import drawing

if TYPE_CHECKING:  # the page starts without the code of the actions
    from mistral_failover.reports.availability import AvailabilityReport, Slot

DAY = 86400
TIMES = {"24 hours": DAY, "30 days": 30 * DAY}
"""The times that are shown, in seconds."""
_MOSTLY = 0.5
_WIDE, _HIGH, _MARK = 600, 28, 8
_HEIGHTS = {
    Service.DOWN: 28,
    Service.DEGRADED: 22,
    Service.SERVING: 16,
    Service.UNKNOWN: 8,
    Service.OUT_OF_SERVICE: 4,
}
"""Of a part of a bar, so that colours are not needed to tell them apart."""


@dataclass(frozen=True)
class StateTime:
    """How long a state lasted in all, and which part of the time that is."""

    word: str
    lasted: str
    part: str


@dataclass(frozen=True)
class Away:
    """A time in which the group did not serve."""

    word: str
    since: str
    lasted: str


@dataclass(frozen=True)
class Bar:
    """One time, such as ``24 hours``. ``availability`` in percent of the known time, or that it is
    not known, if most of the time is not; ``hidden``: how much is known, in words, empty for all.
    ``svg``: the drawing; ``states``, ``away`` and ``moves`` say the same."""

    time: str
    availability: str
    hidden: str
    svg: Markup
    states: tuple[StateTime, ...]
    away: tuple[Away, ...]
    moves: str


@dataclass(frozen=True)
class AvailabilityView:
    """The bars; or, in ``trouble``, why there are none."""

    bars: tuple[Bar, ...]
    trouble: str = ""

    @property
    def legend(self) -> tuple[tuple[str, str], ...]:
        """Return what the parts of a bar mean: the class of their colour, and the word."""
        return tuple((each.value.lower(), word) for each, word in WORDS.items())


def availability_view(reports: Iterable[tuple[str, AvailabilityReport]]) -> AvailabilityView:
    """Return the view of answers of failover.availability, each with the name of its time."""
    return AvailabilityView(tuple(_bar(time, report) for time, report in reports))


def _bar(time: str, report: AvailabilityReport) -> Bar:
    whole = sum(report["seconds"].values()) or 1.0
    states = tuple(
        StateTime(word, lasted(seconds), percent(seconds / whole))
        for service, word in WORDS.items()
        if (seconds := report["seconds"][service])
    )
    unknown = report["seconds"][Service.UNKNOWN] / whole
    shown = percent(report["availability"])
    hidden = f"{percent(unknown)} of the time is not known" if unknown else ""
    if unknown > _MOSTLY and report["availability"] is not None:
        shown, hidden = percent(None), f"{shown} of the {percent(1 - unknown)} that is known"
    return Bar(
        time,
        shown,
        hidden,
        _drawn(report, f"Last {time}: available {shown}"),
        states,
        tuple(
            Away(
                WORDS[Service(each["service"])],
                when(each["since"]),
                lasted(each["until"] - each["since"]),
            )
            for each in reversed(report["not_served"])
        ),
        counted(len(report["moves"]), "move"),
    )


def _drawn(report: AvailabilityReport, label: str) -> Markup:
    begin, whole = report["since"], report["until"] - report["since"]

    def x(at: float) -> float:
        return round(min(max(0.0, (at - begin) / whole), 1.0) * _WIDE, 2)

    parts = []
    for slot in report["slots"]:
        service = Service(slot["worst"])
        high, left = _HEIGHTS[service], x(slot["since"])
        parts.append(
            drawing.node(
                "rect",
                drawing.title(_words(slot)),
                x=left,
                y=_HIGH - high,
                width=round(max(0.5, x(slot["until"]) - left - 0.8), 2),
                height=high,
                class_=service.value.lower(),
            )
        )
    for move in report["moves"]:
        at = x(move["began_at"])
        parts.append(
            drawing.node(
                "path",
                drawing.title(f"{when(move['began_at'])}: {move['group']}, {move['outcome']}"),
                d=f"M{at} {_HIGH + 1} l4 {_MARK} h-8 z",
                class_="move",
            )
        )
    return drawing.node(
        "svg",
        drawing.title(label),
        *parts,
        class_="availability",
        role="img",
        viewBox=f"0 0 {_WIDE} {_HIGH + _MARK + 2}",
        preserveAspectRatio="none",
    )


def _words(slot: Slot) -> str:
    found = [
        f"{word} {lasted(seconds)}"
        for service, word in WORDS.items()
        if (seconds := slot["seconds"][service])
    ]
    return f"{when(slot['since'])} to {when(slot['until'])}: {', '.join(found) or 'nothing'}"
