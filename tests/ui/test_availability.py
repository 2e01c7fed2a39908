# SPDX-License-Identifier: Apache-2.0
"""The bars of a day and a month, and the history's rows: on the page, and in words."""

from __future__ import annotations

import re
from typing import Any

import pytest

from mistral_failover.ui import pages
from mistral_failover.ui.action_client import ActionFailed
from mistral_failover.ui.availability import DAY, availability_view
from mistral_failover.ui.history import move_rows
from mistral_failover.ui.levels import Level
from support.ui_answers import Answers, availability, move
from ui.conftest import Opened


def test_a_bar_has_a_part_for_each_slot_and_a_mark_for_each_move() -> None:
    (bar,) = availability_view([("24 hours", availability("payments"))]).bars
    parts = [
        (float(x), float(width), name)
        for x, width, name in re.findall(
            r'<rect x="([\d.]+)" y="\d+" width="([\d.]+)"[^>]*class="(\w+)"', bar.svg
        )
    ]

    assert [name for _, _, name in parts] == ["unknown"] * 3 + ["serving"] * 17 + ["down"] + [
        "serving"
    ] * 3
    for (x, width, _), (after, _, _) in zip(parts, parts[1:], strict=False):
        assert 0 < width <= after - x, "parts do not overlap"
    assert parts[-1][0] + parts[-1][1] <= 600
    assert bar.svg.count('class="move"') == 1
    assert "down 1 min 30 s" in bar.svg


def test_what_a_bar_shows_is_also_there_in_words() -> None:
    (bar,) = availability_view([("30 days", availability("payments", 30 * DAY))]).bars

    assert [row.word for row in bar.states] == ["served", "down", "not known"]
    assert bar.availability == "99.996 %"
    assert bar.hidden == "10 % of the time is not known"
    assert [(row.word, row.lasted) for row in bar.away] == [("down", "1 min 30 s")]


def test_the_pages_of_a_group_and_of_all_groups_have_both_bars(opened: Opened) -> None:
    answers = Answers()
    browser = opened(answers)
    for path, group in (("/group?name=payments", "payments"), ("/", None)):
        page = browser.get(path).text

        assert page.count('<svg class="availability"') == 2
        assert "Last 24 hours" in page
        assert "Last 30 days in words" in page
        asked = [each.get("group") for name, each in answers.asked if "availability" in name]
        assert asked.count(group) == 2
    browser.get("/")
    asked = [each for name, each in answers.asked if name == "failover.availability"]
    assert len(asked) == 4, "a bar of a month does not change within a minute"


def test_a_page_has_the_rest_where_the_bars_cannot_be_read(opened: Opened) -> None:
    answers = Answers(availability=ActionFailed("Mistral has no such action.", "", "NO"))
    page = opened(answers).get("/group?name=payments").text

    assert "It cannot be shown: Mistral has no such action." in page
    assert "Members" in page


@pytest.mark.parametrize(
    ("given", "level", "waited"),
    [
        ({}, Level.GOOD, ("1 min 00 s for the start",)),
        (
            {
                "outcome": "BLOCKED",
                "to_service": None,
                "waited": {"alarm": 0, "person": 9, "lock": 2},
            },
            Level.TROUBLE,
            ("9.0 s for a person", "2.0 s for a lock"),
        ),
        (
            {"outcome": "RETURNED", "waited": {"alarm": 0, "person": 0, "lock": 0}},
            Level.ATTENTION,
            (),
        ),
    ],
)
def test_a_row_of_the_history_says_for_what_it_waited(
    given: dict[str, Any], level: Level, waited: tuple[str, ...]
) -> None:
    (row,) = move_rows([move(**given)])  # type: ignore[list-item]

    assert row.level is level
    assert row.waited == waited


def test_the_page_of_the_history_begins_with_a_row_for_each_alarm_and_order(opened: Opened) -> None:
    answers = Answers()
    page = opened(answers).get("/history?group=payments").text

    assert "aodh: db_a is lost" in page
    assert "1 min 50 s" in page
    assert "2 min 00 s" in page
    assert "1 min 00 s for the start" in page
    assert ("failover.moves", {"group": "payments", "limit": pages._MOVES}) in answers.asked
