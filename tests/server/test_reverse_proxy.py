# SPDX-License-Identifier: Apache-2.0
"""A real nginx before the webhook, as operators put one there for TLS and a name."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import requests

from mistral_failover.server import secret
from server.conftest import ALARM, KEY, Door
from support import gateway
from support.proxies import nginx
from support.servers import post, signed

FORWARDED = """
proxy_set_header Host $host;
proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
proxy_set_header X-Forwarded-Proto $scheme;
proxy_set_header X-Forwarded-Prefix /failover;
"""


def inside(door: Door) -> str:
    return door.url.partition("/v1/")[0]


def stripped(door: Door, more: str = "") -> list[str]:
    """The configuration that docs/server.md shows."""
    return [f"location /failover/ {{ proxy_pass {inside(door)}/; {FORWARDED} {more} }}"]


@pytest.mark.parametrize("how", ["signed", "path", "header"])
@pytest.mark.parametrize("more", ["", "proxy_http_version 1.1;", "proxy_request_buffering off;"])
def test_every_sender_is_taken_behind_tls_and_a_prefix(
    door: Door, tmp_path: Path, how: str, more: str
) -> None:
    trusted = gateway.authority(tmp_path)
    with nginx(tmp_path, stripped(door, more), trusted) as outside:
        url = f"{outside}/failover/v1/alarms"
        verify = str(trusted.certificate)
        if how == "signed":
            answer = signed(url, KEY, ALARM, verify=verify)
        elif how == "path":
            answer = post(f"{url}/{door_token()}", ALARM, verify=verify)
        else:
            headers = {"Authorization": f"Bearer {door_token()}"}
            answer = post(url, ALARM, headers, verify=verify)

    assert answer.status_code == 202, answer.text
    assert answer.json()["decisions"]


def door_token() -> str:
    """The token of senders that cannot sign."""
    return secret.Secret(KEY, KEY[::-1]).token


def test_a_prefix_that_the_proxy_does_not_remove_is_named(door: Door, tmp_path: Path) -> None:
    kept = [f"location /failover/ {{ proxy_pass {inside(door)}; }}"]
    with nginx(tmp_path, kept) as outside:
        answer = signed(f"{outside}/failover/v1/alarms", KEY, ALARM)

    assert answer.status_code == 404
    assert "remove /failover from the path" in answer.json()["error"]["remedy"]


@pytest.mark.parametrize("name", ["X-Forwarded-For", "X-Forwarded-Host", "Forwarded"])
def test_what_a_sender_says_of_where_it_comes_from_changes_nothing(
    door: Door, tmp_path: Path, name: str
) -> None:
    with nginx(tmp_path, stripped(door)) as outside:
        url = f"{outside}/failover/v1/alarms"
        refused = post(url, ALARM, {name: "127.0.0.1"})
        taken = post(f"{url}/{door_token()}", ALARM, {name: "192.0.2.1"})

    assert refused.status_code == 401
    assert taken.status_code == 202


def test_a_repeat_after_the_proxy_s_own_page_is_taken_once(
    opened: Callable[..., Door], tmp_path: Path
) -> None:
    """The server is away, so the proxy answers; the sender repeats the same request."""
    door = opened()
    away = ["location /failover/ { proxy_pass http://127.0.0.1:9/; }"]
    at, host = str(int(time.time())), json.dumps({"host": "cmp7", "id": "x"}).encode()
    with nginx(tmp_path, away) as outside:
        page = signed(f"{outside}/failover/v1/alarms", KEY, host, at=at)
    with nginx(tmp_path, stripped(door)) as outside:
        answers: list[Any] = [
            signed(f"{outside}/failover/v1/alarms", KEY, host, at=at) for _ in range(2)
        ]

    assert page.status_code == 502
    assert "text/html" in page.headers["Content-Type"]
    assert [answer.status_code for answer in answers] == [202, 409]
    assert len(door.started.executions) == 1


def test_the_proxy_asks_whether_alarms_are_taken(door: Door, tmp_path: Path) -> None:
    with nginx(tmp_path, stripped(door)) as outside:
        asked = f"{outside}/failover/v1/health"
        assert requests.get(asked, timeout=30).json() == {"takes_alarms": True}
        door.started.away = True
        assert requests.get(asked, timeout=30).status_code == 503


def test_a_body_without_a_length_is_given_one_by_the_proxy(door: Door, tmp_path: Path) -> None:
    """nginx reads the whole request first; without it a request in chunks is a 411."""
    chunks = (part for part in (ALARM[:10], ALARM[10:]))
    with nginx(tmp_path, stripped(door)) as outside:
        url = f"{outside}/failover/v1/alarms/{door_token()}"
        assert requests.post(url, data=chunks, timeout=30).status_code == 202
