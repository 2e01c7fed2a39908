# SPDX-License-Identifier: Apache-2.0
"""The alarms of a project in Aodh: which servers they watch, and which stack they signal."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from mistral_failover.cloud.clients import Cloud
from mistral_failover.cloud.errors import translated

_TRAITS = frozenset(f"traits.{each}" for each in ("instance_id", "resource_id", "server_id"))
# Of a trust's URL and, quoted, of a signed one.
_STACK = re.compile(r"\bstacks/([^/?]+)/([^/?]+)/resources/")


@dataclass(frozen=True, slots=True)
class WatchingAlarm:
    """An alarm of Aodh that is enabled.

    ``servers``: the ids of the servers that its query names; none if it names no server.
    ``stacks``: the names and ids of the stacks whose resources it signals.
    """

    name: str
    servers: frozenset[str]
    stacks: frozenset[str]


def watching_alarms(cloud: Cloud) -> tuple[WatchingAlarm, ...]:
    """Return the project's alarms.

    Raises `CloudError` if there is no Aodh, if it does not answer, or if the request may not see
    them.
    """
    with translated("list the project's alarms", "Aodh"):
        rows = cloud.alarming.get("/v2/alarms").json()
    return tuple(_alarm(row) for row in rows if row.get("enabled", True))


def _alarm(row: Mapping[str, Any]) -> WatchingAlarm:
    urls = [unquote(str(url)) for url in row.get("alarm_actions") or ()]
    signalled = [found.groups() for url in urls for found in _STACK.finditer(url)]
    return WatchingAlarm(
        str(row.get("name", "")),
        frozenset(_servers(row)),
        frozenset(part for parts in signalled for part in parts),
    )


def _servers(row: Mapping[str, Any]) -> Iterator[str]:
    for condition in (row.get("event_rule") or {}).get("query") or ():
        if condition.get("field") in _TRAITS and condition.get("op", "eq") == "eq":
            yield str(condition.get("value"))
    threshold = row.get("gnocchi_resources_threshold_rule") or {}
    if threshold.get("resource_type") == "instance":
        yield str(threshold.get("resource_id"))
