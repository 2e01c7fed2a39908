# SPDX-License-Identifier: Apache-2.0
"""In which availability zones members are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mistral_failover.cloud.errors import CloudError
from mistral_failover.groups.hosts import AffectedGroups, project_listing
from mistral_failover.runtime.errors import ActionError
from mistral_failover.runtime.request import Request
from mistral_failover.store import groups, observations
from mistral_failover.store.transaction import ProjectTransaction


@dataclass(frozen=True)
class MemberZones:
    """``zones``: by the id of a group and the name of each of its members, the zone of the member's
    server; None if it is not known. ``unsure``: why they may be old, or empty."""

    zones: Mapping[str, Mapping[str, str | None]]
    unsure: str = ""

    def known(self) -> list[str]:
        """Return the zones in which members are."""
        return sorted({zone for of in self.zones.values() for zone in of.values() if zone})


def member_zones(request: Request) -> MemberZones:
    """Return in which zones the members of the project's groups are.

    Nova is asked once, for the list of the project's servers. A server that it does not list is
    where it was when it was last observed.
    """
    members, _, where, unsure = _found(request)
    zones: dict[str, dict[str, str | None]] = {}
    for each in members:
        zones.setdefault(each.group_id, {})[each.name] = where.get(each.server_id)
    return MemberZones(zones, unsure)


def members_in(request: Request, zone: str) -> AffectedGroups:
    """Return the members of the project's groups in a zone: those that its failure hits. Where they
    are is known as in :func:`member_zones`."""
    members, priorities, where, unsure = _found(request)
    there = [each for each in members if where.get(each.server_id) == zone]
    return AffectedGroups.of(there, priorities, unsure)


def _found(
    request: Request,
) -> tuple[list[groups.MemberOfProject], dict[str, int], dict[str, str], str]:
    """Return the project's members, its groups' priorities, the zones by server id, and why these
    may be old, or an empty text."""

    def read(
        tx: ProjectTransaction,
    ) -> tuple[list[groups.MemberOfProject], dict[str, int], dict[str, str]]:
        known, priorities = groups.members_in(tx), groups.priorities(tx)
        return known, priorities, observations.zones(tx)

    members, priorities, where = request.store.reading(read)
    unsure = ""
    if members:
        try:
            where |= project_listing(request).zones()
        except (ActionError, CloudError) as error:
            unsure = f"Nova could not be asked [{error.code}]"
    return members, priorities, where, unsure
