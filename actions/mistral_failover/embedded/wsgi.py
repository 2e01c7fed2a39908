# SPDX-License-Identifier: Apache-2.0
"""Mistral's API, a WSGI application, as a face of `http_server`."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import unquote_to_bytes

from mistral_failover.http_server import Refused, Request, Response

Environ = dict[str, Any]
Application = Callable[[Environ, Callable[..., Any]], Iterable[bytes]]
_SLASH = re.compile("%2F", re.IGNORECASE)


class WsgiFace:
    """Answers as a WSGI application does. ``largest``: the maximum size of a body in bytes."""

    name = "API of Mistral"

    def __init__(self, application: Application, largest: int) -> None:
        self.largest = largest
        self._application = application

    def answer(self, request: Request) -> Response:
        """Call the application, which reads the body if it wants to."""
        head: list[Any] = []
        written: list[bytes] = []

        def start_response(status: str, headers: list[tuple[str, str]], *_: Any) -> Any:
            head[:] = status, headers
            return written.append

        parts = self._application(_environ(request), start_response)
        try:
            written.extend(parts)
        finally:
            if (close := getattr(parts, "close", None)) is not None:
                close()
        status, headers = head
        return Response(int(status.partition(" ")[0]), b"".join(written), headers)

    def refusal(self, refused: Refused, peer: str) -> Response:
        """Show a refusal as Mistral's own errors look."""
        said = {"faultcode": "Client", "faultstring": f"{refused.message}. {refused.remedy}"}
        headers = [("Content-Type", "application/json")]
        return Response(refused.status, json.dumps(said).encode(), headers)


class _Body:
    """The body of a request, which is read when the application asks for it first."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._arrived: io.BytesIO | None = None

    def read(self, size: int = -1) -> bytes:
        """Return at most ``size`` further bytes, by default all. Raises `http_server.Gone`."""
        if self._arrived is None:
            self._arrived = io.BytesIO(self._request.read())
        return self._arrived.read(size)


def _environ(request: Request) -> Environ:
    # A slash that belongs to a name stays encoded: it separates nothing.
    parts = [unquote_to_bytes(part) for part in _SLASH.split(request.path)]
    environ: Environ = {
        "REQUEST_METHOD": request.method,
        "SCRIPT_NAME": "",
        "PATH_INFO": b"%2F".join(parts).decode("latin-1"),
        "QUERY_STRING": request.query,
        "SERVER_NAME": "localhost",
        "SERVER_PORT": "",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "REMOTE_ADDR": request.peer,
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "http",
        "wsgi.input": _Body(request),
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
    }
    for name, value in request.headers:
        if "_" in name:
            continue  # it would have the name of another header here
        key = name.upper().replace("-", "_")
        if key not in ("CONTENT_TYPE", "CONTENT_LENGTH"):
            key = f"HTTP_{key}"
        environ[key] = f"{environ[key]},{value}" if key in environ else value
    return environ
