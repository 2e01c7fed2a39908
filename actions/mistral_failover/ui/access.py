# SPDX-License-Identifier: Apache-2.0
"""Which requests are answered: those of the operator's own browser.

Every user of this machine reaches the port, and so does every web page in a browser here. So each
request is checked before a page sees it, in this order:

1. It is from no web page of another site (`loopback.foreign`), else 403: ``Host`` is ``localhost``
   or an address of loopback, ``Origin`` and ``Sec-Fetch-Site`` name no other site.
2. The session's cookie is known, else 401; only /login and /static need none. A session begins with
   a link that is printed on the terminal and works once. The cookie is HttpOnly and
   SameSite=Strict.
3. A POST has the session's token for forms, else 403 (`form`).

Every answer has the headers in `HEADERS`: a page runs and loads nothing from elsewhere.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from urllib.parse import parse_qsl

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mistral_failover.http_server import RefusalLog
from mistral_failover.loopback import foreign

_REFUSALS = RefusalLog(logging.getLogger(__name__), "The web page")
LASTS = 12 * 3600.0
"""Seconds after which a session ends."""
SESSIONS = 16
"""Maximum sessions; a further login ends the oldest."""
LARGEST = 64 * 1024
"""Maximum size of a form in bytes."""
HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    # With no-referrer browsers would send "Origin: null" with our own forms.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_OPEN = ("/login", "/static/")
_BYTES = 32


class Refused(Exception):
    """A request that is not answered: ``status``, and why."""

    def __init__(self, status: HTTPStatus, why: str) -> None:
        super().__init__(why)
        self.status = status
        self.why = why


@dataclass
class Session:
    """A logged-in browser. ``csrf`` is the token of its forms; ``said`` is what the next page shows
    about an order."""

    ends_at: float
    csrf: str = field(default_factory=lambda: secrets.token_urlsafe(_BYTES))
    said: str = ""

    def take_said(self) -> str:
        """Return what the next page shows, and forget it."""
        said, self.said = self.said, ""
        return said


class LoginSessions:
    """Knows the link that works once, and the sessions; thread-safe.

    :param announce: is given each new token of a link: one at the start, and a new one whenever one
        was used. :param clock: in seconds.
    """

    def __init__(
        self, announce: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._announce = announce
        self._clock = clock
        self._lock = threading.Lock()
        self._sessions: OrderedDict[str, Session] = OrderedDict()
        self._token = secrets.token_urlsafe(_BYTES)

    def open(self) -> None:
        """Announce the first link."""
        self._announce(self._token)

    def login(self, token: str) -> str | None:
        """Return the cookie of a new session for the present token, which is used up; None for
        another one."""
        with self._lock:
            if not hmac.compare_digest(token.encode("utf-8", "replace"), self._token.encode()):
                return None
            self._token = secrets.token_urlsafe(_BYTES)
            cookie = secrets.token_urlsafe(_BYTES)
            self._sessions[_hashed(cookie)] = Session(self._clock() + LASTS)
            while len(self._sessions) > SESSIONS:
                self._sessions.popitem(last=False)
            following = self._token
        self._announce(following)
        return cookie

    def session(self, cookie: str) -> Session | None:
        """Return the session of a cookie, None if there is none, or it is over."""
        with self._lock:
            found = self._sessions.get(_hashed(cookie))
            if found is not None and found.ends_at <= self._clock():
                del self._sessions[_hashed(cookie)]
                return None
            return found

    def close(self) -> None:
        """End all sessions, and take no further login."""
        with self._lock:
            self._sessions.clear()
            self._token = secrets.token_urlsafe(_BYTES)

    def logout(self, cookie: str) -> None:
        """End a session."""
        with self._lock:
            self._sessions.pop(_hashed(cookie), None)


def _hashed(cookie: str) -> str:
    return hashlib.sha256(cookie.encode("utf-8", "replace")).hexdigest()


def cookie_name(request: Request) -> str:
    """Return the cookie's name: browsers send cookies to every port of a host, so two servers need
    two names."""
    return f"failover-ui-{request.url.port or 80}"


def cookie_of(request: Request) -> str:
    """Return the cookie of a request, empty if it has none."""
    return request.cookies.get(cookie_name(request), "")


async def form(request: Request, session: Session) -> dict[str, str]:
    """Return the fields of a form. Raises Refused without the session's token."""
    kind = request.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise Refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "Only forms are read here.")
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > LARGEST:
            raise Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "The form is too large.")
    fields = dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True))
    given = fields.pop("csrf", "")
    if not hmac.compare_digest(given.encode("utf-8", "replace"), session.csrf.encode()):
        raise Refused(
            HTTPStatus.FORBIDDEN,
            "The form is not from this session. Nothing was done. Open the page again.",
        )
    return fields


class AccessGuard:
    """An ASGI application that lets requests through to another one; see the module."""

    def __init__(self, app: ASGIApp, door: LoginSessions) -> None:
        self._app = app
        self._door = door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or hand it on with its session in ``request.state.session``."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return

        async def safe(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
            await send(message)

        request = Request(scope, receive)
        try:
            self._check(request)
        except Refused as refused:
            peer = request.client.host if request.client else ""
            _REFUSALS.refused(f"{refused.status.value} {refused.status.phrase}", peer)
            await refusal(refused)(scope, receive, safe)
        else:
            await self._app(scope, receive, safe)

    def _check(self, request: Request) -> None:
        of_another = foreign(
            request.headers.getlist("Host"),
            origin=request.headers.get("Origin"),
            site=request.headers.get("Sec-Fetch-Site"),
        )
        if of_another == "host":
            raise Refused(
                HTTPStatus.FORBIDDEN,
                "This server answers only to localhost and to addresses such as 127.0.0.1. Use one "
                "of them, also through a tunnel.",
            )
        if of_another == "site":
            raise Refused(
                HTTPStatus.FORBIDDEN,
                "This request is from another site. Type or paste the address instead.",
            )
        session = self._door.session(cookie_of(request))
        request.state.session = session
        if session is None and not request.url.path.startswith(_OPEN):
            raise Refused(
                HTTPStatus.UNAUTHORIZED,
                "You are not logged in. Open the link that 'failover ui' printed last; each link "
                "works once.",
            )


def refusal(refused: Refused) -> Response:
    """Return the answer to a request that is refused."""
    return PlainTextResponse(f"{refused.why}\n", refused.status)
