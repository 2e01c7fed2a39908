# SPDX-License-Identifier: Apache-2.0
"""What is deleted while a member comes back, as far as can be seen before: for plans."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING

from mistral_failover.cloud import boot_disks, servers
from mistral_failover.cloud.heat_replacements import (
    predicted_replacements,
    refuse_marked,
    rows_of,
)
from mistral_failover.cloud.stack_members import StackLocation, locate
from mistral_failover.cloud.stacks import SERVER, VOLUME, stack_shown
from mistral_failover.resources.restart.disks import disks_of, in_words
from mistral_failover.resources.restart.way import Deletion, LostServer

if TYPE_CHECKING:
    from mistral_failover.cloud.clients import Cloud

_ADDRESSES = ("OS::Neutron::Port", "OS::Neutron::FloatingIP")


def server_with_disks(cloud: Cloud, server: str) -> str:
    """Return a server that exists and the disks that are deleted with it, in words. Raises
    `CloudError`."""
    along = servers.volumes_deleted_with(cloud, server, root=True)
    made = [each for each in disks_of(cloud, server) if each == servers.system_disk(server)]
    disks = " and ".join(in_words(each) for each in (*along, *made))
    return f"server {server}, with {disks}" if disks else f"server {server}"


def by_heat(lost: LostServer, stack: str) -> Iterator[Deletion]:
    """Yield what goes when Heat gives a member another server: that server, and what the same
    update of the stack replaces or removes.

    Raises `CloudError`, also where the update, or a deletion before it, would be refused.
    """
    cloud, whole = lost.cloud, lost.resource is None
    group, part = lost.autoscaling_group, lost.resource
    place = locate(cloud, stack, lost.member, autoscaling_group=group, resource=part)
    if whole and place.server_id not in ("", lost.server):
        return  # it has another one already
    rows, where = rows_of(cloud, stack), _marked(cloud, stack, place)
    disks = boot_disks.disks_in_stack(cloud, stack, lost.server)
    others = {server: name for server, name in lost.keep.members.items() if server != lost.server}
    volumes = {**disks, **lost.keep.volumes}
    keep = dataclasses.replace(lost.keep, volumes=volumes, members=others)
    refuse_marked(cloud, stack, keep, marking=where, rows=rows)
    disk = boot_disks.kept_boot_disk(cloud, stack, lost.server) if whole else None
    types = (SERVER, VOLUME, *_ADDRESSES)
    ids = {row.resource.physical_id for row in rows if row.resource.type in types} - {""}
    for identity, why in predicted_replacements(cloud, rows, ids, marking=where).items():
        kind, inside = why.link.resource.type, why.link.stack != why.cause.stack
        if identity == lost.server:
            if servers.server_state(cloud, identity).exists:
                when = "by Heat, as soon as the next one is there"
                before = f"in Nova, before Heat makes the next one, which gets volume {disk}, too"
                yield Deletion(server_with_disks(cloud, identity), before if disk else when)
        elif kind in (SERVER, VOLUME) or inside or why.by_itself:
            words = f"{why.link.name} ({kind} {identity})"
            yield Deletion(words, "by Heat, with the same update of its stack")


def _marked(cloud: Cloud, stack: str, place: StackLocation) -> tuple[str, str]:
    """Return the id of the stack, and the name, of the resource that is marked."""
    own = place.stack == stack
    owner = str(stack_shown(cloud, stack).identifier) if own else place.stack
    return owner.rpartition("/")[2], place.name
