# SPDX-License-Identifier: Apache-2.0
"""Access rules of an application credential: which requests this package sends, as Keystone has
them, and which of them a credential lacks.

A service refuses what no rule allows with HTTP 401. A look at the cloud does not find that out
before a failover, since it changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from mistral_failover.cloud.clients import Cloud
from mistral_failover.cloud.errors import SERVICES, translated
from mistral_failover.cloud.tokens import asked, keystone_of

REQUESTS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "Keystone": (
        ("GET", "/v3/auth/catalog"),
        ("GET", "/v3/projects/*"),
        ("GET", "/v3/OS-TRUST/**"),
    ),
    "Nova": (
        ("GET", "/**"),
        ("POST", "/servers/*/action"),
        ("DELETE", "/servers/*"),
        ("POST", "/servers/*/os-volume_attachments"),
        ("DELETE", "/servers/*/os-volume_attachments/*"),
        ("POST", "/servers/*/os-interface"),
        ("DELETE", "/servers/*/os-interface/*"),
        ("PUT", "/os-services/*"),
    ),
    "Cinder": (
        ("GET", "/**"),
        ("POST", "/volumes/*/action"),
        ("POST", "/attachments"),
        ("POST", "/attachments/*/action"),
        ("DELETE", "/attachments/*"),
        ("POST", "/snapshots"),
        ("DELETE", "/snapshots/*"),
        ("POST", "/volumes"),
        ("DELETE", "/volumes/*"),
    ),
    "Heat": (
        ("GET", "/**"),
        ("PATCH", "/stacks/*/*"),
        ("PATCH", "/stacks/*/*/preview"),
        ("PATCH", "/stacks/*/*/resources/*"),
    ),
    "Neutron": (
        ("GET", "/v2.0/**"),
        ("PUT", "/v2.0/ports/*"),
        ("PUT", "/v2.0/floatingips/*"),
    ),
    "Octavia": (
        ("GET", "/v2/**"),
        ("PUT", "/v2/lbaas/pools/*/members/*"),
    ),
    "Designate": (
        ("GET", "/v2/**"),
        ("POST", "/v2/zones/*/recordsets"),
        ("PUT", "/v2/zones/*/recordsets/*"),
        ("DELETE", "/v2/zones/*/recordsets/*"),
    ),
    "Aodh": (
        ("GET", "/v2/**"),
        ("PUT", "/v2/alarms/*"),
    ),
}
"""All requests, by service: the method, and the path below the service's endpoint. In a path ``*``
is one part, ``**`` is any number of parts."""


@dataclass(frozen=True, order=True)
class AccessRule:
    """``service``: its type in the catalog."""

    service: str
    method: str
    path: str

    def __str__(self) -> str:
        return f"service: {self.service}, method: {self.method}, path: {self.path}"

    def document(self) -> dict[str, str]:
        """Return it as Keystone has it."""
        return {"service": self.service, "method": self.method, "path": self.path}


def is_known(service: str, method: str, path: str) -> bool:
    """Return whether a request is one of `REQUESTS`. ``path``: below the service's endpoint."""
    return any(
        known == method and re.fullmatch(_pattern(pattern), path)
        for known, pattern in REQUESTS[service]
    )


def needed(cloud: Cloud) -> list[AccessRule]:
    """Return the rules for all requests, of the services that the catalog has. A service with two
    types gets its rules for each: only its operator knows which one it compares. Raises
    `CloudError`."""
    found = []
    types = _types(cloud)
    for service, requests in REQUESTS.items():
        for kind in types.get(service, ()):
            base = urlsplit(_base(cloud, service)).path.rstrip("/")
            found += [AccessRule(kind, method, base + path) for method, path in requests]
    return found


def _base(cloud: Cloud, service: str) -> str:
    if service != "Keystone":
        return cloud.base(service) or ""
    auth: Any = cloud.session.auth
    return keystone_of(str(auth.auth_url)).removesuffix("/v3")


def lacking(cloud: Cloud) -> list[AccessRule]:
    """Return the rules that the credential lacks; none if it has no access rules. Raises
    `CloudError`."""
    session = cloud.session
    with translated("ask Keystone about the token", "Keystone"):
        auth: Any = session.auth
        token = str(session.get_token())
        known = asked(session, keystone_of(str(auth.auth_url)), token, cloud.project_id)
    held = getattr(known, "application_credential_access_rules", None)
    if held is None:
        return []
    allowed = {kind: _allowed(kind, held) for kind in SERVICES}
    missing: dict[str, list[AccessRule]] = {}
    for rule in needed(cloud):
        missing.setdefault(rule.service, [])
        if not any(_covers(*each, rule) for each in allowed.get(rule.service, ())):
            missing[rule.service].append(rule)
    return [rule for kind, rules in missing.items() if _least(kind, missing) for rule in rules]


def _least(kind: str, missing: Mapping[str, list[AccessRule]]) -> bool:
    """Return whether of all types of a service this one lacks the fewest rules: a credential needs
    the rules of only one."""
    same = [each for each in missing if SERVICES[each] == SERVICES[kind]]
    return kind == min(same, key=lambda each: len(missing[each]))


def _allowed(kind: str, held: Iterable[Mapping[str, Any]]) -> list[tuple[str, str]]:
    return [(str(r["method"]), str(r["path"])) for r in held if r["service"] == kind]


def _covers(method: str, path: str, rule: AccessRule) -> bool:
    """Return whether a rule of a credential allows whatever another one allows."""
    example = rule.path.replace("**", "x/x/x/x").replace("*", "x")
    return method == rule.method and re.fullmatch(_pattern(path), example) is not None


def _pattern(path: str) -> str:
    """Return what the path of a rule means, as Keystone's middleware has it."""
    parts = re.split(r"(\*\*|\*|\{[^}]*\})", path)
    return "".join(
        ".*" if part == "**" else "[^/]+" if part[:1] in ("*", "{") else re.escape(part)
        for part in parts
    )


def _types(cloud: Cloud) -> dict[str, list[str]]:
    """Return the types by which the catalog has each service in this region."""
    session = cloud.session
    with translated("read the catalog", "Keystone"):
        auth: Any = session.auth
        catalog = auth.get_access(session).service_catalog
        listed = catalog.get_endpoints(region_name=session.region_name)
    found: dict[str, list[str]] = {}
    for kind, endpoints in listed.items():
        if endpoints and kind in SERVICES:
            found.setdefault(SERVICES[kind], []).append(kind)
    return found
