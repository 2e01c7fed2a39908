# SPDX-License-Identifier: Apache-2.0
"""The ASGI application: routes, templates, live updates, orders."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable
from http import HTTPStatus
from pathlib import Path
from urllib.parse import urlencode

import jinja2
from markupsafe import Markup
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from mistral_failover.cli.base import lasted
from mistral_failover.model.text import clean
from mistral_failover.ui import access, drawing, orders
from mistral_failover.ui.access import AccessGuard, LoginSessions, Refused
from mistral_failover.ui.action_client import ActionClient, ActionFailed, CachingActionClient
from mistral_failover.ui.journal_watcher import JournalWatcher
from mistral_failover.ui.orders import ORDERS
from mistral_failover.ui.pages import SELDOM, Page, Pages, Parameters

STREAMS = 64
"""Maximum pages that are updated at once; a further one is not live."""
_HERE = Path(__file__).parent
_BEAT = 15.0  # seconds after which an unchanged stream shows that it is alive
_NOTICE = 0.05  # seconds within which a stream ends with its session, and sees a new step
_STATUS = {
    "UNKNOWN_GROUP": 404,
    "UNKNOWN_ID": 404,
    "NOT_FOUND": 404,
    "NOT_HELD": 404,
    "UNKNOWN_HOST": 404,
    "UNKNOWN_ZONE": 404,
    "USAGE": 400,
    "NOT_SURE": 400,
}

Build = Callable[[Parameters], Page]


def application(client: ActionClient, door: LoginSessions, *, read_only: bool = False) -> ASGIApp:
    """Return the application. ``read_only``: it has no orders at all."""
    # Around all of it, so that an answer about an error of ours has the headers too.
    return AccessGuard(_Ui(client, door, read_only=read_only).application(), door)


def templates() -> jinja2.Environment:
    """Return the environment of the templates: it escapes every value, in every template, and a
    missing one is an error."""
    found = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_clean,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # Imported macros see globals alone.
    found.globals["draw_plan"] = drawing.draw_plan
    found.globals["draw_timeline"] = drawing.draw_timeline
    found.globals["sheets"] = (drawing.WIDE, drawing.NARROW)
    found.globals["lasted"] = lasted
    return found


def _clean(value: object) -> object:
    return clean(value) if isinstance(value, str) and not isinstance(value, Markup) else value


class _Ui:
    def __init__(self, client: ActionClient, door: LoginSessions, *, read_only: bool) -> None:
        self._client = CachingActionClient(client)
        self._pulse = JournalWatcher(client, self._client.forget)
        self._door = door
        self._read_only = read_only
        self._templates = templates()
        self._streams = 0
        pages = Pages(self._client)
        self._order_page = pages.order
        self._pages: dict[str, Build] = {
            "/": pages.groups,
            "/group": pages.group,
            "/timeline": pages.timeline,
            "/plan": pages.plan,
            "/goals": pages.goals,
            "/alarm": pages.alarm,
            "/work": pages.work,
            "/history": pages.history,
            "/rehearsals": pages.rehearsals,
        }

    def application(self) -> Starlette:
        changing = [] if self._read_only else [Route("/order", self._order, methods=["POST"])]
        asked = [] if self._read_only else [Route("/order", self._order_form)]
        return Starlette(
            routes=[
                *(Route(path, self._shows(build)) for path, build in self._pages.items()),
                Route("/live", self._live),
                *asked,
                *changing,
                Route("/login", self._login),
                Route("/logout", self._logout, methods=["POST"]),
                Mount("/static", StaticFiles(directory=_HERE / "static")),
            ],
            exception_handlers={
                ActionFailed: self._trouble,
                Refused: _refused,
                HTTPException: _unknown,
            },
        )

    # --- pages ----------------------------------------------------------------------------------

    def _shows(self, build: Build) -> Callable[[Request], Response]:
        def show(request: Request) -> Response:
            given = dict(request.query_params)
            page = build(given)
            live = None
            if page.live is not None:
                asked = {**given, "page": request.url.path}
                live = f"/live?{urlencode(asked)}"
            status = _status(page.trouble) if page.trouble else 200
            return self._answer(request, page, live=live, trouble=page.trouble, status=status)

        return show

    def _answer(
        self,
        request: Request,
        page: Page,
        *,
        live: str | None = None,
        trouble: ActionFailed | None = None,
        status: int = 200,
    ) -> Response:
        session: access.Session = request.state.session
        html = self._templates.get_template("frame.html").render(
            page=page,
            part=Markup(self._part(page, session)),  # noqa: S704 - made by a template
            live=live,
            said=session.take_said(),
            trouble=trouble,
            path=request.url.path,
            csrf=session.csrf,
        )
        return HTMLResponse(html, status)

    def _part(self, page: Page, session: access.Session) -> str:
        return self._templates.get_template(page.template).render(
            page=page, csrf=session.csrf, read_only=self._read_only, **page.content
        )

    def _trouble(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, ActionFailed)
        page = Page("trouble.html", "That did not work", {})
        return self._answer(request, page, trouble=error, status=_status(error))

    # --- live updates ---------------------------------------------------------------------------

    async def _live(self, request: Request) -> Response:
        given = dict(request.query_params)
        path = given.pop("page", "")
        build = self._pages.get(path)
        if build is None or path == "/plan":  # each look would store another plan
            raise HTTPException(404)
        if self._streams >= STREAMS:
            # 204 tells the browser not to try again.
            return Response(status_code=204)
        return StreamingResponse(
            self._events(request, build, given), media_type="text/event-stream"
        )

    async def _events(
        self, request: Request, build: Build, given: Parameters
    ) -> AsyncIterator[str]:
        """Yield the page's part whenever it has changed, and what keeps it from being read."""
        self._streams += 1
        before: dict[str, str] = {}
        cookie = access.cookie_of(request)
        quiet = 0.0
        try:
            with self._pulse.watched():
                # The server ends it when the browser has gone.
                while session := self._door.session(cookie):
                    steps, began = self._pulse.number, time.monotonic()
                    pause, parts = await run_in_threadpool(self._look, build, given, session)
                    took = time.monotonic() - began
                    for name, html in parts.items():
                        if before.get(name) != html:
                            before[name] = html
                            quiet = 0.0
                            yield _event(name, html)
                    if quiet >= _BEAT:
                        quiet = 0.0
                        yield ": nothing has changed\n\n"
                    quiet += pause
                    await self._rest(cookie, pause, took, steps)
        finally:
            self._streams -= 1

    async def _rest(self, cookie: str, pause: float, took: float, steps: int) -> None:
        """Wait for the next look: for ``pause`` seconds, less if there are other steps than
        ``steps``, but at least as long as the last look ``took``."""
        for i in range(math.ceil(pause / _NOTICE)):
            await asyncio.sleep(_NOTICE)
            if self._door.session(cookie) is None:
                return
            if self._pulse.number != steps and pause < SELDOM and i * _NOTICE >= took:
                return

    def _look(
        self, build: Build, given: Parameters, session: access.Session
    ) -> tuple[float, dict[str, str]]:
        try:
            page = build(given)
        except ActionFailed as error:
            told = self._templates.get_template("away.html").render(trouble=error)
            return 3.0, {"trouble": told}
        return page.live or 5.0, {"trouble": "", "page": self._part(page, session)}

    # --- orders ---------------------------------------------------------------------------------

    def _order_form(self, request: Request) -> Response:
        given = dict(request.query_params)
        order = ORDERS.get(given.get("what", ""))
        if order is None or (order.subject == "group" and not given.get("group")):
            raise HTTPException(404)
        return self._answer(request, self._order_page(order, given))

    async def _order(self, request: Request) -> Response:
        fields = await access.form(request, request.state.session)
        order = ORDERS.get(fields.get("what", ""))
        if order is None:
            raise HTTPException(404)
        done = await run_in_threadpool(orders.carry_out, order, self._client, fields)
        request.state.session.said = done.said
        return _see(order.page(fields, done))

    # --- sessions -------------------------------------------------------------------------------

    def _login(self, request: Request) -> Response:
        cookie = self._door.login(request.query_params.get("token", ""))
        if cookie is None:
            raise Refused(
                HTTPStatus.FORBIDDEN,
                "This link was used before, or is wrong. Open the one that 'failover ui' printed "
                "last.",
            )
        answer = _see("/")
        answer.set_cookie(
            access.cookie_name(request), cookie, httponly=True, samesite="strict", path="/"
        )
        return answer

    async def _logout(self, request: Request) -> Response:
        await access.form(request, request.state.session)
        self._door.logout(access.cookie_of(request))
        answer = Response("You are logged out.\n", media_type="text/plain")
        answer.delete_cookie(access.cookie_name(request), path="/")
        return answer


def _status(trouble: ActionFailed) -> int:
    return _STATUS.get(trouble.code, HTTPStatus.BAD_GATEWAY)


def _see(where: str) -> Response:
    return RedirectResponse(where, HTTPStatus.SEE_OTHER)


def _event(name: str, html: str) -> str:
    lines = "".join(f"data: {line}\n" for line in html.splitlines() or [""])
    return f"event: {name}\n{lines}\n"


def _refused(_request: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    return access.refusal(error)


def _unknown(_request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    return Response(f"{HTTPStatus(status).phrase}\n", status, media_type="text/plain")
