# SPDX-License-Identifier: Apache-2.0
"""What ``std.http``, ``std.mistral_http``, ``std.email`` and the webhooks of ``notify`` may reach.

Mistral looks up the host of a URL, compares the addresses with ``[action_std_http] denied_cidrs``
and sends the request, which looks up the host again. A name that changes (DNS rebinding), a
redirect, a proxy and ``std.email`` are not compared, nor is ``0.0.0.0``, which is this machine.
Here each connection is made to an address that was compared, and ends with the action's time.
"""

from __future__ import annotations

import ipaddress
import math
import os
import smtplib
import socket
from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any, NoReturn

import requests
from oslo_config import cfg
from requests.adapters import HTTPAdapter

from mistral_failover import lookups
from mistral_failover.cloud.answers import bounded
from mistral_failover.cloud.transport import (
    Connection,
    elapsed,
    pools,
    reading,
    rest,
    until,
)

_LOOPBACK = (ipaddress.ip_address("127.0.0.1"), ipaddress.ip_address("::1"))


def install() -> None:
    """Have Mistral make these connections; repeatable. What Mistral would use besides is missing,
    so another version of it fails instead of sending a request that is not compared."""
    import mistral.db.v2.api  # noqa: F401 - first: Mistral's modules import each other
    from mistral.actions import std_actions
    from mistral.notifiers.publishers import webhook
    from mistral.utils import egress

    egress.socket = SimpleNamespace(getaddrinfo=_left_to_the_connection, gaierror=socket.gaierror)
    std_actions.requests = SimpleNamespace(request=_request)
    webhook.requests = SimpleNamespace(post=partial(_request, "POST"))
    std_actions.smtplib = SimpleNamespace(SMTP=_SMTP, SMTPException=smtplib.SMTPException)


def _left_to_the_connection(*_: Any) -> NoReturn:
    """Let ``validate_url`` look up no name: it would wait for the resolver without a limit, and
    what it compares is compared again for each connection."""
    raise socket.gaierror(socket.EAI_AGAIN, "the connection looks it up")


def _permitted(host: str, port: int, seconds: float | None) -> list[str]:
    """Return the addresses of a host, once they are compared. Raises UrlNotAllowedException if one
    of them is denied, and as `lookups.addresses`."""
    from mistral.utils import egress

    found = lookups.addresses(host, port, seconds)
    denied = egress._denied_networks()
    for address in found:
        if any(meant in network for meant in _meant(address) for network in denied):
            raise _not_allowed(
                f"Host '{host}' has the blocked address {address}: see [action_std_http] "
                "denied_cidrs."
            )
    return found


def _not_allowed(why: str) -> Exception:
    from mistral import exceptions

    refused: Exception = exceptions.UrlNotAllowedException(why)
    return refused


def _meant(address: str) -> Iterator[ipaddress.IPv4Address | ipaddress.IPv6Address]:
    """Yield the addresses to which a connection to an address may go."""
    one = ipaddress.ip_address(address.partition("%")[0])
    yield one
    if isinstance(one, ipaddress.IPv6Address) and one.ipv4_mapped is not None:
        yield from _meant(str(one.ipv4_mapped))
    if one.is_unspecified:  # Linux connects to this machine
        yield from _LOOPBACK


def _request(method: str, url: str, **options: Any) -> requests.Response:
    """Send a request as ``requests.request`` does, but without a proxy. Its time limit is for all
    of it together: redirects, and the answer to its end."""
    if options.pop("proxies", None):
        raise _not_allowed(
            "A proxy is not allowed: it could reach what this server may not. Remove proxies."
        )
    limits = options.get("timeout")
    seconds = sum(filter(None, limits)) if isinstance(limits, tuple) else limits
    with requests.Session() as session, until(elapsed() + (seconds or math.inf)):
        # Without the environment: its proxies, and the passwords of ~/.netrc.
        session.trust_env = False
        for scheme in ("http://", "https://"):
            session.mount(scheme, _Adapter())
        if options.get("verify") in (None, True):
            options["verify"] = (
                os.environ.get("REQUESTS_CA_BUNDLE") or os.environ.get("CURL_CA_BUNDLE") or True
            )
        return session.request(method, url, **options)


class _Connection(Connection):
    def addresses(self, host: str, port: int, seconds: float | None) -> list[str]:
        """Return the addresses once they are compared."""
        return _permitted(host, port, seconds)


_POOLS = pools(_Connection)


class _Adapter(HTTPAdapter):
    """Sends a request, or what a redirect made of it."""

    def init_poolmanager(self, *args: Any, **options: Any) -> None:
        super().init_poolmanager(*args, **options)
        self.poolmanager.pool_classes_by_scheme = _POOLS

    def send(self, request: requests.PreparedRequest, **options: Any) -> requests.Response:  # type: ignore[override]
        from mistral.utils import egress

        egress.validate_url(request.url)  # [action_std_http] allowed_hosts holds for redirects, too
        return bounded(super().send(request, **options))


class _SMTP(smtplib.SMTP):
    """A connection of ``std.email``, which sets no limit of time."""

    _end = math.inf

    def _get_socket(self, host: str, port: int, _limit: Any) -> socket.socket:
        self._end = elapsed() + (cfg.CONF.action_std_http.default_timeout or math.inf)
        failure: OSError | None = None
        with until(self._end):
            for address, seconds in lookups.shares(_permitted(host, port, rest()), rest):
                try:
                    made = socket.create_connection((address, port), seconds, self.source_address)
                    made.settimeout(rest())
                except OSError as error:
                    failure = error
                else:
                    return made
        assert failure is not None  # a host has an address
        raise failure

    def getreply(self) -> tuple[int, bytes]:
        """See smtplib."""
        with until(self._end):
            if self.file is None and self.sock is not None:
                self.file = reading(self.sock)
            return super().getreply()
