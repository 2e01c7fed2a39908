# SPDX-License-Identifier: Apache-2.0
"""Addresses that only this machine can reach: what has no authentication listens on no other. And
the requests that a web page in a browser here could send to them."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection, Sequence
from typing import Literal

_HOST = re.compile(r"(?P<name>\[[0-9a-f:.]+\]|[^\[\]:]+)(?::(?P<port>[0-9]{1,5}))?")
_LARGEST_PORT = 65535
_OWN_SITE = frozenset({"same-origin", "none"})  # none: typed, or clicked in a terminal


class NotLoopback(ValueError):  # noqa: N818 - what it is, not that it is an error
    """Other machines can reach the address."""


def is_loopback(host: str) -> bool:
    """Return whether an IP address is one of loopback. No name is: another machine may have it."""
    address = _address(host)
    return address is not None and address.is_loopback


def require_loopback(host: str) -> None:
    """Raise `NotLoopback` unless the host is an IP address of loopback."""
    if not is_loopback(host):
        raise NotLoopback(f"{host} is not an address of loopback")


def foreign(
    hosts: Sequence[str],
    names: Collection[str] = (),
    *,
    origin: str | None = None,
    site: str | None = None,
    scheme: str = "http",
) -> Literal["host", "site"] | None:
    """Return why a request may come from a web page of another site; None if it does not.

    "host": its one ``Host`` header names no address of loopback, not ``localhost``, and none of
    ``names``. A page whose own name is rebound to an address of this machine (DNS rebinding) sends
    that name. The port may be any: a tunnel has another one at its other end. "site": ``Origin`` or
    ``Sec-Fetch-Site``, which only browsers send, name another site. A page of another port is one
    too: every user of the machine can serve one.

    :param hosts: every ``Host`` header of the request. :param names: further names, and the
        addresses it listens on; with one that means all addresses of the machine (``0.0.0.0``,
        ``::``), any address is accepted: an address cannot be rebound.
    :param origin: the header ``Origin``. :param site: the header ``Sec-Fetch-Site``.
    """
    host = hosts[0].lower() if len(hosts) == 1 else ""
    found = _HOST.fullmatch(host)
    if found is None or int(found["port"] or 0) > _LARGEST_PORT:
        return "host"
    if not _is_own(found["name"].strip("[]"), {name.lower().strip("[]") for name in names}):
        return "host"
    if origin is not None and origin.lower() != f"{scheme}://{host}":
        return "site"
    return None if site is None or site.lower() in _OWN_SITE else "site"


def _is_own(name: str, names: Collection[str]) -> bool:
    if name == "localhost" or name in names or is_loopback(name):
        return True
    return _address(name) is not None and any(
        address.is_unspecified for each in names if (address := _address(each)) is not None
    )


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
