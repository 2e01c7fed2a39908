# SPDX-License-Identifier: Apache-2.0
"""A Mistral of this process that connects as the embedded one does, and what it connects to."""

from __future__ import annotations

import http.server
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from oslo_config import cfg

from mistral_failover.embedded import boot, egress

DEAD, ALIVE = "127.0.0.3", "127.0.0.2"
TWO = "two.example.org"
"""A name with both addresses, in this order, within `one_of_two`."""


def connect_as_embedded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have Mistral connect as the embedded one does, until the test ends."""
    boot.init()
    import mistral.db.v2.api  # noqa: F401 - first, because Mistral imports in circles
    from mistral.actions import std_actions
    from mistral.notifiers.publishers import webhook
    from mistral.utils import egress as of_mistral

    for module, name in (
        (of_mistral, "socket"),
        (std_actions, "requests"),
        (std_actions, "smtplib"),
        (webhook, "requests"),
    ):
        monkeypatch.setattr(module, name, getattr(module, name))
    egress.install()


@contextmanager
def limited(seconds: int) -> Iterator[None]:
    """Give an action that sets no limit itself so many seconds."""
    cfg.CONF.set_override("default_timeout", seconds, group="action_std_http")
    try:
        yield
    finally:
        cfg.CONF.clear_override("default_timeout", group="action_std_http")


@contextmanager
def one_of_two(monkeypatch: pytest.MonkeyPatch, listening: socket.socket) -> Iterator[int]:
    """Give `TWO` its addresses: `DEAD` takes connections no more, as one behind a partition or an
    IPv6 address that leads nowhere; at `ALIVE` something listens. Yields the port."""
    real = socket.getaddrinfo
    port = listening.getsockname()[1]

    def look_up(host: str, *args: Any, **named: Any) -> Any:
        hosts = [DEAD, ALIVE] if host == TWO else [host]
        return [row for each in hosts for row in real(each, *args, **named)]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    with ExitStack() as waiting:
        full = waiting.enter_context(socket.socket())
        full.bind((DEAD, port))
        full.listen(0)
        for _ in range(2):  # what more comes gets no answer
            client = waiting.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex((DEAD, port))
        yield port


class Answering(http.server.BaseHTTPRequestHandler):
    """Answers, or redirects to what the query names."""

    def do_GET(self) -> None:  # noqa: N802 - the library's name
        target = self.path.partition("?")[2]
        self.send_response(302 if target else 200)
        if target:
            self.send_header("Location", target)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    do_POST = do_GET  # noqa: N815

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def take_email(listening: socket.socket, said: list[bytes]) -> None:
    """Accept one connection and talk as a mail server to its end, or to the end of one e-mail; add
    what the client says to ``said``, in lines."""
    with listening.accept()[0] as client, client.makefile("rb") as lines:
        client.sendall(b"220 ready\r\n")
        text = False  # lines of an e-mail get no answer
        for line in lines:
            said.append(line)
            if line == b".\r\n":
                client.sendall(b"250 ok\r\n")
                return
            if not text:
                text = line == b"data\r\n"
                client.sendall(b"354 go on\r\n" if text else b"250 ok\r\n")
