# SPDX-License-Identifier: Apache-2.0
"""The network between processes and the emulated cloud: a request is a function call.

What goes wrong on the way is a `Trouble`: it is laid out for the next requests that fit, and each
request has at most one.
"""

from __future__ import annotations

import asyncio
import io
import re
import selectors
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any
from urllib.parse import unquote, urlsplit

import requests
import urllib3
from requests.adapters import HTTPAdapter

from mistral_failover.cloud.transport import REQUEST_ID
from simulation.scheduler import Process, Scheduler, Task

_PATIENCE = 30.0  # seconds of a request without a limit of its own
_BEHIND = 30.0  # seconds by which a replica of a service's database is behind, at most


class Kind(Enum):
    """What happens to a request. EFFECT: whether it reaches its service."""

    UNSENT = "it never leaves: no connection"
    SWALLOWED = "it is lost on its way"
    LATE = "it arrives after its sender has given up"
    UNANSWERED = "it takes effect, and the answer is lost"
    BROKEN = "it takes effect, and the connection breaks in the answer"
    GATEWAY = "a gateway refuses it with a page"
    FOREIGN = "another service answers that it knows no such thing"
    REPLACED = "it takes effect, and a gateway says that it failed"
    STALE = "what was true a while ago is said again"


@dataclass
class Trouble:
    """What happens to the next ``times`` requests that fit. ``process``: whose; None: anyone's.
    ``of``: a pattern of the method and the path. ``until``: when it ends, whatever is left.
    ``then``: called with the sender and what it asked, when it has given a late request up."""

    kind: Kind
    process: Process | None
    of: str
    times: int
    until: float
    seconds: float = 0.0
    then: Callable[[Process, str], None] = lambda _process, _asked: None

    def fits(self, process: Process, asked: str, now: float) -> bool:
        """Return whether a request has it."""
        if self.times <= 0 or now > self.until or self.process not in (None, process):
            return False
        return re.search(self.of, asked) is not None


class Loop(asyncio.SelectorEventLoop):
    """The event loop of the emulated cloud, on the scheduler's clock; it never waits."""

    def __init__(self, scheduler: Scheduler) -> None:
        super().__init__(_Never())
        self._failover_scheduler = scheduler
        self._clock_resolution = 1e-6  # larger than the step between two floats of this size

    def time(self) -> float:
        """See asyncio."""
        return self._failover_scheduler.now

    def pump(self) -> float | None:
        """Run everything that is due; return when the next thing is."""
        own: Any = self
        while own._ready or (own._scheduled and own._scheduled[0]._when <= self.time()):
            self.call_soon(self.stop)
            self.run_forever()
        for each in own._scheduled[:1]:
            return float(each._when)
        return None


class _Never(selectors.DefaultSelector):
    def select(self, timeout: float | None = None) -> Any:
        return super().select(0)


Application = Callable[[MutableMapping[str, Any], Any, Any], Any]
_Answer = tuple[int, list[tuple[bytes, bytes]], bytes]
"""Status, headers, body."""


class Wire(HTTPAdapter):
    """Carries requests to an ASGI application."""

    def __init__(self, scheduler: Scheduler, loop: Loop, application: Application) -> None:
        super().__init__()
        self._scheduler, self._loop, self._application = scheduler, loop, application
        self.troubles: list[Trouble] = []
        self.met: list[Kind] = []
        """The troubles that requests had."""
        self.late: set[tuple[str | None, str | None, str]] = set()
        """The requests that arrived after their sender had given up: id, method, path."""
        self.before_sending: Callable[[], None] = lambda: None
        """Called in the sender's task before the bytes leave. May raise: then nothing leaves."""
        self.tell: Callable[[str], None] = lambda _: None
        self._said: dict[str, list[tuple[float, _Answer]]] = {}

    def send(  # type: ignore[override]
        self, request: requests.PreparedRequest, timeout: Any = None, **_options: Any
    ) -> requests.Response:
        """See requests."""
        scheduler = self._scheduler
        limit = getattr(timeout, "total", timeout)
        seconds = float(limit) if isinstance(limit, int | float) else _PATIENCE
        asked = f"{request.method} {request.path_url}"
        trouble = self._trouble(asked)
        if trouble is Kind.UNSENT:
            scheduler.sleep(min(seconds, scheduler.random.uniform(0.0, 0.1)))
            raise requests.ConnectionError(
                urllib3.exceptions.NewConnectionError(None, "refused"),  # type: ignore[arg-type]
                request=request,
            )
        scheduler.turn()
        self.before_sending()
        answer = self._exchange(request, asked, trouble, seconds)
        status, headers, body = answer
        self.tell(f"{asked.partition('?')[0]} -> {status}")
        raw = urllib3.HTTPResponse(
            body=io.BytesIO(body),
            headers={key.decode(): value.decode() for key, value in headers},
            status=status,
            preload_content=False,
        )
        return self.build_response(request, raw)

    def _trouble(self, asked: str) -> Kind | None:
        process, now = self._scheduler.process, self._scheduler.now
        for each in self.troubles:
            if each.fits(process, asked, now):
                each.times -= 1
                self.met.append(each.kind)
                self.tell(f"{asked.partition('?')[0]}: {each.kind.value}")
                self._late, self._then = each.seconds, partial(each.then, process, asked)
                return each.kind
        return None

    def _exchange(
        self, request: requests.PreparedRequest, asked: str, trouble: Kind | None, seconds: float
    ) -> _Answer:
        scheduler = self._scheduler
        since = scheduler.now - _BEHIND
        earlier = [answer for at, answer in self._said.get(asked, []) if at >= since]
        if trouble is Kind.GATEWAY:
            scheduler.sleep(0.01)
            return scheduler.random.choice((502, 503, 504, 404, 200)), _PAGE, b"<html>away</html>"
        if trouble is Kind.FOREIGN:
            scheduler.sleep(0.01)
            return 404, _JSON, b'{"message": "no such route"}'
        if trouble is Kind.STALE and earlier and request.method == "GET":
            scheduler.sleep(0.01)
            return scheduler.random.choice(earlier)
        if trouble is Kind.SWALLOWED:
            self._give_up(request, seconds)
        if trouble is Kind.LATE:
            late = seconds + self._late
            path = unquote(urlsplit(str(request.url)).path)
            self.late.add((request.headers.get(REQUEST_ID), request.method, path))
            then = self._then
            self._loop.call_later(late, lambda: self._loop.create_task(self._call(request, {})))
            self._loop.call_later(seconds, then)
            self._give_up(request, seconds)
        got: dict[str, Any] = {"body": b""}
        task = scheduler.current
        done = self._loop.create_task(self._call(request, got))
        if task is not None:
            done.add_done_callback(partial(_wake, scheduler, task))
        end = scheduler.now + seconds
        while not done.done() and scheduler.now < end:
            scheduler.park(end - scheduler.now)  # an answer that came too late wakes it, too
        if not done.done() or trouble is Kind.UNANSWERED:
            if trouble is Kind.UNANSWERED:
                self._give_up(request, seconds)
            raise requests.ReadTimeout(request=request)
        done.result()
        if trouble is Kind.BROKEN or got["more"]:
            raise requests.ConnectionError("the connection broke", request=request)
        if trouble is Kind.REPLACED:
            return scheduler.random.choice((502, 503, 504)), _PAGE, b"<html>away</html>"
        answer = (got["status"], got["headers"], got["body"])
        if request.method == "GET":
            self._said.setdefault(asked, []).append((scheduler.now, answer))
            del self._said[asked][:-3]
        return answer

    def _give_up(self, request: requests.PreparedRequest, seconds: float) -> None:
        self._scheduler.sleep(seconds)
        raise requests.ReadTimeout(request=request)

    async def _call(self, request: requests.PreparedRequest, got: dict[str, Any]) -> None:
        url, body = urlsplit(str(request.url)), request.body or b""
        body = body.encode() if isinstance(body, str) else body
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": request.method,
            "scheme": "http",
            "path": unquote(url.path),
            "raw_path": url.path.encode(),
            "query_string": url.query.encode(),
            "root_path": "",
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 1),
            "headers": [(k.lower().encode(), str(v).encode()) for k, v in request.headers.items()],
        }

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                got.update(status=message["status"], headers=list(message["headers"]))
            else:
                got["body"] = got.get("body", b"") + message.get("body", b"")
                got["more"] = message.get("more_body", False)

        await self._application(scope, receive, send)


def _wake(scheduler: Scheduler, task: Task, _done: object) -> None:
    scheduler.wake(task)


_PAGE = [(b"content-type", b"text/html")]
_JSON = [(b"content-type", b"application/json")]
