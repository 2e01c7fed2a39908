# SPDX-License-Identifier: Apache-2.0
"""The pages over HTTP: a real server on a free port, over prepared answers."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import requests

from mistral_failover.ui.action_client import ActionClient
from mistral_failover.ui.serving import serving
from support.ui_answers import Answers


class Browser:
    """A browser that is logged in. ``links`` are those that were printed for a login; ``end`` ends
    the server."""

    def __init__(self, url: str, links: list[str], end: Callable[[], None]) -> None:
        self.url = url
        self.links = links
        self.end = end
        self.session = requests.Session()
        self.session.trust_env = False

    def login(self) -> requests.Response:
        """Open the link that was printed last."""
        return self.session.get(self.links[-1], timeout=10)

    def get(self, path: str, **more: Any) -> requests.Response:
        """Open a page."""
        return self.session.get(f"{self.url}{path}", timeout=10, **more)

    def post(self, path: str, **fields: str) -> requests.Response:
        """Send a form with the session's token."""
        return self.session.post(
            f"{self.url}{path}", data={"csrf": self.csrf(), **fields}, timeout=10
        )

    def csrf(self) -> str:
        """Return the token of the session's forms."""
        found = re.search(r'name="csrf" value="([^"]+)"', self.get("/").text)
        assert found is not None
        return found[1]


Opened = Callable[..., Browser]


@pytest.fixture
def opened() -> Iterator[Opened]:
    """A function that serves the pages over an `ActionClient`, and returns a browser; it is logged
    in unless ``login`` is false."""
    with contextlib.ExitStack() as stack:

        def open_one(
            client: ActionClient | None = None, *, read_only: bool = False, login: bool = True
        ) -> Browser:
            links: list[str] = []
            served = stack.enter_context(contextlib.ExitStack())
            url = served.enter_context(
                serving(
                    client or Answers(), "127.0.0.1", 0, read_only=read_only, announce=links.append
                )
            )
            browser = Browser(url, links, served.close)
            # Before the server ends: it waits for open connections.
            stack.callback(browser.session.close)
            if login:
                assert browser.login().status_code == 200
            return browser

        yield open_one
