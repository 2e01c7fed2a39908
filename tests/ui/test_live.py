# SPDX-License-Identifier: Apache-2.0
"""Live updates: an event whenever the page has changed, and nothing else."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import requests

from mistral_failover.ui import app, journal_watcher, pages
from mistral_failover.ui.action_client import ActionFailed, CachingActionClient
from support.ui_answers import NOW, Answers, history, overview, status
from ui.conftest import Browser, Opened


def events(answer: requests.Response) -> Iterator[tuple[str, str]]:
    """Return each event's name and data."""
    name, data = "", []
    for line in answer.iter_lines(chunk_size=1, decode_unicode=True):
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            data.append(line.removeprefix("data: "))
        elif not line and name:
            yield name, "\n".join(data)
            name, data = "", []


def stream(browser: Browser, path: str) -> requests.Response:
    return browser.get(f"/live?page={path}", stream=True)


def test_a_page_says_where_its_updates_are(opened: Opened) -> None:
    browser = opened()

    assert 'sse-connect="/live?name=payments&amp;page=%2Fgroup"' in (
        browser.get("/group?name=payments").text
    )
    assert "sse-connect" not in browser.get("/plan?group=payments").text
    assert '<noscript><meta http-equiv="refresh"' in browser.get("/").text


def test_a_change_is_an_event_and_a_repeat_is_none(opened: Opened) -> None:
    moving = status("IN_PROGRESS")
    answers = Answers(status=moving)
    browser = opened(answers)
    with stream(browser, "/group&name=payments") as answer:
        assert answer.headers["Content-Type"].startswith("text/event-stream")
        found = events(answer)
        assert next(found) == ("trouble", "")
        name, first = next(found)
        assert name == "page"
        assert "At work" in first
        answers.answers["status"] = status("BLOCKED", reason="no proof")
        name, second = next(found)

    assert name == "page"
    assert "no proof" in second
    assert "<html" not in second


def until_asked(answers: Answers, **inputs: Any) -> None:
    """Wait until the journal was asked for with such inputs."""
    until = time.monotonic() + 30
    while not any(
        action == "failover.history" and inputs.items() <= asked.items()
        for action, asked in list(answers.asked)
    ):
        assert time.monotonic() < until, answers.asked
        time.sleep(0.05)


def step(number: int, sentence: str) -> list[Any]:
    """Return the journal with one more step."""
    return [*history(), {**history()[-1], "id": number, "sentence": sentence}]


def test_a_step_of_the_journal_is_a_look_at_once(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "HISTORY", 9.9)
    answers = Answers()
    with stream(opened(answers), "/history") as answer:
        found = events(answer)
        assert [next(found)[0], next(found)[0]] == ["trouble", "page"]
        until_asked(answers, after=history()[-1]["id"])
        begun = time.monotonic()
        answers.answers["history"] = step(99, "a newer one")
        name, second = next(found)

    assert (name, "a newer one" in second) == ("page", True)
    assert time.monotonic() - begun < 5


def test_a_step_is_no_look_at_very_many_groups(opened: Opened) -> None:
    rows = [overview(f"group{i:03}") for i in range(201)]
    answers = Answers(groups={"overview": rows, "total": 201, "groups": [], "now": NOW})
    with stream(opened(answers), "/") as answer:
        found = events(answer)
        assert [next(found)[0], next(found)[0]] == ["trouble", "page"]
        until_asked(answers, after=history()[-1]["id"])
        looks = [action for action, _ in answers.asked].count("failover.status")
        answers.answers["history"] = step(99, "a newer one")
        until_asked(answers, after=99)
        time.sleep(0.3)

    assert [action for action, _ in answers.asked].count("failover.status") == looks


def test_the_journal_is_waited_for_once_however_many_pages_are_open_and_not_without_one(
    opened: Opened,
) -> None:
    asked: list[float] = []

    def waiting(wait: float = 0.0, **_: Any) -> Any:
        if wait:
            asked.append(time.monotonic())
            time.sleep(0.3)
        return [] if wait else history()

    browser = opened(Answers(history=waiting))
    begun = time.monotonic()
    with contextlib.ExitStack() as stack:
        streams = [events(stack.enter_context(stream(browser, "/"))) for _ in range(4)]
        assert [next(found)[0] for found in streams] == ["trouble"] * 4
        time.sleep(1.0)
        while_open = len(asked)
        took = time.monotonic() - begun
    # A stream ends when the server notices that the browser has gone.
    browser.end()

    assert 1 <= while_open <= 1 + took / 0.3
    until = time.monotonic() + 30
    while any(thread.name == "ui-journal" for thread in threading.enumerate()):
        assert time.monotonic() < until
        time.sleep(0.05)


def test_questions_without_an_answer_do_not_wait_in_mistral(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(journal_watcher, "_AWAY", 0.0)
    said: Iterator[Any] = iter([[7], "away", "away", "away", [9], [], [12]])
    waited: list[bool] = []
    enough = threading.Event()

    class Sometimes:
        def run_action(self, action: str, **inputs: Any) -> Any:
            assert action == "failover.history"
            waited.append(inputs["wait"] is not None)
            found = next(said, None)
            if found is None:
                enough.set()
            if found == "away":
                raise ActionFailed("no answer", code="STILL_RUNNING")
            return [{"id": each} for each in found or []]

        def start(self, workflow: str, **_: Any) -> str:
            raise NotImplementedError(workflow)

    steps: list[int] = []
    watching = journal_watcher.JournalWatcher(Sometimes(), lambda: steps.append(watching.number))
    with watching.watched():
        assert enough.wait(30)

    assert waited[:7] == [False, True, False, False, False, True, True]
    assert (steps, watching.number) == ([0], 1)


def test_a_mistral_that_is_away_is_said_and_taken_back(opened: Opened) -> None:
    answers = Answers(status=ActionFailed("no answer", "Start it.", "MISTRAL_UNREACHABLE"))
    with stream(opened(answers), "/group&name=payments") as answer:
        found = events(answer)
        name, told = next(found)
        assert (name, "no answer" in told) == ("trouble", True)
        answers.answers["status"] = status()
        assert next(found) == ("trouble", "")
        assert next(found)[0] == "page"


def test_a_log_out_ends_the_updates(opened: Opened) -> None:
    browser = opened()
    token = browser.csrf()
    with stream(browser, "/") as answer:
        found = events(answer)
        next(found)
        requests.post(
            f"{browser.url}/logout",
            data={"csrf": token},
            cookies=browser.session.cookies,
            timeout=10,
        )

        assert [name for name, _ in found if name not in ("page", "trouble")] == []


def test_too_many_streams_are_not_opened(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "STREAMS", 1)
    browser = opened()
    with stream(browser, "/") as first:
        found = events(first)
        next(found)
        assert stream(browser, "/").status_code == 204
    until = time.monotonic() + 8
    while (answer := stream(browser, "/")).status_code == 204 and time.monotonic() < until:
        time.sleep(0.1)
    answer.close()
    assert answer.status_code == 200


def test_a_plan_is_not_made_again_and_again(opened: Opened) -> None:
    answers = Answers()

    assert opened(answers).get("/live?page=/plan&group=payments&verb=failover").status_code == 404
    assert "failover.plan" not in [action for action, _ in answers.asked]


def test_pages_that_wait_for_the_same_failure_share_it() -> None:
    asked: list[str] = []
    waiting = threading.Barrier(5)

    class Away:
        def run_action(self, action: str, **_: Any) -> Any:
            asked.append(action)
            time.sleep(0.2)
            raise ActionFailed("no answer", code="MISTRAL_UNREACHABLE")

        def start(self, workflow: str, **_: Any) -> str:
            raise NotImplementedError(workflow)

    remembering = CachingActionClient(Away())

    def look(_: int) -> str:
        waiting.wait(5)
        with pytest.raises(ActionFailed) as refused:
            remembering.run_action("failover.status")
        return refused.value.message

    with ThreadPoolExecutor(5) as pool:
        assert list(pool.map(look, range(5))) == ["no answer"] * 5
    assert len(asked) == 1


def test_many_open_pages_ask_mistral_no_more_than_one(opened: Opened) -> None:
    asked: list[Any] = []

    def slow(**inputs: Any) -> Any:
        asked.append(inputs)
        return status()

    browser = opened(Answers(status=slow))
    begun = time.monotonic()
    for _ in range(10):
        browser.get("/group?name=payments")
    took = time.monotonic() - begun

    assert len(asked) <= 1 + took
