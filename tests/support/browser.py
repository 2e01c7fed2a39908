# SPDX-License-Identifier: Apache-2.0
"""A real Chromium, one for all tests of a run, and its tabs.

Needs Chromium and playwright: ``make test-ui``. A test that uses it has the marker ``browser``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SHOTS = ROOT / "build" / "ui"
"""Where screenshots are left."""
EVIL, REBOUND = "evil.example", "rebind.example"
"""Names of strangers that lead to this machine."""
_AXE = ROOT / "tests" / "ui" / "vendor" / "axe-4.10.3.min.js"
_FIND = """async (only) => {
  const options = only ? {runOnly: {type: "rule", values: only}} : {};
  const found = await axe.run(document, options);
  return found.violations
    .filter((each) => ["serious", "critical"].includes(each.impact)
      || each.tags.some((tag) => /^wcag[0-9]+a{1,2}$/.test(tag)))
    .map((each) => `${each.id}: ${each.nodes.map((node) => node.html).join(" | ")}`);
}"""


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """The browser."""
    from support.chromium import executable  # of the test cloud, which few tests need

    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    program = executable()
    if program is None:
        pytest.skip("chromium is not installed")
    names = ", ".join(f"MAP {name} 127.0.0.1" for name in (EVIL, REBOUND))
    with playwright.sync_playwright() as started:
        found = started.chromium.launch(
            executable_path=program,
            args=[f"--host-resolver-rules={names}"],
            chromium_sandbox=os.geteuid() != 0,  # as root Chromium has none
        )
        yield found
        found.close()


class Tab:
    """A page that was opened with a link for a login; a context manager. ``wrong`` has what the
    browser's console complained about, and each dialog."""

    def __init__(self, chromium: Any, link: str, **context: Any) -> None:
        self.url = link.partition("/login")[0]
        self.context = chromium.new_context(**context)
        self.wrong: list[str] = []
        self.page = self.another()
        self.page.goto(link)

    def __enter__(self) -> Tab:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.context.close()

    def another(self) -> Any:
        """Return a new page with the same login."""
        page = self.context.new_page()
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.wrong.append(str(error)))
        page.on("dialog", self._dialog)
        return page

    def _console(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.wrong.append(message.text)

    def _dialog(self, dialog: Any) -> None:
        self.wrong.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def open(self, path: str) -> None:
        """Open an address of the server."""
        self.page.goto(f"{self.url}{path}")

    def look(self, width: int, scheme: str = "light", height: int = 800) -> None:
        """Make the window so wide, with this colour scheme."""
        self.page.set_viewport_size({"width": width, "height": height})
        self.page.emulate_media(color_scheme=scheme)

    def overflow(self) -> int:
        """Return by how many pixels the page is wider than the window."""
        return int(self.page.evaluate("document.documentElement.scrollWidth - window.innerWidth"))

    def shot(self, name: str, folder: Path = SHOTS, *, whole: bool = True) -> Path:
        """Take a screenshot of the whole page, or of what is visible."""
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f"{name}.png"
        self.page.screenshot(path=str(file), full_page=whole)
        return file

    def violations(self, *rules: str) -> list[str]:
        """Return the violations of WCAG, levels A and AA, and the other serious ones that axe-core
        finds, of these rules or of all."""
        if not self.page.evaluate("typeof axe === 'object'"):
            self.page.evaluate(_AXE.read_text("utf-8"))
        return list(self.page.evaluate(_FIND, list(rules) or None))

    def tab_to(self, words: str) -> None:
        """Press Tab until what has the focus is called so, and can be seen to have it."""
        for _ in range(80):
            self.page.keyboard.press("Tab")
            name, outline = self.page.evaluate(
                "[(document.activeElement.labels?.[0] ?? document.activeElement).innerText.trim(),"
                " getComputedStyle(document.activeElement).outlineStyle]"
            )
            if name.startswith(words):
                assert outline != "none", f"the focus on {words} cannot be seen"
                return
        raise AssertionError(f"Tab does not lead to {words}")
