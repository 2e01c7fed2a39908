# SPDX-License-Identifier: Apache-2.0
"""One error class for every failure in the cloud, and the one classification of answers.

The transport (:mod:`mistral_failover.cloud.transport`) classifies each exchange once, below all
clients: what a service refuses and what does not come about become a `CloudError`, with a stable
code, a sentence, a remedy, and whether a retry may help. The status decides, then what only the
service's words tell (`_BY_TEXT`: Nova, Cinder and Heat have no codes of their own for it).

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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from http import HTTPStatus
from typing import Any, TypeVar

import requests
import urllib3
from keystoneauth1 import exceptions as keystone

from mistral_failover.cloud.answers import ForeignAnswer, why_foreign
from mistral_failover.lookups import NotResolved
from mistral_failover.model.remedies import Need
from mistral_failover.model.text import clean
from mistral_failover.redaction import redact

REMEDIES = {
    "NOT_FOUND": "Check the name or id, and that the project of the request owns it.",
    "FORBIDDEN": "Give the user of the request (or of the trust) the role that this call needs.",
    "TOKEN_EXPIRED": (
        "Get a new token: a sweep with it continues what was begun. For alarms and cron triggers "
        "check that the trust still exists and that its user is enabled."
    ),
    "TRUST_GONE": (
        "Enable the trust's user and restore the user's roles in the project. If the trust was "
        "deleted, create it again, together with what used it, such as an alarm or a cron trigger. "
        "Until then a sweep with a token of your own continues what was begun."
    ),
    "CREDENTIAL_REFUSED": (
        "Correct the entry of clouds.yaml: its password, or an application credential that ended "
        "with its user or a role. The next sweep then continues what was begun."
    ),
    "CONFLICT": "Wait until the running action has ended, then try again.",
    "HOST_DOWN": (
        "Start nova-compute on the server's host again: until then Nova can neither detach nor "
        "stop anything there."
    ),
    "STACK_REPLACED": "See what the new stack has. If the group is to run there: failover group "
    "adopt-stack GROUP.",
    "VOLUME_IN_USE": "Detach the volume from its holder first.",
    "QUOTA": "Raise the project's quota, or free some of it.",
    "NOT_OFFERED": "Upgrade the service, or use nothing in the group file that needs it.",
    "BAD_REQUEST": (
        "Correct the group file, or what it names: the cloud does not accept this request."
    ),
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
NO_RIGHTS = frozenset({"TOKEN_EXPIRED", "TRUST_GONE", "CREDENTIAL_REFUSED"})
"""Error codes of requests that Keystone no longer accepts, whatever they ask for."""
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
    498: "RATE_LIMITED",  # of Swift's limiter, and of gateways
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
_LONGEST = 500
"""Characters of a refusal that has no form."""


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
    ``remedy``: what to do about it; ``needs``: the same as values, as far as it is a known remedy.
    ``retryable``: the same call may succeed later unchanged.
    ``http_status`` and ``request_id``: of the answer, if there was one. ``blocked``: only an
    operator can help, as the remedy says, and then it continues; ``about``: what the operator has
    to change, in a form that shows whether it was changed: ``server``, for a volume also
    ``volume``, and ``sight``, what was seen of them (``cloud.volume_holders.volume_fingerprint``,
    ``cloud.servers.server_fingerprint``).

    ``transient``: the ``service`` (Nova, Cinder, Heat, Neutron, Keystone, Mistral; "" if unknown)
    did not answer, or not properly; ``detail`` says how in a few words, such as "connection
    refused", "HTTP 503" or "no answer within 10 s"; ``patience`` is for how many seconds it is
    waited out (None: as long as the group allows), before it counts as not transient. ``unknown``:
    the request may still take effect.
    ``target``: with TARGET_DOWN, what is known of the server (`volume_holders.target_down`).
    ``field``: the property of a group file that is wrong, empty if that is not known
    (`resources.modules.about`).
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
        needs: tuple[Need, ...] = (),
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
        self.needs = needs
        self.about: dict[str, Any] | None = None
        self.target: dict[str, Any] | None = None
        self.field = ""
        self._said: str | None = None
        self._named = False
        super().__init__(f"{code}: {self.message}")

    @classmethod
    def of_request(cls, doing: str, code: str, said: str, **more: Any) -> CloudError:
        """Return the error of a request that failed. ``said``: why, in the service's own words;
        ``more``: as of `CloudError`."""
        error = cls(code, f"Could not {doing}: {said}", **more)
        error._said = redact(said)
        return error

    def copy(self) -> CloudError:
        """Return the same error, for another caller who may add to it."""
        made = type(self).__new__(type(self), *self.args)
        made.__dict__.update(self.__dict__)
        return made

    @property
    def said(self) -> str:
        """The service's own words, if this is the error of a request; else the message."""
        return self._said or self.message

    def because(self, doing: str) -> None:
        """Say what the request was for, once, in place of the request itself."""
        if self._said is not None and not self._named:
            self.message = f"Could not {redact(doing)}: {self._said}"
            self.args, self._named = (f"{self.code}: {self.message}",), True


T = TypeVar("T")


def if_there(read: Callable[[], T]) -> T | None:
    """Return what ``read`` sees, or None if the service says that there is no such thing. Raises
    `CloudError` as it does."""
    try:
        return read()
    except CloudError as error:
        if error.code != "NOT_FOUND":
            raise
        return None


@contextmanager
def translated(doing: str, service: str = "") -> Iterator[None]:
    """Let only `CloudError` leave the block; programming errors pass unchanged.

    ``doing`` completes the sentence "Could not ...", in place of the request itself; ``service``:
    as for `translate`. The original is not chained: Keystone, for one, quotes tokens in its
    messages.
    """
    try:
        yield
    except CloudError as error:
        error.because(doing)
        raise
    except FOREIGN as error:
        raise translate(error, doing, service) from None


def translate(
    exc: BaseException, doing: str, service: str = "", *, changes: bool = False
) -> CloudError:
    """Turn an exception of keystoneauth or requests into a `CloudError`; return a `CloudError` as
    it is.

    ``doing`` completes the sentence "Could not ...". ``service``: the service called, if the
    exception does not tell. ``changes``: the request changes something, so its outcome may be
    unknown.
    """
    if isinstance(exc, CloudError):
        return exc
    name = _service(exc) or service
    answer = getattr(exc, "response", None)
    if answer is not None and answer.status_code >= HTTPStatus.MULTIPLE_CHOICES:
        failure = refusal(answer, doing, name, changes=changes)
        if failure.code in ("NOT_FOUND", "TOKEN_EXPIRED") and _authenticates(answer.request):
            # That says nothing about what was asked for, nor about a token.
            failure.code = "CREDENTIAL_REFUSED"
            failure.remedy = REMEDIES[failure.code]
        return failure
    code, (detail, sent) = _code_without_answer(exc), cause(exc)
    remedy = None
    untrusted = next((e for e in _wrapped(exc) if isinstance(e, _UNTRUSTED)), None)
    secure = untrusted is None and not isinstance(exc, keystone.SSLError)
    transient = secure and code in (*_TRANSIENT, _UNANSWERED)
    if transient and (proxy := _noted(exc, "failover_proxy")):
        detail += f", through the proxy {proxy}"
        remedy = _BY_PROXY
    said = str(exc).strip() or type(exc).__name__
    if untrusted is not None:
        why = untrusted.verify_message
        said = f"the certificate of {_host(exc) or name or 'the service'} is not trusted: {why}"
        remedy = _BY_CERTIFICATE.get(untrusted.verify_code, _UNKNOWN_AUTHORITY)
    failure = CloudError.of_request(
        doing,
        code,
        f"{name or 'the service'} is not reachable: {detail}" if transient else said,
        remedy=remedy,
        retryable=None if secure else False,
        transient=transient,
        service=name,
        detail=detail if transient else "",
        unknown=changes and sent and code in _UNKNOWN,
    )
    if regions := getattr(exc, "failover_regions", None):
        names = clean(", ".join(regions))
        failure.remedy = f"Set region_name to a region that the catalog has: {names}."
    return failure


def refusal(
    answer: requests.Response, doing: str, service: str, *, changes: bool = False
) -> CloudError:
    """Return the error of an answer that refuses the request, or is not the service's. The
    parameters are those of `translate`."""
    status = answer.status_code
    headers = answer.headers
    words = _words(answer)
    code = _code(status, words)
    detail, away = f"HTTP {status}", None
    if status == HTTPStatus.BAD_REQUEST and code in _TRANSIENT:
        away = unreachable_behind(words)
    elif why := why_foreign(answer):
        code, detail = "UNREACHABLE", f"HTTP {status}, but {why}"
    transient = code in (*_TRANSIENT, _UNANSWERED)
    proxy = getattr(answer, "failover_proxy", None)
    if transient and proxy and not headers.get("x-openstack-request-id"):
        detail += f", through the proxy {proxy}"
    return CloudError.of_request(
        doing,
        code,
        f"{words} ({detail})",
        http_status=status,
        request_id=headers.get("x-openstack-request-id") or headers.get("x-compute-request-id"),
        transient=transient,
        service=service,
        detail=(away or detail) if transient else "",
        unknown=changes and code in _UNKNOWN and away is None,
    )


def fate_of(asked: str, answer: requests.Response) -> Fate:
    """Return what an answer leaves of a request that changes something. ``asked``: its method and
    path."""
    return Fate.FAILED if why_foreign(answer) else fate_by_status(asked, answer.status_code)


def fate_by_status(asked: str, status: int) -> Fate:
    """Return what an answer with this HTTP status leaves of a request that changes something.
    ``asked``: its method and path."""
    if status < HTTPStatus.BAD_REQUEST:
        late = (fate for pattern, fate in _UNSEEN if pattern.match(asked))
        return next(late, Fate.SETTLED)
    code = _code(status, "")
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
        if isinstance(each, _FOREIGN_ANSWER):
            return "the answer is not from the service itself", True
        if isinstance(each, requests.ConnectTimeout):
            return f"no connection{_within(each)}", False
        if isinstance(each, requests.Timeout | TimeoutError | urllib3.exceptions.ReadTimeoutError):
            return f"no answer{_within(each)}", True
        if isinstance(each, ConnectionRefusedError):
            return "connection refused", False
        if isinstance(each, NotResolved):
            return str(each.strerror), False
        if isinstance(each, socket.gaierror):
            return "its name cannot be resolved", False
        if isinstance(each, ssl.SSLError):
            return "no TLS connection", False
        if isinstance(each, OSError) and (refused := _NO_TUNNEL.match(str(each))):
            return f"the proxy answered {clean(refused[1])}", False
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
    """Return the service that did not answer, by the session's information."""
    return _noted(exc, "failover_service")


def _host(exc: BaseException) -> str:
    """Return the host to which there was no connection, empty if that is not known: a request for a
    token may have been made on the way to another service."""
    found = (getattr(getattr(each, "pool", None), "host", None) for each in _wrapped(exc))
    return next((str(each) for each in found if each), "")


def _noted(exc: BaseException, name: str) -> str:
    """Return what the session noted in an exception, or in one that it wraps; empty: nothing."""
    found = (getattr(each, name, None) for each in _wrapped(exc))
    return next((each for each in found if isinstance(each, str)), "")


FOREIGN = (keystone.ClientException, requests.RequestException)
"""What keystoneauth and requests raise, which carry every request: the session makes `CloudError`
of it if a service was asked."""
_TIMEOUT = (keystone.ConnectTimeout, requests.Timeout)
_FOREIGN_ANSWER = (keystone.InvalidResponse, requests.exceptions.InvalidJSONError, ForeignAnswer)
_BY_PROXY = (
    "Check the proxy that the environment names (https_proxy, http_proxy), or name the hosts of "
    "the cloud in no_proxy."
)
_NO_TUNNEL = re.compile("Tunnel connection failed: (.+)")
"""How http.client quotes a proxy that refuses to connect."""
_UNTRUSTED = ssl.SSLCertVerificationError
_UNKNOWN_AUTHORITY = (
    "Name the file with its authority's certificate: cacert in [failover], cacert in the entry of "
    "clouds.yaml, or the variable OS_CACERT of every process."
)
_BY_CERTIFICATE = {
    9: "Correct the clock of this machine, or wait: the certificate begins later.",
    10: "Have the operator of the cloud renew it; or correct the clock of this machine.",
    62: "Use a name that the certificate has, in auth_url or as the endpoint in the catalog.",
    64: "Use a name that the certificate has, in auth_url or as the endpoint in the catalog.",
}
"""What helps, by OpenSSL's code: not yet valid, expired, other names, other addresses."""
_WITHOUT_ANSWER = (
    (_TIMEOUT, _UNANSWERED),
    (keystone.CatalogException, "NO_ENDPOINT"),
    ((keystone.ConnectionError, keystone.DiscoveryFailure), "UNREACHABLE"),
    (requests.ConnectionError, "UNREACHABLE"),
    (_FOREIGN_ANSWER, "UNREACHABLE"),
    (
        (keystone.AuthorizationFailure, keystone.MissingAuthMethods, keystone.AuthPluginException),
        "CREDENTIAL_REFUSED",
    ),
)


def _authenticates(request: requests.PreparedRequest | None) -> bool:
    """Return whether a request exchanges a credential for a token."""
    if request is None or request.method != "POST":
        return False
    return (request.url or "").partition("?")[0].endswith("/auth/tokens")


def _code_without_answer(exc: BaseException) -> str:
    found = (code for classes, code in _WITHOUT_ANSWER if isinstance(exc, classes))
    return next(found, "UNEXPECTED")


def _code(status: int, words: str) -> str:
    """Return what an error status means. ``words``: the service's own, in which some facts are."""
    text = words.lower()
    for at, code, pattern in _BY_TEXT:
        if at == status and pattern.search(text):
            return code
    return _BY_STATUS.get(status, "SERVER_ERROR" if status >= 500 else "BAD_REQUEST")


def _words(answer: requests.Response) -> str:
    """Return what a service says about its refusal."""
    try:
        found = _message(answer.json())
    except ValueError:
        found = None
    if found is None and answer.headers.get("Content-Type", "").startswith("text/plain"):
        found = " ".join(answer.text.split())[:_LONGEST]
    return (found or answer.reason or "no reason given").strip()


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
