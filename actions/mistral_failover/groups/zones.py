# SPDX-License-Identifier: Apache-2.0
"""In which availability zones members are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mistral_failover.cloud.errors import CloudError
from mistral_failover.groups.hosts import project_listing
from mistral_failover.runtime.errors import ActionError
from mistral_failover.runtime.request import Request
from mistral_failover.store import groups, observations
from mistral_failover.store.transaction import SqlTransaction


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

    def read(tx: SqlTransaction) -> tuple[list[groups.MemberOfProject], dict[str, str]]:
        project = request.project_id
        return groups.members_in(tx, project), observations.zones(tx, project)

    members, where = request.runtime.database.reading(read)
    unsure = ""
    if members:
        try:
            where |= project_listing(request).zones()
        except (ActionError, CloudError) as error:
            unsure = f"Nova could not be asked [{error.code}]"
    zones: dict[str, dict[str, str | None]] = {}
    for each in members:
        zones.setdefault(each.group_id, {})[each.name] = where.get(each.server_id)
    return MemberZones(zones, unsure)
