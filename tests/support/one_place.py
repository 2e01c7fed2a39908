# SPDX-License-Identifier: Apache-2.0
"""A session whose catalog has all services at one URL, for a scripted server."""

from __future__ import annotations

from typing import Any

from keystoneauth1.access import create
from keystoneauth1.identity.access import AccessInfoPlugin

from mistral_failover.cloud.transport import Guard, GuardedSession, Unguarded

PROJECT = "p"
PATHS = {
    "compute": "compute/v2.1",
    "block-storage": f"volume/v3/{PROJECT}",
    "orchestration": f"heat/v1/{PROJECT}",
    "network": "network",
    "load-balancer": "load-balancer",
    "dns": "dns",
    "alarming": "alarming",
    "identity": "identity/v3",
}
"""Each service's path, by its type in the catalog."""


def catalog(url: str) -> list[dict[str, Any]]:
    """Return the catalog."""
    return [
        {
            "type": kind,
            "endpoints": [
                {"interface": "public", "region_id": "R", "region": "R", "url": f"{url}/{path}"}
            ],
        }
        for kind, path in PATHS.items()
    ]


def session_at(url: str, timeout: float = 5, guard: Guard | None = None) -> GuardedSession:
    """Return a session with a token that does not expire."""
    body = {
        "methods": [],
        "user": {},
        "project": {"id": PROJECT},
        "expires_at": "2100-01-01T00:00:00Z",
        "catalog": catalog(url),
    }
    auth = AccessInfoPlugin(
        create(body={"token": body}, auth_token="t"), auth_url=f"{url}/identity/v3"
    )
    return GuardedSession(guard=guard or Unguarded(60), timeout=timeout, auth=auth, region_name="R")


def versions(url: str, path: str) -> Any:
    """Return what Nova and Cinder say of their versions at a path; None at other paths."""
    for base, number, newest in (("compute/v2.1", "2.1", "2.96"), ("volume/v3", "3.0", "3.71")):
        if path.strip("/") in (base, base.partition("/")[0]):
            link = {"rel": "self", "href": f"{url}/{base}/"}
            one = {"id": f"v{number}", "status": "CURRENT", "version": newest, "links": [link]}
            return {"versions": [{**one, "min_version": number}]}
    return None
