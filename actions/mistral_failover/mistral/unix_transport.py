# SPDX-License-Identifier: Apache-2.0
"""HTTP over a unix socket: the client's side of ``failover server --listen unix:PATH``.

The address of such an API is ``unix:PATH``. Its requests name the host ``localhost``, which every
embedded Mistral answers to.
"""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path
from typing import Any

import requests
import urllib3
from urllib3.connection import HTTPConnection
from urllib3.connectionpool import HTTPConnectionPool
from urllib3.exceptions import ConnectTimeoutError, NewConnectionError

SCHEME = "unix:"
BASE = "http://localhost/v2"
"""The URL of requests to such an API."""
_PAUSE = 0.02  # seconds between two attempts to connect to a server that has too many to accept


def socket_of(url: str) -> Path | None:
    """Return the socket's path if a URL is ``unix:PATH``, else None. ``~`` is the home directory: a
    shell leaves it as it is there."""
    if not url.startswith(SCHEME):
        return None
    return Path(os.path.expanduser(url.removeprefix(SCHEME)))  # noqa: PTH111 - Path's may raise


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
            self._connect(made)
        except OSError as error:
            made.close()
            raise NewConnectionError(self, f"{self._path}: {error}") from error
        except ConnectTimeoutError:
            made.close()
            raise
        return made

    def _connect(self, made: socket.socket) -> None:
        end = time.monotonic() + (made.gettimeout() or 0.0)
        while True:
            try:
                made.connect(str(self._path))
            except BlockingIOError:  # Linux does not wait, as it does with TCP
                if time.monotonic() >= end:
                    raise ConnectTimeoutError(
                        self, f"{self._path}: too many clients are waiting"
                    ) from None
                time.sleep(_PAUSE)
            else:
                return
