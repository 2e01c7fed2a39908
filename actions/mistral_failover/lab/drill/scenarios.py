# SPDX-License-Identifier: Apache-2.0
"""The scenarios of a drill: what happens to the active guest, what an operator does, how it must
end."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

SLOW = 5.0
"""Seconds that stopping takes a slow guest: longer than the limit of the example's quiesce."""

Definition = dict[str, Any]


def as_it_is(definition: Definition) -> Definition:
    """The example's group."""
    return definition


def server_may_go(definition: Definition) -> Definition:
    """Return the group with the policy that a server whose host is down may be deleted if it is
    proven off."""
    changed = copy.deepcopy(definition)
    for resource in changed["resources"].values():
        if resource["type"] == "volume_attachment":
            resource["properties"]["when_host_is_down"] = "delete_server"
    return changed


def replicated(definition: Definition) -> Definition:
    """Return the group without its volumes: an application that keeps its data by replication. Its
    ladder does not ask Nova to stop a server either: on a dead host that request waits for the
    host's return, and would stop the guest as soon as it is back."""
    changed = copy.deepcopy(definition)
    gone = {n for n, r in changed["resources"].items() if r["type"] == "volume_attachment"}
    gone |= {n for n, r in changed["resources"].items() if _is_made_of(r, gone)}
    kept = {n: r for n, r in changed["resources"].items() if n not in gone}
    for resource in kept.values():
        needed = resource.get("depends_on", [])
        needed = [n for n in ([needed] if isinstance(needed, str) else needed) if n not in gone]
        resource.pop("depends_on", None)
        resource |= {"depends_on": needed} if needed else {}
        resource["properties"] = {
            name: value
            for name, value in resource["properties"].items()
            if not (isinstance(value, Mapping) and gone & set(value.get("get_attr", [])))
        }
    changed["resources"] = kept
    changed["fence"] = [rung for rung in changed["fence"] if rung != "stop"]
    return changed


def _is_made_of(resource: Mapping[str, Any], gone: set[str]) -> bool:
    """Return whether a resource makes no sense without one of these, as a mount without its
    volume."""
    values = [v for v in resource["properties"].values() if isinstance(v, Mapping)]
    return any(value.get("get_resource") in gone for value in values)


@dataclass(frozen=True)
class Scenario:
    """``strikes``: a server or a host of the emulated cloud is hit by ``fault``, or a command takes
    longer (``latency``). ``ends``: the correct final status; ``rung``: the only rung that may prove
    the member fenced, if there is only one. ``vouched``: an operator confirms that the member is
    off. ``returns``: its host comes back afterwards. ``adapt`` changes the example's group for the
    scenario."""

    strikes: Literal["server", "host", "latency"]
    fault: str
    sentence: str
    ends: Literal["COMPLETE", "BLOCKED"] = "COMPLETE"
    rung: str | None = None
    vouched: bool = False
    returns: bool = False
    adapt: Callable[[Definition], Definition] = as_it_is


_POWER = "the host of {member} lost its power, with its compute service"

SCENARIOS: Mapping[str, Scenario] = MappingProxyType(
    {
        "crash": Scenario(
            "server", "crash", "the guest of {member} crashed; Nova still says ACTIVE"
        ),
        "hang": Scenario(
            "server",
            "hang",
            "{member} answers no command, but its application continues to write",
            rung="stop",
        ),
        "app": Scenario("server", "app", "the application on {member} died; its guest is healthy"),
        "slow": Scenario(
            "latency",
            "command_stop",
            "{member} is healthy but slow: stopping takes it 5 s, and a monitor reports it as dead",
            rung="quiesce",
        ),
        "host": Scenario("host", "power_off", _POWER, ends="BLOCKED"),
        "confirmed": Scenario(
            "host", "power_off", _POWER, rung="confirm", vouched=True, adapt=server_may_go
        ),
        "returns": Scenario(
            "host",
            "power_off",
            _POWER,
            rung="confirm",
            vouched=True,
            returns=True,
            adapt=replicated,
        ),
    }
)
"""By the name that ``failover drill --fault`` takes."""
