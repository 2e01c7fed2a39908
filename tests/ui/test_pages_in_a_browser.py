# SPDX-License-Identifier: Apache-2.0
"""The pages in a real Chromium: live updates, narrow screens, the policy, the keyboard.

Needs Chromium and playwright: ``make test-ui``. It leaves screenshots in ``build/ui``.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from typing import Any

import pytest

from mistral_failover.ui import pages
from support.chromium import executable
from support.pages import ROOT
from support.ui_answers import (
    BEFORE,
    HOST_EVENT,
    MOVING,
    NOW,
    TRAVERSAL,
    WAIT,
    Answers,
    held,
    history,
    host_event,
    operation,
    overview,
    status,
    traversal,
    under_way,
)
from ui.conftest import Browser, Opened

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]
playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = executable()
if CHROMIUM is None:
    pytest.skip("chromium is not installed", allow_module_level=True)

SHOTS = ROOT / "build" / "ui"
RUNNING = traversal(
    status="IN_PROGRESS",
    ended_at=None,
    seconds=90.0,
    operations=[
        operation("create", "fence:db_a", "fence", None, "fence", 0, 40),
        operation("delete", "data", "volume_attachment", "db_a", "move_volumes", 41, None),
    ],
)
BLOCKED = status(
    "BLOCKED",
    reason="fence db_a: no rung proved that it is off [FENCE_UNPROVEN]",
    resources=MOVING,
    lost=["db_a"],
    held=1,
    remedies=[
        {
            "resource": "fence:db_a",
            "member": "db_a",
            "reason": "no proof",
            "command": "failover confirm-fenced payments db_a --because '...'",
        }
    ],
)
PATHS = {
    "groups": "/",
    "group": "/group?name=payments",
    "timeline": f"/timeline?id={TRAVERSAL}",
    "replay": f"/timeline?id={TRAVERSAL}&step=6",
    "plan": "/plan?group=payments&verb=failover&lost=db_b",
    "rollback": f"/plan?group=payments&verb=rollback&goal={BEFORE}&recovered.db_a=on",
    "goals": "/goals?group=payments",
    "work": "/work",
    "host": f"/alarm?id={HOST_EVENT}",
    "history": "/history",
    "order": "/order?what=confirm-fenced&group=payments&member=db_a",
}

BUSY = [
    overview("ledger", "BLOCKED", reason="no proof that db_a is off [FENCE_UNPROVEN]"),
    overview("payments", "IN_PROGRESS", under_way=[under_way("attach volume: data on db_b", 90.0)]),
    overview("shop", "IN_PROGRESS", waiting=[WAIT | {"waiting_for": "the volume service " * 5}]),
]
MORE: dict[str, dict[str, Any]] = {
    "host": {"show": host_event()},
    "work": {"groups": {"overview": BUSY, "total": 3, "groups": [], "now": NOW}},
}
"""What a page is shown besides."""


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """The browser."""
    with playwright.sync_playwright() as started:
        sandbox = os.geteuid() != 0  # as root Chromium has none
        found = started.chromium.launch(executable_path=CHROMIUM, chromium_sandbox=sandbox)
        yield found
        found.close()


class Tab:
    """A page that is logged in; ``wrong`` has what the browser's console complained about."""

    def __init__(self, chromium: Any, browser: Browser, **context: Any) -> None:
        self.url = browser.url
        self.context = chromium.new_context(**context)
        self.page = self.context.new_page()
        self.wrong: list[str] = []
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.goto(browser.links[-1])

    def _console(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.wrong.append(message.text)

    def open(self, path: str) -> None:
        """Open an address of the server."""
        self.page.goto(f"{self.url}{path}")

    def shot(self, name: str) -> None:
        """Take a screenshot."""
        SHOTS.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=str(SHOTS / f"{name}.png"), full_page=True)


@pytest.mark.parametrize("name", PATHS)
def test_a_page_obeys_its_policy_and_fits(chromium: Any, opened: Opened, name: str) -> None:
    answers = Answers(status=BLOCKED, held={"held": [held()], "total": 1})
    answers.answers |= MORE.get(name, {})
    tab = Tab(chromium, opened(answers, login=False))

    for width, scheme in itertools.product((1280, 360), ("light", "dark")):
        tab.page.set_viewport_size({"width": width, "height": 800})
        tab.page.emulate_media(color_scheme=scheme)
        tab.open(PATHS[name])

        tab.shot(f"{name}-{width}-{scheme}")
        assert tab.wrong == []
        assert tab.page.evaluate("document.documentElement.scrollWidth") <= width, scheme
        assert tab.page.evaluate("typeof htmx") == "object"
    tab.context.close()


@pytest.mark.parametrize("width", [1130, 1000, 800])
def test_no_word_of_the_groups_is_broken(chromium: Any, opened: Opened, width: int) -> None:
    tab = Tab(chromium, opened(login=False), viewport={"width": width, "height": 800})
    tab.open("/")

    for words in ("payments", "COMPLETE"):
        lines = tab.page.get_by_text(words, exact=True).first.evaluate(
            "each => { const range = document.createRange(); range.selectNodeContents(each);"
            " return range.getClientRects().length }"
        )
        assert lines == 1, words
    tab.context.close()


def test_a_page_changes_without_a_reload(chromium: Any, opened: Opened) -> None:
    answers = Answers(status=status("IN_PROGRESS", resources=MOVING), show=RUNNING)
    tab = Tab(chromium, opened(answers, login=False))
    tab.open("/group?name=payments")
    tab.page.evaluate("window.same = true")
    tab.page.locator("summary").first.click()
    assert tab.page.locator(".moving").count() == 1

    answers.answers |= {"status": status(), "show": traversal()}
    tab.page.get_by_text("Not stuck: active on db_b.").wait_for(timeout=10_000)

    assert tab.page.locator(".moving").count() == 0
    assert tab.page.locator("details").first.get_attribute("open") is not None
    assert tab.page.evaluate("window.same") is True
    assert tab.wrong == []
    tab.context.close()


def test_an_entry_that_was_opened_stays_open_when_newer_ones_come(
    chromium: Any, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "HISTORY", 0.5)
    answers = Answers()
    tab = Tab(chromium, opened(answers, login=False))
    tab.open("/history")
    tab.page.get_by_text("11 entries").click()

    newer = {"traversal_id": "newer", "sentence": "a newer failover", "resource_id": None}
    rows = [row | newer | {"id": 100 + row["id"]} for row in history()[:2]]
    answers.answers["history"] = [*history(), *rows]
    tab.page.get_by_text("2 entries").wait_for(timeout=10_000)

    open_ones = tab.page.locator("details[open] summary").all_inner_texts()
    assert open_ones == ["11 entries"]
    assert tab.wrong == []
    tab.context.close()


def test_an_update_leaves_what_is_being_typed(chromium: Any, opened: Opened) -> None:
    answers = Answers()
    tab = Tab(chromium, opened(answers, login=False))
    tab.open("/")
    tab.page.get_by_label("Search").fill("pay")
    tab.page.get_by_label("Order").select_option("name")

    rows = [overview("payments", "BLOCKED", reason="no proof")]
    answers.answers["groups"] = {"overview": rows, "total": 1, "groups": [], "now": NOW}
    tab.page.get_by_text("no proof").wait_for(timeout=10_000)

    assert tab.page.get_by_label("Search").input_value() == "pay"
    assert tab.page.get_by_label("Order").input_value() == "name"
    tab.context.close()


def test_a_page_without_updates_says_so(chromium: Any, opened: Opened) -> None:
    browser = opened(login=False)
    tab = Tab(chromium, browser)
    tab.open("/")
    assert tab.page.locator("#stale").is_hidden()

    browser.end()

    tab.page.locator("#stale").wait_for(state="visible", timeout=10_000)
    tab.context.close()


def test_the_keyboard_reaches_the_content_first(chromium: Any, opened: Opened) -> None:
    tab = Tab(chromium, opened(login=False))
    tab.open("/")

    tab.page.keyboard.press("Tab")
    assert tab.page.evaluate("document.activeElement.textContent") == "Skip to the content"
    tab.page.keyboard.press("Enter")
    tab.page.keyboard.press("Tab")
    assert tab.page.evaluate("document.activeElement.name") == "text"
    tab.context.close()


def test_without_javascript_everything_can_be_read(chromium: Any, opened: Opened) -> None:
    tab = Tab(chromium, opened(login=False), java_script_enabled=False)
    tab.open("/")
    tab.page.get_by_role("link", name="payments").click()

    assert tab.page.locator("h1").inner_text().startswith("payments")
    tab.page.get_by_text("The same as a table").click()
    assert tab.page.get_by_role("rowheader", name="Attach data to db_b").is_visible()
    tab.context.close()


def test_an_order_is_given_by_its_form(chromium: Any, opened: Opened) -> None:
    answers = Answers(status=BLOCKED)
    tab = Tab(chromium, opened(answers, login=False))
    tab.open("/group?name=payments")
    tab.page.get_by_role("link", name="db_a is off...").click()
    tab.page.get_by_label("Reason").fill("I pulled the plug")
    tab.page.get_by_label("Type the group's name").fill("payments")
    tab.page.get_by_role("button", name="Confirm that the member is off").click()

    tab.page.get_by_text("Started as execution").wait_for()
    because = "I pulled the plug"
    expected = {"group": "payments", "member": "db_a", "because": because}
    assert answers.started == [("failover.confirm_fenced", expected)]
    assert tab.wrong == []
    tab.context.close()
