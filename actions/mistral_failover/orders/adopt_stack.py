# SPDX-License-Identifier: Apache-2.0
"""Let a group take the stack that has the name of its own now, because that one was deleted.

The servers and volumes of the former stack stay recorded until a traversal has asked Nova and
Cinder about each: what still runs is fenced, what still is attached is detached. Only the records
of the stack itself are marked as gone, so that the new stack gets its parameters.
"""

from __future__ import annotations

from typing import TypedDict

from mistral_failover.cloud.transport import Unguarded
from mistral_failover.cloud.volume_holders import volume_if_there
from mistral_failover.convergence.records import Action, JournalKind, Status
from mistral_failover.groups.refresh_members import stack_id
from mistral_failover.groups.snapshot import group_snapshot, locked
from mistral_failover.model.goal import ATTACHMENT
from mistral_failover.runtime.errors import ActionError, own_stack, start_command
from mistral_failover.runtime.request import Request
from mistral_failover.store import groups, views
from mistral_failover.store.transaction import ProjectTransaction


class FormerVolume(TypedDict):
    """A volume of the former stack that still exists, and its ``name`` in the group file. It is not
    attached under this name any more: the group file must say which one is meant."""

    name: str
    volume: str


class AdoptedStack(TypedDict):
    """``stack``: the id of the stack that the group has now; ``former``: that of the one before,
    None if it has the same one. ``kept``: the volumes of the former one that still exist. ``next``:
    the command that brings the group up there."""

    group: str
    stack: str
    former: str | None
    kept: list[FormerVolume]
    sentence: str
    next: str


def adopt(request: Request, group: str) -> AdoptedStack:
    """Take the stack that has the name now. Nothing in the cloud is changed.

    Raises UnknownGroup, CloudError NOT_FOUND while there is no such stack, and ActionError
    UNDER_WAY while a worker updates the stack, NO_STACK if the group has none.
    """
    snapshot = group_snapshot(request, group)
    cloud = request.cloud(Unguarded(request.runtime.settings.http_timeout))
    name, former = own_stack(snapshot.group.stack, group), snapshot.state.stack_id
    now = stack_id(cloud, name)
    answer: AdoptedStack = {
        "group": group,
        "stack": now,
        "former": None,
        "kept": [],
        "sentence": f"{group} has stack {name} ({now}) already",
        "next": start_command(group),
    }
    if former in (None, now) or snapshot.state.stack_name != name:
        return answer
    known = request.store.reading(
        lambda tx: views.attached_volumes(tx, snapshot.state.id, ATTACHMENT)
    )
    kept: list[FormerVolume] = [
        {"name": each.name, "volume": each.volume_id}
        for each in known.values()
        if volume_if_there(cloud, each.volume_id) is not None
    ]
    sentence = f"{group} was given stack {name} as it is now ({now}; before: {former})"
    if kept:
        rows = ", ".join(f"{each['name']} ({each['volume']})" for each in kept)
        sentence += f"; volumes of the former stack still exist: {rows}"

    def take(tx: ProjectTransaction) -> None:
        state = locked(request, tx, group)
        if not groups.adopt_stack(tx, state.id, str(former), now):
            raise ActionError(
                "UNDER_WAY", f"the stack of {group} has just been changed", "Try it again."
            )
        _forget_updates(tx, state.id, str(former))
        said = f"{sentence}, by {request.caller}"
        tx.journal(state.id, said, kind=JournalKind.ADOPTED)

    request.store.atomically(take)
    return {**answer, "former": former, "kept": kept, "sentence": sentence}


def _forget_updates(tx: ProjectTransaction, identity: str, former: str) -> None:
    """Mark what the group did to the former stack itself as gone. Raises ActionError UNDER_WAY."""
    for seen in tx.records(identity):
        if former not in (seen.physical_id or "").split("/"):
            continue
        record = tx.lock_record(seen.id)
        if record is None or record.gone:
            continue
        if record.owner is not None:
            raise ActionError(
                "UNDER_WAY", f"{record.name} is being worked on", "Try it again in a minute."
            )
        tx.amend(record, action=Action.DELETE, status=Status.COMPLETE, reason="", given_up=None)
