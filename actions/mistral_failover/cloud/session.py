# SPDX-License-Identifier: Apache-2.0
"""Sessions: the rights of a call, and the guard in front of every call.

A session is made from the content of a request to Mistral. Its token is used as it is;
``cloud.tokens`` determines its project and catalog, once for each token and process.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any
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
from keystoneauth1.identity.access import AccessInfoPlugin
from keystoneauth1.session import Session, TCPKeepAliveAdapter
from openstack import config as clouds
from openstack.config import loader
from openstack.config.cloud_region import CloudRegion
from openstack.exceptions import ConfigException

from mistral_failover.cloud.errors import (
    SERVICES,
    CloudError,
    fate_by_status,
    fate_without_answer,
    refusal,
    translate,
)
from mistral_failover.cloud.exchanges import Connection, bounded, elapsed, pools, until
from mistral_failover.cloud.guard import Guard, LeaseLost, Listener, RequestLog, Unguarded
from mistral_failover.cloud.tokens import NO_RIGHTS, asked, carried, expired, foreign
from mistral_failover.fault_points import reach
from mistral_failover.settings import Settings

EXPIRES_SOON = 60  # seconds before its expiry from which a validated token is validated again
REQUEST_ID = "X-OpenStack-Request-ID"  # the header of the global request id
_OVERLOADED = (429, 503, 504)  # HTTP statuses of a service that has too much to do
_REMEMBERED = 256  # maximum number of tokens and cloud entries of one process


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

    ``region_name`` is the region to look services up in, or None for the only one.
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
    ) -> None:
        super().__init__(
            auth=auth,
            verify=_bundle() if verify is True else verify,
            cert=cert,
            timeout=timeout,
            app_name="mistral-failover",
        )
        self.guard = guard
        self.region_name = region_name
        self._endpoints: dict[str, str | None] = {}
        # With its trust, requests looks for proxies before each call. It would also send what
        # ~/.netrc has for the host.
        self.session.trust_env = bool(getproxies().keys() - {"no"})
        for scheme in ("http://", "https://"):
            super().mount(scheme, _GuardedTransport(guard))

    def mount(self, scheme: str, adapter: requests.adapters.BaseAdapter) -> None:
        """Send what begins with ``scheme`` over another transport, with the same guard."""
        super().mount(scheme, _GuardedTransport(self.guard, adapter))

    def get_endpoint(self, auth: plugin.BaseAuthPlugin | None = None, **wanted: Any) -> str | None:
        """See keystoneauth, whose method reads the whole catalog for each request. What only the
        catalog says is kept as long as the catalog. A service is asked for its versions again in
        the next session: it may not have answered."""
        known = self._known(auth)
        if known is None:
            return super().get_endpoint(auth, **wanted)
        asks_service = any("version" in name and value for name, value in wanted.items())
        urls = self._endpoints if asks_service else known.urls
        key = repr(sorted(wanted.items()))
        if key not in urls:
            urls[key] = super().get_endpoint(auth, **wanted)
        return urls[key]

    def get_endpoint_data(
        self, auth: plugin.BaseAuthPlugin | None = None, **wanted: Any
    ) -> EndpointData | None:
        """As `get_endpoint`. What a service that did not answer would have said is not kept."""
        known = self._known(auth)
        if known is None:
            return super().get_endpoint_data(auth, **wanted)
        key = repr(sorted(wanted.items()))
        found = known.data.get(key)
        if found is None:
            found = super().get_endpoint_data(auth, **wanted)
            if found is not None and found.max_microversion:
                known.data[key] = found
        return found

    def _known(self, auth: plugin.BaseAuthPlugin | None) -> _Catalog | None:
        """Return what is known of the catalog of an authentication; None if it has no catalog."""
        chosen = auth or self.auth
        if not isinstance(chosen, BaseIdentityPlugin):
            return None
        access = chosen.get_access(self)
        try:
            return _catalogs[access]
        except KeyError:
            return _catalogs.setdefault(access, _Catalog())

    def request(self, url: str, method: str, **options: Any) -> Any:  # type: ignore[override]
        """See keystoneauth's `Session.request`."""
        endpoint = options.get("endpoint_filter")
        service = self._service(url, endpoint)
        classified = "service_type" in (endpoint or {})
        if changes(method):
            options |= {"connect_retries": 0, "status_code_retries": 0}
        if classified:
            options["raise_exc"] = False
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
            raise translate(error, doing, str(service), changes=changes(method)) from None
        finally:
            _call.recorded = outer
        self._heard(service, answer)
        if classified and answer.status_code >= HTTPStatus.BAD_REQUEST:
            doing = _request(url, method, service)
            raise refusal(answer, doing, str(service), changes=changes(method))
        return answer

    def _heard(
        self,
        service: str | None,
        answer: requests.Response | None,
        error: keystone.ClientException | None = None,
    ) -> None:
        """Tell the guard if a service answered that it is overloaded, or did not answer in time."""
        if service is None or not isinstance(self.guard, Listener):
            return
        if answer is not None and answer.status_code in _OVERLOADED:
            asked_for = answer.headers.get("Retry-After", "")
            self.guard.overloaded(service, float(asked_for) if asked_for.isdecimal() else 0.0)
        elif isinstance(error, keystone.ConnectTimeout):
            self.guard.overloaded(service, 0.0)

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


def _bundle() -> str | bool:
    """Return the file of certificates that the environment names, as requests reads it."""
    return os.environ.get("REQUESTS_CA_BUNDLE") or os.environ.get("CURL_CA_BUNDLE") or True


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
        try:
            answer = self._sent(request, began + permitted, timeout, options)
        except Exception as error:
            log.ended(number, fate_without_answer(error))
            raise
        log.ended(number, fate_by_status(asked, answer.status_code))
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
                answer = over.send(request, timeout=total, **options)
                if not options.get("stream"):
                    bounded(answer)
        except requests.Timeout as error:
            error.failover_seconds = seconds  # type: ignore[attr-defined]
            raise
        except requests.RequestException as error:
            error.failover_sent = _call.sent  # type: ignore[attr-defined]
            raise
        if changes(method):
            reach("call.after")
        return answer

    def close(self) -> None:
        """Leave the shared connections open."""


class _CurrentCall(threading.local):
    """The call that this thread is making."""

    ends = math.inf  # when its permission expires, by the clock of `elapsed`
    method = ""
    sent = False
    """Whether some have left."""
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

    def begin_to_send(self) -> None:
        """See `Connection.begin_to_send`."""
        _call.rest()
        super().begin_to_send()
        _call.sent = True


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


class _AuthenticationCache:
    """A small thread-safe store of authentications; the least recently used is dropped first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[str, plugin.BaseAuthPlugin] = OrderedDict()

    def get(
        self,
        key: str,
        make: Callable[[], Any],
        usable: Callable[[Any], bool],
    ) -> Any:
        """Return the usable entry of the key, or make it.

        Two threads may make the same entry at once: that is harmless, and no thread waits for HTTP
        here.
        """
        with self._lock:
            known = self._known.get(key)
            if known is not None and usable(known):
                self._known.move_to_end(key)
                return known
        made = make()
        with self._lock:
            self._known[key] = made
            self._known.move_to_end(key)
            while len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)
        return made

    def forget(self, key: str) -> None:
        """Drop the entry of the key."""
        with self._lock:
            self._known.pop(key, None)


# An authentication also remembers the services' versions, so each entry saves several calls.
_tokens = _AuthenticationCache()
_entries = _AuthenticationCache()


def session_for(security: Any, *, guard: Guard, settings: Settings) -> GuardedSession:
    """Make a session with the rights of a request.

    ``security`` has the attributes of mistral_lib's security context: ``auth_uri``, ``auth_token``,
    ``service_catalog``, ``project_id``, ``region_name``, ``insecure``, ``auth_cacert``,
    ``is_target``; missing ones count as None. Without a token the entry ``settings.cloud`` of
    clouds.yaml is used.

    Raises `CloudError` TOKEN_EXPIRED or TRUST_GONE when Keystone does not (or no longer) accept the
    token, FORBIDDEN when the token belongs to another project than the request says or the request
    is meant for another cloud, CONFIG when there is neither a token nor a usable entry, and what
    `translate` makes of other failures; `LeaseLost`.
    """
    refuse_other_clouds(security)
    if getattr(security, "auth_token", None):
        return _session_of_token(security, guard, settings)
    if settings.cloud:
        return _session_of_entry(settings.cloud, guard, settings)
    raise CloudError(
        "CONFIG",
        "The request carries no token, and no cloud is configured to act with instead.",
        remedy="Call with a token, or, for a Mistral whose authentication is off, set "
        "[failover] cloud to an entry of clouds.yaml.",
    )


def refuse_other_clouds(security: Any) -> None:
    """Refuse a request that names another cloud by Mistral's headers X-Target-...: the caller sets
    its project in a header, and no service has checked it.

    Raises `CloudError` FORBIDDEN.
    """
    if getattr(security, "is_target", None):
        raise CloudError(
            "FORBIDDEN",
            "The request names another cloud (X-Target-Auth-Uri), so its project is not verified.",
            remedy="Call without the headers X-Target-..., with a token of this cloud.",
        )


def why_refused(security: Any, settings: Settings) -> CloudError | None:
    """Ask Keystone whether it still accepts the token of a request; return why not, or None.

    Services cache a token's validity for minutes, and answer 503 rather than 401 for some tokens
    that Keystone refuses, so their own answers do not tell. None also if Keystone cannot be asked,
    and without a token.
    """
    if not getattr(security, "auth_token", None):
        return None
    guard = Unguarded(settings.http_timeout)
    try:
        session, auth_url, key = _for_token(security, guard, settings)
        asked(session, auth_url, security.auth_token, getattr(security, "project_id", None))
    except CloudError as error:
        if error.code not in NO_RIGHTS:
            return None
        _tokens.forget(key)
        return error
    return None


def _session_of_token(security: Any, guard: Guard, settings: Settings) -> GuardedSession:
    session, auth_url, key = _for_token(security, guard, settings)
    said = getattr(security, "project_id", None)
    session.auth = proven = _tokens.get(
        key,
        make=lambda: _prove(session, auth_url, security, said),
        usable=lambda known: not known.auth_ref.will_expire_soon(EXPIRES_SOON),
    )
    if said and said != proven.auth_ref.project_id:
        raise foreign(said, proven.auth_ref.project_id)
    return session


def _for_token(security: Any, guard: Guard, settings: Settings) -> tuple[GuardedSession, str, str]:
    """Return a session without authentication yet, Keystone's URL, and the cache key of the
    token."""
    auth_uri = getattr(security, "auth_uri", None) or settings.auth_url
    if not auth_uri:
        raise CloudError(
            "CONFIG",
            "The request carries a token but no address of Keystone.",
            remedy=(
                "Set [keystone_authtoken] www_authenticate_uri in mistral.conf on every host with "
                "an engine, executor or API, or set [failover] auth_url."
            ),
        )
    auth_url = auth_uri.rstrip("/")
    if not auth_url.endswith("/v3"):
        auth_url += "/v3"
    verify: bool | str = getattr(security, "auth_cacert", None) or True
    if getattr(security, "insecure", None):
        verify = False
    session = GuardedSession(
        guard=guard,
        timeout=settings.http_timeout,
        verify=verify,
        region_name=getattr(security, "region_name", None),
    )
    return session, auth_url, _key(auth_url, security.auth_token, verify)


def _prove(
    session: GuardedSession, auth_url: str, security: Any, said: str | None
) -> AccessInfoPlugin:
    found = carried(security) or asked(session, auth_url, security.auth_token, said)
    if found.will_expire_soon(0):
        raise expired()
    return AccessInfoPlugin(found, auth_url=auth_url)


def _session_of_entry(name: str, guard: Guard, settings: Settings) -> GuardedSession:
    region = entry_of(name)
    verify, cert = region.get_requests_verify_args()
    # The key is the content, not the name: the file may change while this process runs.
    key = _key(name, json.dumps(region.config, sort_keys=True, default=str))
    return GuardedSession(
        guard=guard,
        timeout=settings.http_timeout,
        auth=_entries.get(key, make=region.get_auth, usable=lambda _: True),
        verify=True if verify is None else verify,
        cert=cert,
        region_name=region.region_name or None,
    )


def entry_of(name: str) -> CloudRegion:
    """Return an entry of clouds.yaml. The files are parsed again only once one of them, or the
    environment, has changed: parsing takes longer than a request to the cloud. Raises `CloudError`
    CONFIG."""
    own = [os.environ.get(f"OS_CLIENT_{kind}_FILE") for kind in ("CONFIG", "SECURE", "VENDOR")]
    files = (*loader.CONFIG_FILES, *loader.SECURE_FILES, *loader.VENDOR_FILES, *filter(None, own))
    environment = {key: value for key, value in os.environ.items() if key.startswith("OS_")}
    now = [environment, *((file, _version_of(file)) for file in files)]
    then, region = _read.get(name, (None, None))
    if region is None or now != then:
        try:
            region = clouds.OpenStackConfig().get_one(cloud=name)
        except ConfigException as error:
            words = f"Could not read the entry {name} of clouds.yaml: {error}"
            raise CloudError("CONFIG", words) from None
        _read[name] = now, region
    return region


_read: dict[str, tuple[list[Any], CloudRegion]] = {}
"""The entries that were read, and of what."""


def _version_of(file: str) -> tuple[int, int, int] | None:
    """Return what differs between two contents of a file; None if there is none."""
    try:
        found = os.stat(file)  # noqa: PTH116 - a name as openstacksdk has it
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def _key(*parts: Any) -> str:
    """Hash the parts, so that no secret is stored as a key."""
    return hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()
