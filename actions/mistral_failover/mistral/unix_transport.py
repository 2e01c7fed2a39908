# SPDX-License-Identifier: Apache-2.0
"""HTTP over a unix socket: the client's side of ``failover server --listen unix:PATH``.

The address of such an API is ``unix:PATH``. Its requests name the host ``localhost``, which every
embedded Mistral answers to.
"""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import requests
import urllib3
from urllib3.connection import HTTPConnection
from urllib3.connectionpool import HTTPConnectionPool
from urllib3.exceptions import NewConnectionError

SCHEME = "unix:"
BASE = "http://localhost/v2"
"""The URL of requests to such an API."""


def socket_of(url: str) -> Path | None:
    """Return the socket's path if a URL is ``unix:PATH``, else None."""
    return Path(url.removeprefix(SCHEME)) if url.startswith(SCHEME) else None


class UnixTransport(requests.adapters.HTTPAdapter):
    """Sends every request of a session over one unix socket, whatever host and proxy it has."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._pool = _Pool(path)

    def get_connection_with_tls_context(self, *_: Any, **__: Any) -> HTTPConnectionPool:
        """Return the connections to the socket."""
        return self._pool

    def request_url(self, request: requests.PreparedRequest, proxies: Any) -> str:
        """Return the path alone: no proxy is in between."""
        return request.path_url

    def close(self) -> None:
        """Close all connections."""
        self._pool.close()
        super().close()


class _Pool(HTTPConnectionPool):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", maxsize=10)
        self._path = path

    def _new_conn(self) -> HTTPConnection:
        return _Connection(self._path, timeout=self.timeout.connect_timeout)


class _Connection(HTTPConnection):
    def __init__(self, path: Path, timeout: Any) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def _new_conn(self) -> socket.socket:
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        if self.timeout is not urllib3.Timeout.DEFAULT_TIMEOUT:
            made.settimeout(self.timeout)
        try:
            made.connect(str(self._path))
        except OSError as error:
            made.close()
            raise NewConnectionError(self, f"{self._path}: {error}") from error
        return made
