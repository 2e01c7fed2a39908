# SPDX-License-Identifier: Apache-2.0
"""``/metrics`` over HTTP, with queries in the background.

A scrape gets the last values at once, however slow the query is: one thread queries at an
interval.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable, Collection
from contextlib import ExitStack
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from prometheus_client import CONTENT_TYPE_LATEST

from mistral_failover.loopback import foreign, require_loopback
from mistral_failover.metrics.exposition import Latest
from mistral_failover.metrics.families import Numbers
from mistral_failover.refusals import RefusalLog

LOG = logging.getLogger(__name__)
_REFUSALS = RefusalLog(LOG, "/metrics")
INTERVAL = 15.0
"""Default seconds between two queries."""
_READ = 10.0  # seconds that a client may take for its request
_FOREIGN = (
    b"Refused: the Host header is none of this server's names, or a web page of another site sent "
    b"this.\nCall it by its address or localhost, or name it: failover exporter --name NAME, "
    b"failover server --api-name NAME.\n"
)
_STOP = 5.0  # seconds to wait for a running query


class MetricsServer:
    """A context manager: serves ``http://HOST:PORT/metrics`` while the block runs.

    :param ask: answers as ``failover.metrics`` does; may raise anything, and may take its time.
    :param port: 0 takes a free one, see :attr:`port`. :param interval: seconds between two queries;
    the first is sent at once. :param anywhere: listen on another address than loopback as well.
    There is no authentication, so requests of web pages are refused (`loopback.foreign`). :param
    names: further names by which clients call it. :raises NotLoopback: for such an address without
    ``anywhere``. :raises OSError: when the port is taken.
    """

    def __init__(
        self,
        ask: Callable[[], Numbers],
        port: int = 0,
        *,
        host: str = "127.0.0.1",
        interval: float = INTERVAL,
        anywhere: bool = False,
        names: Collection[str] = (),
    ) -> None:
        if not anywhere:
            require_loopback(host)
        self.latest = Latest()
        self._ask = ask
        self._address = (host, port)
        self._names = frozenset({host, *names})
        self._interval = interval
        self._stopped = threading.Event()
        self._stack = ExitStack()
        self.port = port

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            own = {"latest": self.latest, "names": self._names}
            handler = type("Handler", (_Handler,), own)
            server = stack.enter_context(_server(self._address, handler))
            self.port = server.server_address[1]
            serving = threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True)
            serving.start()
            stack.callback(serving.join)
            stack.callback(server.shutdown)
            asking = threading.Thread(target=self._keep_asking, name="metrics", daemon=True)
            asking.start()
            stack.callback(asking.join, _STOP)
            stack.callback(self._stopped.set)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._stack.close()

    @property
    def url(self) -> str:
        """The URL for Prometheus."""
        host = f"[{self._address[0]}]" if ":" in self._address[0] else self._address[0]
        return f"http://{host}:{self.port}/metrics"

    def _keep_asking(self) -> None:
        told = False
        while True:
            try:
                self.latest.answered(self._ask())
                told = False
            except Exception as error:  # noqa: BLE001 - a service that is down now may be back next time
                self.latest.failed()
                if not told:  # once, until it works again
                    LOG.warning("The metrics are not available: %s", error)
                told = True
            if self._stopped.wait(self._interval):
                return


class _Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    latest: Latest
    names: Collection[str]
    server_version = "mistral-failover"
    sys_version = ""
    timeout = _READ

    def do_GET(self) -> None:
        """Serve ``/metrics``, or a line that says where it is."""
        path = self.path.partition("?")[0]
        lengths = self.headers.get_all("Content-Length", [])
        if self._is_foreign():
            _REFUSALS.refused("a web page of another site, or another name", self.client_address[0])
            self._answer(HTTPStatus.FORBIDDEN, "text/plain; charset=utf-8", _FOREIGN)
        elif len(lengths) > 1 or (lengths and "Transfer-Encoding" in self.headers):
            self._answer(HTTPStatus.BAD_REQUEST, "text/plain; charset=utf-8", b"Send no body.\n")
        elif path == "/metrics":
            self._answer(HTTPStatus.OK, CONTENT_TYPE_LATEST, self.latest.text())
        else:
            status = HTTPStatus.OK if path == "/" else HTTPStatus.NOT_FOUND
            self._answer(status, "text/plain; charset=utf-8", b"See /metrics.\n")

    def _is_foreign(self) -> bool:
        return bool(
            foreign(
                self.headers.get_all("Host", []),
                self.names,
                origin=self.headers.get("Origin"),
                site=self.headers.get("Sec-Fetch-Site"),
            )
        )

    def _answer(self, status: HTTPStatus, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base's own name
        LOG.debug(format, *args)


class _Server(ThreadingHTTPServer):
    daemon_threads = True


class _ServerOf6(_Server):
    address_family = socket.AF_INET6


def _server(address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> _Server:
    return (_ServerOf6 if ":" in address[0] else _Server)(address, handler)
