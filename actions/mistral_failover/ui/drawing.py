# SPDX-License-Identifier: Apache-2.0
"""Draw a timeline and a plan as SVG. What is drawn is also on the page in words."""

from __future__ import annotations

import math
from dataclasses import dataclass

from markupsafe import Markup, escape

from mistral_failover.cli.base import lasted
from mistral_failover.model.text import clean
from mistral_failover.ui.plan import PlannedStep, PlanView
from mistral_failover.ui.timeline import Ahead, Outcome, StageBar, Step, Timeline

_DAY = 86400
_ROUND: tuple[float, ...] = (
    *(0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200),
    *(4 * 3600, 12 * 3600, _DAY),
)
"""Seconds between two ticks."""


@dataclass(frozen=True)
class Sheet:
    """The measures of a drawing, in pixels: the column of the ``names`` (0: each name is above its
    bar), that of the ``bars``, what is right of them, and a row's height, with its name and its bar
    in it. ``letters`` of a name, ``ticks``: at most, without the one at 0."""

    class_: str
    names: int
    bars: int
    right: int
    row: int
    name: int
    bar: int
    letters: int
    ticks: int

    @property
    def width(self) -> int:
        """Of the whole."""
        return self.names + self.bars + self.right


WIDE = Sheet("timeline wide-sheet", 250, 640, 90, 26, 17, 5, 36, 6)
NARROW = Sheet("timeline narrow-sheet", 2, 258, 60, 44, 14, 20, 42, 4)
"""For a telephone."""


@dataclass(frozen=True)
class _Scale:
    """A sheet on which ``whole`` seconds are as long as its bars."""

    sheet: Sheet
    whole: float

    def x(self, seconds: float) -> float:
        return self.sheet.names + self.sheet.bars * min(max(seconds / self.whole, 0.0), 1.0)


def draw_timeline(timeline: Timeline, label: str, sheet: Sheet = WIDE) -> Markup:
    """Return a chart with a row for each stage, and below it one for each of its steps."""
    ends = [timeline.seconds, timeline.last or 0.0]
    ends += [stage.end for stage in timeline.stages]
    ends += [step.end for stage in timeline.stages for step in stage.ahead]
    scale = _Scale(sheet, max(ends) or 1.0)
    rows: list[Markup] = []
    y = 24.0
    for stage in timeline.stages:
        if stage.label:
            rows.append(_stage(stage, y, scale))
            y += 26
        for step in stage.steps:
            rows.append(_step(step, y, scale))
            y += sheet.row
        for coming in stage.ahead:
            rows.append(_coming(coming, y, scale))
            y += sheet.row
    lines: list[Markup] = []
    if timeline.shown:
        x = scale.x(timeline.shown.at)
        lines.append(node("path", d=f"M{x:.1f} 18 V{y}", class_="moment"))
    if timeline.last is not None:
        x = scale.x(timeline.last)
        left = x > sheet.width / 2  # there is more room before the line
        said = f"last time {lasted(timeline.last)}"
        lines += [
            node("path", d=f"M{x:.1f} 18 V{y + 6}", class_="last"),
            text(
                x - 4 if left else x + 4,
                y + 18,
                said,
                "time",
                text_anchor="end" if left else "start",
            ),
        ]
        y += 16
    return _chart(label, [*_axis(scale, y), *rows, *lines], y, sheet)


def draw_plan(plan: PlanView, sheet: Sheet = WIDE) -> Markup:
    """Return a chart with a row for each step of a plan, behind those that come first. It has an
    axis if it is known how long the steps took before."""
    scale = _Scale(sheet, max((step.end for step in plan.steps), default=0.0) or 1.0)
    bottom = 24.0 + len(plan.steps) * sheet.row
    rows = [_planned(step, 24.0 + i * sheet.row, scale) for i, step in enumerate(plan.steps)]
    axis = _axis(scale, bottom) if plan.timed else []
    return _chart(f"The steps of the plan: {plan.sentence}", [*axis, *rows], bottom, sheet)


def _chart(label: str, content: list[Markup], bottom: float, sheet: Sheet) -> Markup:
    return node(
        "svg",
        title(label),
        *content,
        class_=sheet.class_,
        role="img",
        viewBox=f"0 0 {sheet.width} {bottom + 6:g}",
        width=sheet.width,
        height=bottom + 6,
    )


def _row(name: str, start: float, wide: float, y: float, sheet: Sheet) -> list[Markup]:
    """Return the name of a row and its bar."""
    left = 14 if sheet.names > 14 else 0
    return [
        text(left, y + sheet.name, shortened(name, sheet.letters), "step-name"),
        node("rect", x=start, y=y + sheet.bar, width=wide, height=16, rx=3, class_="bar"),
    ]


def _planned(step: PlannedStep, y: float, scale: _Scale) -> Markup:
    start, end = scale.x(step.start), scale.x(step.end)
    wide = max(end - start - 1, 3.0)
    return node(
        "g",
        title(
            f"{step.number}. {step.what}. After steps: {step.after}. Took before: {step.expected}"
        ),
        *_row(f"{step.number}. {step.what}", start, wide, y, scale.sheet),
        class_="step planned" if step.certain else "step maybe",
    )


def ticks(whole: float, most: int = WIDE.ticks) -> list[float]:
    """Return round numbers of seconds, evenly spaced from 0 to at most ``whole`` seconds; ``most``
    of them besides 0."""
    wide = next((each for each in _ROUND if whole / each <= most), None)
    if wide is None:
        wide = math.ceil(whole / most / _DAY) * _DAY
    return [number * wide for number in range(math.floor(whole / wide) + 1)]


def _axis(scale: _Scale, bottom: float) -> list[Markup]:
    found = []
    for at in ticks(scale.whole, scale.sheet.ticks):
        x = scale.x(at)
        found.append(node("path", d=f"M{x:.1f} 18 V{bottom}", class_="tick"))
        # The first one of a sheet without a column of names would be cut.
        anchor = "middle" if x > 14 else "start"
        found.append(text(x, 12, _tick(at), "time", text_anchor=anchor))
    return found


def _tick(at: float) -> str:
    if at < 60:
        return f"{at:g} s"
    minutes, seconds = divmod(round(at), 60)
    hours, minutes = divmod(minutes, 60)
    parts = ((hours, "h"), (minutes, "min"), (seconds, "s"))
    return " ".join(f"{number} {unit}" for number, unit in parts if number)


def _stage(stage: StageBar, y: float, scale: _Scale) -> Markup:
    start, end = scale.x(stage.start), scale.x(stage.end)
    name = text(0, y + 16, stage.label, "stage-name")
    if not stage.steps:
        return node("g", title(f"{stage.label}: to come"), name, class_="stage ahead")
    beside = scale.sheet.names > 14  # else the line would cross the name
    line = node("path", d=f"M{start:.1f} {y + 12} H{max(end, start + 1):.1f}", class_="span")
    return node(
        "g",
        title(f"{stage.label}: {lasted(stage.end - stage.start)}"),
        name,
        *([line] if beside else []),
        class_="stage",
    )


def _coming(step: Ahead, y: float, scale: _Scale) -> Markup:
    sheet, start, end = scale.sheet, scale.x(step.start), scale.x(step.end)
    wide = max(end - start, 10.0)
    left = start > sheet.names + sheet.bars / 2  # there is more room for the words before it
    return node(
        "g",
        title(f"{step.label}: {step.note}"),
        *_row(step.label, start, wide, y, sheet),
        text(
            start - 6 if left else start + wide + 6,
            y + sheet.bar + 12,
            shortened(step.note, 44),
            "length",
            text_anchor="end" if left else "start",
        ),
        class_="step ahead",
    )


def _step(step: Step, y: float, scale: _Scale) -> Markup:
    sheet, start, end = scale.sheet, scale.x(step.start), scale.x(step.end)
    wide, bar = max(end - start, 3.0), y + sheet.bar
    waited = scale.x(max(0.0, step.start - step.lock_wait))
    lock = (
        [node("path", d=f"M{waited:.1f} {bar + 8} H{start:.1f}", class_="lock-wait")]
        if step.lock_wait > 0
        else []
    )
    star = "◆ " if step.critical else ""
    told = "; ".join(
        (f"{step.label}: {_OUTCOMES[step.outcome]} {lasted(step.seconds)}", *step.notes)
    )
    again = f" ×{step.attempts}" if step.attempts > 1 else ""
    classes = ["step", step.outcome.value, *(["critical"] if step.critical else [])]
    return node(
        "g",
        title(told),
        *lock,
        *_row(f"{star}{step.label}", start, wide, y, sheet),
        *(
            node("path", d=f"M{scale.x(mark.at):.1f} {bar - 2} v20", class_="mark")
            for mark in step.marks
        ),
        text(start + wide + 6, bar + 12, f"{lasted(step.seconds)}{again}", "length"),
        class_=" ".join(classes),
    )


_OUTCOMES = {
    Outcome.DONE: "done in",
    Outcome.RUNNING: "running for",
    Outcome.FAILED: "failed after",
    Outcome.UNKNOWN: "outcome unknown, for",
}


def node(tag: str, *content: str | Markup, **attributes: object) -> Markup:
    """Return an element. ``attributes``: their names with ``_`` in place of ``-``, and ``class_``
    for class; those that are None are left out. Content that is no Markup is text.

    There are no styles and no handlers: the page's Content-Security-Policy forbids them.
    """
    named = Markup("").join(
        Markup(' {}="{}"').format(name.rstrip("_").replace("_", "-"), _plain(value))
        for name, value in attributes.items()
        if value is not None
    )
    inner = Markup("").join(
        escape(each if isinstance(each, Markup) else clean(each)) for each in content
    )
    return Markup("<{0}{1}>{2}</{0}>").format(Markup(tag), named, inner)  # noqa: S704 - our own


def text(x: float, y: float, said: str, class_: str, **attributes: object) -> Markup:
    """Return a text."""
    return node("text", said, x=x, y=y, class_=class_, **attributes)


def shortened(said: str, letters: int) -> str:
    """Return a text of at most that many letters; the whole belongs into a `title`."""
    return said if len(said) <= letters else f"{said[: letters - 1]}…"


def title(said: str) -> Markup:
    """Return an element that browsers show as a tooltip, and screen readers read."""
    return node("title", said)


def _plain(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.1f}".removesuffix(".0")
    return clean(str(value))
