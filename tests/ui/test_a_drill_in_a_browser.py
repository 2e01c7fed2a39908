# SPDX-License-Identifier: Apache-2.0
"""The page of a real server in a real Chromium during failovers of every outcome.

Needs Chromium and playwright: ``make test-ui``. It leaves a screenshot of each state in
``build/ui`` and the pictures of the documentation, which ``make pictures`` puts into ``docs``.
"""

from __future__ import annotations

import re
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mistral_failover.lab.emulator.client import EmulatorClient
from support.browser import SHOTS, Tab
from support.commands import failover
from support.pictures import FOLDER, HEIGHTS, LARGEST, WIDTH
from support.servers import ServerProcess

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

LIMIT = 120.0  # seconds within which something must come to be
VISIBLE = 0.5  # seconds after its row in the journal
QUESTION = 0.05  # seconds for a question to Mistral; a busy machine takes longer for both
_WATCH = """() => {
  window.seen = [];
  const look = () => seen.push([Date.now() / 1000, document.getElementById("page").textContent]);
  look();
  new MutationObserver(look).observe(document.getElementById("page"),
    {childList: true, subtree: true, characterData: true});
}"""


class Play:
    """A server with an emulated cloud, and its page in a tab."""

    def __init__(self, server: ServerProcess, tab: Tab) -> None:
        self.server = server
        self.tab = tab
        self.cloud = EmulatorClient(server.facts["emulator"])

    def types(self, *words: str, code: int = 0) -> None:
        """Type a command."""
        done = failover("--embedded", "--server-state", str(self.server.folder), *words)
        assert done.returncode == code, done.stdout + done.stderr

    def until(self, status: str, service: str, member: str = "") -> None:
        """Wait until the group has this status and service, and the role is on the member."""
        deadline = time.monotonic() + LIMIT
        while True:
            found = self.server.action("failover.status", group="payments")
            at = (found["status"], found["service"]["status"])
            if at == (status, service) and member in ("", found["roles"].get("active")):
                return
            assert time.monotonic() < deadline, found
            time.sleep(0.2)

    def says(self, words: str) -> None:
        """Wait until the page says these words."""
        self.tab.page.get_by_text(words).locator("visible=true").first.wait_for(
            timeout=LIMIT * 1000
        )

    def state(self, name: str, words: str = "", picture: str = "") -> None:
        """Take a screenshot of a state once the page says so; ``picture``: also the one of the
        documentation."""
        if words:
            self.says(words)
        if picture:
            self.tab.look(WIDTH, height=HEIGHTS[picture])
            file = self.tab.shot(picture, FOLDER, whole=False)
            assert file.stat().st_size < LARGEST
        self.tab.shot(f"state-{name}")
        assert self.tab.overflow() <= 0
        assert self.tab.violations() == []


@pytest.fixture(scope="module")
def play(tmp_path_factory: pytest.TempPathFactory, chromium: Any) -> Iterator[Play]:
    """A group that serves, with its page."""
    folder = tmp_path_factory.mktemp("pictures") / "state"
    page = ("--ui", "127.0.0.1:0", "--ui-orders")
    with ServerProcess(folder, "--emulated", *page, settings={"observe_interval": 2}) as server:
        deadline = time.monotonic() + LIMIT
        while not (links := re.findall(r"http://\S+/login\?\S+", server.log.read_text())):
            assert time.monotonic() < deadline, server.log.read_text()
            time.sleep(0.1)
        file = Path(server.folder) / "payments.yaml"
        file.write_text(file.read_text().replace("- stop\n", "- {kind: stop, limit: 5}\n"))
        viewport = {"width": WIDTH, "height": 800}
        with Tab(chromium, links[-1], viewport=viewport) as tab:
            yield Play(server, tab)


def delays(play: Play, page: Any, since: int) -> list[list[float]]:
    """Return how long after its row in the journal each later step was on a page that was watched,
    by failover, and of the orders that are no failover. It leaves out what an earlier step says in
    the same words."""
    rows = play.server.action("failover.history", group="payments", after=since, limit=1000)
    page.get_by_text(rows[-1]["sentence"]).first.wait_for(state="attached", timeout=LIMIT * 1000)
    seen: list[tuple[float, str]] = page.evaluate("seen")
    found: dict[str | None, list[float]] = {}
    for row in rows:
        first = next((at for at, text in seen if row["sentence"] in text), None)
        assert first is not None, row
        if first >= row["at"]:
            found.setdefault(row["traversal_id"], []).append(first - row["at"])
    return list(found.values())


def test_the_page_shows_a_group_in_every_state_of_a_drill(play: Play) -> None:
    play.types("group", "create", str(Path(play.server.folder) / "payments.yaml"))
    play.tab.open("/group?name=payments")
    play.state("serving", "All is well: active on db_a.", picture="ui-group")

    # Two rehearsals, and what they came to.
    for _ in range(2):
        play.types("rehearse", "payments")
    play.tab.open("/rehearsals?group=payments")
    play.state("rehearsed", "db_b can take over", picture="ui-rehearsal")
    assert play.tab.page.locator("[id^=rehearsal-]").count() == 2
    play.tab.open("/group?name=payments")
    play.says("Rehearsed")
    begun = play.server.action("failover.history", group="payments")[-1]["id"]
    journal = play.tab.another()
    journal.goto(f"{play.tab.url}/history?group=payments")
    journal.evaluate(_WATCH)

    # A failover.
    play.cloud.set_latency(attach=1.5)
    play.types("emulator", "break", "payments", "db_a")
    play.tab.page.locator(".moving").first.wait_for(timeout=LIMIT * 1000)
    play.state("moving")
    play.until("COMPLETE", "DEGRADED", "db_b")
    play.state("degraded", "db_a: it was declared lost")
    (latest,) = {*re.findall(r"/timeline\?id=([0-9a-f-]+)&amp;step", play.tab.page.content())}
    play.tab.open(f"/timeline?id={latest}")
    play.state("finished", "Done: db_b is active", picture="ui-failover")

    # Steps while the machine has little else to do.
    questions = []
    for number in range(9):
        asked = time.monotonic()
        play.server.action("failover.pause", group="payments", because=f"pause {number}")
        questions.append(time.monotonic() - asked)
        journal.get_by_text(f"pause {number}").first.wait_for(state="attached")
    play.server.action("failover.resume", group="payments", because="the test")

    # A planned move that fails and is taken back, and an order that fails.
    play.types("emulator", "break", "payments", "db_a", "--repair")
    play.types("recover", "payments", "db_a", "--yes")
    play.cloud.set_latency(attach=0.1)
    play.tab.open("/group?name=payments")
    play.says("All is well: active on db_b.")
    play.cloud.api_fault("command_start", "fail")
    play.types("switchover", "payments", "--to", "db_a", code=1)
    play.until("COMPLETE", "SERVING", "db_b")
    play.state("returned", "rolling back to the last reached goal")
    play.cloud.api_fault("command_start", "fail")
    play.types("start", "payments", "--lost", "", "--to", "db_a", "--yes", code=1)
    play.until("FAILED", "DOWN")
    play.state("failed", "Failed: Start database")
    play.types("start", "payments", "--lost", "", "--to", "db_b")

    # Nothing proves that the member is off.
    play.types("emulator", "break", "payments", "db_b", "--fault", "host", "--no-alarm")
    because = ("--because", "db_b does not answer", "--yes")
    play.types("start", "payments", "--lost", "db_b", *because, code=3)
    play.tab.open("/group?name=payments")
    play.state("blocked", "Waiting for you: ", picture="ui-stuck")
    assert play.tab.wrong == []

    found = delays(play, journal, begun)
    lines = [" ".join(f"{seconds:.2f}" for seconds in each) for each in found]
    (SHOTS / "delays.txt").write_text("\n".join(lines) + "\n")
    # The middle ones, where they were fastest: other work of the machine delays some.
    fastest = min(statistics.median(each) for each in found if len(each) >= 8)
    busy = max(1.0, statistics.median(questions) / QUESTION)
    assert fastest < VISIBLE * busy, (lines, questions)
