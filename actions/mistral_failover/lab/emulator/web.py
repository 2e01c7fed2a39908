# SPDX-License-Identifier: Apache-2.0
"""One request: latency, injected faults, authentication, the handler, audit, durability."""

import asyncio
import datetime
import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from operator import attrgetter
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from mistral_failover.lab.emulator.core import Emulation
from mistral_failover.lab.emulator.state import ApiFault, CloudState, Token, User, new_id, token_key
from mistral_failover.model.documents import load_json


class ApiError(Exception):
    """An answer that is an error, in the shape of the service that gives it."""

    def __init__(self, status: int, body: Any, headers: dict[str, str] | None = None) -> None:
        super().__init__(f"HTTP {status}")
        self.status, self.body, self.headers = status, body, headers


ErrorBody = Callable[..., Any]
"""Builds a service's error body from a status and a message, and what else the service says."""


def plain_error(code: str, status: int, message: str, remedy: str) -> ApiError:
    """An error of the emulator's own interface."""
    return ApiError(status, {"error": {"code": code, "message": message, "remedy": remedy}})


@dataclass
class Call:
    """A request on its way to a handler; `body` is its JSON, {} when it has none."""

    emulation: Emulation
    request: Request
    body: Any
    token: Token | None = None
    user: User | None = None
    request_id: str = field(default_factory=lambda: f"req-{new_id()}")

    @property
    def project_id(self) -> str:
        """The project of the caller's token."""
        assert self.token is not None
        return self.token.project_id

    @property
    def user_id(self) -> str:
        """The caller."""
        assert self.user is not None
        return self.user.id

    @property
    def admin(self) -> bool:
        """Whether the caller may see every project."""
        return self.user is not None and self.user.admin

    def sees(self, project_id: str) -> bool:
        """Whether the caller may see things of that project."""
        return self.admin or self.project_id == project_id

    def path(self, name: str) -> str:
        """A part of the path."""
        return str(self.request.path_params[name])

    def query(self, name: str) -> str | None:
        """A query parameter, None when absent."""
        return self.request.query_params.get(name)


Handler = Callable[[Call], Any]


@dataclass(frozen=True)
class Service:
    """What the routes of one service share.

    :ivar error: builds the service's error bodies. :ivar authenticated: whether a token is
    required. :ivar delayed: whether the `api` latency applies and requests are audited. :ivar
    prepare: may refuse a call or add headers to its answer.
    """

    name: str
    error: ErrorBody
    authenticated: bool = True
    delayed: bool = True
    prepare: Callable[[Call], dict[str, str]] | None = None

    def refused(self, status: int, message: str, *more: str) -> ApiError:
        """An error of the service's."""
        return ApiError(status, self.error(status, message, *more))


def endpoint(
    service: Service,
    path: str,
    handler: Handler,
    operation: str | Callable[[Call], str],
    methods: Iterable[str] = ("GET",),
    *,
    public: bool = False,
) -> Route:
    """A route whose handler returns a Response, a JSON value (200) or (status, JSON value).

    :param operation: the name by which faults address this request, or what finds that name.
    :param public: no token needed although the service wants one.
    """

    async def serve(request: Request) -> Response:
        emulation: Emulation = request.app.state.emulation
        emulation.last_request = time.monotonic()
        arrived = time.time()
        call = Call(emulation, request, {})
        if service.delayed:
            await asyncio.sleep(emulation.latency.of("api"))
        headers = {"x-openstack-request-id": call.request_id}
        if service.name in ("compute", "volume"):
            headers["x-compute-request-id"] = call.request_id
        name = operation if isinstance(operation, str) else request.method.lower()
        fault: ApiFault | None = None
        try:
            call.body = await _json_body(service, request)
            if callable(operation):
                name = operation(call)
            fault = await _injected(service, call, name)
            if fault is not None and fault.fault == "gateway":
                return _by_gateway(fault)
            if service.authenticated and not public:
                authenticate(call, service)
            if service.prepare is not None:
                headers.update(service.prepare(call))
            answer = handler(call)
            if asyncio.iscoroutine(answer):
                answer = await answer
            if fault is not None and fault.fault == "lost":
                raise service.refused(fault.status, "The answer was lost on its way.")
            offer = {} if public else emulation.state.offers.get(service.name, {})
            response = _response(answer, offer)
        except ApiError as error:
            headers.update(error.headers or {})
            response = JSONResponse(error.body, error.status)
        response.headers.update(headers)
        if service.delayed:
            emulation.audit.record(
                "request",
                operation=name,
                method=request.method,
                path=request.url.path,
                project_id=call.token.project_id if call.token else None,
                status=response.status_code,
                arrived=arrived,
                request_id=request.headers.get("x-openstack-request-id"),
            )
        emulation.flush()
        if fault is not None and fault.fault == "mute":
            await asyncio.sleep(fault.seconds)
        return _Broken(response) if fault is not None and fault.fault == "drop" else response

    return Route(path, serve, methods=list(methods))


def authenticate(call: Call, service: Service) -> None:
    """Finds the caller by `X-Auth-Token`; 401 for an unknown or expired one, and what
    `is_valid` says for one that is honoured no more."""
    state = call.emulation.state
    text = call.request.headers.get("x-auth-token", "")
    token = state.tokens.get(token_key(text))
    if token is None or token.expires_at <= time.time():
        raise _refused(call, 401, UNKNOWN)
    if not is_valid(state, token):
        if service.name == "identity":
            raise _refused(call, *by_keystone(state, token))
        raise _refused(call, *by_service(state, token))
    if not _within_rules(call, service, restricted(state, token)):
        raise _refused(call, 401, UNKNOWN)
    call.token = token
    call.user = state.users[token.user_id]


def restricted(state: CloudState, token: Token) -> list[dict[str, str]] | None:
    """The access rules of a token's application credential; None: it may send every request."""
    credential = state.application_credentials.get(token.application_credential_id or "")
    return credential.access_rules if credential is not None else None


def _within_rules(call: Call, service: Service, rules: Iterable[Mapping[str, str]] | None) -> bool:
    """Whether the access rules of an application credential, if it has some, allow a request. Its
    token may always be validated."""
    path, method = call.request.url.path, call.request.method
    if rules is None or (service.name, method) == ("identity", "GET") and path.endswith("/tokens"):
        return True
    kinds = ("block-storage", "volumev3") if service.name == "volume" else (service.name,)
    return any(
        rule["service"] in kinds
        and rule["method"] == method
        and re.fullmatch(_pattern(rule["path"]), path)
        for rule in rules
    )


def _pattern(path: str) -> str:
    """The pattern of a path in an access rule: * and {name} are one part of it, ** is any number of
    parts."""
    parts = re.split(r"(\*\*|\*|\{[^}]*\})", path)
    return "".join(
        ".*" if part == "**" else "[^/]+" if part[:1] in ("*", "{") else re.escape(part)
        for part in parts
    )


def _refused(call: Call, status: int, message: str) -> ApiError:
    title = HTTPStatus(status).phrase
    where = {"WWW-Authenticate": f'Keystone uri="{call.emulation.url}/identity"'}
    return ApiError(
        status,
        {"error": {"code": status, "title": title, "message": message}},
        where if status == 401 else None,
    )


async def _injected(service: Service, call: Call, operation: str) -> ApiFault | None:
    """Applies the first matching fault; returns one that affects the answer."""
    kinds = ("error", "gateway", "lost", "mute", "drop", "hold")
    fault = take_fault(call.emulation, operation, kinds)
    if fault is None:
        return None
    if fault.fault == "hold":
        await asyncio.sleep(fault.seconds)
        return None
    if fault.fault == "error":
        words = fault.says or f"Injected fault of {operation}."
        if fault.status == HTTPStatus.UNAUTHORIZED:  # of the middleware, whatever Keystone says
            raise _refused(call, fault.status, words)
        raise service.refused(fault.status, words)
    return fault


def _by_gateway(fault: ApiFault) -> Response:
    kind = "application/json" if fault.says.startswith(("{", "[")) else "text/html"
    return Response(fault.says, fault.status, media_type=kind)


class _Broken(Response):
    """An answer that ends before its end."""

    def __init__(self, whole: Response) -> None:
        super().__init__(status_code=whole.status_code)
        self.headers["content-length"] = str(len(whole.body) + 1000)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Start the answer, and stop: the server closes the connection."""
        del scope, receive
        start = {
            "type": "http.response.start",
            "status": self.status_code,
            "headers": self.raw_headers,
        }
        await send(start)
        await send({"type": "http.response.body", "body": b"{", "more_body": True})


def take_fault(emulation: Emulation, operation: str, kinds: tuple[str, ...]) -> ApiFault | None:
    """Uses up one of an operation's injected faults of these kinds; None when there is none."""
    for fault in emulation.state.api_faults:
        if fault.operation in (operation, "any") and fault.fault in kinds:
            fault.times -= 1
            if fault.times <= 0:
                emulation.state.api_faults.remove(fault)
            emulation.audit.record("fault_applied", operation=operation, fault=fault.fault)
            emulation.changed()
            return fault
    return None


async def _json_body(service: Service, request: Request) -> Any:
    raw = await request.body()
    if not raw:
        return {}
    try:
        body = load_json(raw, "body")
    except ValueError:
        body = None
    if not isinstance(body, dict):
        raise service.refused(400, "The request body is not a JSON object.")
    return body


def _response(answer: Any, offer: Mapping[str, Any]) -> Response:
    if isinstance(answer, Response):
        return answer
    status, value = answer if isinstance(answer, tuple) else (200, answer)
    if value is None:
        return Response(status_code=status)
    return JSONResponse(_less(value, frozenset(offer.get("without", ()))), status)


def _less(value: Any, hidden: frozenset[str]) -> Any:
    """An answer without what a policy hides."""
    if not hidden:
        return value
    if isinstance(value, dict):
        return {k: _less(each, hidden) for k, each in value.items() if k not in hidden}
    return [_less(each, hidden) for each in value] if isinstance(value, list) else value


def utc(seconds: float | None, form: str = "%Y-%m-%dT%H:%M:%SZ") -> str | None:
    """A time as OpenStack writes it, None for None."""
    if seconds is None:
        return None
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime(form)


# -- tokens


UNKNOWN = "The request you have made requires authentication."
NOT_AUTHORIZED = "You are not authorized to perform the requested action."
AWAY = "The server is currently unavailable. Please try again at a later time."

Answer = tuple[int, str]
"""An HTTP status and its message."""


def trust_is_gone(state: CloudState, token: Token) -> bool:
    """Whether the trust by which the token was got was deleted."""
    return token.trust_id is not None and token.trust_id not in state.trusts


def is_valid(state: CloudState, token: Token) -> bool:
    """Whether Keystone lets the token's bearer do anything."""
    return not trust_is_gone(state, token) and state.users[token.user_id].enabled


def by_keystone(state: CloudState, token: Token) -> Answer:
    """Keystone's answer to a token that it does not honour."""
    if trust_is_gone(state, token):
        return 404, f"Could not find trust: {token.trust_id}."
    return (403, NOT_AUTHORIZED) if token.trust_id else (401, UNKNOWN)


def by_service(state: CloudState, token: Token) -> Answer:
    """The answer of any other service to such a token."""
    if trust_is_gone(state, token) or not token.trust_id:
        return 401, UNKNOWN
    return 503, AWAY


# -- conventions that several services share: microversions and pages


T = TypeVar("T")


def newest(call: Call, service: str, highest: tuple[int, int]) -> tuple[int, int]:
    """The newest microversion that a service offers: ``highest``, unless an older release is
    played."""
    up_to = call.emulation.state.offers.get(service, {}).get("up_to")
    return numbers(up_to) if up_to else highest


def numbers(version: str) -> tuple[int, int]:
    """A microversion such as "2.79" in a form that compares. Raises ValueError."""
    major, minor = version.split(".")
    return int(major), int(minor)


def microversion(
    header: str | None,
    service: str,
    lowest: tuple[int, int],
    highest: tuple[int, int],
    *,
    plain: str | None = None,
) -> tuple[int, int]:
    """The microversion that a request asks for; the lowest when it asks for none.

    :param header: `OpenStack-API-Version`, e.g. "compute 2.79, volume 3.59" or "compute latest".
    :param plain: the value of an older header that carries the number alone.
    :raises ApiError: 406 for a version out of range, 400 for no version at all.
    """
    wanted = plain
    for part in (header or "").split(","):
        words = part.split()
        if len(words) == 2 and words[0] == service:
            wanted = words[1]
    if wanted is None:
        return lowest
    if wanted == "latest":
        return highest
    match = re.fullmatch(r"(\d+)\.(\d+)", wanted)
    if match is None:
        message = f"API Version String {wanted} is of invalid format."
        raise ApiError(400, {"badRequest": {"code": 400, "message": message}})
    version = (int(match[1]), int(match[2]))
    if not lowest <= version <= highest:
        least, most = (".".join(map(str, limit)) for limit in (lowest, highest))
        message = (
            f"Version {wanted} is not supported by the API. Minimum is {least} and maximum is "
            f"{most}."
        )
        raise ApiError(406, {"computeFault": {"code": 406, "message": message}})
    return version


def paged(
    call: Call,
    rows: list[T],
    key: Callable[[T], str] = attrgetter("id"),
    no_marker: Callable[[str], ApiError] | None = None,
) -> list[T]:
    """The page that `marker` and `limit` name. ``no_marker``: the service's answer to a marker that
    it does not know, None if it then begins with the first row."""
    marker, limit = call.query("marker"), call.query("limit")
    if marker:
        at = next((i for i, row in enumerate(rows) if key(row) == marker), None)
        if at is None and no_marker is not None:
            raise no_marker(marker)
        rows = rows[at + 1 :] if at is not None else rows
    return rows[: int(limit)] if limit and limit.isdigit() else rows


def next_page(call: Call, rows: list[Any], page: list[Any]) -> list[dict[str, str]]:
    """The links to what follows a page of rows: one, or none after the last page."""
    if not page or page[-1] is rows[-1]:
        return []
    following = call.request.url.include_query_params(marker=page[-1]["id"])
    return [{"rel": "next", "href": str(following)}]
