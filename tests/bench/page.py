# SPDX-License-Identifier: Apache-2.0
"""The page of all groups, over a real Mistral and its state store, against the number of groups.

Each group serves, as in ``bench observe``. *page* is what a browser waits for: the page's questions
to Mistral, one after the other, and their answers as HTML. *status* and *held* are the actions that
it asks, by themselves: it asks for the status once for each 500 groups. *here* and *Mistral* is the
CPU of one page in the process that serves it, and in Mistral. All are medians in ms.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import requests

import mistral_failover.workflows
from bench.observe import observer
from bench.staging import cpu
from mistral_failover.embedded.settings import LOCAL_HTTP
from mistral_failover.ui.action_client import MistralActionClient
from mistral_failover.ui.serving import serving
from support.mistral_process import MistralProcess

GROUPS = (10, 100, 1000)
TRIES = 9
_REMEMBERED = 1.1  # seconds after which the page asks again


def main(groups: Sequence[int] = GROUPS) -> None:
    """Print the table."""
    print("   groups    KiB    page    here   Mistral   status    held")
    with observer() as bench, tempfile.TemporaryDirectory(prefix="failover-page-") as folder:
        options = {f"failover.{name}": value for name, value in bench.options.items()}
        made = 0
        with MistralProcess(
            Path(folder) / "mistral",
            workflows=mistral_failover.workflows.paths(),
            overrides=options | LOCAL_HTTP,
        ) as mistral:
            where = SimpleNamespace(mistral_url=mistral.url, mistral_token_file=mistral.token_file)
            client = MistralActionClient(SimpleNamespace(options=where))
            links: list[str] = []
            with serving(client, "127.0.0.1", 0, read_only=True, announce=links.append):
                browser = requests.Session()
                browser.trust_env = False
                browser.get(links[0], timeout=60).raise_for_status()
                url = links[0].partition("/login")[0]
                for count in groups:
                    for number in range(made, count):
                        bench.bring_up(f"bench-{number}")
                    made = count
                    bench.look()
                    page = browser.get(url, timeout=60)
                    if page.text.count('href="/group?name=bench-') < count:
                        raise RuntimeError("the page does not show every group")
                    pages = [_page(browser, url, mistral.pid) for _ in range(TRIES)]
                    whole, here, there = map(statistics.median, zip(*pages, strict=True))
                    status = _median(lambda: client.run_action("failover.status"))
                    held = _median(lambda: client.run_action("failover.held", limit=100))
                    print(
                        f"   {count:6} {len(page.content) / 1024:6.0f} {whole:7.0f} {here:7.0f}"
                        f" {there:9.0f} {status:8.0f} {held:7.0f}",
                        flush=True,
                    )


def _page(browser: requests.Session, url: str, mistral: int | None) -> tuple[float, float, float]:
    """Return the milliseconds of a page, and of CPU here and in Mistral."""
    time.sleep(_REMEMBERED)
    before = time.monotonic(), time.process_time(), cpu(mistral)
    browser.get(url, timeout=60).raise_for_status()
    after = time.monotonic(), time.process_time(), cpu(mistral)
    whole, here, there = ((b - a) * 1000 for a, b in zip(before, after, strict=True))
    return whole, here, there


def _median(work: Callable[[], Any]) -> float:
    """Return the milliseconds that the work takes."""
    took = []
    for _ in range(TRIES):
        begun = time.monotonic()
        work()
        took.append((time.monotonic() - begun) * 1000)
    return statistics.median(took)
