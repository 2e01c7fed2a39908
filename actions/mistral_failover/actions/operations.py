# SPDX-License-Identifier: Apache-2.0
"""The operations of the shipped types, as plain functions.

Each gets its tools and the operation's document (see ``actions.documents``) and returns
``{"physical_id", "attributes"}``. Each looks at reality before it acts, so a repeat is harmless.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from mistral_failover.actions.commanding import SILENCE, run_command
from mistral_failover.actions.errors import ActionError
from mistral_failover.actions.remedies import going_on, start_command
from mistral_failover.agent.channel import Channel, Command, CommandResult
from mistral_failover.agent.wire import Address
from mistral_failover.cloud import patches, servers, volumes
from mistral_failover.cloud.clients import Cloud
from mistral_failover.cloud.detaching import Release
from mistral_failover.cloud.marks import Keep, replaced_volume
from mistral_failover.cloud.mistral_api import Mistral
from mistral_failover.convergence.records import Record
from mistral_failover.model.goal import fence_name
from mistral_failover.model.ids import derived_id
from mistral_failover.store.held import Held

Document = Mapping[str, Any]


@dataclass(frozen=True)
class Tools:
    """What an operation acts with; every call passes the lease's guard.

    ``mistral``: finds Mistral's own API, None where nobody says where it is; raises CloudError.
    """

    cloud: Cloud
    channel: Channel
    mistral: Callable[[], Mistral | None] = lambda: None


def attach_volume(tools: Tools, operation: Document, known: Held | None = None) -> dict[str, Any]:
    """Attach the volume to the member's server; returns device, server_id, attachment_id.

    ``known``: what the resource was made with last. Where the same name stands for another volume
    by now, Heat has made a new one, which is empty: only a person can say which one is meant, and
    does so by another name for it in the group file. Raises CloudError VOLUME_REPLACED.
    """
    server_id = member_server(operation)
    volume = operation["properties"]["volume"]
    volume_id = volumes.resolve_volume(tools.cloud, operation["stack"], volume)
    with going_on(operation["group"]):
        if known is not None and known.name == volume and known.volume_id != volume_id:
            raise replaced_volume(operation["group"], volume, known.volume_id, volume_id)
        attributes = volumes.attach(
            tools.cloud,
            volume_id,
            server_id,
            operation["timeout"],
            unknown=operation["unknown"],
        )
    return {"physical_id": volume_id, "attributes": attributes}


def detach_volume(tools: Tools, operation: Document) -> dict[str, Any]:
    """Detach the volume from the server that it was attached to, and see it gone.

    That server is the one recorded, not the one now behind the member's name. Where its host is
    down it may be deleted, if the user allowed it and a fence proves it off; an agent's word that
    it quiesced does not, for the guest is alive.
    """
    record = operation["resource"]
    volume_id = record["physical_id"] or volumes.resolve_volume(
        tools.cloud, operation["stack"], operation["properties"]["volume"]
    )
    server_id = recorded_server(operation)
    proof = fence_proof(operation)
    if proof is None:
        _refuse_unproven(tools, operation, server_id)
    elif proof["rung"] == "stop":
        _refuse_started(tools, operation, server_id)
    release = Release(
        off=proof["observed"] if proof and proof["rung"] != "quiesce" else None,
        fenced=proof is not None,
        delete_server=operation["properties"].get("when_host_is_down") == "delete_server",
    )
    with going_on(operation["group"]):
        volumes.detach(
            tools.cloud,
            volume_id,
            server_id,
            operation["timeout"],
            release,
            unknown=operation["unknown"],
        )
    return {}


def sharing(records: Iterable[Record], operation: Document) -> list[str]:
    """The names of the group's other resources that have the same volume on the same server."""
    resource, server_id = operation["resource"], recorded_server(operation)
    return sorted(
        record.name
        for record in records
        if record.id != resource["id"]
        and record.type == resource["type"]
        and record.physical_id is not None
        and record.physical_id == resource["physical_id"]
        and record.attributes.get("server_id") == server_id
        and record.action in ("CREATE", "UPDATE")
        and record.status == "COMPLETE"
    )


def activate(tools: Tools, operation: Document) -> dict[str, Any]:
    """Run the start command on the member."""
    return _start(tools, operation, operation["properties"])


def reactivate(tools: Tools, operation: Document) -> dict[str, Any]:
    """Stop and start the application where it is, with new arguments."""
    previous = operation["previous"] or operation["properties"]
    _command(tools, operation, previous["stop"], {}, recorded_server(operation))
    return _start(tools, operation, operation["properties"])


def quiesce(tools: Tools, operation: Document) -> dict[str, Any]:
    """Run the stop command where the application was started; on a member that is off or gone the
    fence's proof stands for it, and of a server that was replaced the proof of its deletion.

    That the member quiesced for its fence is no such proof: a start that was under way then may
    have ended since.
    """
    proof = fence_proof(operation)
    if proof is None or proof["rung"] == "quiesce":
        server_id = recorded_server(operation)
        if not _was_deleted(tools, operation, server_id):
            _command(tools, operation, operation["properties"]["stop"], {}, server_id)
    return {}


def patch_stack(tools: Tools, operation: Document, keep: Callable[[], Keep]) -> dict[str, Any]:
    """PATCH the stack's parameters and follow the update to its end; refused while it would take
    one of the servers or volumes to ``keep``."""
    with going_on(operation["group"]):
        patched = patches.patch_parameters(
            tools.cloud,
            operation["stack"],
            operation["properties"]["parameters"],
            operation["timeout"],
            keep,
        )
    return {"physical_id": patched.stack, "attributes": {"status": patched.status}}


def _was_deleted(tools: Tools, operation: Document, server_id: str) -> bool:
    """Whether it is proven that a server which was replaced since is gone, and what ran there with
    it: nobody is left to be asked."""
    if operation["member"] and operation["member"]["server_id"] == server_id:
        return False
    if servers.server_state(tools.cloud, server_id).exists:
        return False
    return servers.deletion(tools.cloud, server_id).proven


def member_server(operation: Document) -> str:
    """The id of the server behind the operation's member. Raises ActionError UNKNOWN_MEMBER."""
    member = operation["member"]
    if not member or not member["server_id"]:
        name = member["name"] if member else "the member"
        raise ActionError(
            "UNKNOWN_MEMBER",
            f"{name} has no server in stack {operation['stack']}",
            "Check the group's members against the stack's resources.",
        )
    return str(member["server_id"])


def recorded_server(operation: Document) -> str:
    """The id of the server that the resource was made on, else of the one behind its member."""
    recorded = operation["resource"]["attributes"].get("server_id")
    return str(recorded) if recorded else member_server(operation)


def fence_proof(operation: Document) -> Document | None:
    """The rung and the sentence that prove this resource's member fenced, if its fence came
    before this operation."""
    member = operation["member"]
    fence = operation["inputs"].get(fence_name(member["name"])) if member else None
    return fence["attributes"] if fence else None


def _refuse_started(tools: Tools, operation: Document, server_id: str) -> None:
    """Who was stopped may have been started again while this waited for a person."""
    if servers.server_state(tools.cloud, server_id).status == "ACTIVE":
        member = operation["member"]["name"]
        raise ActionError(
            "FENCE_UNPROVEN",
            f"server {server_id} was stopped for the fence of {member}, and started again since",
            f"What fences it anew: {start_command(operation['group'], lost=member)}",
        )


def _refuse_unproven(tools: Tools, operation: Document, server_id: str) -> None:
    """A server that is gone took its attachments with it, at once where its host was dead: then
    its guest may still write, and only a fence tells."""
    if servers.server_state(tools.cloud, server_id).exists:
        return
    evidence = servers.deletion(tools.cloud, server_id)
    if not evidence.proven:
        member = operation["member"]["name"]
        raise ActionError(
            "FENCE_UNPROVEN",
            evidence.observed.rstrip("."),
            f"What fences it: {start_command(operation['group'], lost=member)}",
        )


def _start(tools: Tools, operation: Document, properties: Document) -> dict[str, Any]:
    arguments = {k: v for k, v in properties.items() if k not in ("member", "start", "stop")}
    server_id = member_server(operation)
    _command(tools, operation, properties["start"], arguments, server_id)
    return {
        "physical_id": f"{server_id}/{properties['start']}",
        "attributes": {"server_id": server_id},
    }


def _command(
    tools: Tools, operation: Document, name: str, arguments: dict[str, Any], server_id: str
) -> CommandResult:
    member = operation["member"]
    command = Command(
        id=derived_id(operation["key"], name),
        to=Address(operation["group_id"], operation["group"], member["name"], server_id),
        epoch=member["epoch"],
        name=name,
        arguments=arguments,
        limit=min(SILENCE, operation["timeout"]),
        longest=operation["timeout"],
    )
    return run_command(tools.channel, command)
