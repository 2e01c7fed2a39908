# SPDX-License-Identifier: Apache-2.0
"""The way ``replace``: Heat creates another server for the member."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from shlex import quote
from typing import TYPE_CHECKING

from mistral_failover.model.rungs import ServerAfter, rung_kinds
from mistral_failover.resources.restart.way import Attempt, Deletion, LostServer, Result, Way

if TYPE_CHECKING:
    from mistral_failover.cloud.heat_replacements import KeptParts

STOP_LIMIT = 120.0
"""Seconds for Nova to stop a server whose boot disk the next one gets."""


class Replace(Way):
    """Heat makes another server, and removes the former one when that is there. A boot disk that
    the stack has for the next server, too, is released first, by the deletion of the former one.

    Where it fails, it fails for good: Heat leaves the stack as it came to it, so nothing else is
    tried then. Safe to repeat, because it names the server to remove.
    """

    when = "Heat makes another server, on any host, from what the stack's template says"

    does = "Heat makes another server"

    def deletes(self, lost: LostServer) -> Iterator[Deletion]:
        """Yield the server, and what goes with it: from Nova and by the update of the stack."""
        from mistral_failover.resources.restart.deletions import by_heat

        if lost.stack is not None:
            yield from by_heat(lost, lost.stack)

    def bring_back(self, attempt: Attempt) -> Result:
        """Have Heat replace it."""
        from mistral_failover.cloud import stack_updates
        from mistral_failover.runtime.errors import says_how_to_continue

        operation, tools = attempt.operation, attempt.tools
        if (stack := operation["stack"]) is None:
            return Result(None, "the group has no stack, so Heat makes no other server")
        _release_boot_disk(attempt, stack)
        with says_how_to_continue(operation["group"]), _left(operation["group"], attempt.member):
            found = stack_updates.replace_member(
                tools.cloud,
                stack,
                attempt.member,
                autoscaling_group=attempt.snapshot.group.members.autoscaling_group,
                resource=attempt.wish.get("resource"),
                server_id=attempt.server,
                # Heat shows it, and by it a repeat knows its own mark.
                reason=f"replaced by mistral-failover, operation {operation['key']}",
                limit=float(operation["timeout"]),
                keep=_parts_to_keep(attempt),
            )
        return Result(found.server, f"Heat made server {found.server}")


def _parts_to_keep(attempt: Attempt) -> Callable[[], KeptParts]:
    """Return what reads the parts that Heat must not take: those of the group, and the disks that
    the stack gives to the member's next server. Heat empties a volume that is marked."""
    from mistral_failover.cloud import boot_disks
    from mistral_failover.groups import kept_parts

    operation, tools = attempt.operation, attempt.tools
    of_group = kept_parts.parts_to_keep(tools.request, operation["group_id"], operation["group"])

    def read() -> KeptParts:
        disks = boot_disks.disks_in_stack(tools.cloud, operation["stack"], attempt.server)
        kept = of_group()
        return dataclasses.replace(kept, volumes={**disks, **kept.volumes})

    return read


def _release_boot_disk(attempt: Attempt, stack: str) -> None:
    """Free the boot disk that the next server gets, too: of the lost server, and of a new one that
    did not come up, which Heat keeps until another one is there.

    Raises `CloudError`; ActionError FENCE_UNPROVEN.
    """
    from mistral_failover.cloud import boot_disks
    from mistral_failover.cloud.servers import server_state
    from mistral_failover.cloud.stack_members import locate
    from mistral_failover.cloud.volume_holders import volumes_of_server
    from mistral_failover.resources.restart.disks import may_still_write

    cloud = attempt.tools.cloud
    limit = float(attempt.operation["timeout"])
    if attempt.wish.get("resource") is not None:
        return  # a part of the member's own stack
    group = attempt.snapshot.group.members.autoscaling_group
    server = locate(cloud, stack, attempt.member, autoscaling_group=group).server_id
    if server in ("", attempt.server):
        server = attempt.server
    elif server_state(cloud, server).status != "ERROR":
        return  # it is being replaced, or has been

    lost, disk = server == attempt.server, boot_disks.kept_boot_disk(cloud, stack, server)
    exists = disk is not None or server_state(cloud, server).exists
    may_write = ""
    if lost:
        passed_on = {*boot_disks.disks_in_stack(cloud, stack, server), *filter(None, [disk])}
        freed = [] if exists else volumes_of_server(cloud, server)
        group_id = attempt.snapshot.state.id
        fence, disks = attempt.fence, {*passed_on, *freed}
        may_write = may_still_write(attempt.tools, group_id, attempt.member, fence, disks)

    def off() -> str:
        proof = _still_off(attempt) if lost and not may_write else ""
        return proof or _proven_off(attempt, server, may_write)

    if may_write:
        off()
    if disk is not None:
        boot_disks.release_boot_disk(cloud, disk, server, off=off, limit=limit)
    elif not exists and _still_off(attempt):
        boot_disks.release_of_deleted(cloud, server, off=off, limit=limit)


def _still_off(attempt: Attempt) -> str:
    """Return the sentence that proves the lost server off; empty if its fence left it running, or
    if it was not fenced for this. Raises ActionError FENCE_UNPROVEN if it was started since."""
    from mistral_failover.resources.operation_context import refuse_started

    kind = rung_kinds().get(attempt.fence.get("rung", ""))
    if kind is None or kind.server_after is ServerAfter.RUNNING:
        return ""
    if kind.server_after is ServerAfter.SHUTOFF or _is_evacuated(attempt):
        refuse_started(attempt.tools, attempt.operation, attempt.server, attempt.member)
    return str(attempt.fence["observed"])


def _is_evacuated(attempt: Attempt) -> bool:
    """Return whether the server is on another host than its fence was about, and may run there."""
    from mistral_failover.cloud.servers import left_behind, server_state

    if "evacuate" not in attempt.wish.get("restart", ()):
        return False
    seen = server_state(attempt.tools.cloud, attempt.server)
    if not seen.exists or seen.off or seen.host_silent:
        return False
    return left_behind(attempt.tools.cloud, attempt.server) is not None


def _proven_off(attempt: Attempt, server: str, may_write: str) -> str:
    """Stop a server that no fence has stopped. Raises ActionError FENCE_UNPROVEN; blocked, if an
    operator can confirm it, because its fence left a guest that ``may_write``."""
    from mistral_failover.cloud import servers
    from mistral_failover.model.remedies import need, sentence
    from mistral_failover.runtime.errors import ActionError, confirm_command, start_command

    evidence = servers.stop(attempt.tools.cloud, server, STOP_LIMIT)
    if not evidence.proven and may_write:
        raise ActionError(
            "FENCE_UNPROVEN",
            f"the next server gets disks of server {server}, and {may_write}; it is not proven "
            f"off: {evidence.observed.rstrip('.')}",
            "Make sure that its host is off (an operator: failover fence HOST --because '...'), "
            f"then confirm it: {confirm_command(attempt.operation['group'], attempt.member)}.",
            blocked=True,
        )
    if not evidence.proven:
        delete = need("DELETE_SERVER", server=server)
        raise ActionError(
            "FENCE_UNPROVEN",
            f"server {server} boots from the disk that the next one gets, and is not proven off: "
            f"{evidence.observed.rstrip('.')}",
            f"Make sure that it is off. {sentence([delete], '')}. Then: "
            f"{start_command(attempt.operation['group'])}",
            needs=(delete,),
        )
    return evidence.observed


@contextmanager
def _left(group: str, member: str) -> Iterator[None]:
    """Add how to withdraw the replacement of a member that Heat no longer knows."""
    from mistral_failover.cloud.errors import CloudError
    from mistral_failover.runtime.errors import start_command

    try:
        yield
    except CloudError as error:
        if error.code == "NOT_FOUND":
            error.remedy += (
                f" If the member has left the stack permanently: {start_command(group)} --lost '' "
                f"--recovered {quote(member)}."
            )
        raise
