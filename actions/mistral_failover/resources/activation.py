# SPDX-License-Identifier: Apache-2.0
"""The operations of an ``activation``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from mistral_failover.agent.channel.interface import ChannelError
from mistral_failover.agent.wire import UNKNOWN_COMMAND, Address
from mistral_failover.cloud import servers
from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.transport import LeaseLost
from mistral_failover.convergence.records import Record
from mistral_failover.groups.agent_health import ended
from mistral_failover.groups.project_view import ProjectView, unknown
from mistral_failover.mistral.operation_documents import OperationDocument
from mistral_failover.model.observation import AS_RECORDED, ObservedPresence, Presence
from mistral_failover.model.remedies import need
from mistral_failover.model.rungs import ServerAfter, rung_kind
from mistral_failover.resources import rehearsal
from mistral_failover.resources.commands import command_member
from mistral_failover.resources.operation_context import (
    OperationContext,
    fence_proof,
    member_server,
    recorded_server,
)
from mistral_failover.store import details


def activate(context: OperationContext, operation: OperationDocument) -> dict[str, Any]:
    """Run the start command on the member."""
    return _start(context, operation, operation["properties"])


def reactivate(context: OperationContext, operation: OperationDocument) -> dict[str, Any]:
    """Stop and start the application where it is, with new arguments. Another stop command alone is
    only recorded: the application keeps running."""
    previous = operation["previous"] or operation["properties"]
    if not operation["unknown"] and _but_stop(previous) == _but_stop(operation["properties"]):
        resource = operation["resource"]
        return {"physical_id": resource["physical_id"], "attributes": resource["attributes"]}
    stop = stop_command(previous, operation["properties"])
    command_member(context, operation, stop, {}, recorded_server(operation))
    return _start(context, operation, operation["properties"])


def quiesce(context: OperationContext, operation: OperationDocument) -> dict[str, Any]:
    """Run the stop command where the application was started. If that member is off or gone, the
    fence's proof replaces the command; for a server that was deleted, the proof of its deletion
    does.

    A confirmation by ``quiesce`` is not such a proof: a start that was in progress at that time may
    have finished since. Nothing is stopped that never ran, because the agent did not know the start
    command.
    """
    record_id = operation["resource"]["id"]
    if _never_ran(
        context.request.store.reading(lambda tx: details.errors_of_making(tx, record_id))
    ):
        return {}
    proof = fence_proof(operation)
    if proof is None or rung_kind(proof["rung"]).server_after is ServerAfter.RUNNING:
        server_id = recorded_server(operation)
        if not _was_deleted(context, operation, server_id):
            _stop(context, operation, server_id)
    return {}


def _never_ran(errors: Sequence[Mapping[str, Any] | None]) -> bool:
    """Return whether the start command of an activation never ran: ``errors`` are those of each of
    its creations and updates, None for one that did not fail for certain at its only attempt, and
    each says that the agent does not know the command."""
    return bool(errors) and all(error and error["code"] == UNKNOWN_COMMAND for error in errors)


def _stop(context: OperationContext, operation: OperationDocument, server_id: str) -> None:
    """Run the stop command; if the agent does not know it, run the one that the group file names
    now, which the agent may know."""
    written = operation.get("written")
    stop = stop_command(operation["properties"], written)
    try:
        command_member(context, operation, stop, {}, server_id)
    except ChannelError as error:
        corrected = written["stop"] if written is not None else None
        if error.code != UNKNOWN_COMMAND or not isinstance(corrected, str) or corrected == stop:
            raise
        command_member(context, operation, corrected, {}, server_id)


def stop_command(applied: Mapping[str, Any], written: Mapping[str, Any] | None) -> str:
    """Return the command that stops what was started with the ``applied`` properties.

    If ``written``, the properties that the group wants now, have the same start command, it is the
    same application, and their stop command counts: an operator who has corrected a wrong name
    there must not be asked for the wrong one to work.
    """
    if written is not None and written["start"] == applied["start"]:
        stop = written["stop"]
        if isinstance(stop, str):  # not an intrinsic function
            return stop
    return str(applied["stop"])


def _but_stop(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in properties.items() if key != "stop"}


def _was_deleted(context: OperationContext, operation: OperationDocument, server_id: str) -> bool:
    """Return whether it is proven that a server, and everything that ran on it, is gone, as after
    the deletion of the stack. Then no agent can be asked."""
    try:
        if servers.server_state(context.cloud, server_id).exists:
            return False
        return servers.deletion_proof(context.cloud, server_id).proven
    except LeaseLost:
        raise
    except CloudError:
        if operation["member"] and operation["member"]["server_id"] == server_id:
            return False  # its agent can be asked without Nova
        raise


def _start(
    context: OperationContext, operation: OperationDocument, properties: Mapping[str, Any]
) -> dict[str, Any]:
    arguments = {k: v for k, v in properties.items() if k not in ("member", "start", "stop")}
    server_id = member_server(operation)
    rehearsal.end_on(context, operation, server_id)
    result = command_member(context, operation, properties["start"], arguments, server_id)
    return {
        "physical_id": f"{server_id}/{properties['start']}",
        "attributes": {"server_id": server_id, "boot": result.boot, "command": result.id},
    }


OPERATIONS = (activate, reactivate, quiesce)


def observe(view: ProjectView, record: Record, group: str) -> ObservedPresence:
    """Return whether the application was started since its server was booted, and has not ended
    since, by the check of its start command or because the agent was deposed and stopped it."""
    server_id = record.attributes.get("server_id")
    if record.member is None or server_id is None:
        return ObservedPresence(Presence.UNKNOWN, "no member or no server is recorded")
    beat = view.heartbeat(Address(record.group_id, group, record.member, server_id))
    if beat is not None and beat.deposed is not None:
        return ObservedPresence(Presence.GONE, f"its agent was deposed: {beat.deposed}")
    if why := ended(beat, record):
        return ObservedPresence(Presence.GONE, why, (need("START_AGAIN"),))
    try:
        why = _withdrawn(view, record, server_id)
    except CloudError as error:
        return unknown(error)
    return ObservedPresence(Presence.GONE, why, (need("START_AGAIN"),)) if why else AS_RECORDED


def _withdrawn(view: ProjectView, record: Record, server_id: str) -> str:
    """Return, in words, that a volume was detached from the server by hand since the application
    was started there, and attached again; empty if not, or if the project may not see that.

    A live migration changes the attachment, too, and the application goes on: so Nova is asked
    whether it detached a volume. Raises CloudError.
    """
    changed = {}
    for needed in view.needed_by(record):
        recorded = needed.attributes.get("attachment_id")
        if recorded is None or needed.physical_id is None:
            continue
        volume = view.listing.volume(needed.physical_id)
        held = volume.attachments.get(server_id) if volume is not None else None
        if held not in (None, recorded):
            changed[needed.physical_id] = held
    version = " ".join([str(record.generation), *map(str, changed.values())])
    if not changed or view.same(record.id, version) or (since := view.made_at(record)) is None:
        return ""
    at = servers.detached_since(view.cloud, server_id, since)
    if at is None:
        view.found_well(record.id, version)
        return ""
    when = datetime.fromtimestamp(at, UTC).strftime("%H:%M:%S")
    return (
        f"volume {' or '.join(changed)} was detached at {when} UTC and attached again, and the "
        "application was not started since"
    )
