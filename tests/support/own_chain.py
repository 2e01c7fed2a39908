# SPDX-License-Identifier: Apache-2.0
"""The chain of examples/own_chain, and the two services that it calls."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

EXAMPLE = Path(__file__).parents[2] / "examples" / "own_chain" / "payments_failover.yaml"
CHAIN = "payments.failover"
TICKETS, CHECK = "/tickets", "/check"


class ExternalServices:
    """A ticket system and a checker of data, on loopback; a context manager.

    ``status``: what each answers; 0: nothing. ``called``: what happens when one is called, before
    it answers. ``caller``: the port on loopback that the last call came from. ``calls``: the calls
    until now, path and traversal. ``concerns``: whether a call about a traversal is one of the
    test's; others are answered with 200 and not kept.
    """

    def __init__(self) -> None:
        self.status = {TICKETS: 201, CHECK: 200}
        self.calls: list[tuple[str, str]] = []
        self.caller = 0
        self.called: Callable[[str], None] = lambda path: None
        self.concerns: Callable[[str], bool] = lambda traversal: True
        services = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                services.caller = self.client_address[1]
                status = services._answer(self.path, body.get("traversal") or body.get("key"))
                if status:
                    self.send_response(status)
                    self.send_header("Content-Length", "0")
                    self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                """Log nothing."""

        class Server(ThreadingHTTPServer):
            def handle_error(self, request: Any, client_address: Any) -> None:
                """Expect clients that are killed while they wait."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _answer(self, path: str, traversal: str) -> int:
        if not self.concerns(traversal):
            return 200
        self.calls.append((path, traversal))
        self.called(path)
        return self.status[path]

    @property
    def chain(self) -> str:
        """The example's workflow, which calls these services."""
        text = EXAMPLE.read_text(encoding="utf-8")
        for example in ("http://tickets.example.org", "http://checker.example.org"):
            text = text.replace(example, self.url)
        return text

    def times(self, path: str) -> int:
        """How often a service was called."""
        return [each for each, _ in self.calls].count(path)
