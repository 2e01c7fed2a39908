# SPDX-License-Identifier: Apache-2.0
"""Roles as a group file describes them, and the members that are preferred for them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from mistral_failover.model.errors import InvalidDocument, UnknownMember
from mistral_failover.model.validation import did_you_mean, distinct

DEFAULT_PRIORITY = 50
NEVER = 0
"""The priority of a member that takes a role only if it is named for it."""


@dataclass(frozen=True)
class RoleSpec:
    """One role. ``prefer``: the members that should hold it, the first choice first; others are
    used only if none of these can. ``weight``: the load that the role adds to its holder, 1 to 100.
    """

    prefer: tuple[str, ...] = ()
    weight: int = 1


def read_roles(given: Any) -> dict[str, RoleSpec]:
    """Read ``roles``: a list of names, or a mapping of each name to its settings.

    A list keeps its order. A mapping is sorted by name, because not every database keeps the order
    of a mapping's keys.

    :raises InvalidDocument: for a duplicate name.
    """
    if isinstance(given, list):
        return dict.fromkeys(distinct(given, "roles"), RoleSpec())
    return {name: _role(given[name] or {}, f"roles.{name}") for name in sorted(given)}


def check_preferences(
    roles: Mapping[str, RoleSpec], priority: Mapping[str, int], choose: str, servers: Iterable[str]
) -> None:
    """Check the members that roles prefer, and the members that have a priority.

    :param choose: the member that the group prefers for all roles, if it is a member.
    :param servers: the members, if the group file names them; if it is empty, any name is accepted.
    :raises InvalidDocument: for a name that is not a member, and for a preference for a member with
        priority 0.
    """
    known = list(servers)
    for name in sorted(priority):
        _check_member(name, known, f"members.priority.{name}")
    for role, spec in roles.items():
        for index, name in enumerate(spec.prefer):
            path = f"roles.{role}.prefer[{index}]"
            _check_member(name, known, path)
            _check_willing(name, priority, path)
    _check_willing(choose, priority, "members.choose")


def _role(given: Mapping[str, Any], path: str) -> RoleSpec:
    return RoleSpec(
        distinct(given.get("prefer", []), f"{path}.prefer"), given.get("weight", RoleSpec.weight)
    )


def _check_willing(name: str, priority: Mapping[str, int], path: str) -> None:
    if priority.get(name, DEFAULT_PRIORITY) == NEVER:
        raise InvalidDocument(
            path,
            f'"{name}" has priority 0: it takes a role only if it is named for it',
            "Raise its priority under members.priority, or prefer another member.",
        )


def _check_member(name: str, known: list[str], path: str) -> None:
    if known and name not in known:
        raise UnknownMember(path, name, did_you_mean(name, known))
