# SPDX-License-Identifier: Apache-2.0
"""The page of a real server in a real Chromium, as the documentation shows it.

Needs Chromium and playwright: ``make test-ui``. ``make pictures`` puts the pictures into ``docs``.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.chromium import executable
from support.pictures import FOLDER, HEIGHTS, LARGEST, WIDTH
from support.servers import ServerProcess

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]
playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = executable()
if CHROMIUM is None:
    pytest.skip("chromium is not installed", allow_module_level=True)

LIMIT = 120.0  # seconds within which something must come to be


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """An emulated cloud, its server, and the page with its orders."""
    folder = tmp_path_factory.mktemp("pictures") / "state"
    page = ("--ui", "127.0.0.1:0", "--ui-orders")
    with ServerProcess(folder, "--emulated", *page, settings={"observe_interval": 2}) as running:
        yield running


@pytest.fixture(scope="module")
def page(server: ServerProcess) -> Iterator[Any]:
    """A tab that is logged in."""
    deadline = time.monotonic() + LIMIT
    while not (links := re.findall(r"http://\S+/login\?\S+", server.log.read_text())):
        assert time.monotonic() < deadline, server.log.read_text()
        time.sleep(0.1)
    with playwright.sync_playwright() as started:
        sandbox = os.geteuid() != 0  # as root Chromium has none
        chromium = started.chromium.launch(executable_path=CHROMIUM, chromium_sandbox=sandbox)
        tab = chromium.new_page(viewport={"width": WIDTH, "height": 800})
        tab.goto(links[-1])
        yield tab
        chromium.close()


def moved(server: ServerProcess, member: str) -> Any:
    """Wait until the role is on a member; the status then."""
    deadline = time.monotonic() + LIMIT
    while True:
        found = server.action("failover.status", group="payments")
        if found["status"] == "COMPLETE" and found["roles"] == {"active": member}:
            return found
        assert time.monotonic() < deadline, found
        time.sleep(0.2)


def look(page: Any, path: str, words: str) -> None:
    """Open an address of the page, and wait until it says these words."""
    origin = re.match(r"http://[^/]+", page.url)
    assert origin is not None
    page.goto(f"{origin[0]}{path}")
    page.get_by_text(words).locator("visible=true").first.wait_for(timeout=LIMIT * 1000)


def shot(page: Any, name: str) -> None:
    """Take a picture of the top of the page."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    file = FOLDER / f"{name}.png"
    page.set_viewport_size({"width": WIDTH, "height": HEIGHTS[name]})
    page.screenshot(path=str(file))
    assert file.stat().st_size < LARGEST


def test_the_page_shows_a_group_its_failover_and_one_that_waits_for_an_operator(
    server: ServerProcess, page: Any
) -> None:
    file = Path(server.folder) / "payments.yaml"
    file.write_text(file.read_text().replace("- stop\n", "- {kind: stop, limit: 5}\n"))

    made = server.failover("group", "create", str(file))
    assert made.returncode == 0, made.stdout + made.stderr
    look(page, "/group?name=payments", "Not stuck: active on db_a.")
    shot(page, "ui-group")

    broken = server.failover("emulator", "break", "payments", "db_a")
    assert broken.returncode == 0, broken.stderr
    status = moved(server, "db_b")
    look(page, f"/timeline?id={status['traversal']['id']}", "the goal is reached")
    shot(page, "ui-failover")

    for words in (
        ("emulator", "break", "payments", "db_a", "--repair"),
        ("recover", "payments", "db_a", "--yes"),
        ("emulator", "break", "payments", "db_b", "--fault", "host", "--no-alarm"),
    ):
        done = server.failover(*words)
        assert done.returncode == 0, done.stdout + done.stderr
    because = ("--because", "db_b does not answer", "--yes")
    blocked = server.failover("start", "payments", "--lost", "db_b", *because)
    assert blocked.returncode == 3, blocked.stdout + blocked.stderr
    look(page, "/group?name=payments", "Stuck: ")
    shot(page, "ui-stuck")
