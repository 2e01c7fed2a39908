# SPDX-License-Identifier: Apache-2.0
"""An HTTP server on loopback that answers as a test says, for what no cloud does on demand."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from requests.structures import CaseInsensitiveDict

Reply = tuple[int, dict[str, str], Any]
"""Status, headers, and a body: bytes, or what becomes JSON."""


@dataclass
class Request:
    """A request as the server saw it; ``body`` is that of its JSON."""

    method: str
    path: str
    headers: CaseInsensitiveDict[str]
    body: Any


@dataclass
class ScriptedServer:
    """Answers each request with what `reply` returns."""

    url: str
    seen: list[Request] = field(default_factory=list)
    reply: Callable[[Request], Reply] = lambda request: (200, {}, {})

    @property
    def calls(self) -> list[str]:
        """The requests as "METHOD path", in order."""
        return [f"{request.method} {request.path}" for request in self.seen]


@contextmanager
def scripted_server(reply: Callable[[Request], Reply] | None = None) -> Iterator[ScriptedServer]:
    """Serve on a free port until the end of the block."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            headers = CaseInsensitiveDict(self.headers.items())
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
    if reply is not None:
        scripted.reply = reply
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield scripted
    finally:
        http.shutdown()
        thread.join()
        http.server_close()
