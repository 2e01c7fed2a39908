# SPDX-License-Identifier: Apache-2.0
"""Where a group serves that has no records of it: it was released and defined again, it was set up
by hand, or the state store was lost.

Its first goal keeps each role on the member that has what belongs to it, by the cloud's and the
agents' own word. Another member would start a second copy of the application, or wait in vain for
the volume. A volume tells more than an address: one that a stack gives to a member by itself is no
application. An agent tells where an application runs that has no volume.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from shlex import quote

from mistral_failover.agent.channel.interface import ChannelError, Heartbeat
from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.transport import Unguarded
from mistral_failover.groups.agent_health import last_heartbeats, sends_commands, silent
from mistral_failover.groups.refresh_members import depose
from mistral_failover.groups.snapshot import GroupSnapshot
from mistral_failover.model.assignment import MemberFact
from mistral_failover.model.goal import ACTIVATION
from mistral_failover.model.group import ResourceSpec
from mistral_failover.model.order import Order
from mistral_failover.model.types import Provides
from mistral_failover.resources.modules import ExaminedResource, holders
from mistral_failover.runtime.errors import ActionError
from mistral_failover.runtime.request import Request
from mistral_failover.store import groups
from mistral_failover.store.groups import ReplacedMember

Found = Mapping[str, str]
"""By member, in words, what of a role it has."""


def serving_members(
    request: Request,
    snapshot: GroupSnapshot,
    order: Order,
    members: Sequence[MemberFact],
    *,
    remember: bool = True,
) -> dict[str, str]:
    """Return by role the member that has something of it already; empty for a group that has
    records. A member that the order declares lost counts, because it may serve all the same.

    ``remember``: continue from the epochs that the agents know. A member that serves stays in its
    epoch, because its agent would stop the application for a later one. Each other one gets a later
    one: whatever was sent to it before is void.

    Raises ActionError SERVES_TWICE if several members have something of a role, SERVES_ALREADY if
    the order names another one than the member that has its volume or runs it, SERVES_UNKNOWN if
    only an agent could tell that is not heard; CloudError and ChannelError if something cannot be
    seen now.
    """
    if snapshot.in_service or snapshot.occupied:
        return {}
    heard = _Agents(request, snapshot, members)
    named = order.to if isinstance(order.to, Mapping) else {}
    found = {}
    for role in snapshot.group.roles:
        to = order.to if isinstance(order.to, str) else named.get(role)
        for kind in (Provides.VOLUME, Provides.ADDRESS, Provides.APPLICATION):
            if to is not None and kind is Provides.ADDRESS:
                continue  # an operator says where the addresses go
            if kind is Provides.APPLICATION:
                held = heard.running(role, named=to is not None)
            else:
                held = _found(request, snapshot, members, role, kind)
            if len(held) > 1:
                raise _twice(snapshot, role, held)
            if held:
                (found[role],) = held
                if to not in (None, found[role]):
                    raise _already(snapshot, role, held)
                break
    if remember:
        heard.take_epochs(frozenset(found.values()))
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


class _Agents:
    """What the agents of a group's members say, once they are asked."""

    def __init__(
        self, request: Request, snapshot: GroupSnapshot, members: Sequence[MemberFact]
    ) -> None:
        self._request = request
        self._snapshot = snapshot
        self._servers = {each.name: each.server_id for each in members if each.server_id}
        self._out_of_reach: ChannelError | CloudError | None = None
        self._beats = self._heard()
        known = request.store.reading(lambda tx: groups.members_of(tx, snapshot.state.id))
        self._later = {
            name: beat
            for name, beat in self._beats.items()
            if beat.epoch > (known[name].epoch if name in known else 1)
        }

    def _heard(self) -> dict[str, Heartbeat]:
        group, identity = self._snapshot.group, self._snapshot.state.id
        if not sends_commands(group):
            return {}
        try:
            return last_heartbeats(self._request, group, identity, self._servers)
        except (ChannelError, CloudError) as error:
            self._out_of_reach = error
            return {}

    def running(self, role: str, *, named: bool) -> Found:
        """Return the members on which the application of a role runs, by their agents' word; only
        of a role without a volume, which would tell. ``named``: an operator names its member, so
        that it need not be known. Raises ActionError SERVES_UNKNOWN, ChannelError, CloudError."""
        group, found = self._snapshot.group, dict[str, str]()
        mine = [each for each in group.resources.values() if group.role_of(each.name) == role]
        if any(group.types[each.type].provides is Provides.VOLUME for each in mine):
            return {}
        commands = [
            (each.name, str(each.properties["start"]), str(each.properties["stop"]))
            for each in mine
            if each.type == ACTIVATION
        ]
        for name, start, stop in commands:
            if self._is_shared(start):
                continue
            for member, beat in self._beats.items():
                done = [each for each in beat.in_effect if each in (start, stop)]
                if done[-1:] == [start] and not beat.stopping and not silent(beat):
                    found.setdefault(member, f"{ACTIVATION} {name}")
        if found or named or not commands:
            return found
        if self._out_of_reach is not None and self._out_of_reach.transient:
            raise self._out_of_reach
        unheard = sorted(
            name for name in self._servers if name not in self._beats or silent(self._beats[name])
        )
        if unheard and self._later:
            raise _unknown(self._snapshot, role, unheard)
        return found

    def _is_shared(self, start: str) -> bool:
        """Return whether several roles have a start command of this name: then it does not tell."""
        group = self._snapshot.group
        roles = {
            group.role_of(each.name)
            for each in group.resources.values()
            if each.type == ACTIVATION and each.properties["start"] == start
        }
        return len(roles) > 1

    def take_epochs(self, serving: frozenset[str]) -> None:
        """Continue from the epochs that the agents know, if they are later than the store's."""
        if not self._later:
            return
        request, identity = self._request, self._snapshot.state.id
        epochs = {
            name: beat.epoch if name in serving else beat.epoch + 1
            for name, beat in self._later.items()
        }
        request.store.atomically(lambda tx: groups.raise_to(tx, identity, epochs))
        others = [
            ReplacedMember(name, self._servers[name], epoch)
            for name, epoch in epochs.items()
            if name not in serving
        ]
        depose(request, request.cloud(Unguarded()), self._snapshot, others)


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


def _unknown(snapshot: GroupSnapshot, role: str, unheard: Sequence[str]) -> ActionError:
    members = " and ".join(unheard)
    return ActionError(
        "SERVES_UNKNOWN",
        f"the group ran before, and it is not known whether {role} is on {members}: no agent that "
        f"is heard runs it, and the agent of {members} is not heard",
        f"Start the agent of {members}. Or look where {role} runs, stop it everywhere else, and "
        f"name that member: failover group activate {quote(snapshot.group.name)} --to MEMBER",
    )
