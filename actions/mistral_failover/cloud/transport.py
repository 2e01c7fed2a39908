# SPDX-License-Identifier: Apache-2.0
"""The one transport below all clients: it decides whether a request may be sent, gives each
exchange one end, and classifies the answer.

*Permission.* An operation holds its resource's lock under a lease. A process that was paused, or
that could not renew its lease in time, must not continue to call the cloud: another worker may have
broken the lock. So the transport asks a `Guard` right before each call.

*Time and size.* A limit of urllib3 or requests bounds each read. A service that sends its answer in
drops would hold a call without limit. So a connection ends with the block `until`, whatever it is
doing: looking up the name, connecting to its addresses, TLS, sending, or reading a part of the
answer. Nothing is sent after the end.

*Answers.* See :mod:`mistral_failover.cloud.answers` and :mod:`mistral_failover.cloud.errors`.
"""

from __future__ import annotations

import http.client
import io
import math
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable
from urllib.parse import urlsplit
from urllib.request import getproxies
from weakref import WeakKeyDictionary

import requests
import urllib3
from keystoneauth1 import exceptions as keystone
from keystoneauth1 import plugin
from keystoneauth1.access import AccessInfo
from keystoneauth1.discover import EndpointData
from keystoneauth1.identity import BaseIdentityPlugin
from keystoneauth1.session import Session, TCPKeepAliveAdapter

from mistral_failover import lookups
from mistral_failover.cloud.answers import bounded, form_of, why_foreign
from mistral_failover.cloud.certificates import bundle
from mistral_failover.cloud.errors import (
    SERVICES,
    CloudError,
    Fate,
    fate_of,
    fate_without_answer,
    refusal,
    translate,
)
from mistral_failover.cloud.tokens import why_unauthorised
from mistral_failover.fault_points import reach

REQUEST_ID = "X-OpenStack-Request-ID"  # the header of the global request id
_OVERLOADED = (429, 498, 503, 504)  # HTTP statuses of a service that has too much to do


class LeaseLost(CloudError):
    """The lock is no longer ours, or too little of its lease remains: no call may start."""

    def __init__(self, message: str) -> None:
        super().__init__(
            "LEASE_LOST",
            message,
            remedy="Nothing to do: the lock's new owner or the next sweep continues.",
        )


class HandedBack(LeaseLost):
    """The process is stopping: it makes no more calls, and another process continues its work."""

    def __init__(self) -> None:
        super().__init__("the process is stopping and has released the operation")
        self.code = "HANDED_BACK"


class NoLongerNeeded(Exception):
    """What an operation waits for has been decided elsewhere: the wait ends at once. It is no
    `CloudError`, so nothing takes it for an answer of a service."""


class Guard(Protocol):
    """Permission to call the cloud."""

    @property
    def request_id(self) -> str | None:
        """OpenStack's global request id of every call under this lock, ``req-<uuid>``. Services log
        it, so an operation can be followed through their logs. None without a lock."""
        ...

    def permit(self, method: str) -> float:
        """Return how many seconds a call that starts now may last: the lease less a margin.

        ``method`` is the HTTP method, in upper case. Raises :class:`LeaseLost` when the lock is
        gone or too little of the lease remains. Waits ask for "GET" before each pause; then a guard
        may raise :class:`NoLongerNeeded`, too. Called from several threads.
        """
        ...


@runtime_checkable
class Listener(Protocol):
    """A guard that hears how services answer."""

    def overloaded(self, service: str, pause: float) -> None:
        """Record that a service (Nova, Cinder, ...) answered that it has too much to do, or did
        not answer in time. ``pause``: the seconds that it asked to wait, else 0. Called from
        several threads."""
        ...

    def waits_for(self, error: CloudError | None) -> None:
        """Record that a wait continues in spite of a transient error, since the service may return;
        None: the wait got an answer. Called at each look, from several threads."""
        ...


@runtime_checkable
class RequestLog(Protocol):
    """A guard that records, before a request that changes something is sent, that it is.

    A request without an answer may take effect long after its sender is gone. So the lock's next
    owner has to know of it.
    """

    def unsettled(self) -> float:
        """Return for how many seconds a request of an earlier attempt may still take effect; 0:
        none can."""
        ...

    def ask(self, asked: str) -> tuple[float, int]:
        """Permit a request, as ``permit`` does, and record it. ``asked``: its method and path.

        Return the seconds that it may last, and a number for `ended`. Raises as ``permit``.
        Called from several threads.
        """
        ...

    def ended(self, number: int, fate: Fate) -> None:
        """Record what a call came to. Never raises."""
        ...


class Unguarded:
    """The guard of calls that belong to no operation: reads for operators, validation of tokens."""

    def __init__(self, limit: float = 60.0) -> None:
        """``limit``: seconds that any one call may last."""
        self._limit = limit

    @property
    def request_id(self) -> str | None:
        """None: each call has its own request id."""
        return None

    def permit(self, method: str) -> float:  # noqa: ARG002 - the protocol's parameter
        """Return the limit, always."""
        return self._limit


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


def least(*limits: float | None) -> float | None:
    """Return the shortest of some limits in seconds; None is none."""
    return min((each for each in limits if each is not None), default=None)


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


_NOT_CONNECTED = (
    urllib3.exceptions.NewConnectionError,
    urllib3.exceptions.ConnectTimeoutError,
)


_LEAST = 0.001  # seconds: a socket's limit of 0 means something else


class Connection:
    """Ends with the exchange; a mixin of `http.client.HTTPConnection`."""

    response_class = _Response

    def connect(self) -> None:
        """Connect, and agree on TLS."""
        this: Any = self
        this.timeout = least(this.timeout, rest())
        super().connect()  # type: ignore[misc]  # http.client's

    def addresses(self, host: str, port: int, seconds: float | None) -> list[str]:
        """Return the addresses to connect to; see `lookups.addresses`."""
        return lookups.addresses(host, port, seconds)

    def _new_conn(self) -> socket.socket:
        """Connect to one of the addresses; TLS still verifies the name."""
        this: Any = self
        name, limit, failure = this._dns_host, this.timeout, None
        ends = math.inf if limit is None else elapsed() + limit

        def left() -> float | None:  # some at least: what sends or shakes hands sees the end
            return None if limit is None else max(_LEAST, ends - elapsed())

        try:
            found = self.addresses(name, this.port, left())
        except socket.gaierror as error:
            raise urllib3.exceptions.NameResolutionError(name, this, error) from error
        for address, seconds in lookups.shares(found, left):
            this._dns_host, this.timeout = address, seconds
            try:
                made: socket.socket = super()._new_conn()  # type: ignore[misc]  # urllib3's
            except _NOT_CONNECTED as error:
                failure = error
            else:
                made.settimeout(left())
                return made
            finally:
                this._dns_host, this.timeout = name, limit
        assert failure is not None  # a host has an address
        raise failure

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


@dataclass(frozen=True)
class Places:
    """How services are found, by their types: which interfaces of the catalog (``public``, or
    several in order), and at which URL instead of the catalog's, if any."""

    interface: Callable[[str], str | list[str] | None] = lambda _: None
    url: Callable[[str], str | None] = lambda _: None

    def of(self, wanted: Mapping[str, Any]) -> dict[str, Any]:
        """Return what is asked of the catalog, with these places."""
        kind = wanted.get("service_type")
        if kind is None:
            return dict(wanted)
        found = {**wanted, "interface": self.interface(kind) or wanted.get("interface")}
        if not wanted.get("endpoint_override") and (url := self.url(kind)):
            found["endpoint_override"] = url
        return found


class GuardedSession(Session):
    """A keystoneauth session that asks its guard right before every HTTP call.

    Every call includes repeats, redirects, discovery, and the fetching of a token, because the
    transport asks. A call may last as long as both ``timeout`` (or the caller's own) and the guard
    allow, connecting and waiting for the answer together.

    A request that changes something is sent once, whatever a client library or the environment
    configures: without an answer it may still take effect, and only a look shows whether it did.
    What a service (of a type in the catalog) does not answer properly, or refuses, is raised as
    `CloudError`, whichever client asks, and whatever it would make of the answer. A guard that is a
    `Listener` hears which service is overloaded.

    ``region_name`` is the region to look services up in, or None for the only one; ``places`` says
    what differs from the public endpoints of the catalog.
    """

    def __init__(
        self,
        *,
        guard: Guard,
        timeout: float,
        auth: plugin.BaseAuthPlugin | None = None,
        verify: bool | str = True,
        cert: str | tuple[str, str] | None = None,
        region_name: str | None = None,
        places: Places | None = None,
    ) -> None:
        super().__init__(
            auth=auth,
            verify=bundle() if verify is True else verify,
            cert=cert,
            timeout=timeout,
            app_name="mistral-failover",
        )
        self.guard = guard
        self.region_name = region_name
        self._places = places or Places()
        self._endpoints: dict[str, str | None] = {}
        self._listener = guard if isinstance(guard, Listener) else None
        self._requests = 0  # how many began
        # With its trust, requests looks for proxies before each call. It would also send what
        # ~/.netrc has for the host.
        self.session.trust_env = _names_a_proxy()
        # It has neither, and requests merges them into each request as it does what is there.
        self.session.params = None  # type: ignore[assignment]
        self.session.proxies = None  # type: ignore[assignment]
        for scheme in ("http://", "https://"):
            super().mount(scheme, _GuardedTransport(guard))

    def mount(self, scheme: str, adapter: requests.adapters.BaseAdapter) -> None:
        """Send what begins with ``scheme`` over another transport, with the same guard."""
        super().mount(scheme, _GuardedTransport(self.guard, adapter))

    def get_endpoint(self, auth: plugin.BaseAuthPlugin | None = None, **wanted: Any) -> str | None:
        """See keystoneauth, whose method reads the whole catalog for each request. What the
        catalog says is kept as long as the catalog. What a service had to be asked for, its
        versions, is kept in this session only: it may not have answered."""
        wanted = self._places.of(wanted)
        if url := wanted.get("endpoint_override"):
            if "min_version" not in wanted:
                return str(url)
            data = self.get_endpoint_data(auth, **wanted)
            return data.url if data is not None else str(url)
        known = self._known(auth)
        if known is None:
            return super().get_endpoint(auth, **wanted)
        key = repr(sorted(wanted.items()))
        for urls in (known.urls, self._endpoints):
            if key in urls:
                return urls[key]
        before = self._requests
        url = super().get_endpoint(auth, **wanted)
        asked = self._requests != before
        (self._endpoints if asked or url is None else known.urls)[key] = url
        return url

    def get_endpoint_data(
        self, auth: plugin.BaseAuthPlugin | None = None, **wanted: Any
    ) -> EndpointData | None:
        """As `get_endpoint`. What a service that did not answer would have said is not kept."""
        wanted = self._places.of(wanted)
        known = self._known(auth)
        if known is None:
            return super().get_endpoint_data(auth, **wanted)
        key = repr(sorted(wanted.items()))
        found = known.data.get(key)
        if found is None:
            try:
                found = super().get_endpoint_data(auth, **wanted)
            except keystone.CatalogException as error:
                self._note_regions(error, wanted, auth)
                raise
            if found is not None and found.max_microversion:
                known.data[key] = found
        return found

    def _known(self, auth: plugin.BaseAuthPlugin | None) -> _Catalog | None:
        """Return what is known of the catalog of an authentication; None if it has no catalog."""
        chosen = auth or self.auth
        if not isinstance(chosen, BaseIdentityPlugin):
            return None
        # Also of one that expires: the request itself gets another, and asks again.
        access = chosen.auth_ref or chosen.get_access(self)
        try:
            return _catalogs[access]
        except KeyError:
            return _catalogs.setdefault(access, _Catalog())

    def request(self, url: str, method: str, **options: Any) -> Any:  # type: ignore[override]
        """See keystoneauth's `Session.request`."""
        self._requests += 1
        endpoint = options.get("endpoint_filter")
        service = self._service(url, endpoint)
        classified = "service_type" in (endpoint or {})
        if changes(method):
            options |= {"connect_retries": 0, "status_code_retries": 0}
        if endpoint is not None and classified:
            options["raise_exc"] = False
            placed = self._places.of(endpoint)
            if placed.pop("endpoint_override", None) and not options.get("endpoint_override"):
                url_there = self.get_endpoint(options.get("auth"), **placed)
                options["endpoint_override"] = str(url_there).replace("%", "%%")
            options["endpoint_filter"] = placed
        # It goes by the wall clock: after one that was set back, it would hold every call until it
        # is that late again. How many calls there are at once is limited by runtime/budgets.py.
        options.pop("rate_semaphore", None)
        outer, _call.recorded = _call.recorded, endpoint is not None
        try:
            answer = super().request(url, method, **options)
        except keystone.ClientException as error:
            # A nested request, such as one to Keystone for a token, has reported its own error.
            if not hasattr(error, "failover_service"):
                error.failover_service = service  # type: ignore[attr-defined]
                self._heard(service, getattr(error, "response", None), error)
            if not classified:
                raise
            doing = _request(url, method, service)
            self._note_regions(error, endpoint or {}, options.get("auth"))
            raise translate(error, doing, str(service), changes=changes(method)) from None
        finally:
            _call.recorded = outer
        self._heard(service, answer)
        # keystoneauth's own requests for a token name no service.
        checked = classified or (service and form_of(method, urlsplit(url).path))
        if (classified and not answer.ok) or (checked and why_foreign(answer)):
            doing = _request(url, method, service)
            failure = refusal(answer, doing, str(service), changes=changes(method))
            kind = str((endpoint or {}).get("service_type", ""))
            raise self.explained(failure, method, str(answer.url), kind, options.get("auth"))
        return answer

    def _note_regions(
        self, error: Exception, wanted: Mapping[str, Any], auth: plugin.BaseAuthPlugin | None
    ) -> None:
        """Note in the error of a request that found no endpoint in which regions the catalog has
        one: a region is found by its exact name only."""
        chosen = auth or self.auth
        if isinstance(error, keystone.CatalogException) and isinstance(chosen, BaseIdentityPlugin):
            catalog = chosen.get_access(self).service_catalog
            listed = catalog.get_endpoints(service_type=wanted.get("service_type"))
            rows = [row for each in listed.values() for row in each if row is not None]
            found = {str(row.get("region_id") or row.get("region")) for row in rows}
            error.failover_regions = sorted(found - {wanted.get("region_name")})  # type: ignore[attr-defined]

    def explained(
        self,
        failure: CloudError,
        method: str,
        url: str,
        service_type: str,
        auth: plugin.BaseAuthPlugin | None = None,
    ) -> CloudError:
        """Return the error of a request that a service refused: of a 401 by what Keystone says of
        the token (`why_unauthorised`), otherwise ``failure``. ``auth``: of the request, if it is
        not the session's."""
        if failure.code != "TOKEN_EXPIRED" or failure.service == SERVICES["identity"]:
            return failure
        return why_unauthorised(self, auth or self.auth, failure, method, url, service_type)

    def _heard(
        self,
        service: str | None,
        answer: requests.Response | None,
        error: keystone.ClientException | None = None,
    ) -> None:
        """Tell the guard if a service answered that it is overloaded, or did not answer in time."""
        if service is None or self._listener is None:
            return
        if answer is not None and answer.status_code in _OVERLOADED:
            asked_for = answer.headers.get("Retry-After", "")
            self._listener.overloaded(service, float(asked_for) if asked_for.isdecimal() else 0.0)
        elif isinstance(error, keystone.ConnectTimeout):
            self._listener.overloaded(service, 0.0)

    def _service(self, url: str, endpoint: Mapping[str, Any] | None) -> str | None:
        if endpoint and "service_type" in endpoint:
            kind = str(endpoint["service_type"])
            return SERVICES.get(kind, kind)
        keystones = getattr(self.auth, "auth_url", None)
        return SERVICES["identity"] if keystones and url.startswith(keystones) else None


def _request(url: str, method: str, service: str | None) -> str:
    """Return what a request is for, to complete "Could not ..."."""
    path = urlsplit(url).path.strip("/")
    return f"{'change' if changes(method) else 'read'} {path or 'what there is'} in {service}"


def changes(method: str) -> bool:
    """Return whether a request with this HTTP method changes something."""
    return method.upper() not in ("GET", "HEAD")


class _Catalog:
    """What a catalog, and the versions behind it, said: URLs and endpoints by question."""

    def __init__(self) -> None:
        self.urls: dict[str, str | None] = {}
        self.data: dict[str, EndpointData] = {}


# By the authentication that brought it: the next one may bring another catalog.
_catalogs: WeakKeyDictionary[AccessInfo, _Catalog] = WeakKeyDictionary()


class _GuardedTransport(requests.adapters.BaseAdapter):
    """Asks the guard, then sends: by default over the connections that all sessions of the process
    share."""

    def __init__(self, guard: Guard, over: requests.adapters.BaseAdapter | None = None) -> None:
        super().__init__()
        self._guard = guard
        self._log = guard if isinstance(guard, RequestLog) else None
        self._over = over

    def send(  # type: ignore[override]  # requests calls it by these names
        self, request: requests.PreparedRequest, timeout: float | None = None, **options: Any
    ) -> requests.Response:
        method = str(request.method).upper()
        if self._guard.request_id is not None:
            request.headers[REQUEST_ID] = self._guard.request_id
        asked = f"{method} {str(request.path_url).partition('?')[0]}"
        log = self._log if changes(method) and _call.recorded else None
        began = elapsed()
        if log is None:
            return self._sent(request, began + self._guard.permit(method), timeout, options)
        permitted, number = log.ask(asked)
        # The record counts from before this call's time. A process that was frozen in between does
        # not send it later.
        ends = began + (permitted if timeout is None else min(permitted, timeout))
        try:
            answer = self._sent(request, ends, timeout, options)
        except Exception as error:
            log.ended(number, fate_without_answer(error))
            raise
        log.ended(number, fate_of(asked, answer))
        return answer

    def _sent(
        self,
        request: requests.PreparedRequest,
        ends: float,
        timeout: float | None,
        options: Mapping[str, Any],
    ) -> requests.Response:
        method = str(request.method).upper()
        if changes(method):
            reach("call.before")
        # If the process was frozen after the permission, the permission may have expired: ask once
        # more. The connection asks again when it sends.
        _call.ends = ends
        _call.method = method
        _call.sent = self._over is not None  # which does not say
        seconds = _call.rest()
        if timeout is not None:
            seconds = min(seconds, timeout)
        total: Any = urllib3.Timeout(total=seconds)
        try:
            over = self._over or _Connections.shared
            with until(elapsed() + seconds):
                answer = self._answer(over, request, total, options)
                if not options.get("stream"):
                    bounded(answer)
        except requests.RequestException as error:
            error.failover_proxy = _proxy(request, options)  # type: ignore[attr-defined]
            if isinstance(error, requests.Timeout):
                error.failover_seconds = seconds  # type: ignore[attr-defined]
            else:
                error.failover_sent = _call.sent  # type: ignore[attr-defined]
            raise
        answer.failover_proxy = _proxy(request, options)  # type: ignore[attr-defined]
        if changes(method):
            reach("call.after")
        if answer.is_redirect and why_foreign(answer):
            del answer.headers["Location"]  # so that the token is not sent there
        return answer

    def _answer(
        self,
        over: requests.adapters.BaseAdapter,
        request: requests.PreparedRequest,
        total: Any,
        options: Mapping[str, Any],
    ) -> requests.Response:
        """Send. A kept connection may have been closed by its other end, or by what is in between,
        before the request arrived there: a read is sent again, over another one."""
        while True:
            _call.connected = over is not _Connections.shared  # which does not say
            try:
                return over.send(request, timeout=total, **options)
            except requests.ConnectionError:
                if changes(str(request.method)) or _call.connected:
                    raise

    def close(self) -> None:
        """Leave the shared connections open."""


def _names_a_proxy() -> bool:
    """Return whether the environment names a proxy. To read it takes longer than all else that a
    session needs, so it is read only if there is something."""
    may = any(name.lower().endswith("_proxy") for name in os.environ)
    return may and bool(getproxies().keys() - {"no"})


def _proxy(request: requests.PreparedRequest, options: Mapping[str, Any]) -> str | None:
    """Return the host and port of the proxy that a request goes through; None without one."""
    found = requests.utils.select_proxy(str(request.url), options.get("proxies"))
    if not found:
        return None
    place = urlsplit(requests.utils.prepend_scheme_if_needed(found, "http")).netloc
    return place.rpartition("@")[2]  # without a password


class _CurrentCall(threading.local):
    """The call that this thread is making."""

    ends = math.inf  # when its permission expires, by the clock of `elapsed`
    method = ""
    sent = False
    """Whether some have left."""
    connected = False
    """Whether it made a connection: else one was kept."""
    recorded = False
    """Whether it is recorded if it changes something: what a service's client sends, which names an
    endpoint. A request for a token changes nothing that a later owner sees; agents and Mistral know
    by its id a command or an execution that they have had."""

    def rest(self) -> float:
        """Return the seconds that the permission lasts. Raises `LeaseLost` if it has expired."""
        seconds = self.ends - elapsed()
        if seconds <= 0:
            raise LeaseLost(f"the permission for this {self.method} has expired")
        return seconds


_call = _CurrentCall()


class _GuardedConnection(Connection):
    """A connection that asks right before the bytes leave. Looking up a name, connecting and TLS
    take time, and a thread may wait for the processor, or be frozen, anywhere before."""

    def connect(self) -> None:
        """See `Connection.connect`."""
        _call.connected = True
        super().connect()

    def begin_to_send(self) -> None:
        """See `Connection.begin_to_send`."""
        _call.rest()
        super().begin_to_send()
        _call.sent = True

    def _tunnel(self) -> None:
        """Ask a proxy for a connection to the service: nothing of the request leaves yet."""
        before = _call.sent
        try:
            super()._tunnel()  # type: ignore[misc]  # http.client's
        finally:
            _call.sent = before


_POOLS = pools(_GuardedConnection)


class _Adapter(TCPKeepAliveAdapter):
    """Makes such connections, also through a proxy."""

    def init_poolmanager(self, *args: Any, **options: Any) -> None:
        super().init_poolmanager(*args, **options)
        self.poolmanager.pool_classes_by_scheme = _POOLS

    def proxy_manager_for(self, proxy: str, **options: Any) -> urllib3.ProxyManager:
        manager: urllib3.ProxyManager = super().proxy_manager_for(proxy, **options)
        manager.pool_classes_by_scheme = _POOLS
        return manager


class _Connections:
    """Kept-alive connections, shared because an operation's own session lives only seconds."""

    shared: _Adapter

    @classmethod
    def renew(cls) -> None:
        cls.shared = _Adapter(pool_connections=32, pool_maxsize=32)


_Connections.renew()
# A child process must not write into its parent's sockets.
os.register_at_fork(after_in_child=_Connections.renew)
