# SPDX-License-Identifier: Apache-2.0
"""Which members run on a compute host: those that its failure hits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.project_listing import ProjectListing
from mistral_failover.cloud.servers import ServerHost
from mistral_failover.cloud.transport import Unguarded
from mistral_failover.runtime.errors import ActionError
from mistral_failover.runtime.request import Request
from mistral_failover.store import groups, observations
from mistral_failover.store.groups import MemberOfProject
from mistral_failover.store.transaction import ProjectTransaction


@dataclass(frozen=True)
class AffectedGroup:
    """A group's members that an event hits, at least one."""

    group_id: str
    group: str
    priority: int
    members: tuple[str, ...]


@dataclass(frozen=True)
class AffectedGroups:
    """``groups``: the project's groups that an event hits, in the order in which they are to be
    judged: by priority, then by name. ``unsure``: why some members may be missing, or empty."""

    groups: tuple[AffectedGroup, ...]
    unsure: str = ""

    @classmethod
    def in_order(cls, rows: Iterable[AffectedGroup], unsure: str = "") -> AffectedGroups:
        """Return the groups in the order in which they are to be judged."""
        return cls(tuple(sorted(rows, key=lambda row: (-row.priority, row.group))), unsure)

    @classmethod
    def of(
        cls,
        members: Iterable[MemberOfProject],
        priorities: Mapping[str, int],
        unsure: str,
    ) -> AffectedGroups:
        """Return the groups of these members; ``priorities``: by the id of a group."""
        found: dict[str, list[MemberOfProject]] = {}
        for each in members:
            found.setdefault(each.group_id, []).append(each)
        rows = [
            AffectedGroup(
                identity,
                some[0].group,
                priorities.get(identity, 0),
                tuple(each.name for each in some),
            )
            for identity, some in found.items()
        ]
        return cls.in_order(rows, unsure)


def members_on(request: Request, host: str) -> AffectedGroups:
    """Return the members of the project's groups whose servers run on a host.

    Nova is asked once, for the list of the project's servers. A server that it does not list is
    where it was when it was last observed.
    """

    def read(
        tx: ProjectTransaction,
    ) -> tuple[list[MemberOfProject], dict[str, int], dict[str, tuple[str, ...]]]:
        known = groups.members_in(tx)
        return known, groups.priorities(tx), observations.hosts(tx)

    known, priorities, seen = request.store.reading(read)
    if not known:
        return AffectedGroups(())
    where = {server: ServerHost(*fields) for server, fields in seen.items()}
    unsure = ""
    try:
        where |= _listed(request)
    except (ActionError, CloudError) as error:
        unsure = f"Nova could not be asked [{error.code}]"
    there = [
        each for each in known if each.server_id in where and where[each.server_id].is_called(host)
    ]
    return AffectedGroups.of(there, priorities, unsure)


def _listed(request: Request) -> dict[str, ServerHost]:
    """Return where Nova says that the project's servers run, by server id."""
    return project_listing(request).hosts()


def project_listing(request: Request) -> ProjectListing:
    """Return a new listing of the project. Raises `CloudError` and ActionError where the request
    cannot be authenticated."""
    return ProjectListing(request.cloud(Unguarded(request.runtime.settings.http_timeout)))
