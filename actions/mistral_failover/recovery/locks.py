# SPDX-License-Identifier: Apache-2.0
"""List the locks, and break one by hand.

An owner is alive as long as its lease. The next check of a node breaks the lock of a dead owner; an
operator can do it sooner. The lock of a live owner is broken only by force. Its token changes, so
the guard permits the owner no further call. A call that it has already sent may still take effect,
within the ``http_timeout`` of one call.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TypedDict

from mistral_failover.cloud.errors import CloudError
from mistral_failover.convergence.conclude import wake
from mistral_failover.convergence.records import GroupState, JournalKind, Record
from mistral_failover.groups.snapshot import group_snapshot
from mistral_failover.mistral.api import Mistral, mistral_of
from mistral_failover.mistral.executions import CALL, LIMIT, execution_of
from mistral_failover.model.text import plain
from mistral_failover.orders.failover import chain_of
from mistral_failover.runtime.deadlines import DeadlineGuard
from mistral_failover.runtime.errors import ActionError, describe
from mistral_failover.runtime.request import Request
from mistral_failover.runtime.short_ids import find_by_short_id, unknown
from mistral_failover.store import details
from mistral_failover.store.details import LockRow
from mistral_failover.store.transaction import ProjectTransaction


class OwnerExecution(TypedDict):
    """The execution of a lock's owner. ``state``: None if Mistral did not tell it."""

    id: str
    state: str | None


class HeldLock(TypedDict):
    """A lock that is held, and what Mistral says of its owner. ``id``: the resource's. ``why``: a
    sentence about whether its owner is alive. ``lease_left``: seconds. ``execution``: None if the
    owner is no execution."""

    group: str
    resource: str
    id: str
    type: str
    owner: str
    token: int
    alive: bool
    why: str
    lease_left: float | None
    since: float | None
    execution: OwnerExecution | None
    operation: str | None
    traversal: str | None


class LockAnswer(TypedDict):
    """What became of a lock. ``traversal``: the group's current one. ``workflow``: continues the
    work; None if no node is ready for that."""

    group: str
    resource: str
    traversal: str | None
    broken: bool
    sentence: str
    workflow: str | None


def listed(request: Request, group: str | None) -> list[HeldLock]:
    """Return the locks that are held in the project, or in one of its groups. Raises
    UnknownGroup."""
    group_id = group_snapshot(request, group).state.id if group else None
    rows = request.store.reading(lambda tx: details.locks(tx, group_id))
    mistral, unable = _mistral(request) if rows else (None, "")
    deadline = time.monotonic() + LIMIT
    found = []
    for row in rows:
        identity, state = execution_of(row["owner"]), None
        if identity and mistral and time.monotonic() < deadline:
            try:
                state = mistral.state(identity)
            except CloudError as error:
                mistral, unable = None, describe(error)["message"]
        found.append(_shown(row, identity, state, unable))
    return found


def _mistral(request: Request) -> tuple[Mistral | None, str]:
    try:
        return mistral_of(request, DeadlineGuard(time.monotonic() + LIMIT, CALL)), ""
    except CloudError as error:
        return None, str(describe(error)["message"])


def _shown(row: LockRow, execution: str | None, state: str | None, unable: str) -> HeldLock:
    left = row["lease_left"] or 0.0
    alive = left > 0
    why = f"its lease lasts {left:.0f} s more" if alive else f"its lease expired {-left:.0f} s ago"
    if state is not None:
        why += f"; its execution is {state}"
    elif execution is not None and unable:
        why += f"; the request to Mistral failed: {unable}"
    return {
        "group": row["group"],
        "resource": row["resource"],
        "id": row["resource_id"],
        "type": row["type"],
        "owner": row["owner"],
        "token": row["token"],
        "alive": alive,
        "why": why,
        "lease_left": row["lease_left"],
        "since": row["since"],
        "execution": {"id": execution, "state": state} if execution else None,
        "operation": row["operation"],
        "traversal": row["traversal"],
    }


def broken(
    request: Request, said: str, owner: str, token: int | None, *, force: bool, because: str | None
) -> LockAnswer:
    """Break the lock on a resource, if ``owner`` (and ``token``, if given) holds it.

    A free lock is no error: its owner ended, or an earlier run of this call broke it.

    Raises ActionError UNKNOWN_ID, AMBIGUOUS_ID, LOCK_MOVED if another owner has the lock,
    LOCK_ALIVE if its owner is alive and it is not forced, BAD_INPUT if force has no reason.
    """
    if force and not because:
        raise ActionError(
            "BAD_INPUT",
            "because: breaking the lock of a live owner requires a reason",
            "State how you know that its process is dead or stopped.",
        )
    return request.store.atomically(partial(_broken, request, said, owner, token, force, because))


def _broken(
    request: Request,
    said: str,
    owner: str,
    token: int | None,
    force: bool,
    because: str | None,
    tx: ProjectTransaction,
) -> LockAnswer:
    match = find_by_short_id(request, tx, said, kind="resource")
    assert match.group_id is not None  # only an incident has none
    group = tx.lock_group(match.group_id, shared=False)
    record = tx.lock_record(match.id)
    if group is None or record is None:  # deleted since it was looked up
        raise unknown(said, kind="resource")
    if record.owner is None or record.lease_until is None:
        sentence = f"{record.name} is not locked"
        return _answer(request, tx, group, record, False, sentence)
    if record.owner != owner or token not in (None, record.token):
        told = details.broken_by_hand(tx, group.id, record.id, owner)
        if told is not None and record.owner != owner:  # a repeat of an earlier call
            sentence = f"{told}; {record.owner} has worked on it since then"
            return _answer(request, tx, group, record, False, sentence)
        raise ActionError(
            "LOCK_MOVED",
            f"the lock on {record.name} is held by {record.owner} (token {record.token}), not by "
            f"{plain(owner)}",
            f"List the locks again: failover locks {group.name}",
        )
    now = tx.now()
    if record.held_at(now) and not force:
        raise ActionError(
            "LOCK_ALIVE",
            f"{record.owner}, the owner of the lock on {record.name}, is alive: its lease lasts "
            f"{record.lease_until - now:.0f} s more",
            "Wait for it: the lease of a dead owner expires. Only if you are sure that its "
            "process is dead: --force --because '...'.",
        )
    how = "which was alive" if record.held_at(now) else "which is dead"
    why = f" (forced: {plain(because)})" if force and because else ""
    why = why or (f" ({plain(because)})" if because else "")
    reason = f"the lock of {owner}, {how}, was broken by {request.caller}{why}"
    sentence = f"{record.name}: {reason}"
    if not tx.break_lock(record, reason):
        raise ActionError(
            "LOCK_MOVED",
            f"the lock on {record.name} was taken by another owner just now",
            f"List the locks again: failover locks {group.name}",
        )
    tx.journal(
        group.id,
        sentence,
        kind=JournalKind.BROKEN,
        traversal_id=group.current_traversal,
        resource_id=record.id,
        owner=record.owner,
        token=record.token,
    )
    return _answer(request, tx, group, record, True, sentence)


def _answer(
    request: Request,
    tx: ProjectTransaction,
    group: GroupState,
    record: Record,
    was_broken: bool,
    sentence: str,
) -> LockAnswer:
    ready = wake(tx, group, record.id)
    chain = chain_of(request.runtime.definitions.group(tx, group)) if ready else None
    return {
        "group": group.name,
        "resource": record.name,
        "traversal": group.current_traversal,
        "broken": was_broken,
        "sentence": sentence,
        "workflow": chain,
    }
