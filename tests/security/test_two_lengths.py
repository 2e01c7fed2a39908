# SPDX-License-Identifier: Apache-2.0
"""A request whose length can be understood in two ways is refused: a proxy in front might
understand the other one. The webhook's test: ``tests/server/test_webhook.py``."""

from __future__ import annotations

import socket
from urllib.parse import urlsplit

import pytest

from mistral_failover.lab.testing.engine import TestEngine
from mistral_failover.metrics.server import MetricsServer

BOTH = ("Content-Length: 2", "Transfer-Encoding: chunked")


def answer(url: str, *lines: str) -> bytes:
    """The first line of the answer to a request with these headers."""
    where = urlsplit(url)
    with socket.create_connection((str(where.hostname), where.port or 0), 30) as wire:
        head = [f"GET {where.path} HTTP/1.1", f"Host: {where.netloc}", *lines]
        wire.sendall("\r\n".join([*head, "", "{}"]).encode())
        return wire.makefile("rb").readline()


@pytest.mark.parametrize("lines", [BOTH, ("Content-Length: 2", "Content-Length: 3")])
def test_the_metrics_refuse_it(lines: tuple[str, ...]) -> None:
    with MetricsServer(lambda: {"families": {}}, 0) as server:
        assert b" 400 " in answer(server.url, *lines)
        assert b" 200 " in answer(server.url)


def test_the_api_of_mistral_refuses_it_even_with_the_token(mistral: TestEngine) -> None:
    url = f"{mistral.url}/workflows"
    token = f"X-Auth-Token: {mistral.token_file.read_text('ascii').strip()}"

    assert b" 400 " in answer(url, token, "Content-Type: application/json", *BOTH)
    assert b" 200 " in answer(url, token)
