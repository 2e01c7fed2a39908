# SPDX-License-Identifier: Apache-2.0
"""The webhook's HTTP: one request a connection, bounded in size, time and number.

``POST /v1/alarms[/TOKEN]`` takes an alarm and answers 202 with its execution; ``GET /v1/health``
says whether this server would take one. Nothing of a request is logged that could hold a secret.
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

from mistral_failover.server.intake import PATH, Delivery, Intake, Refused

LOG = logging.getLogger(__name__)
HEALTH = "/v1/health"
LARGEST = 1024 * 1024
"""Bytes of a body at most."""
SLOWEST = 10.0
"""Seconds that a whole request may take to arrive, with TLS' handshake."""
DRAIN = 3.0
"""Seconds that the rest of a refused request is read for, so that its sender reads the answer."""
CONNECTIONS = 64
"""How many may be open at once. A further one takes the place of one whose request has not arrived
yet, the oldest of the peer that has most of those; where all have arrived, it is closed."""
POLL = 0.2
"""Seconds between two looks for connections that take too long."""
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
        """Where alarms are to be sent."""

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
        self._open: dict[socket.socket, str] = {}  # and whose each is
        self._arriving: dict[socket.socket, float] = {}  # and until when; some of the open ones
        self._lock = threading.Lock()

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accept; TLS is negotiated by the connection's own thread."""
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
        """Whoever knows no secret can hold places only while a request arrives, and whoever holds
        most of these loses the first: so one peer keeps no other out, nor many peers for longer
        than a whole request takes."""
        peers = [self._open[each] for each in self._arriving]
        return max(self._arriving, key=lambda each: peers.count(self._open[each]), default=None)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer, in a thread."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._done(request)

    def service_actions(self) -> None:
        """Cut off what takes too long to arrive: a limit of each read alone would let a sender
        that sends byte by byte stay for ever."""
        now = time.monotonic()
        with self._lock:
            late = [each for each, until in self._arriving.items() if until < now]
            for connection in late:
                del self._arriving[connection]
        for connection in late:
            _cut_off(connection)

    def arrived(self, request: Any) -> None:
        """The request is whole; what follows takes the time that it takes. Raises ConnectionError
        for one that was cut off meanwhile: nobody would read its answer."""
        with self._lock:
            if self._arriving.pop(request, None) is None:
                raise ConnectionError("it was cut off")

    def leaving(self, request: Any) -> None:
        """The request is answered; what may still come of it has `DRAIN` seconds."""
        with self._lock:
            if request in self._open:
                self._arriving[request] = time.monotonic() + DRAIN

    def _done(self, request: Any) -> None:
        with self._lock:
            self._arriving.pop(request, None)
            self._open.pop(request, None)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Whoever goes away, or speaks no TLS, is no error of ours."""
        LOG.debug("A connection broke off.", exc_info=True)


def _cut_off(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        # Of the socket itself: TLS' own is in the hands of the other thread.
        socket.socket.shutdown(connection, socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    server_version = "failover"
    sys_version = ""

    def do_POST(self) -> None:
        """An alarm."""
        with self._answered():
            parts = self._parts()
            if parts.path != PATH and not parts.path.startswith(f"{PATH}/"):
                raise Refused(404, "NOT_FOUND", "there is nothing here", f"POST to {PATH}.")
            body = self._body()
            self.server.arrived(self.connection)
            delivery = Delivery(parts.path, parts.query, dict(self.headers.items()), body)
            execution = self.server.intake.take(delivery)
            LOG.info("An alarm was taken as execution %s.", execution)
            self._say(HTTPStatus.ACCEPTED, {"execution": execution})

    def do_GET(self) -> None:
        """Whether alarms are taken."""
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
            raise Refused(400, "BAD_REQUEST", "the address is none", f"POST to {PATH}.") from None

    def _body(self) -> bytes:
        length = self.headers.get("Content-Length", "")
        if not length.isascii() or not length.isdigit():
            raise Refused(
                411, "LENGTH_REQUIRED", "the request does not say its length", "Send it whole."
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
            raise ConnectionError("the sender went away")
        return body

    @contextlib.contextmanager
    def _answered(self) -> Iterator[None]:
        """Answer with what was refused. One request a connection: what else there may be in it is
        not looked at."""
        self.close_connection = True
        try:
            yield
        except Refused as refused:
            code = refused.body["error"]["code"]
            LOG.warning("Refused a request of %s: %s", self.client_address[0], code)
            self._say(refused.status, refused.body)
            self._drain()

    def _drain(self) -> None:
        """Read what was not read, within limits of size and time: a connection that is closed
        before takes the answer with it."""
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
        """Nothing: a request's line may hold the token."""
