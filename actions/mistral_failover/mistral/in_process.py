# SPDX-License-Identifier: Apache-2.0
"""Requests to the Mistral that runs in this process, without a connection.

So nothing that other programs do to the API's address keeps this process from asking its own
Mistral. The address of that Mistral is `URL`; there is one in a process.
"""

from __future__ import annotations

import contextlib
import io
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from http import HTTPStatus
from typing import Any

import requests
import urllib3

from mistral_failover.http_server import Face, Request, Response, respond

URL = "in-process:"
CALLS = 64
"""Requests that may be answered at once; further ones wait."""
MOST = 600.0
"""Seconds for a request without a limit of its own."""
THREAD = "in-process"
"""The name of each thread that answers a request."""
_slots = threading.BoundedSemaphore(CALLS)
_serving: list[Face] = []  # the last one answers


@contextlib.contextmanager
def served(face: Face) -> Iterator[None]:
    """Let requests of this process reach Mistral's API while the block lasts."""
    _serving.append(face)
    try:
        yield
    finally:
        _serving.remove(face)


class InProcessTransport(requests.adapters.BaseAdapter):
    """Has each request answered by a thread of its own, and waits for it as long as the request
    may take: Mistral may hang, and it keeps the caller's rights in its thread."""

    def send(  # type: ignore[override]  # requests calls it by these names
        self, request: requests.PreparedRequest, timeout: Any = None, **_: Any
    ) -> requests.Response:
        """Return the answer. Raises requests' exceptions, as over a connection."""
        try:
            face = _serving[-1]
        except IndexError:
            raise requests.ConnectionError(
                "no Mistral runs in this process", request=request
            ) from None
        seconds = _seconds(timeout)
        end = _now() + seconds
        if not _slots.acquire(timeout=seconds):
            raise requests.ConnectTimeout(f"{CALLS} requests have no answer yet", request=request)
        answer: Future[Response] = Future()
        arguments = (face, _asked(request), answer, end)
        try:
            threading.Thread(target=_answer, args=arguments, name=THREAD, daemon=True).start()
        except RuntimeError as error:  # no further thread
            _slots.release()
            raise requests.ConnectionError(str(error), request=request) from None
        try:
            return _told(request, answer.result(max(0.0, end - _now())))
        except TimeoutError:
            raise requests.ReadTimeout(f"no answer within {seconds:g} s", request=request) from None

    def close(self) -> None:
        """There is nothing to close."""


def _now() -> float:
    """Seconds on a clock that also counts while the machine is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _answer(face: Face, request: Request, answer: Future[Response], end: float) -> None:
    try:
        if _now() >= end:  # its caller may have lost the right to ask, e.g. a lease
            raise TimeoutError
        answer.set_result(respond(face, request))
    except BaseException as error:  # the caller raises it
        answer.set_exception(error)
    finally:
        _slots.release()


def _seconds(timeout: Any) -> float:
    """How long a request may take, of what requests and keystoneauth hand on."""
    given = timeout.total if isinstance(timeout, urllib3.Timeout) else timeout
    return min(float(given), MOST) if isinstance(given, int | float) else MOST


def _asked(request: requests.PreparedRequest) -> Request:
    body = request.body or b""
    content = body.encode("utf-8") if isinstance(body, str) else bytes(body)  # type: ignore[arg-type]
    headers = [
        (name, value.decode("latin-1") if isinstance(value, bytes) else str(value))
        for name, value in request.headers.items()
    ]
    return Request(
        str(request.method),
        request.path_url,
        [("Host", "localhost"), *headers],
        lambda: content,
        "this process",
    )


def _told(request: requests.PreparedRequest, response: Response) -> requests.Response:
    found = requests.Response()
    found.status_code = response.status
    with contextlib.suppress(ValueError):
        found.reason = HTTPStatus(response.status).phrase
    found.headers.update(response.headers)
    found.encoding = requests.utils.get_encoding_from_headers(found.headers)
    found.raw = io.BytesIO(response.body)
    found.url = str(request.url)
    found.request = request
    return found
