# SPDX-License-Identifier: Apache-2.0
"""What runs now in all groups: each step with its limit, each wait with its reason, what waits
for an operator."""

from __future__ import annotations

from typing import Any

import pytest

from mistral_failover.cli.base import when
from mistral_failover.ui.levels import Level
from mistral_failover.ui.work import WorkRow, work_view
from support.ui_answers import NOW, WAIT, Answers, overview, under_way
from ui.conftest import Opened

ATTACH = "Attach data to db_b"


def rows(**more: Any) -> tuple[WorkRow, ...]:
    return work_view([overview("payments", "IN_PROGRESS", **more)], NOW).rows


def test_a_step_shows_since_when_it_runs_and_how_long_it_may() -> None:
    (row,) = rows(under_way=[under_way(ATTACH, 12.0, attempts=2)])

    assert (row.group, row.step, row.state, row.level) == (
        "payments",
        ATTACH,
        "running",
        Level.WORKING,
    )
    assert (row.lasting, row.limit, row.notes) == ("12.0 s", "1 min 00 s", ("2 attempts",))


def test_a_step_that_takes_longer_than_its_limit_stands_out() -> None:
    (row,) = rows(under_way=[under_way(ATTACH, 61.0)])

    assert row.level is Level.ATTENTION
    assert row.notes == ("it takes longer than its limit",)


@pytest.mark.parametrize("limit", [None, 24 * 3600.0])
def test_a_limit_that_is_not_known_or_says_nothing_is_not_shown(limit: float | None) -> None:
    (row,) = rows(under_way=[under_way(ATTACH, 61.0, limit=limit)])

    assert (row.level, row.limit, row.notes) == (Level.WORKING, "", ())


def test_a_step_that_a_service_does_not_answer_waits_for_it() -> None:
    waits = {"waiting_for": "Cinder: HTTP 503", "waiting_since": NOW - 5}
    (row,) = rows(under_way=[under_way(ATTACH, 12.0, **waits)])

    assert (row.level, row.state) == (Level.ATTENTION, "waits")
    assert row.notes == (f"for Cinder: HTTP 503 since {when(NOW - 5)}",)


def test_a_wait_shows_its_reason_and_the_next_attempt() -> None:
    (row,) = rows(waiting=[WAIT])

    assert (row.step, row.state, row.lasting) == (ATTACH, "waits", "40.0 s")
    assert row.notes == ("for Nova", "next try in 5.0 s", "3 attempts")


def test_a_step_of_unknown_outcome_that_is_tried_again_is_one_row() -> None:
    (row,) = rows(waiting=[WAIT], under_way=[under_way(ATTACH, 50.0, status="unknown")])

    assert row.state == "waits"


def test_a_step_that_waits_for_a_lock_names_the_owner() -> None:
    waits = {"resource": "data", "deferred_to": "executor 7", "deferred_at": NOW - 3}
    (row,) = rows(deferred=[waits])

    assert (row.step, row.notes) == ("data", ("for the lock of executor 7",))


def test_a_step_that_may_start_and_has_not_says_what_it_waits_for() -> None:
    node = {"node": "update:r1", "resource": "data", "member": "db_b"}
    (row,) = rows(ready=[{**node, "services": ["Cinder", "Nova"]}])

    assert (row.step, row.state, row.level) == ("data on db_b", "ready", Level.WORKING)
    assert row.notes == ("for a free worker, or room in the budget of Cinder and Nova",)


def test_a_group_in_progress_in_which_no_step_runs_is_not_forgotten() -> None:
    (row,) = rows()

    assert (row.group, row.step, row.state) == ("payments", "", "no step runs")


def test_the_longest_step_of_all_groups_comes_first_and_groups_at_rest_have_none() -> None:
    groups = [
        overview("books"),
        overview("ledger", "IN_PROGRESS", under_way=[under_way("short", 1.0)]),
        overview("shop", "IN_PROGRESS", under_way=[under_way("long", 50.0)]),
    ]

    assert [row.step for row in work_view(groups, NOW).rows] == ["long", "short"]


def test_groups_that_wait_for_an_operator_are_above_with_their_reason(opened: Opened) -> None:
    groups = [
        overview("ledger", "BLOCKED", reason="no proof that db_a is off", since=NOW - 600),
        overview("payments", "IN_PROGRESS", under_way=[under_way(ATTACH, 12.0)]),
        overview("shop", "FAILED", reason="the volume is in error", since=NOW - 30),
    ]
    browser = opened(Answers(groups={"overview": groups, "total": 3, "groups": [], "now": NOW}))

    page = browser.get("/work").text

    waiting, _, running = page.partition("<table")
    assert waiting.index("no proof that db_a is off") < waiting.index("the volume is in error")
    assert "10 min" in waiting
    assert 'href="/group?name=ledger"' in waiting
    assert ATTACH in running
    assert "sse-connect" in page
    assert 'href="/work" aria-current="page"' in page


def test_all_groups_are_looked_at_by_one_question(opened: Opened) -> None:
    answers = Answers()
    page = opened(answers).get("/work").text

    assert "Nothing runs, and no group waits for you." in page
    asked = {action for action, _ in answers.asked}
    assert asked <= {"failover.status", "failover.held", "failover.availability"}
    assert all("group" not in asked for _, asked in answers.asked)
