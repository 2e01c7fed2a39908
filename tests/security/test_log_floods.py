# SPDX-License-Identifier: Apache-2.0
"""A flood of requests that are refused does not fill the disk: it is logged once a minute for each
reason, with a count. The webhook's: ``tests/server/test_webhook.py``."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import pytest
import requests

from mistral_failover import http_server
from mistral_failover.embedded import access
from mistral_failover.http_server import REFUSAL_EACH, REFUSAL_REASONS, RefusalLog
from mistral_failover.lab.testing.engine import TestEngine
from mistral_failover.metrics import server as metrics
from mistral_failover.ui import access as pages
from mistral_failover.ui import serving as ui

MANY = 20


@pytest.fixture(autouse=True)
def nothing_logged_before(monkeypatch: pytest.MonkeyPatch) -> None:
    for face in (access, metrics, pages, ui):
        monkeypatch.setattr(face._REFUSALS, "_last", {})


@contextmanager
def of_metrics(_: pytest.FixtureRequest) -> Iterator[Callable[[], int]]:
    with metrics.MetricsServer(lambda: {"families": {}}) as server:
        yield lambda: requests.get(server.url, headers={"Host": "evil"}, timeout=60).status_code


@contextmanager
def of_api(given: pytest.FixtureRequest) -> Iterator[Callable[[], int]]:
    mistral: TestEngine = given.getfixturevalue("mistral")
    yield lambda: requests.get(f"{mistral.url}/workflows", timeout=60).status_code


@contextmanager
def of_pages(_: pytest.FixtureRequest) -> Iterator[Callable[[], int]]:
    with served() as url:
        yield lambda: requests.get(url, timeout=60).status_code


@contextmanager
def of_what_is_no_http(_: pytest.FixtureRequest) -> Iterator[Callable[[], int]]:
    def ask(url: str) -> int:
        where = urlsplit(url)
        with socket.create_connection((str(where.hostname), where.port or 0), 60) as wire:
            wire.sendall(b"\x00nonsense\r\n\r\n")
            return int(wire.makefile("rb").readline().split()[1])

    with served() as url:
        yield lambda: ask(url)


@contextmanager
def served() -> Iterator[str]:
    with ui.serving(None, "127.0.0.1", 0, read_only=True, announce=lambda _: None) as url:  # type: ignore[arg-type]
        yield url


@pytest.mark.parametrize("face", [of_metrics, of_api, of_pages, of_what_is_no_http])
def test_each_reason_is_logged_once_however_many_requests_are_refused(
    face: Callable[..., Iterator[Callable[[], int]]],
    request: pytest.FixtureRequest,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with face(request) as ask, caplog.at_level(logging.INFO):  # type: ignore[attr-defined]
        assert all(400 <= ask() < 500 for _ in range(MANY))

    lines = [each.getMessage() for each in caplog.records if "refused" in each.getMessage()]
    assert len(lines) == 1, lines
    assert not [each for each in caplog.records if each.name.startswith("uvicorn")]


def test_the_next_line_says_how_many_there_were(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    log = RefusalLog(logging.getLogger("a"), "The webhook", lambda: now[0])
    for reason, peer in (("TOO_MANY", "::1"), ("OTHER", ""), *[("TOO_MANY", "::2")] * 7):
        log.refused(reason, peer)
    now[0] = REFUSAL_EACH

    log.refused("TOO_MANY", "::3")

    assert caplog.messages == [
        "The webhook refused a request from ::1: TOO_MANY",
        "The webhook refused a request: OTHER",
        "The webhook refused a request from ::3: TOO_MANY (7 more since the last such line)",
    ]


def test_the_reasons_are_bounded_too() -> None:
    log = RefusalLog(logging.getLogger("a"), "It", lambda: 0.0)

    lines = [log.due(str(number)) for number in range(10 * REFUSAL_REASONS)]

    assert sum(each is not None for each in lines) == REFUSAL_REASONS + 1
    assert len(log._last) == REFUSAL_REASONS + 1
    assert http_server.REFUSAL_EACH == 60.0
