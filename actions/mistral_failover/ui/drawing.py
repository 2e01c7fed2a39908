# SPDX-License-Identifier: Apache-2.0
"""Draw a timeline and a plan as SVG. What is drawn is also on the page in words."""

from __future__ import annotations

import math

from markupsafe import Markup, escape

from mistral_failover.cli.base import lasted
from mistral_failover.model.text import clean
from mistral_failover.ui.plan import PlannedStep, PlanView
from mistral_failover.ui.timeline import Ahead, Outcome, StageBar, Step, Timeline

_NAMES, _BARS, _ROW = 250, 500, 26  # the columns of a timeline, and a row's height
_TICKS = 6  # at most, without the one at 0
_DAY = 86400
_ROUND: tuple[float, ...] = (
    *(0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200),
    *(4 * 3600, 12 * 3600, _DAY),
)
"""Seconds between two ticks."""


def draw_timeline(timeline: Timeline, label: str) -> Markup:
    """Return a chart with a row for each stage, and below it one for each of its steps."""
    ends = [timeline.seconds, timeline.last or 0.0]
    ends += [stage.end for stage in timeline.stages]
    ends += [step.end for stage in timeline.stages for step in stage.ahead]
    whole = max(ends) or 1.0
    rows: list[Markup] = []
    y = 24.0
    for stage in timeline.stages:
        rows.append(_stage(stage, y, whole))
        y += _ROW
        for step in stage.steps:
            rows.append(_step(step, y, whole))
            y += _ROW
        for coming in stage.ahead:
            rows.append(_coming(coming, y, whole))
            y += _ROW
    lines: list[Markup] = []
    if timeline.shown:
        x = _x(timeline.shown.at, whole)
        lines.append(node("path", d=f"M{x:.1f} 18 V{y}", class_="moment"))
    if timeline.last is not None:
        x = _x(timeline.last, whole)
        lines += [
            node("path", d=f"M{x:.1f} 18 V{y + 6}", class_="last"),
            text(x, y + 18, f"last time {lasted(timeline.last)}", "time", text_anchor="end"),
        ]
        y += 16
    return node(
        "svg",
        title(label),
        *_axis(whole, y),
        *rows,
        *lines,
        class_="timeline",
        role="img",
        viewBox=f"0 0 {_NAMES + _BARS + 90} {y + 6:g}",
        width=_NAMES + _BARS + 90,
        height=y + 6,
    )


def draw_plan(plan: PlanView) -> Markup:
    """Return a chart with a row for each step of a plan, behind those that come first. It has an
    axis if it is known how long the steps took before."""
    whole = max((step.end for step in plan.steps), default=0.0) or 1.0
    bottom = 24.0 + len(plan.steps) * _ROW
    rows = [_planned(step, 24.0 + i * _ROW, whole) for i, step in enumerate(plan.steps)]
    return node(
        "svg",
        title(f"The steps of the plan: {plan.sentence}"),
        *(_axis(whole, bottom) if plan.timed else []),
        *rows,
        class_="timeline",
        role="img",
        viewBox=f"0 0 {_NAMES + _BARS + 90} {bottom + 6:g}",
        width=_NAMES + _BARS + 90,
        height=bottom + 6,
    )


def _planned(step: PlannedStep, y: float, whole: float) -> Markup:
    start, end = _x(step.start, whole), _x(step.end, whole)
    wide = max(end - start - 1, 3.0)
    return node(
        "g",
        title(
            f"{step.number}. {step.what}. After steps: {step.after}. Took before: {step.expected}"
        ),
        text(0, y + 17, shortened(f"{step.number}. {step.what}", 36), "step-name"),
        node("rect", x=start, y=y + 5, width=wide, height=16, rx=3, class_="bar"),
        class_="step planned" if step.certain else "step maybe",
    )


def _x(seconds: float, whole: float) -> float:
    return _NAMES + _BARS * min(max(seconds / whole, 0.0), 1.0)


def ticks(whole: float) -> list[float]:
    """Return round numbers of seconds, evenly spaced from 0 to at most ``whole`` seconds."""
    wide = next((each for each in _ROUND if whole / each <= _TICKS), None)
    if wide is None:
        wide = math.ceil(whole / _TICKS / _DAY) * _DAY
    return [number * wide for number in range(math.floor(whole / wide) + 1)]


def _axis(whole: float, bottom: float) -> list[Markup]:
    found = []
    for at in ticks(whole):
        x = _x(at, whole)
        found.append(node("path", d=f"M{x:.1f} 18 V{bottom}", class_="tick"))
        found.append(text(x, 12, _tick(at), "time", text_anchor="middle"))
    return found


def _tick(at: float) -> str:
    if at < 60:
        return f"{at:g} s"
    minutes, rest = divmod(round(at), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def _stage(stage: StageBar, y: float, whole: float) -> Markup:
    start, end = _x(stage.start, whole), _x(stage.end, whole)
    name = text(0, y + 16, stage.label, "stage-name")
    if not stage.steps:
        return node("g", title(f"{stage.label}: to come"), name, class_="stage ahead")
    return node(
        "g",
        title(f"{stage.label}: {lasted(stage.end - stage.start)}"),
        name,
        node("path", d=f"M{start:.1f} {y + 12} H{max(end, start + 1):.1f}", class_="span"),
        class_="stage",
    )


def _coming(step: Ahead, y: float, whole: float) -> Markup:
    start, end = _x(step.start, whole), _x(step.end, whole)
    wide = max(end - start, 10.0)
    left = start > _NAMES + _BARS / 2  # there is more room for the words before it
    return node(
        "g",
        title(f"{step.label}: {step.note}"),
        text(14, y + 17, shortened(step.label, 36), "step-name"),
        node("rect", x=start, y=y + 5, width=wide, height=16, rx=3, class_="bar"),
        text(
            start - 6 if left else start + wide + 6,
            y + 17,
            shortened(step.note, 44),
            "length",
            text_anchor="end" if left else "start",
        ),
        class_="step ahead",
    )


def _step(step: Step, y: float, whole: float) -> Markup:
    start, end = _x(step.start, whole), _x(step.end, whole)
    wide = max(end - start, 3.0)
    waited = _x(max(0.0, step.start - step.lock_wait), whole)
    lock = (
        [node("path", d=f"M{waited:.1f} {y + 13} H{start:.1f}", class_="lock-wait")]
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
        text(14, y + 17, shortened(f"{star}{step.label}", 36), "step-name"),
        *lock,
        node("rect", x=start, y=y + 5, width=wide, height=16, rx=3, class_="bar"),
        *(
            node("path", d=f"M{_x(mark.at, whole):.1f} {y + 3} v20", class_="mark")
            for mark in step.marks
        ),
        text(start + wide + 6, y + 17, f"{lasted(step.seconds)}{again}", "length"),
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
