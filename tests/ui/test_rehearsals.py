# SPDX-License-Identifier: Apache-2.0
"""The page of a group's rehearsals: one in full, compared with the one before it and with the last
failover, and the list of all."""

from __future__ import annotations

import pytest

from mistral_failover.cli.stopped import in_short
from mistral_failover.ui.levels import Level
from mistral_failover.ui.rehearsals import rehearsal_rows, rehearsal_view
from support.ui_answers import (
    FAILED_REHEARSAL,
    PLANNED_REHEARSAL,
    REHEARSALS,
    TRAVERSAL,
    Answers,
    move,
    rehearsal,
    service,
    status,
)
from ui.conftest import Opened

PAGE = "/rehearsals?group=payments"


def test_a_rehearsal_is_compared_with_the_one_before_and_with_the_last_failover() -> None:
    moves = [move(moved=False), move(to_service=None), move(to_service=13.0)]

    view = rehearsal_view(REHEARSALS[0], REHEARSALS[1:], moves)

    assert (view.level, view.status) == (Level.GOOD, "PASSED")
    assert view.sentence == "db_b can take over: a failover would take 12.0 s."
    service_, measured, whole = view.times
    assert (service_.here, service_.before, service_.failover) == ("12.0 s", "11.2 s", "13.0 s")
    assert service_.change == "0.8 s longer"
    assert (measured.here, measured.before, measured.failover) == ("4.9 s", "4.1 s", "-")
    assert whole.change == "1.6 s longer"
    assert view.failover_id == TRAVERSAL
    copy = view.steps[1]
    assert (copy.what, copy.lasted, copy.before) == ("Make the copy of data", "2.6 s", "2.2 s")
    assert [(each.command, each.verdict, each.output) for each in view.checks] == [
        ("newest-row", "passed", "48213")
    ]


def test_the_steps_are_drawn_where_they_began() -> None:
    chart = rehearsal_view(REHEARSALS[1], REHEARSALS[2:], []).chart

    assert chart is not None
    (stage,) = chart.stages
    assert [(each.start, each.end) for each in stage.steps][:2] == [(0.0, 1.3), (1.3, 3.5)]
    assert chart.last == pytest.approx(0.9 * 7.7), "the end of the rehearsal before"


def test_one_that_failed_says_the_step_why_and_the_command() -> None:
    view = rehearsal_view(FAILED_REHEARSAL, REHEARSALS[1:], [])

    assert view.sentence == "db_b could not take over; failed step: Start database on the copy."
    assert view.findings[0].found.endswith("data directory has wrong permissions")
    assert [each.command for each in view.advice] == [
        "failover rehearse payments --role active --to db_b"
    ]
    assert view.times[0].here == "-"
    assert view.failover == ""


def test_it_is_compared_only_with_one_that_passed() -> None:
    ended = rehearsal(1, "ENDED", reason="a failover began", report=None)

    view = rehearsal_view(REHEARSALS[0], [ended, FAILED_REHEARSAL, REHEARSALS[2]], [])

    assert view.times[0].before == "10.8 s"


@pytest.mark.parametrize(("outcome", "words"), [("RUNNING", "It runs on db_b"), ("ENDED", "ended")])
def test_one_without_a_report_says_what_it_is(outcome: str, words: str) -> None:
    found = rehearsal(0, outcome, report=None, ended_at=None, clean=False)

    view = rehearsal_view(found, REHEARSALS, [])

    assert words in view.sentence
    assert (view.times, view.steps, view.chart) == ((), (), None)


def test_the_list_marks_the_one_that_is_shown() -> None:
    rows = rehearsal_rows(REHEARSALS, REHEARSALS[1]["rehearsal"])

    assert [row.current for row in rows] == [False, True, False]
    assert [row.to_service for row in rows] == ["12.0 s", "11.2 s", "10.8 s"]


def test_the_page_shows_the_latest_or_the_one_that_is_asked_for(opened: Opened) -> None:
    browser = opened(Answers())

    latest = browser.get(PAGE).text
    earlier = browser.get(f"{PAGE}&id={REHEARSALS[1]['rehearsal']}").text

    assert "a failover would take 12.0 s" in latest
    assert "a failover would take 11.2 s" in earlier
    assert latest.count('<tr id="rehearsal-') == 3
    assert browser.get(f"{PAGE}&id=unknown").status_code == 404


def test_a_group_that_was_never_rehearsed_shows_the_command(opened: Opened) -> None:
    page = opened(Answers(rehearsals=[])).get(PAGE).text

    assert "The failover of this group was never rehearsed." in page
    assert 'aria-label="Copy failover rehearse payments"' in page


def test_a_page_without_orders_and_one_while_a_rehearsal_runs_start_none(opened: Opened) -> None:
    running = [rehearsal(0, "RUNNING", report=None, ended_at=None, clean=False)]

    for browser in (opened(Answers(), read_only=True), opened(Answers(rehearsals=running))):
        assert "Rehearse now" not in browser.get(PAGE).text
    assert "Rehearse now" in opened(Answers()).get(PAGE).text


def test_the_order_shows_what_would_be_made_and_starts_the_workflow(opened: Opened) -> None:
    answers = Answers()
    browser = opened(answers)

    form = browser.get("/order?what=rehearse&group=payments").text
    done = browser.post("/order", what="rehearse", group="payments", because="before the weekend")

    assert f"{PLANNED_REHEARSAL['gib']} GiB of snapshots and copies" in form
    asked = {"group": "payments", "because": "before the weekend"}
    assert answers.started == [("failover.rehearse", asked)]
    assert done.url.endswith(PAGE)


def test_the_page_of_a_group_leads_to_its_rehearsals(opened: Opened) -> None:
    known = status()["rehearsal"] | {"at": 1_799_980_000.0, "status": "PASSED", "to_service": 12.0}

    def said(on: str, word: str = "SERVING") -> bool:
        found = status(rehearsal=known | {"on": [on]}, service=service(word))
        page = opened(Answers(status=found)).get("/group?name=payments").text
        assert 'href="/rehearsals?group=payments">Rehearsals</a>' in page
        return f"Rehearsed</a>: 5 h 33 min ago on {on}: 12.0 s" in page

    assert said("db_a")
    assert not said("db_b"), "it is active now, so no other member was tried"
    assert not said("db_a", "DOWN"), "other things matter"


def test_a_long_reason_ends_with_a_whole_clause(opened: Opened) -> None:
    reason = f"db_b failed the last rehearsal ({FAILED_REHEARSAL['reason']})"
    page = opened(Answers(status=status(service=service("DEGRADED", reason)))).get(
        "/group?name=payments"
    )

    assert "db_b failed the last rehearsal.</h2>" in page.text
    assert (
        in_short("one two three four, " * 5)
        == "one two three four, one two three four, one two three four"
    )
    assert in_short("word " * 20).endswith("…")
