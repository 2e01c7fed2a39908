# SPDX-License-Identifier: Apache-2.0
"""Sessions: whose rights a call has, and the guard in front of every call.

A session is made of what a request to Mistral carried. Its token is used as it is: a trust-scoped
token must not be scoped again (Keystone refuses that with 403), so it is validated with itself,
and the answer, which holds the catalog, becomes the session's authentication.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import requests
import urllib3
from keystoneauth1 import access, plugin
from keystoneauth1.identity.access import AccessInfoPlugin
from keystoneauth1.session import Session, TCPKeepAliveAdapter
from openstack import config as clouds

from mistral_failover.cloud.errors import FOREIGN, CloudError, translate, translated
from mistral_failover.cloud.guard import Guard, LeaseLost
from mistral_failover.fault_points import reach
from mistral_failover.settings import Settings

EXPIRES_SOON = 60  # seconds before its expiry from which a validated token is validated again
REQUEST_ID = "X-OpenStack-Request-ID"  # the header of the global request id
_REMEMBERED = 256  # tokens and cloud entries of one process


class GuardedSession(Session):
    """A keystoneauth session that asks its guard right before every HTTP call.

    Every call: also repeats, redirects, discovery, and the fetching of a token, because it is the
    transport that asks. A call may last as long as ``timeout`` (or the caller's own) and the guard
    both allow, connecting and waiting for the answer together.

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
            verify=verify,
            cert=cert,
            timeout=timeout,
            app_name="mistral-failover",
        )
        self.guard = guard
        self.region_name = region_name
        for scheme in ("http://", "https://"):
            self.mount(scheme, _GuardedTransport(guard))


class _GuardedTransport(requests.adapters.BaseAdapter):
    """Asks the guard, then sends over the connections that all sessions of the process share."""

    def __init__(self, guard: Guard) -> None:
        super().__init__()
        self._guard = guard

    def send(  # type: ignore[override]  # requests calls it by these names
        self, request: requests.PreparedRequest, timeout: float | None = None, **options: Any
    ) -> requests.Response:
        method = str(request.method).upper()
        changes = method not in ("GET", "HEAD")
        if self._guard.request_id is not None:
            request.headers[REQUEST_ID] = self._guard.request_id
        asked = _elapsed()
        permitted = self._guard.permit(method)
        if changes:
            reach("call.before")
        # Who was frozen between the permission and here must not use it: look once more.
        seconds = permitted - (_elapsed() - asked)
        if seconds <= 0:
            raise LeaseLost(f"the time in which a {method} was permitted is over")
        if timeout is not None:
            seconds = min(seconds, timeout)
        # As a total, lest connecting and waiting for the answer take that long each.
        total: Any = urllib3.Timeout(total=seconds)
        answer = _Connections.shared.send(request, timeout=total, **options)
        if changes:
            reach("call.after")
        return answer

    def close(self) -> None:
        """Leave the shared connections open."""


def _elapsed() -> float:
    """Seconds on a clock that also counts while the machine is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class _Connections:
    """Kept-alive connections, shared because an operation's own session lives only seconds."""

    shared: TCPKeepAliveAdapter

    @classmethod
    def renew(cls) -> None:
        cls.shared = TCPKeepAliveAdapter(pool_connections=32, pool_maxsize=32)


_Connections.renew()
# A child must not write into its parent's sockets.
os.register_at_fork(after_in_child=_Connections.renew)


class _Remembered:
    """A small thread-safe store of authentications, the least recently used forgotten first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[str, plugin.BaseAuthPlugin] = OrderedDict()

    def get(
        self,
        key: str,
        make: Callable[[], Any],
        usable: Callable[[Any], bool],
    ) -> Any:
        """Return what is known under the key while it is usable, or make it.

        Two threads may make the same thing at once: harmless, and nobody waits for HTTP here.
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


# An authentication also remembers the services' versions, so each of these saves several calls.
_tokens = _Remembered()
_entries = _Remembered()


def session_for(security: Any, *, guard: Guard, settings: Settings) -> GuardedSession:
    """Make a session with the rights of a request.

    ``security`` has the attributes of mistral_lib's security context: ``auth_uri``,
    ``auth_token``, ``project_id``, ``region_name``, ``insecure``, ``auth_cacert``; those that are
    missing count as None. Without a token the entry ``settings.cloud`` of clouds.yaml is used.

    Raises `CloudError` TOKEN_EXPIRED when Keystone does not know the token (any more), FORBIDDEN
    when the token belongs to another project than the request says, CONFIG when there is neither a
    token nor a usable entry, and what `translate` makes of other failures; `LeaseLost`.
    """
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


def _session_of_token(security: Any, guard: Guard, settings: Settings) -> GuardedSession:
    token = security.auth_token
    auth_uri = getattr(security, "auth_uri", None)
    if not auth_uri:
        raise CloudError(
            "CONFIG",
            "The request carries a token but not the address of Keystone.",
            remedy="Set [keystone_authtoken] www_authenticate_uri in mistral.conf.",
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
    session.auth = validated = _tokens.get(
        _key(auth_url, token, verify),
        make=lambda: _validate(session, auth_url, token),
        usable=lambda known: not known.auth_ref.will_expire_soon(EXPIRES_SOON),
    )
    said, real = getattr(security, "project_id", None), validated.auth_ref.project_id
    if said and said != real:
        raise CloudError(
            "FORBIDDEN",
            f"The request says project {said}, but its token belongs to project {real}.",
            remedy="Call with a token of the project that owns the group.",
        )
    return session


def _validate(session: GuardedSession, auth_url: str, token: str) -> AccessInfoPlugin:
    try:
        answer = session.get(
            f"{auth_url}/auth/tokens",
            headers={"X-Auth-Token": token, "X-Subject-Token": token},
            authenticated=False,
            log=False,  # the headers hold the token, the body the catalog
        )
    except FOREIGN as error:
        failure = translate(error, "validate the token of the request")
        # Keystone answers 404 for a subject it does not know; here it means the same as 401.
        if failure.code in ("NOT_FOUND", "TOKEN_EXPIRED"):
            raise _expired(failure.http_status) from None
        raise failure from None
    found = access.create(resp=answer, auth_token=token)
    if found.will_expire_soon(0):
        raise _expired(None)
    return AccessInfoPlugin(found, auth_url=auth_url)


def _expired(status: int | None) -> CloudError:
    return CloudError(
        "TOKEN_EXPIRED", "Keystone does not accept the token of the request.", http_status=status
    )


def _session_of_entry(name: str, guard: Guard, settings: Settings) -> GuardedSession:
    with translated(f"read the entry {name} of clouds.yaml"):
        region = clouds.OpenStackConfig().get_one(cloud=name)
    verify, cert = region.get_requests_verify_args()
    # Under the content, not the name: the file may change while this process lives.
    key = _key(name, json.dumps(region.config, sort_keys=True, default=str))
    return GuardedSession(
        guard=guard,
        timeout=settings.http_timeout,
        auth=_entries.get(key, make=region.get_auth, usable=lambda _: True),
        verify=True if verify is None else verify,
        cert=cert,
        region_name=region.region_name or None,
    )


def _key(*parts: Any) -> str:
    """Hash the parts, so that no secret lies about as a key."""
    return hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()
