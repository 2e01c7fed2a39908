# SPDX-License-Identifier: Apache-2.0
"""Draw a topology and a timeline as SVG. What is drawn is also on the page in words."""

from __future__ import annotations

from markupsafe import Markup, escape

from mistral_failover.cli.base import lasted
from mistral_failover.model.text import clean
from mistral_failover.ui.plan import PlannedStep, PlanView
from mistral_failover.ui.timeline import Outcome, StageBar, Step, Timeline
from mistral_failover.ui.topology import (
    Fenced,
    ItemState,
    Kind,
    Member,
    Topology,
    TopologyItem,
    state_of,
)

_WIDE, _GAP, _PAD = 220, 60, 12  # of a member's box
_HEAD, _ITEM = 84, 40  # heights
_NAMES, _BARS, _ROW = 250, 500, 26  # the columns of a timeline, and a row's height
_TICKS = 5
_LETTERS = 22


def draw_topology(topology: Topology, label: str) -> Markup:
    """Return the members as boxes beside each other, what they have in them, and what moves as
    arrows between them."""
    most = max((len(member.items) for member in topology.members), default=0)
    high = _HEAD + max(most, 1) * _ITEM + _PAD
    lanes = 24 * len(topology.movements)
    wide = max(len(topology.members), 1) * (_WIDE + _GAP) - _GAP
    left = {each.name: i * (_WIDE + _GAP) for i, each in enumerate(topology.members)}
    boxes = [_box(each, left[each.name], high) for each in topology.members]
    arrows = [
        _arrow(move.name, left[move.source], left[move.target], high + 12 + 24 * lane)
        for lane, move in enumerate(topology.movements)
        if move.source in left and move.target in left
    ]
    return node(
        "svg",
        title(label),
        *boxes,
        *arrows,
        class_="topology",
        role="img",
        viewBox=f"-2 -2 {wide + 4} {high + lanes + 8}",
        width=wide + 4,
        height=high + lanes + 8,
    )


def _box(member: Member, x: float, high: float) -> Markup:
    states = ["lost"] if member.lost else []
    states += ["active"] if member.active else []
    states += ["fenced"] if member.fenced is not Fenced.NO else []
    words = state_of(member)
    return node(
        "g",
        title(f"{member.name}: {words}"),
        node("rect", x=x, y=0, width=_WIDE, height=high, rx=8, class_="frame"),
        text(x + _PAD, 24, shortened(member.name, _LETTERS), "name"),
        text(x + _PAD, 44, shortened(words, 30), "role"),
        text(x + _PAD, 64, f"server {member.server or 'not known'}", "server"),
        *(_item(item, x, _HEAD + i * _ITEM) for i, item in enumerate(member.items)),
        class_=" ".join(["member", *states]),
    )


def _item(item: TopologyItem, x: float, y: float) -> Markup:
    shape = _volume if item.kind is Kind.VOLUME else _block
    words = _STATES[item.state]
    detail = ", ".join(filter(None, (words, item.detail)))
    return node(
        "g",
        title(f"{item.kind} {item.name}: {detail or 'here'}"),
        shape(x + _PAD, y),
        text(x + _PAD + 38, y + 15, shortened(item.name, 20), "item-name"),
        text(x + _PAD + 38, y + 29, shortened(detail or item.kind, 26), "item-state"),
        class_=f"item {item.kind} {item.state}",
    )


def _volume(x: float, y: float) -> Markup:
    drum = f"M{x} {y + 6} v18 a14 5 0 0 0 28 0 v-18 a14 5 0 0 0 -28 0 a14 5 0 0 0 28 0"
    return node("path", d=drum, class_="shape")


def _block(x: float, y: float) -> Markup:
    return node("rect", x=x, y=y + 2, width=28, height=26, rx=4, class_="shape")


def _arrow(name: str, source: float, target: float, y: float) -> Markup:
    start, end = source + _WIDE / 2, target + _WIDE / 2
    back = 8 if end > start else -8
    line = f"M{start} {y} H{end} m{-back} -5 l{back} 5 l{-back} 5"
    middle = (start + end) / 2
    return node(
        "g",
        title(f"{name} is moving"),
        node("path", d=line, class_="way"),
        text(middle, y - 3, shortened(name, _LETTERS), "moving-name", text_anchor="middle"),
        class_="moving",
    )


def draw_timeline(timeline: Timeline, label: str) -> Markup:
    """Return a chart with a row for each stage, and below it one for each of its steps."""
    whole = max([timeline.seconds, *(stage.end for stage in timeline.stages)], default=0.0) or 1.0
    rows: list[Markup] = []
    y = 24.0
    for stage in timeline.stages:
        rows.append(_stage(stage, y, whole))
        y += _ROW
        for step in stage.steps:
            rows.append(_step(step, y, whole))
            y += _ROW
    shown = (
        [node("path", d=f"M{_x(timeline.shown.at, whole):.1f} 18 V{y}", class_="moment")]
        if timeline.shown
        else []
    )
    return node(
        "svg",
        title(label),
        *_axis(whole, y),
        *rows,
        *shown,
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


def _axis(whole: float, bottom: float) -> list[Markup]:
    found = []
    for tick in range(_TICKS + 1):
        at = whole * tick / _TICKS
        x = _x(at, whole)
        found.append(node("path", d=f"M{x:.1f} 18 V{bottom}", class_="tick"))
        found.append(text(x, 12, lasted(at), "time", text_anchor="middle"))
    return found


def _stage(stage: StageBar, y: float, whole: float) -> Markup:
    start, end = _x(stage.start, whole), _x(stage.end, whole)
    return node(
        "g",
        title(f"{stage.label}: {lasted(stage.end - stage.start)}"),
        text(0, y + 16, stage.label, "stage-name"),
        node("path", d=f"M{start:.1f} {y + 12} H{max(end, start + 1):.1f}", class_="span"),
        class_="stage",
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


_STATES = {
    ItemState.HELD: "",
    ItemState.ARRIVING: "arriving",
    ItemState.LEAVING: "leaving",
    ItemState.WANTED: "to come",
    ItemState.FAILED: "failed",
}
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
