# SPDX-License-Identifier: Apache-2.0
"""The webhook's HTTP: ``POST /v1/alarms[/TOKEN]`` takes an alarm and answers 202 with the
decisions; ``GET /v1/health`` tells whether this server would take one.

Parts of a request that may hold a secret are not logged.
"""

from __future__ import annotations

import json
import logging
import socket
import ssl
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from mistral_failover.http_server import (
    SLOWEST,
    HttpServer,
    RefusalLog,
    Refused,
    Request,
    Response,
)
from mistral_failover.server.receiver import PATH, AlarmReceiver, Delivery

LOG = logging.getLogger(__name__)
_REFUSALS = RefusalLog(LOG, "The webhook")
HEALTH = "/v1/health"
LARGEST = 1024 * 1024
"""Maximum size of a body in bytes."""
_RETRY = {429, 503}


class Webhook(HttpServer):
    """Serves a listening socket from threads while its block lasts.

    ``healthy``: whether alarms would be taken. ``slowest``: seconds that a whole request may take
    to arrive.
    """

    def __init__(
        self,
        listening: socket.socket,
        receiver: AlarmReceiver,
        healthy: Callable[[], bool],
        *,
        tls: Callable[[], ssl.SSLContext] | None = None,
        slowest: float = SLOWEST,
    ) -> None:
        super().__init__(listening, _Webhook(receiver, healthy), slowest=slowest, tls=tls)
        scheme = "http" if tls is None else "https"
        host, port = listening.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        self.url = f"{scheme}://{shown}:{port}{PATH}"
        """The address for alarms."""


class _Webhook:
    name = "webhook"
    largest = LARGEST

    def __init__(self, receiver: AlarmReceiver, healthy: Callable[[], bool]) -> None:
        self._receiver, self._healthy = receiver, healthy

    def answer(self, request: Request) -> Response:
        if request.method == "GET" and request.path == HEALTH:
            healthy = self._healthy()
            status = HTTPStatus.OK if healthy else HTTPStatus.SERVICE_UNAVAILABLE
            return _document(status, {"takes_alarms": healthy})
        path = request.path
        if request.method != "POST" or (path != PATH and not path.startswith(f"{PATH}/")):
            raise _nothing_here(path)
        body = request.read()
        taken = self._receiver.take(Delivery(path, request.query, dict(request.headers), body))
        if taken.execution is not None:
            LOG.info("An alarm was taken; execution %s acts on it.", taken.execution)
        return _document(HTTPStatus.ACCEPTED, taken.answer)

    def refusal(self, refused: Refused, peer: str) -> Response:
        _REFUSALS.refused(refused.code, peer)
        return _document(refused.status, refused.body)


def _nothing_here(path: str) -> Refused:
    before, found, _ = path.partition(PATH)
    if not found:
        return Refused(404, "NOT_FOUND", "there is nothing here", f"POST to {PATH}.")
    return Refused(
        404,
        "NOT_FOUND",
        f"the path begins with {before}, where this server has nothing",
        f"Let the proxy before this server remove {before} from the path.",
    )


def _document(status: int, body: Any) -> Response:
    headers = [("Content-Type", "application/json")]
    if status in _RETRY:
        headers.append(("Retry-After", "5"))
    return Response(status, json.dumps(body).encode(), headers)
