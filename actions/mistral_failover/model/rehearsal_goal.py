# SPDX-License-Identifier: Apache-2.0
"""The goal of a rehearsal: what the goal of a failover moves, on copies.

A rehearsal is a traversal of the same engine, in a group of its own, with a goal of its own::

    snapshots: -> copy:data -> data (the copy, attached) -> database (isolated) -> check:newest-row

What serves is not in that goal, so nothing of it is touched. When the rehearsal ends, the goal that
asks for nothing follows, and the ordinary cleanup removes everything in the opposite order.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mistral_failover.model.errors import InvalidDocument
from mistral_failover.model.goal import ATTACHMENT, FORMAT, Goal
from mistral_failover.model.references import FUNCTIONS
from mistral_failover.model.rehearsals import (
    APPLICATION,
    CHECK,
    COPY,
    COPY_ATTACHMENT,
    PATIENCE,
    PRIORITY,
    SNAPSHOTS,
    RehearsalCheck,
    RehearsalSpec,
)

_LONGEST = 200  # characters of a command in a name
SNAPSHOTS_NAME, COPY_PREFIX, CHECK_PREFIX = "snapshots:", "copy:", "check:"


@dataclass(frozen=True)
class Standby:
    """The server of a member that takes roles in a rehearsal, and the member's epoch."""

    server_id: str
    epoch: int


@dataclass(frozen=True)
class RehearsedGroup:
    """What a rehearsal's goal is made of.

    ``roles``: those that a failover would move, and the member that takes each. ``moving``: the
    attachments and applications of its goal that follow them, by name; ``role_of``: the role of
    each. ``standbys``: by member. ``volumes``: by the resource of an attachment, the id and the
    size (GiB) of its volume. ``recorded``: by resource, what it has now: ``{"id", "attributes"}``.
    """

    id: str
    group: str
    group_id: str
    roles: Mapping[str, str]
    moving: Mapping[str, Mapping[str, Any]]
    role_of: Mapping[str, str]
    standbys: Mapping[str, Standby]
    volumes: Mapping[str, tuple[str, int]]
    recorded: Mapping[str, Mapping[str, Any]]
    spec: RehearsalSpec

    @property
    def checks(self) -> list[tuple[RehearsalCheck, str]]:
        """The checks that it runs, each with its role. One of a role that does not move is none of
        them."""
        first = min(self.roles)
        return [(each, each.role or first) for each in checks_of(self.spec, self.roles)]


def checks_of(spec: RehearsalSpec, roles: Container[str]) -> list[RehearsalCheck]:
    """Return the checks of a rehearsal in which these roles move."""
    return [each for each in spec.checks if each.role is None or each.role in roles]


def rehearsal_goal(of: RehearsedGroup) -> Goal:
    """Return the goal of a rehearsal. Raises InvalidDocument if an application needs what is not
    rehearsed and has no value now."""
    kept = dict(sorted(of.moving.items()))
    resources: dict[str, Any] = {}
    applications = []
    copied = sorted({volume for volume, _ in of.volumes.values()})
    if copied:
        resources[SNAPSHOTS_NAME] = _entry(SNAPSHOTS, {"rehearsal": of.id, "volumes": copied})
    for name, entry in kept.items():
        requires = [each for each in entry["requires"] if each in kept]
        if entry["type"] == ATTACHMENT:
            volume, size = of.volumes[name]
            member = str(entry["properties"]["server"])
            resources[f"{COPY_PREFIX}{name}"] = _entry(
                COPY, {"rehearsal": of.id, "volume": volume, "size": size}, SNAPSHOTS_NAME
            )
            resources[name] = _entry(
                COPY_ATTACHMENT, _on(of, member), f"{COPY_PREFIX}{name}", *requires
            )
        else:
            resources[name] = _application(of, name, entry, requires, kept)
            applications.append(name)
    before: list[str] = []
    for check, role in of.checks:
        properties = {
            **_on(of, of.roles[role]),
            "role": role,
            "command": check.command,
            "exit_code": check.exit_code,
            "arguments": dict(check.arguments),
        }
        name = f"{CHECK_PREFIX}{check.command[:_LONGEST]}"
        if name in resources:
            name += f" {len(before) + 1}"
        resources[name] = _entry(CHECK, properties, *applications, *before[-1:])
        before.append(name)
    return Goal(_document(of.group, resources))


def ended_goal(group: str) -> Goal:
    """Return the goal that asks for nothing."""
    return Goal(_document(group, {}))


def definition_of(document: Mapping[str, Any], types: Sequence[Any]) -> dict[str, Any]:
    """Return the definition of a rehearsal's group: that of its group, but it waits less long for a
    service, comes last, has no chain of its own and tells nobody."""
    limits = {**document.get("limits", {}), "patience": PATIENCE}
    kept = {key: value for key, value in document.items() if key not in ("workflow", "on_event")}
    return {
        "document": {**kept, "limits": limits, "priority": PRIORITY, "on_failure": "stop"},
        "types": list(types),
    }


def _application(
    of: RehearsedGroup,
    name: str,
    entry: Mapping[str, Any],
    requires: Sequence[str],
    kept: Mapping[str, Any],
) -> dict[str, Any]:
    given = entry["properties"]
    arguments = {
        key: _known(of, value, kept, f"resources.{name}.properties.{key}")
        for key, value in given.items()
        if key not in ("member", "start", "stop")
    }
    properties = {
        **_on(of, str(given["member"])),
        "role": of.role_of[name],
        "start": given["start"],
        "arguments": arguments,
    }
    return _entry(APPLICATION, properties, *requires)


def _on(of: RehearsedGroup, member: str) -> dict[str, Any]:
    """Return the properties of what is on a member."""
    standby = of.standbys[member]
    return {
        "rehearsal": of.id,
        "group": of.group,
        "group_id": of.group_id,
        "on": member,
        "server_id": standby.server_id,
        "epoch": standby.epoch,
    }


def _known(of: RehearsedGroup, value: Any, kept: Mapping[str, Any], path: str) -> Any:
    """Return an argument in which each reference to something that is not rehearsed has the value
    that this has now."""
    if isinstance(value, list):
        return [_known(of, each, kept, f"{path}[{at}]") for at, each in enumerate(value)]
    if not isinstance(value, Mapping):
        return value
    if len(value) == 1 and (function := next(iter(value))) in FUNCTIONS:
        target = value[function]
        steps = target[1:] if isinstance(target, list) else []
        target = target[0] if isinstance(target, list) else target
        if target in kept:
            return dict(value)
        return _recorded(of, str(target), steps if function == "get_attr" else None, path)
    return {key: _known(of, each, kept, f"{path}.{key}") for key, each in value.items()}


def _recorded(of: RehearsedGroup, target: str, steps: Sequence[Any] | None, path: str) -> Any:
    found: Any = of.recorded.get(target, {})
    found = found.get("id") if steps is None else found.get("attributes")
    for step in steps or ():
        try:
            found = found[step]
        except (KeyError, IndexError, TypeError):
            found = None
    if found is None:
        raise InvalidDocument(
            path,
            f'it uses "{target}", which a rehearsal does not have and the group has not now either',
            "Write the value; or rehearse once the group serves.",
        )
    return found


def _entry(kind: str, properties: Mapping[str, Any], *requires: str) -> dict[str, Any]:
    return {
        "type": kind,
        "properties": dict(properties),
        "requires": sorted(set(requires)),
    }


def _document(group: str, resources: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "group": group,
        "stack": None,
        "roles": {},
        "lost": [],
        "on_failure": "stop",
        "resources": dict(resources),
    }
