# SPDX-License-Identifier: Apache-2.0
"""Addresses that only this machine can reach: what has no authentication listens on no other."""

from __future__ import annotations

import ipaddress


class NotLoopback(ValueError):  # noqa: N818 - what it is, not that it is an error
    """Other machines can reach the address."""


def is_loopback(host: str) -> bool:
    """Return whether an IP address is one of loopback. No name is: another machine may have it."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def require_loopback(host: str) -> None:
    """Raise `NotLoopback` unless the host is an IP address of loopback."""
    if not is_loopback(host):
        raise NotLoopback(f"{host} is not an address of loopback")
