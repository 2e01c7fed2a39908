# SPDX-License-Identifier: Apache-2.0
"""A scripted HTTP server, for what no cloud does on demand."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from mistral_failover.cloud import session
from support.emulated import cloud, connect, emulated, emulator, group, pair

__all__ = ["cloud", "connect", "emulated", "emulator", "group", "pair"]

Reply = tuple[int, dict[str, str], Any]


@dataclass
class Request:
    """A request as the server saw it."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any


@dataclass
class ScriptedServer:
    """Answers each request with what `reply` returns: (status, headers, JSON body or bytes)."""

    url: str
    seen: list[Request] = field(default_factory=list)
    reply: Callable[[Request], Reply] = lambda request: (200, {}, {})

    @property
    def calls(self) -> list[str]:
        """The requests as "METHOD path", in order."""
        return [f"{request.method} {request.path}" for request in self.seen]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedServer]:
    """A scripted server on a free port of this machine, of which nothing is known yet: an earlier
    one may have had the same port."""
    for known in ("_tokens", "_entries"):
        monkeypatch.setattr(session, known, session._AuthenticationCache())

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            raw = self.rfile.read(length)
            headers = {name.lower(): value for name, value in self.headers.items()}
            request = Request(self.command, self.path, headers, json.loads(raw) if raw else None)
            scripted.seen.append(request)
            status, extra, body = scripted.reply(request)
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            for name, value in {"Content-Type": "application/json", **extra}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = answer  # noqa: N815

        def log_message(self, *args: Any) -> None:
            """Say nothing."""

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    http.daemon_threads = True
    scripted = ScriptedServer(f"http://127.0.0.1:{http.server_port}")
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield scripted
    http.shutdown()
    thread.join()
    http.server_close()
