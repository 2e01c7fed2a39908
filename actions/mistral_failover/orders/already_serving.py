# SPDX-License-Identifier: Apache-2.0
"""Where a group serves that has no records of it: it was released and defined again, or set up by
hand.

Its first goal keeps each role on the member that has what belongs to it, by the cloud's own word.
Another member would start a second copy of the application, or wait in vain for the volume. A
volume tells more than an address: one that a stack gives to a member by itself is no application.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from shlex import quote

from mistral_failover.cloud.transport import Unguarded
from mistral_failover.groups.snapshot import GroupSnapshot
from mistral_failover.model.assignment import MemberFact
from mistral_failover.model.group import ResourceSpec
from mistral_failover.model.order import Order
from mistral_failover.model.types import Provides
from mistral_failover.resources.modules import ExaminedResource, holders
from mistral_failover.runtime.errors import ActionError
from mistral_failover.runtime.request import Request

_TELLS = (Provides.VOLUME, Provides.ADDRESS)
"""What tells where a role is, the most certain first."""

Found = Mapping[str, str]
"""By member, in words, what of a role it has."""


def serving_members(
    request: Request, snapshot: GroupSnapshot, order: Order, members: Sequence[MemberFact]
) -> dict[str, str]:
    """Return by role the member that has something of it already; empty for a group that has
    records. A member that the order declares lost counts, because it may serve all the same.

    Raises ActionError SERVES_TWICE if several members have something of a role, and SERVES_ALREADY
    if the order names another one than the member that has its volume; CloudError if that cannot be
    seen now.
    """
    if snapshot.in_service or snapshot.occupied:
        return {}
    named = order.to if isinstance(order.to, Mapping) else {}
    found = {}
    for role in snapshot.group.roles:
        to = order.to if isinstance(order.to, str) else named.get(role)
        for kind in _TELLS:
            held = _found(request, snapshot, members, role, kind)
            if to is not None and kind is not Provides.VOLUME:
                break  # an operator says where the addresses go
            if len(held) > 1:
                raise _twice(snapshot, role, held)
            if held:
                (found[role],) = held
                if to not in (None, found[role]):
                    raise _already(snapshot, role, held)
                break
    return found


def _found(
    request: Request,
    snapshot: GroupSnapshot,
    members: Sequence[MemberFact],
    role: str,
    kind: Provides,
) -> Found:
    group, names = snapshot.group, {each.server_id: each.name for each in members}
    servers = {server: name for server, name in names.items() if server is not None}
    found: dict[str, list[str]] = {}
    for spec in group.resources.values():
        if group.types[spec.type].provides is kind and group.role_of(spec.name) == role:
            for server in _holders(request, snapshot, spec, servers):
                if server in servers:
                    found.setdefault(servers[server], []).append(f"{spec.type} {spec.name}")
    return {member: " and ".join(words) for member, words in sorted(found.items())}


def _holders(
    request: Request, snapshot: GroupSnapshot, spec: ResourceSpec, servers: Mapping[str, str]
) -> frozenset[str]:
    group = snapshot.group
    subject = ExaminedResource(
        request.cloud(Unguarded()), group.name, group.stack, spec, servers, group.resources
    )
    return holders(subject, group.types[spec.type])


def _twice(snapshot: GroupSnapshot, role: str, held: Found) -> ActionError:
    said = ", and ".join(f"{member} has {words}" for member, words in held.items())
    return ActionError(
        "SERVES_TWICE",
        f"{role} cannot be given to one member: {said}",
        "Stop the application on all of them but one, and take from these what they have "
        "(openstack server remove volume, openstack floating ip unset --port). Then: failover "
        f"group activate {quote(snapshot.group.name)}",
    )


def _already(snapshot: GroupSnapshot, role: str, held: Found) -> ActionError:
    ((member, words),) = held.items()
    name = quote(snapshot.group.name)
    return ActionError(
        "SERVES_ALREADY",
        f"{role} is on {member}, which has {words}",
        f"Begin there: failover group activate {name} --to {quote(member)}. Then move it: failover "
        f"switchover {name}",
    )
