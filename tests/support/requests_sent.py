# SPDX-License-Identifier: Apache-2.0
"""Fails a test in which this package sent the emulated cloud a request that no access rule is known
for: see `mistral_failover.cloud.access_rules`. To be imported into a ``conftest.py``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from mistral_failover.cloud import transport
from mistral_failover.cloud.access_rules import is_known

_BASES = {
    "Nova": re.compile(r"/compute/v2\.1(/.*)"),
    "Cinder": re.compile(r"/volume/v3(?:/[0-9a-f]{32})?(/.*)"),
    "Heat": re.compile(r"/orchestration/v1/[0-9a-f]{32}(/.*)"),
    "Neutron": re.compile(r"/network(/v2\.0/.*)"),
    "Octavia": re.compile(r"/load-balancer(/v2/.*)"),
    "Designate": re.compile(r"/dns(/v2/.*)"),
    "Aodh": re.compile(r"/alarming(/v2/.*)"),
}
"""The path of a request to each emulated service; the group is the part below its endpoint."""


def unknown(method: str, path: str) -> bool:
    """Return whether a path is of an emulated service, and no rule of that service allows it."""
    for service, base in _BASES.items():
        if found := base.fullmatch(path):
            return not is_known(service, method, found[1])
    return False


@pytest.fixture(autouse=True)
def only_requests_with_a_rule(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    found: list[str] = []
    send = transport._GuardedTransport.send

    def sent(self: Any, request: Any, *arguments: Any, **options: Any) -> Any:
        if unknown(request.method, path := urlsplit(request.url).path):
            found.append(f"{request.method} {path}")
        return send(self, request, *arguments, **options)

    monkeypatch.setattr(transport._GuardedTransport, "send", sent)
    yield
    assert found == [], "add it to REQUESTS of cloud/access_rules.py"
