# SPDX-License-Identifier: Apache-2.0
"""The drawings: what is in them, not where."""

from __future__ import annotations

import xml.etree.ElementTree as ET  # noqa: S405 - of our own making

import pytest
from markupsafe import Markup

from mistral_failover.ui.drawing import (
    NARROW,
    WIDE,
    draw_plan,
    draw_timeline,
    node,
    shortened,
    ticks,
)
from mistral_failover.ui.plan import plan_view
from mistral_failover.ui.timeline import timeline
from support.ui_answers import operation, plan, step_ahead, traversal


def bars(drawing: Markup) -> list[tuple[float, float]]:
    """Return where each bar begins and ends."""
    root = ET.fromstring(str(drawing))  # noqa: S314 - of our own making
    found = [each for each in root.iter("rect") if each.get("class") == "bar"]
    places = [(float(each.get("x", 0)), float(each.get("width", 0))) for each in found]
    return [(x, x + wide) for x, wide in places]


def outline(drawing: Markup) -> list[str]:
    """Return the class of each group, and its tooltip; raises if it is no XML."""
    root = ET.fromstring(str(drawing))  # noqa: S314 - of our own making
    return [
        f"{group.get('class')}: {title.text}"
        for group in root.iter("g")
        if (title := group.find("title")) is not None
    ]


def test_a_timeline_has_a_row_for_each_stage_and_step() -> None:
    found = outline(draw_timeline(timeline(traversal()), "payments"))

    assert found == [
        "stage: Fence: 4.0 s",
        "step done critical: Fence db_a: done in 4.0 s",
        "stage: Move volumes: 3.0 s",
        "step done critical: Detach data from db_a: done in 1.0 s",
        "step done critical: Attach data to db_b: done in 2.0 s; 3 attempts; "
        "Attach data to db_b waits for Nova",
        "stage: Activate: 1.0 s",
        "step done: Start database on db_b: done in 1.0 s",
    ]


RUNNING = traversal(
    status="IN_PROGRESS",
    ended_at=None,
    seconds=6.0,
    operations=[operation("create", "fence:db_a", "fence", None, "fence", 0, None)],
    ahead=[
        step_ahead("Detach data from db_a", "move_volumes", "Fence db_a", expected=2.0),
        step_ahead("Attach data to db_b", "move_volumes", "Detach data from db_a"),
    ],
    last_failover=8.2,
)


def test_the_steps_to_come_are_behind_what_they_wait_for() -> None:
    drawn = draw_timeline(timeline(RUNNING), "payments")

    assert outline(drawn)[1:] == [
        "step running critical: Fence db_a: running for 6.0 s",
        "stage ahead: Move volumes: to come",
        "step ahead: Detach data from db_a: waits for Fence db_a",
        "step ahead: Attach data to db_b: waits for Detach data from db_a",
    ]
    fence, detach, attach = bars(drawn)
    assert fence[1] <= detach[0]
    assert detach[1] <= attach[0] + 0.2, "but for rounding"


def test_the_last_failover_is_a_line_to_compare_with() -> None:
    with_it = str(draw_timeline(timeline(RUNNING), "payments"))

    assert 'class="last"' in with_it
    assert "last time 8.2 s" in with_it
    assert 'class="last"' not in str(draw_timeline(timeline(traversal()), "payments"))


@pytest.mark.parametrize("whole", [0.04, 0.7, 1.0, 8.0, 59.0, 90.0, 3000.0, 90000.0, 4e6])
def test_ticks_are_at_round_seconds(whole: float) -> None:
    found = ticks(whole)

    assert found[0] == 0
    assert 1 <= len(found) <= 7
    assert found[-1] <= whole
    assert whole < 1 or all(float(at).is_integer() for at in found if whole >= 6)


def test_a_telephone_gets_the_same_rows_on_a_narrow_sheet() -> None:
    wide, narrow = (draw_timeline(timeline(RUNNING), "x", sheet) for sheet in (WIDE, NARROW))

    assert outline(narrow) == outline(wide)
    assert all(start >= 0 and end <= NARROW.width for start, end in bars(narrow))


def test_what_is_drawn_is_also_said_without_colours() -> None:
    text = str(draw_timeline(timeline(traversal()), "payments"))

    assert "◆ Attach data to db_b" in text
    assert "2.0 s ×3" in text


def test_a_plan_is_drawn_in_the_order_of_its_steps_before_anything_happens() -> None:
    drawn = draw_plan(plan_view(plan()))

    assert outline(drawn) == [
        "step planned: 1. Fence db_b. After steps: at once. Took before: not known",
        "step maybe: 2. Detach data from db_b (if needed). After steps: 1. Took before: 0.2 s",
    ]
    fence, detach = bars(drawn)
    assert detach[0] >= fence[1], "one after the other"
    assert "tick" not in str(drawn), "how long the fence takes is not known"


def test_a_plan_whose_steps_were_timed_has_an_axis() -> None:
    steps = [
        row | {"expected": seconds}
        for row, seconds in zip(plan()["steps"], (3.0, 1.0), strict=True)
    ]
    drawn = draw_plan(plan_view(plan(steps=steps)))

    fence, detach = bars(drawn)
    assert 2.8 < (fence[1] - fence[0]) / (detach[1] - detach[0]) < 3.2
    assert "tick" in str(drawn)


def test_a_drawing_of_nothing_is_a_drawing() -> None:
    assert outline(draw_timeline(timeline(traversal(operations=[], seconds=0.0)), "x")) == []


def test_a_bar_of_no_length_is_seen() -> None:
    at_once = operation("create", "data", "volume_attachment", "db_b", "move_volumes", 5, 5)
    root = ET.fromstring(str(draw_timeline(timeline(traversal(operations=[at_once])), "x")))  # noqa: S314

    (bar,) = (rect for rect in root.iter("rect") if rect.get("class") == "bar")
    assert float(bar.get("width", 0)) >= 3


def test_texts_and_attributes_are_escaped_in_one_place() -> None:
    assert node("text", "<a>&\x1b", class_='"x"', text_anchor="end", x=1.5, y=None) == (
        '<text class="&#34;x&#34;" text-anchor="end" x="1.5">&lt;a&gt;&amp;\\x1b</text>'
    )
    assert shortened("abcdef", 4) == "abc…"
    assert shortened("abcd", 4) == "abcd"
