# SPDX-License-Identifier: Apache-2.0
"""One HTTP exchange: it has an end, and its answer is read within limits, whichever library asks.

A time limit of urllib3 or requests bounds each read. A service that sends its answer in drops would
hold a call without limit. So connections of the classes here end with the block `until`, whatever
they are doing: connecting, TLS, sending, or reading a part of the answer.
"""

from __future__ import annotations

import http.client
import io
import math
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import requests
import urllib3

from mistral_failover.model.documents import MAX_JSON_BYTES, load_json
from mistral_failover.model.errors import InvalidDocument

_PIECE = 64 * 1024


class _End(threading.local):
    """When the exchange of this thread ends, by the clock of `elapsed`."""

    at = math.inf


_end = _End()


def elapsed() -> float:
    """Return seconds on a clock that also counts while the machine is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@contextmanager
def until(end: float) -> Iterator[None]:
    """The exchanges of this thread in the block end at ``end``, by the clock of `elapsed`."""
    outer, _end.at = _end.at, min(_end.at, end)
    try:
        yield
    finally:
        _end.at = outer


def rest(end: float | None = None) -> float | None:
    """Return the seconds until ``end``, or until this thread's exchange ends, as a socket's limit:
    None if it has no end. Raises TimeoutError if it has ended."""
    seconds = (_end.at if end is None else end) - elapsed()
    if seconds <= 0:
        raise TimeoutError("the time of this call is over")
    return None if math.isinf(seconds) else seconds


class _Reader(io.RawIOBase):
    """Reads from a socket; every read ends with the exchange."""

    def __init__(self, connection: socket.socket, raw: io.RawIOBase) -> None:
        super().__init__()
        self._socket, self._raw, self._end = connection, raw, _end.at

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        if (seconds := rest(self._end)) is not None:
            self._socket.settimeout(seconds)
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


def reading(connection: socket.socket) -> io.BufferedReader:
    """Return what reads from a socket until the exchange ends. Raises TimeoutError, as a read that
    takes too long does."""
    raw = connection.makefile("rb", buffering=0)
    return io.BufferedReader(_Reader(connection, raw))


class _Response(http.client.HTTPResponse):
    def __init__(self, sock: socket.socket, *arguments: Any, **options: Any) -> None:
        super().__init__(sock, *arguments, **options)
        self.fp.close()
        self.fp = reading(sock)


class Connection:
    """Ends with the exchange; a mixin of `http.client.HTTPConnection`."""

    response_class = _Response

    def connect(self) -> None:
        """Connect, and agree on TLS."""
        this: Any = self
        if (seconds := rest()) is not None:
            this.timeout = seconds
        super().connect()  # type: ignore[misc]  # http.client's

    def send(self, data: Any) -> None:
        """Send a part of the request."""
        this: Any = self
        if this.sock is None and this.auto_open:
            this.connect()
        self.begin_to_send()
        super().send(data)  # type: ignore[misc]  # http.client's

    def begin_to_send(self) -> None:
        """Called right before bytes leave. Raises TimeoutError if the time is over."""
        this: Any = self
        if (seconds := rest()) is not None:
            this.sock.settimeout(seconds)


def pools(mixin: type[Connection]) -> dict[str, type[urllib3.HTTPConnectionPool]]:
    """Return urllib3's pools by scheme, of connections that are of this class, too."""
    connection = type("HTTPConnection", (mixin, urllib3.connection.HTTPConnection), {})
    secure = type("HTTPSConnection", (mixin, urllib3.connection.HTTPSConnection), {})
    return {
        "http": type("Pool", (urllib3.HTTPConnectionPool,), {"ConnectionCls": connection}),
        "https": type("Pool", (urllib3.HTTPSConnectionPool,), {"ConnectionCls": secure}),
    }


class Answer(requests.Response):
    """An answer whose JSON is read by `load_json`."""

    def json(self, **_: Any) -> Any:
        """Return the body. Raises `requests.JSONDecodeError` if it is no JSON, or breaks a
        limit."""
        try:
            return load_json(self.content, "answer")
        except InvalidDocument as error:
            raise requests.JSONDecodeError(error.message, "", 0) from None


def bounded(answer: requests.Response) -> requests.Response:
    """Read an answer to its end, and make it an `Answer`.

    Raises `requests.RequestException`: `requests.ReadTimeout` if the rest does not arrive in time;
    also if it is longer than `MAX_JSON_BYTES`, as a short one may be when it is unpacked.
    """
    answer.__class__ = Answer
    if answer._content is False:  # it was not read yet
        body = bytearray()
        try:
            for piece in answer.iter_content(_PIECE):
                body += piece
                if len(body) > MAX_JSON_BYTES:
                    answer.close()
                    raise requests.exceptions.ContentDecodingError(
                        f"the answer is longer than {MAX_JSON_BYTES // 1024**2} MiB"
                    )
        except requests.ConnectionError as error:  # what requests makes of it in a body
            if any(isinstance(each, urllib3.exceptions.ReadTimeoutError) for each in error.args):
                raise requests.ReadTimeout(*error.args) from None
            raise
        answer._content = bytes(body)
    return answer
