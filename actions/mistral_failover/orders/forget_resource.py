# SPDX-License-Identifier: Apache-2.0
"""Forget a resource that is gone for good: its record, never what it stands for."""

from __future__ import annotations

from functools import partial
from shlex import quote

from mistral_failover.cloud import servers
from mistral_failover.cloud.clients import Cloud
from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.transport import Unguarded
from mistral_failover.convergence.records import (
    Action,
    JournalKind,
    Record,
    Status,
    TraversalStatus,
)
from mistral_failover.groups.project_view import HOST_NOT_SEEN, ProjectView, unknown
from mistral_failover.groups.snapshot import locked
from mistral_failover.model.goal import ACTIVATION, ATTACHMENT
from mistral_failover.model.group import INTERNAL_TYPES
from mistral_failover.model.observation import ObservedPresence, Presence
from mistral_failover.model.text import plain
from mistral_failover.model.validation import did_you_mean
from mistral_failover.orders.answers import ForgottenResource
from mistral_failover.resources.modules import observer
from mistral_failover.runtime.errors import ActionError, start_command
from mistral_failover.runtime.request import Request
from mistral_failover.store.transaction import ProjectTransaction


def forget(request: Request, group: str, resource: str, because: str) -> ForgottenResource:
    """Mark the records of a resource as gone, so that the group no longer tries to delete them.

    ``resource``: its name in the group file, or the id of one record. What can be checked is
    checked first: a record of something that exists is not forgotten. Nothing in the cloud is
    changed. The next goal creates the resource again if it wants it.

    Raises UnknownGroup, CloudError, ActionError UNKNOWN_RESOURCE, STILL_THERE, NOT_CHECKED,
    UNDER_WAY.
    """
    records = request.store.atomically(partial(_found, request, group, resource))
    if records:
        view, cloud = ProjectView(request), request.cloud(Unguarded())
        for record in records:
            _refuse_present(record, group, _look(view, cloud, record, group))
    forgotten = request.store.atomically(partial(_forget, request, group, records, because))
    words = f"{resource} is forgotten" if forgotten else f"nothing is left of {resource}"
    return {
        "group": group,
        "resource": resource,
        "forgotten": forgotten,
        "sentence": words,
        "next": start_command(group),
    }


def _found(request: Request, group: str, resource: str, tx: ProjectTransaction) -> list[Record]:
    """Return the records that are left of a resource."""
    state = locked(request, tx, group)
    ours = [r for r in tx.records(state.id) if r.type not in INTERNAL_TYPES]
    found = [r for r in ours if resource in (r.name, r.id)]
    known = {r.name for r in ours} | set(request.runtime.definitions.group(tx, state).resources)
    if not found and resource not in known:
        raise ActionError(
            "UNKNOWN_RESOURCE", f"{group} has no resource {resource}", did_you_mean(resource, known)
        )
    return found


def _look(view: ProjectView, cloud: Cloud, record: Record, group: str) -> ObservedPresence | None:
    """Return what is left of a resource in reality; None if nothing can check that.

    A record on a member says that its guest has to be fenced. So it is not forgotten as long as the
    guest may run where Nova does not see it, even if Nova and Cinder show nothing of it any more.
    """
    if record.action == Action.INIT:
        return None
    try:
        volume = record.physical_id if record.type == ATTACHMENT else None
        if volume is not None and view.listing.volume(volume) is None:
            return ObservedPresence(Presence.GONE, f"volume {volume} does not exist any more")
        guest = _guest(view, cloud, record)
    except CloudError as error:
        return unknown(error)
    if guest is not None and guest.presence is Presence.UNKNOWN:
        return guest
    if record.type == ACTIVATION:  # what its agent reports is no proof
        return guest or ObservedPresence(Presence.UNKNOWN, "no server is recorded")
    observe = observer(record.type)
    return None if observe is None else observe(view, record, group)


def _guest(view: ProjectView, cloud: Cloud, record: Record) -> ObservedPresence | None:
    """Return whether the guest that a record is on exists; UNKNOWN if it may run unseen, None for a
    record on no server. Raises CloudError."""
    server_id = record.attributes.get("server_id")
    if record.member is None or server_id is None:
        return None
    state = view.listing.server(server_id)
    if not state.exists:
        proof = servers.deletion_proof(cloud, server_id)
        return ObservedPresence(Presence.GONE if proof.proven else Presence.UNKNOWN, proof.observed)
    if not state.off and (state.status == "UNKNOWN" or state.host_status in HOST_NOT_SEEN):
        return ObservedPresence(Presence.UNKNOWN, f"its server is {state}")
    if left := servers.left_behind(cloud, server_id):
        return ObservedPresence(Presence.UNKNOWN, f"server {server_id} exists, but {left}")
    return ObservedPresence(Presence.PRESENT, f"server {server_id} exists")


def _refuse_present(record: Record, group: str, look: ObservedPresence | None) -> None:
    """Raise ActionError STILL_THERE or NOT_CHECKED unless nothing is left, or nothing can tell."""
    if look is None or look.presence in (Presence.GONE, Presence.CHANGED):
        return
    on = f" on {record.member}" if record.member else ""
    remedy = f"Have it removed instead: {start_command(group)}"
    if record.member:
        remedy += (
            f"; or, if {record.member} is lost, have it fenced: "
            f"{start_command(group, lost=record.member)}"
        )
    why = look.why.rstrip(".")
    if look.presence is Presence.PRESENT:
        raise ActionError(
            "STILL_THERE", f"{record.name}{on} is not gone: {why or 'it exists'}", remedy
        )
    raise ActionError(
        "NOT_CHECKED", f"it is not proven that {record.name}{on} is gone: {why}", remedy
    )


def _forget(
    request: Request, group: str, records: list[Record], because: str, tx: ProjectTransaction
) -> list[str]:
    """Mark the records as gone, unless a worker has them: its result would bring them back."""
    state = locked(request, tx, group)
    traversal = tx.traversal(state.current_traversal) if state.current_traversal else None
    if traversal is not None and traversal.status == TraversalStatus.IN_PROGRESS:
        raise ActionError(
            "UNDER_WAY",
            f"a failover of {group} is in progress ({traversal.cause})",
            f"Wait for its end: failover watch {quote(group)}",
        )
    done = []
    for seen in records:
        record = tx.lock_record(seen.id)
        if record is None or record.gone:
            continue
        if record.owner is not None or record.atomic_key != seen.atomic_key:
            raise ActionError(
                "UNDER_WAY",
                f"{record.name} was worked on since it was checked",
                "Try it again.",
            )
        tx.amend(record, action=Action.DELETE, status=Status.COMPLETE, reason="", given_up=None)
        on = f" on {record.member}" if record.member else ""
        tx.journal(
            state.id,
            f"{record.name}{on} was forgotten by {request.caller}: {plain(because)}",
            kind=JournalKind.FORGOTTEN,
            traversal_id=state.current_traversal,
            resource_id=record.id,
        )
        done.append(record.id)
    return done
