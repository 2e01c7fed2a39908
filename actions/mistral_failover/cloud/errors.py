# SPDX-License-Identifier: Apache-2.0
"""One error class for every failure in the cloud.

Four client libraries raise some eighty exception classes for a few kinds of failure. `translate`
turns them into one: a stable code, a sentence, a remedy, and whether a retry may help.

An error is *transient* if the service was unreachable or did not answer properly: the request is
fine, and the same call will work later. It is *unknown* if a request that changes something was
sent and may still take effect although no answer came.
"""

from __future__ import annotations

import http.client
import os
import re
import socket
import ssl
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from http import HTTPStatus
from typing import Any

import requests
import urllib3
from cinderclient import exceptions as cinder
from heatclient import exc as heat
from keystoneauth1 import exceptions as keystone
from openstack import exceptions as sdk

from mistral_failover.redaction import redact

REMEDIES = {
    "NOT_FOUND": "Check the name or id, and that the project of the request owns it.",
    "FORBIDDEN": "Give the user of the request (or of the trust) the role that this call needs.",
    "TOKEN_EXPIRED": (
        "Continue what was begun with a new token: failover sweep. For alarms and cron triggers "
        "check that the trust still exists and that its user is enabled."
    ),
    "TRUST_GONE": (
        "Enable the trust's user and restore the user's roles in the project. If the trust was "
        "deleted, create it again, together with the alarm, stack or cron trigger that used it. "
        "Until then continue with a token of your own: failover sweep."
    ),
    "CONFLICT": "Wait until the running action has ended, then try again.",
    "HOST_DOWN": (
        "Start nova-compute on the server's host again: until then Nova can neither detach nor "
        "stop anything there."
    ),
    "VOLUME_IN_USE": "Detach the volume from its holder first.",
    "QUOTA": "Raise the project's quota, or free some of it.",
    "NOT_OFFERED": "Upgrade the service, or use nothing in the group file that needs it.",
    "BAD_REQUEST": "Correct the group file or the stack: the cloud does not accept this request.",
    "RATE_LIMITED": "Try again later; raise the API's rate limit if this keeps happening.",
    "UNREACHABLE": "Check that the endpoint in the catalog answers from this host.",
    "TIMEOUT": (
        "Try again: a repeat continues where this attempt stopped. If it fails again, check the "
        "service's log for the request."
    ),
    "SERVER_ERROR": "Try again. If it fails again, check the service's log for the request id.",
    "NO_ENDPOINT": "Register the service in Keystone's catalog for this region.",
    "CONFIG": "Correct [failover] in the configuration, or clouds.yaml.",
    "UNEXPECTED": "Report this with the text above: the cloud gave an unknown answer.",
}
_TRANSIENT = {"RATE_LIMITED", "UNREACHABLE", "SERVER_ERROR"}
# For a call without an answer; a wait that took too long has the same code and is not transient.
_UNANSWERED = "TIMEOUT"
_RETRYABLE = {*_TRANSIENT, _UNANSWERED, "CONFLICT"}
# The outcome of a request that changes something is unknown for these; for 429 it is known.
_UNKNOWN = {"UNREACHABLE", "SERVER_ERROR", _UNANSWERED}
SERVICES = {
    "alarming": "Aodh",
    "block-storage": "Cinder",
    "block-store": "Cinder",
    "compute": "Nova",
    "dns": "Designate",
    "identity": "Keystone",
    "load-balancer": "Octavia",
    "network": "Neutron",
    "orchestration": "Heat",
    "volume": "Cinder",
    "volumev3": "Cinder",
    "workflow": "Mistral",
    "workflowv2": "Mistral",
}
"""The services' names, by their type in the catalog."""
NO_CAUSE = "the connection failed"
"""What `cause` returns if the error does not tell more."""
_CLIENTS = {"cinderclient": "Cinder", "heatclient": "Heat", "openstack": "Nova"}
_BY_STATUS = {
    400: "BAD_REQUEST",
    401: "TOKEN_EXPIRED",
    403: "FORBIDDEN",
    404: "NOT_FOUND",
    406: "NOT_OFFERED",  # a microversion above the newest of the service
    408: "TIMEOUT",
    409: "CONFLICT",
    410: "NOT_FOUND",
    412: "CONFLICT",  # Neutron: the object was changed since the look
    413: "RATE_LIMITED",
    429: "RATE_LIMITED",
    501: "BAD_REQUEST",
    504: "TIMEOUT",
}
# The texts of keystoneauth's ConnectFailure and ConnectTimeout, and of a client for an answer 5xx.
_CANNOT_REACH = re.compile(
    r"unable to establish connection to \w+://(?P<refused>[^/\s]+)"
    r"|request to \w+://(?P<late>[^/\s]+)(?:/\S*)? timed out"
    r"|\bhttp (?P<status>50[0234])\b",
    re.IGNORECASE,
)
# Facts that only the text tells. Nova answers 409 both for "busy" and for "the host's compute
# service is down" (its exceptions ServiceUnavailable and ComputeServiceUnavailable); Cinder answers
# 400 for a volume that is in use; both use 403 or 413 for quotas.
_BY_TEXT = [
    (409, "HOST_DOWN", re.compile(r"service\b.* is unavailable|(service|host)\b.* is down")),
    (400, "VOLUME_IN_USE", re.compile(r"status must be available|already attached")),
    (409, "VOLUME_IN_USE", re.compile(r"conflictnovausingattachment|already attached")),
    # Heat asks other services whether the properties of resources are valid, and answers 400 for
    # those that it cannot reach.
    (400, "UNREACHABLE", _CANNOT_REACH),
    (403, "QUOTA", re.compile(r"quota|limitexceeded|too many|maximum number")),
    (413, "QUOTA", re.compile(r"quota|limitexceeded")),
]


class Fate(Enum):
    """What a call leaves of a request that changes something."""

    SETTLED = "settled"
    """It was answered, or not sent: a look shows all that it does."""
    FAILED = "failed"
    """The service failed, or broke the connection: it does the rest soon, or never."""
    SILENT = "silent"
    """There was no answer in time: it may be in a queue."""


# What is accepted and done later, with nothing to show for it until then. Nova detaches a port
# when its compute service takes that up; Heat's older engine starts an update within seconds.
_UNSEEN = (
    (re.compile(r"DELETE .*/os-interface/"), Fate.SILENT),
    (re.compile(r"(PATCH|PUT) .*/stacks/"), Fate.FAILED),
)


class CloudError(Exception):
    """A call to the cloud, or a wait for it, failed.

    ``code``: stable, upper case with underscores. ``message``: what could not be done and why.
    ``remedy``: what to do about it. ``retryable``: the same call may succeed later unchanged.
    ``http_status`` and ``request_id``: of the answer, if there was one. ``blocked``: only an
    operator can help, as the remedy says, and then it continues; ``about``: what the operator has
    to change, in a form that shows whether it was changed (see
    ``cloud.volume_holders.volume_fingerprint``).

    ``transient``: the ``service`` (Nova, Cinder, Heat, Neutron, Keystone, Mistral; "" if unknown)
    did not answer, or not properly; ``detail`` says how in a few words, such as "connection
    refused", "HTTP 503" or "no answer within 10 s"; ``patience`` is for how many seconds it is
    waited out (None: as long as the group allows), before it counts as not transient. ``unknown``:
    the request may still take effect.
    ``target``: with TARGET_DOWN, what is known of the server (`volume_errors.target_down`).
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
        remedy: str | None = None,
        retryable: bool | None = None,
        http_status: int | None = None,
        request_id: str | None = None,
        blocked: bool = False,
        transient: bool | None = None,
        service: str = "",
        detail: str = "",
        patience: float | None = None,
        unknown: bool = False,
    ) -> None:
        self.code = code
        self.message = redact(message)
        self.remedy = REMEDIES.get(code, "") if remedy is None else remedy
        self.retryable = code in _RETRYABLE if retryable is None else retryable
        self.http_status = http_status
        self.request_id = request_id
        self.blocked = blocked
        self.transient = code in _TRANSIENT if transient is None else transient
        self.service = service
        self.detail = detail
        self.patience = patience
        self.unknown = unknown
        self.about: dict[str, Any] | None = None
        self.target: dict[str, Any] | None = None
        super().__init__(f"{code}: {self.message}")


@contextmanager
def translated(doing: str, service: str = "", *, changes: bool = False) -> Iterator[None]:
    """Let only `CloudError` leave the block; programming errors pass unchanged.

    The parameters are those of `translate`. The original is not chained: Keystone, for one, quotes
    tokens in its messages.
    """
    try:
        yield
    except FOREIGN as error:
        raise translate(error, doing, service, changes=changes) from None


def translate(
    exc: BaseException, doing: str, service: str = "", *, changes: bool = False
) -> CloudError:
    """Turn an exception of a client library into a `CloudError`; return a `CloudError` as it is.

    ``doing`` completes the sentence "Could not ...". ``service``: the service called, if the
    exception does not tell. ``changes``: the request changes something, so its outcome may be
    unknown.
    """
    if isinstance(exc, CloudError):
        return exc
    status, words, request_id = _answer(exc)
    code = _code(exc, status, words)
    name = _service(exc) or service
    secure = not isinstance(exc, keystone.SSLError)
    transient = secure and code in (*_TRANSIENT, _UNANSWERED)
    detail, sent = (f"HTTP {status}", True) if status else cause(exc)
    if status == HTTPStatus.BAD_REQUEST and transient:
        detail, sent = unreachable_behind(words) or detail, False  # it was refused
    if status:
        said = f"{words} (HTTP {status})"
    elif transient:
        said = f"{name or 'the service'} is not reachable: {detail}"
    else:
        said = words
    return CloudError(
        code,
        f"Could not {doing}: {said}",
        retryable=None if secure else False,
        http_status=status,
        request_id=request_id,
        transient=transient,
        service=name,
        detail=detail if transient else "",
        unknown=changes and sent and code in _UNKNOWN,
    )


def fate_by_status(asked: str, status: int) -> Fate:
    """Return what an answer with this HTTP status leaves of a request that changes something.
    ``asked``: its method and path."""
    if status < HTTPStatus.BAD_REQUEST:
        late = (fate for pattern, fate in _UNSEEN if pattern.match(asked))
        return next(late, Fate.SETTLED)
    code = _code_of(status)
    if code == _UNANSWERED:
        return Fate.SILENT
    return Fate.FAILED if code in _UNKNOWN else Fate.SETTLED


def fate_without_answer(exc: BaseException) -> Fate:
    """Return what a call that raised this leaves of a request that changes something."""
    if isinstance(exc, CloudError) or not cause(exc)[1]:
        return Fate.SETTLED  # it was not sent
    return Fate.SILENT if isinstance(exc, _TIMEOUT) else Fate.FAILED


def unreachable_behind(words: str) -> str | None:
    """Return in a few words what a service says that it could not reach behind it, None if it does
    not say that. ``words``: the service's own, of an error or of a stack that failed."""
    found = _CANNOT_REACH.search(words)
    if found is None:
        return None
    if found["status"]:
        return f"a service behind it answered HTTP {found['status']}"
    place = (found["refused"] or found["late"]).rpartition("@")[2]  # no password of a URL
    return f"it cannot reach {place.rstrip(':')}"


def cause(exc: BaseException) -> tuple[str, bool]:
    """Return in a few words why there was no answer, and whether the request may have been sent.

    The libraries wrap the operating system's error several times and quote it in sentences; this
    looks for it among the wrapped exceptions.
    """
    detail, sent = _cause(exc)
    known = (getattr(each, "failover_sent", None) for each in _wrapped(exc))
    # The session knows; a library's error may look the same before and after.
    return detail, next((each for each in known if each is not None), sent)


def _cause(exc: BaseException) -> tuple[str, bool]:
    for each in _wrapped(exc):
        if isinstance(each, requests.ConnectTimeout):
            return f"no connection{_within(each)}", False
        if isinstance(each, requests.Timeout | TimeoutError | urllib3.exceptions.ReadTimeoutError):
            return f"no answer{_within(each)}", True
        if isinstance(each, ConnectionRefusedError):
            return "connection refused", False
        if isinstance(each, socket.gaierror):
            return "its name cannot be resolved", False
        if isinstance(each, ssl.SSLError):
            return "no TLS connection", False
        if isinstance(each, ConnectionError | http.client.HTTPException):
            return "connection reset", True
        if isinstance(each, OSError) and each.errno is not None:
            return os.strerror(each.errno).lower(), True
    return ("no answer" if isinstance(exc, _TIMEOUT) else NO_CAUSE), True


def _wrapped(exc: BaseException) -> Iterator[BaseException]:
    """Return an exception and all that it wraps, the nearest first."""
    seen: set[int] = set()
    todo: deque[Any] = deque([exc])
    while todo:
        each = todo.popleft()
        if not isinstance(each, BaseException) or id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        inner = (getattr(each, "reason", None), each.__cause__, each.__context__, *each.args)
        todo.extend(inner)


def _within(exc: BaseException) -> str:
    seconds = getattr(exc, "failover_seconds", None)
    return f" within {seconds:.3g} s" if isinstance(seconds, int | float) else ""


def _service(exc: BaseException) -> str:
    """Return the service that did not answer: by the session's information, or by the client that
    raised."""
    for each in _wrapped(exc):
        if isinstance(found := getattr(each, "failover_service", None), str):
            return found
    return _CLIENTS.get(type(exc).__module__.partition(".")[0], "")


# The base classes of what the four libraries and requests raise. heatclient and cinderclient have
# no common one.
FOREIGN: tuple[type[BaseException], ...] = (
    keystone.ClientException,
    sdk.SDKException,
    cinder.ClientException,
    cinder.ConnectionError,
    cinder.EndpointNotFound,
    cinder.UnsupportedVersion,
    cinder.VersionNotFoundForAPIMethod,
    cinder.AuthorizationFailure,
    cinder.TimeoutException,
    cinder.ResourceInErrorState,
    heat.BaseException,
    heat.EndpointNotFound,
    heat.StackFailure,
    requests.RequestException,
)
_UNREACHABLE = (
    keystone.ConnectionError,
    keystone.DiscoveryFailure,
    cinder.ConnectionError,
    heat.CommunicationError,
    requests.ConnectionError,
    sdk.ServiceDiscoveryException,
)
_TIMEOUT = (keystone.ConnectTimeout, requests.Timeout, sdk.ResourceTimeout, cinder.TimeoutException)
_NO_ENDPOINT = (
    keystone.CatalogException,
    cinder.EndpointNotFound,
    heat.EndpointNotFound,
    heat.InvalidEndpoint,
    sdk.EndpointNotFound,
)
_NO_AUTH = (
    keystone.AuthorizationFailure,
    keystone.MissingAuthMethods,
    keystone.AuthPluginException,
    cinder.AuthorizationFailure,
)


def _code(exc: BaseException, status: int | None, detail: str) -> str:
    if status:
        text = detail.lower()
        for at, code, pattern in _BY_TEXT:
            if at == status and pattern.search(text):
                return code
        return _code_of(status)
    for classes, code in (
        (_TIMEOUT, "TIMEOUT"),
        (_NO_ENDPOINT, "NO_ENDPOINT"),
        (_UNREACHABLE, "UNREACHABLE"),
        (_NO_AUTH, "TOKEN_EXPIRED"),
        ((sdk.ConfigException,), "CONFIG"),
    ):
        if isinstance(exc, classes):
            return code
    return "UNEXPECTED"


def _code_of(status: int) -> str:
    return _BY_STATUS.get(status, "SERVER_ERROR" if status >= 500 else "BAD_REQUEST")


def _answer(exc: BaseException) -> tuple[int | None, str, str | None]:
    """Return the HTTP status, the service's own words, and its request id, where available."""
    response = getattr(exc, "response", None)
    headers = getattr(response, "headers", None) or {}
    status = next(
        (
            value
            for name in ("http_status", "status_code", "code")
            if isinstance(value := getattr(exc, name, None), int) and value >= 300
        ),
        getattr(response, "status_code", None),
    )
    request_id = (
        headers.get("x-openstack-request-id")
        or headers.get("x-compute-request-id")
        or getattr(exc, "request_id", None)
    )
    return status, _words(exc, response) or type(exc).__name__, request_id


def _words(exc: BaseException, response: Any) -> str:
    if response is not None:
        try:
            found = _message(response.json())
        except ValueError:
            found = None
        if found:
            return found
    if isinstance(exc, heat.HTTPException):
        return str(exc.error["error"].get("message") or "").strip()
    details = getattr(exc, "details", None)
    if details in (None, "", "n/a"):  # cinderclient's text for an empty message
        details = getattr(exc, "message", None) or exc
    return str(details).strip()


def _message(body: Any) -> str | None:
    """Find the message in an error body: {"message"} at the top or one level below it; as Mistral
    and Octavia have it, {"faultstring"}, which Aodh has in {"error_message"}; also of Octavia,
    {"description"}; or, of Designate, {"errors": {"errors": [{"message"}]}}."""
    if not isinstance(body, dict):
        return None
    if isinstance(inner := body.get("error_message"), dict):
        return _message(inner)
    if isinstance(errors := body.get("errors"), dict) and isinstance(errors.get("errors"), list):
        return _message(dict(enumerate(errors["errors"])))
    for key in ("faultstring", "description"):
        if isinstance(body.get(key), str):
            return " ".join(body[key].split())
    for candidate in (body, *body.values()):
        if isinstance(candidate, dict) and isinstance(candidate.get("message"), str):
            return str(candidate["message"])
    return None
