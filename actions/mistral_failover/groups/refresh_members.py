# SPDX-License-Identifier: Apache-2.0
"""Record a group's present members, also from a process that was frozen in between.

A replacement raises the member's epoch and deposes its former server. A process that listed the
members, froze, and wakes up after a replacement holds an old server. If it recorded that server as
the newer one, it would depose the member that serves. So it reads the store before Heat. If the
store has changed since, it changes nothing and asks Heat again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from shlex import quote

from oslo_utils import timeutils, uuidutils

from mistral_failover.agent.channel.interface import ChannelError
from mistral_failover.agent.wire import Address
from mistral_failover.cloud.clients import Cloud
from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.stack_members import members as stack_members
from mistral_failover.cloud.stacks import stack_shown
from mistral_failover.groups import candidates
from mistral_failover.groups.candidates import HeatMember
from mistral_failover.groups.snapshot import GroupSnapshot
from mistral_failover.model.group import Group
from mistral_failover.model.remedies import STACK_GONE, command, sentence
from mistral_failover.runtime.errors import ActionError
from mistral_failover.runtime.request import Request
from mistral_failover.store import groups
from mistral_failover.store.groups import ReplacedMember, StaleObservation
from mistral_failover.store.transaction import ProjectTransaction

LOG = logging.getLogger(__name__)


_LOOKS = 5


def remember_members(
    request: Request, cloud: Cloud, snapshot: GroupSnapshot, look: Callable[[], list[HeatMember]]
) -> tuple[list[HeatMember], list[ReplacedMember]]:
    """Look at a group's members and record them and their replacements, and the stack's id.

    Raises ActionError CONTENDED if other processes record replacements all the time, and what
    ``look`` raises.
    """
    remember_stack(request, cloud, snapshot)
    database, group_id = request.store, snapshot.state.id
    for _ in range(_LOOKS):
        known = database.reading(lambda tx: groups.members_of(tx, group_id))
        seen = look()
        try:
            replaced = database.atomically(
                partial(record, identity=group_id, seen=seen, before=known)
            )
        except StaleObservation as late:
            why = str(late)
            continue
        return seen, replaced
    raise ActionError(
        "CONTENDED",
        why,
        "Check the group's status before you repeat the order: failover status GROUP",
    )


def remember_stack(request: Request, cloud: Cloud, snapshot: GroupSnapshot) -> None:
    """Record the id of the group's stack, unless it is known; None of a group without one. Raises
    CloudError."""
    state, stack = snapshot.state, snapshot.group.stack
    if state.stack_name != stack:
        known = None if stack is None else stack_id(cloud, stack)
        request.store.atomically(
            lambda tx: groups.record_stack(tx, state.id, state.stack_name, stack, known)
        )


def record(
    tx: ProjectTransaction,
    identity: str,
    seen: Collection[HeatMember],
    before: Mapping[str, groups.MemberRow],
) -> list[ReplacedMember]:
    """Record all members that the cloud shows, as `store.groups.record_members`; the others leave
    the group unless they hold something of it."""
    rows = [(each.name, each.server_id, each.created_at) for each in seen]
    replaced = groups.record_members(tx, identity, rows, before)
    groups.leave(tx, identity, [each.name for each in seen])
    return replaced


def depose(
    request: Request,
    cloud: Cloud,
    snapshot: GroupSnapshot,
    replaced: Iterable[groups.ReplacedMember],
) -> None:
    """Tell the agents of replaced servers that they are deposed: one that still runs stops its
    application, and pending commands to it are dropped.

    The replacement has already happened, so no lock is needed. An agent that cannot be reached is
    skipped: the epoch is raised, commands of the new epoch go only to the new server, and a member
    with resources on the old server is fenced there.
    """
    channel = request.channel(cloud, cloud.guard)
    for member in replaced:
        if member.server_id is None:
            continue
        name = snapshot.group.name
        address = Address(snapshot.state.id, name, member.name, member.server_id)
        try:
            channel.depose(address, member.epoch)
        except (ChannelError, CloudError) as error:
            said = error.message
            LOG.info(
                "%s of %s was replaced, but its agent was not notified: %s", member.name, name, said
            )
            if isinstance(error, ChannelError):
                return  # the channel is out of reach, for the others as well


def members_now(cloud: Cloud, snapshot: GroupSnapshot) -> list[candidates.HeatMember]:
    """Return a group's members as Heat reports them, or as the group file has them. Raises
    CloudError; STACK_REPLACED if another stack has the name now, because its servers are not the
    group's."""
    state, group = snapshot.state, snapshot.group
    if group.stack is not None and state.stack_id is not None and state.stack_name == group.stack:
        try:
            now = stack_id(cloud, group.stack)
        except CloudError as error:
            if error.code == "NOT_FOUND":
                error.message = f"stack {group.stack} does not exist any more"
                error.remedy = f"{sentence(STACK_GONE, group.name)}."
            raise
        refuse_another(group.name, group.stack, state.stack_id, now)
    return members_of(cloud, group)


def stack_id(cloud: Cloud, stack: str) -> str:
    """Return the id of the stack that a group file names. Raises CloudError."""
    return stack if uuidutils.is_uuid_like(stack) else str(stack_shown(cloud, stack).id)


def refuse_another(group: str, stack: str, known: str, now: str) -> None:
    """Refuse a stack with another id than the known one. Raises CloudError STACK_REPLACED."""
    if known != now:
        raise CloudError(
            "STACK_REPLACED",
            f"{another_stack(stack, known, now)}. Nothing was moved.",
            remedy=f"See what it has: openstack stack resource list {quote(stack)}. If "
            f"{group} is to run there: {adopt_command(group)}",
            retryable=False,
        )


def another_stack(stack: str, known: str, now: str) -> str:
    """Return the clause that says that a stack was made again."""
    return f"stack {stack} was deleted and made again: it is {now} now, the group had {known}"


def adopt_command(group: str) -> str:
    """Return the command by which an operator lets a group take the stack that has the name now."""
    return command("ADOPT_STACK", group)


def members_of(cloud: Cloud, group: Group) -> list[candidates.HeatMember]:
    """Return as `members_now` what the stack has that the group file names, whichever stack it is;
    without a stack, what was found when the file was accepted."""
    spec = group.members
    if group.stack is None:
        known = [
            candidates.HeatMember(name, one["id"], one["created_at"], "")
            for name, one in spec.known.items()
        ]
        return sorted(known, key=lambda member: (member.created_at or 0.0, member.name))
    found = stack_members(
        cloud,
        group.stack,
        servers=spec.servers or None,
        autoscaling_group=spec.autoscaling_group,
    )
    return [
        candidates.HeatMember(m.name, m.server_id, _seconds(m.created_at), m.status) for m in found
    ]


def _seconds(created_at: str | None) -> float | None:
    """Return a time from Heat in seconds since the epoch; UTC if it has no zone."""
    return float(timeutils.parse_isotime(created_at).timestamp()) if created_at else None
