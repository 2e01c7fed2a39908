# SPDX-License-Identifier: Apache-2.0
"""The alarms of a project in Aodh: which servers they watch, and which stack they signal.

An alarm names its server in a condition of its query (an event alarm), or as its resource (a
threshold of an instance). Other alarms name no server: they watch whatever matches.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import unquote

from oslo_utils import uuidutils

from mistral_failover.cloud.clients import Cloud
from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.fields import Field
from mistral_failover.cloud.url_paths import url_path
from mistral_failover.cloud.waits import ProbeResult, ResendPolicy

T = TypeVar("T")
_ALARMS = "/v2/alarms"
_TRAITS = frozenset(f"traits.{each}" for each in ("instance_id", "resource_id", "server_id"))
_EVENT, _THRESHOLD = "event_rule", "gnocchi_resources_threshold_rule"
_ALARM_ID, _NAME, _STATE = (Field("Aodh", n) for n in ("alarm_id", "name", "state"))
_PROJECT_ID = Field("Aodh", "project_id")
_ENABLED, _ACTIONS = Field("Aodh", "enabled"), Field("Aodh", "alarm_actions")
_QUERY, _FIELD, _VALUE = (Field("Aodh", n) for n in ("query", "field", "value"))
_RESOURCE_TYPE, _RESOURCE_ID = Field("Aodh", "resource_type"), Field("Aodh", "resource_id")
_NEW = "insufficient data"
"""The state of an alarm that was not evaluated yet."""
# Of a trust's URL and, quoted, of a signed one.
_STACK = re.compile(r"\bstacks/([^/?]+)/([^/?]+)/resources/")


@dataclass(frozen=True, slots=True)
class WatchingAlarm:
    """An alarm of Aodh.

    ``enabled``: whether it can fire. ``servers``: the ids of the servers that it names; none if it
    names no server. ``stacks``: the names and ids of the stacks whose resources it signals.
    """

    id: str
    name: str
    enabled: bool
    servers: frozenset[str]
    stacks: frozenset[str]

    def __str__(self) -> str:
        return f"alarm {self.name or self.id}"

    def watches(self, server_id: str) -> bool:
        """Return whether it watches this server alone; or any, because it names none."""
        return self.servers <= {server_id}


def watching_alarms(cloud: Cloud) -> tuple[WatchingAlarm, ...]:
    """Return the project's alarms.

    Raises `CloudError` if there is no Aodh, if it does not answer, or if the request may not see
    them.
    """
    return tuple(_alarm(row) for row in _own(cloud, cloud.read("Aodh", _ALARMS)))


def alarm(cloud: Cloud, named: str) -> WatchingAlarm:
    """Return an alarm by its id, or by the name that only it has in the project.

    Raises `CloudError` NOT_FOUND, or BAD_REQUEST if several alarms have the name.
    """
    return _alarm(_row(cloud, named))


def only_one(name: str, found: Sequence[T]) -> T:
    """Return the only one of the alarms with a name. Raises `CloudError` BAD_REQUEST if there are
    several."""
    if len(found) > 1:
        raise CloudError(
            "BAD_REQUEST",
            f"The project has {len(found)} alarms with the name {name}.",
            remedy="Write the id of one of them in the group file: openstack alarm list.",
        )
    return found[0]


def watch(cloud: Cloud, named: str, server_id: str, limit: float) -> WatchingAlarm:
    """Let an alarm watch a server instead of those that it names, and return the alarm. If it names
    none, it is left as it is.

    Everything else of the alarm stays, except for the state ``alarm``, which is about the former
    server: until it is reset, an alarm without ``repeat_actions`` does not fire. ``limit``: seconds
    in total. Raises `CloudError` as `alarm` does.
    """
    repeats = ResendPolicy(cloud)

    def step() -> ProbeResult:
        row = _row(cloud, named)
        now = _alarm(row)
        state = f"it watches {', '.join(sorted(now.servers))}"
        if now.watches(server_id):
            return ProbeResult(state, done=True, result=now)
        path = _ALARMS + url_path(now.id)
        body = _watching(row, server_id)
        return repeats.send(state, f"change {now}", "Aodh", "PUT", path, body)

    found: WatchingAlarm = cloud.carry_out(
        repeats, step, f"alarm {named} to watch server {server_id}", limit
    )
    return found


def _row(cloud: Cloud, named: str) -> Mapping[str, Any]:
    """Return an alarm as Aodh shows it: what a PUT of it takes, too. Aodh shows the URL of an
    action by a trust without the trust, and finds the trust again at the PUT."""
    if uuidutils.is_uuid_like(named):
        row: Mapping[str, Any] = cloud.read("Aodh", _ALARMS + url_path(named))
        return cloud.own(row, f"Alarm {named}")
    query = {"q.field": "name", "q.op": "eq", "q.value": named}
    rows = _own(cloud, cloud.read("Aodh", _ALARMS, params=query))
    if not rows:
        raise CloudError("NOT_FOUND", f"The project has no alarm with the name {named}.")
    return only_one(named, rows)


def _own(cloud: Cloud, rows: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the project's rows: Aodh lists those of all projects to an administrator, and anyone
    can give an alarm the same name."""
    return [row for row in rows if _PROJECT_ID.of(row) == cloud.project_id]


def _alarm(row: Mapping[str, Any]) -> WatchingAlarm:
    urls = [unquote(str(url)) for url in _ACTIONS.of(row)]
    signalled = [found.groups() for url in urls for found in _STACK.finditer(url)]
    return WatchingAlarm(
        str(_ALARM_ID.of(row)),
        str(_NAME.of(row)),
        bool(_ENABLED.of(row)),
        frozenset(_servers(row)),
        frozenset(part for parts in signalled for part in parts),
    )


def _servers(row: Mapping[str, Any]) -> Iterator[str]:
    for condition in _QUERY.of(event) if (event := _rule(row, _EVENT)) else ():
        if _names_a_server(condition):
            yield str(_VALUE.of(condition))
    if (threshold := _rule(row, _THRESHOLD)) and _is_of_a_server(threshold):
        yield str(_RESOURCE_ID.of(threshold))


def _rule(row: Mapping[str, Any], kind: str) -> Mapping[str, Any] | None:
    """Return an alarm's rule of a kind; an alarm has the rule of its type only."""
    rule: Mapping[str, Any] | None = row.get(kind)
    return rule


def _names_a_server(condition: Mapping[str, Any]) -> bool:
    # In Aodh's API ``op`` is optional, and "eq" by default.
    return _FIELD.of(condition) in _TRAITS and condition.get("op", "eq") == "eq"


def _is_of_a_server(threshold: Mapping[str, Any]) -> bool:
    return bool(_RESOURCE_TYPE.of(threshold) == "instance")


def _watching(row: Mapping[str, Any], server_id: str) -> dict[str, Any]:
    """Return an alarm that watches this server, as a whole: Aodh resets what a PUT lacks."""
    changed = dict(row)
    if event := _rule(row, _EVENT):
        query = [
            {**each, "value": server_id} if _names_a_server(each) else each
            for each in _QUERY.of(event)
        ]
        changed[_EVENT] = {**event, "query": query}
    if (threshold := _rule(row, _THRESHOLD)) and _is_of_a_server(threshold):
        changed[_THRESHOLD] = {**threshold, "resource_id": server_id}
    if _STATE.of(row) == "alarm":
        changed["state"] = _NEW
    return changed
