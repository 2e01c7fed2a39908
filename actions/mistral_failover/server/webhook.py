# SPDX-License-Identifier: Apache-2.0
"""The webhook's HTTP: one request a connection, bounded in size, time and number.

``POST /v1/alarms[/TOKEN]`` takes an alarm and answers 202 with the decisions; ``GET /v1/health``
tells whether this server would take one. Parts of a request that may hold a secret are not
logged.
"""

from __future__ import annotations

import contextlib
import json
import logging
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import SplitResult, urlsplit

from mistral_failover.refusals import RefusalLog
from mistral_failover.server.intake import PATH, Delivery, Intake, Refused

LOG = logging.getLogger(__name__)
_REFUSALS = RefusalLog(LOG, "The webhook")
HEALTH = "/v1/health"
LARGEST = 1024 * 1024
"""Maximum size of a body in bytes."""
SLOWEST = 10.0
"""Seconds that a whole request may take to arrive, including the TLS handshake."""
DRAIN = 3.0
"""Seconds for which the rest of a refused request is read, so that its sender reads the answer."""
CONNECTIONS = 128
"""Connections that may be open at once. A further one replaces one whose request has not arrived
yet: the oldest of the peer that has most of those. If all requests have arrived, the new connection
is closed."""
POLL = 0.2
"""Seconds between two checks for connections that take too long."""
_RETRY = {429, 503}


class Webhook:
    """Serves a listening socket from threads while its block lasts.

    ``healthy``: whether alarms would be taken. ``slowest``: see `SLOWEST`.
    """

    def __init__(
        self,
        listening: socket.socket,
        intake: Intake,
        healthy: Callable[[], bool],
        *,
        tls: ssl.SSLContext | None = None,
        slowest: float = SLOWEST,
    ) -> None:
        self._server = _Server(listening, intake, healthy, tls, slowest)
        scheme = "http" if tls is None else "https"
        host, port = listening.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        self.url = f"{scheme}://{shown}:{port}{PATH}"
        """The address for alarms."""

    def __enter__(self) -> Webhook:
        thread = threading.Thread(
            target=self._server.serve_forever, args=(POLL,), name="webhook", daemon=True
        )
        thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(
        self,
        listening: socket.socket,
        intake: Intake,
        healthy: Callable[[], bool],
        tls: ssl.SSLContext | None,
        slowest: float,
    ) -> None:
        super().__init__(listening.getsockname()[:2], _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listening
        self.intake, self.healthy, self.slowest = intake, healthy, slowest
        self._tls = tls
        self._open: dict[socket.socket, str] = {}  # and the peer of each
        self._arriving: dict[
            socket.socket, float
        ] = {}  # and their deadlines; some of the open ones
        self._lock = threading.Lock()

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accept connections; each negotiates TLS in its own thread."""
        connection, address = self.socket.accept()
        connection.settimeout(self.slowest)
        if self._tls is not None:
            connection = self._tls.wrap_socket(
                connection, server_side=True, do_handshake_on_connect=False
            )
        return connection, address

    def process_request(self, request: Any, client_address: Any) -> None:
        """Hand the connection to a thread, if there is a place for one more."""
        with self._lock:
            full = len(self._open) >= CONNECTIONS
            given_up = self._least_worth() if full else None
            if given_up is not None:
                self._arriving.pop(given_up)
                self._open.pop(given_up)
            if placed := not full or given_up is not None:
                self._open[request] = client_address[0]
                self._arriving[request] = time.monotonic() + self.slowest
        if given_up is not None:
            _cut_off(given_up)
        if not placed:
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._done(request)
            raise

    def _least_worth(self) -> socket.socket | None:
        """A client without the secret holds a place only while its request arrives, and the peer
        with most such places loses the first. So one peer cannot keep others out, nor can many
        peers for longer than a whole request takes."""
        peers = [self._open[each] for each in self._arriving]
        return max(self._arriving, key=lambda each: peers.count(self._open[each]), default=None)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer, in a thread."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._done(request)

    def service_actions(self) -> None:
        """Close connections that take too long to arrive: a limit per read would let a slow sender
        stay forever."""
        now = time.monotonic()
        with self._lock:
            late = [each for each, until in self._arriving.items() if until < now]
            for connection in late:
                del self._arriving[connection]
        for connection in late:
            _cut_off(connection)

    def arrived(self, request: Any) -> None:
        """Mark the request as complete; what follows has no time limit. Raises ConnectionError if
        the connection was closed in the meantime: its answer would reach no client."""
        with self._lock:
            if self._arriving.pop(request, None) is None:
                raise ConnectionError("the connection was closed")

    def leaving(self, request: Any) -> None:
        """Mark the request as answered; the connection has `DRAIN` seconds left."""
        with self._lock:
            if request in self._open:
                self._arriving[request] = time.monotonic() + DRAIN

    def _done(self, request: Any) -> None:
        with self._lock:
            self._arriving.pop(request, None)
            self._open.pop(request, None)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that disconnects, or speaks no TLS, is not an error here."""
        LOG.debug("A connection was lost.", exc_info=True)


def _cut_off(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        # Of the socket itself: the other thread uses the TLS object.
        socket.socket.shutdown(connection, socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    server_version = "failover"
    sys_version = ""

    def do_POST(self) -> None:
        """Handle an alarm."""
        with self._answered():
            parts = self._parts()
            if parts.path != PATH and not parts.path.startswith(f"{PATH}/"):
                raise Refused(404, "NOT_FOUND", "there is nothing here", f"POST to {PATH}.")
            body = self._body()
            self.server.arrived(self.connection)
            delivery = Delivery(parts.path, parts.query, dict(self.headers.items()), body)
            taken = self.server.intake.take(delivery)
            if taken.execution is not None:
                LOG.info("An alarm was taken; execution %s acts on it.", taken.execution)
            self._say(HTTPStatus.ACCEPTED, taken.answer)

    def do_GET(self) -> None:
        """Answer whether alarms are taken."""
        with self._answered():
            self.server.arrived(self.connection)
            if self.path != HEALTH:
                raise Refused(404, "NOT_FOUND", "there is nothing here", f"POST to {PATH}.")
            healthy = self.server.healthy()
            status = HTTPStatus.OK if healthy else HTTPStatus.SERVICE_UNAVAILABLE
            self._say(status, {"takes_alarms": healthy})

    def _parts(self) -> SplitResult:
        try:
            return urlsplit(self.path)
        except ValueError:
            raise Refused(400, "BAD_REQUEST", "the path is not valid", f"POST to {PATH}.") from None

    def _body(self) -> bytes:
        lengths = self.headers.get_all("Content-Length", [])
        if len(lengths) > 1 or (lengths and "Transfer-Encoding" in self.headers):
            raise Refused(
                400,
                "BAD_REQUEST",
                "the request gives the length of its body twice",
                "Send one Content-Length, and no Transfer-Encoding.",
            )
        length = lengths[0] if lengths else ""
        if not length.isascii() or not length.isdigit():
            raise Refused(
                411,
                "LENGTH_REQUIRED",
                "the request has no Content-Length",
                ("Send it with its length."),
            )
        if len(length) > 10 or int(length) > LARGEST:
            raise Refused(
                413,
                "TOO_LARGE",
                f"the body has more than {LARGEST} bytes",
                "Send fewer alarms at once.",
            )
        body = self.rfile.read(int(length))
        if len(body) < int(length):
            raise ConnectionError("the sender disconnected")
        return body

    @contextlib.contextmanager
    def _answered(self) -> Iterator[None]:
        """Answer with a refusal. One request per connection: the rest of it is ignored."""
        self.close_connection = True
        try:
            yield
        except Refused as refused:
            code = refused.body["error"]["code"]
            _REFUSALS.refused(code, self.client_address[0])
            self._say(refused.status, refused.body)
            self._drain()

    def _drain(self) -> None:
        """Read the unread rest, within limits of size and time: closing the connection earlier
        would lose the answer."""
        self.server.leaving(self.connection)
        self.wfile.flush()
        with contextlib.suppress(OSError):
            socket.socket.shutdown(self.connection, socket.SHUT_WR)
            left = 4 * LARGEST
            while left > 0 and (some := self.rfile.read1(65536)):
                left -= len(some)

    def _say(self, status: int, body: Any) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Connection", "close")
        if status in _RETRY:
            self.send_header("Retry-After", "5")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - of the base class
        """Log nothing: a request's line may hold the token."""
