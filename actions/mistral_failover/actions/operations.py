# SPDX-License-Identifier: Apache-2.0
"""The operations of the shipped types, as plain functions.

Each gets its tools and the operation's document (see ``actions.documents``) and returns
``{"physical_id", "attributes"}``. Each looks at reality before it acts, so a repeat is harmless.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mistral_failover.actions.errors import ActionError
from mistral_failover.agent.channel import Channel, Command, CommandResult
from mistral_failover.cloud import patches, volumes
from mistral_failover.cloud.clients import Cloud
from mistral_failover.convergence.traversals import derived_id
from mistral_failover.model.goal import FENCE_PREFIX

Document = Mapping[str, Any]


@dataclass(frozen=True)
class Tools:
    """What an operation acts with; every call of the cloud passes the lease's guard."""

    cloud: Cloud
    channel: Channel


def attach_volume(tools: Tools, operation: Document) -> dict[str, Any]:
    """Attach the volume to the member's server; returns device, server_id, attachment_id."""
    server_id = member_server(operation)
    volume = operation["properties"]["volume"]
    volume_id = volumes.resolve_volume(tools.cloud, operation["stack"], volume)
    attributes = volumes.attach(tools.cloud, volume_id, server_id, operation["timeout"])
    return {"physical_id": volume_id, "attributes": attributes}


def detach_volume(tools: Tools, operation: Document) -> dict[str, Any]:
    """Detach the volume from the server that it was attached to, and see it gone.

    That server is the one recorded, not the one now behind the member's name.
    """
    record = operation["resource"]
    volume_id = record["physical_id"] or volumes.resolve_volume(
        tools.cloud, operation["stack"], operation["properties"]["volume"]
    )
    server_id = record["attributes"].get("server_id") or member_server(operation)
    volumes.detach(tools.cloud, volume_id, server_id, operation["timeout"])
    return {}


def activate(tools: Tools, operation: Document) -> dict[str, Any]:
    """Run the start command on the member."""
    return _start(tools, operation, operation["properties"])


def reactivate(tools: Tools, operation: Document) -> dict[str, Any]:
    """Stop and start the application where it is, with new arguments."""
    previous = operation["previous"] or operation["properties"]
    _command(tools, operation, previous["stop"], {})
    return _start(tools, operation, operation["properties"])


def quiesce(tools: Tools, operation: Document) -> dict[str, Any]:
    """Run the stop command on the member; a fenced member is quiesced by its fence's proof."""
    proof = fence_proof(operation)
    if proof is None:
        _command(tools, operation, operation["properties"]["stop"], {})
    return {"attributes": {"quiesced_by": proof or "its stop command"}}


def patch_stack(tools: Tools, operation: Document) -> dict[str, Any]:
    """PATCH the stack's parameters and follow the update to its end."""
    patched = patches.patch_parameters(
        tools.cloud,
        operation["stack"],
        operation["properties"]["parameters"],
        operation["timeout"],
    )
    return {"physical_id": patched.stack, "attributes": {"status": patched.status}}


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


def fence_proof(operation: Document) -> str | None:
    """The sentence that proves the member fenced, if this operation waited for its fence."""
    for name, data in operation["inputs"].items():
        if name.startswith(FENCE_PREFIX):
            return str(data["attributes"].get("observed", "its fence"))
    return None


def _start(tools: Tools, operation: Document, properties: Document) -> dict[str, Any]:
    arguments = {k: v for k, v in properties.items() if k not in ("member", "start", "stop")}
    result = _command(tools, operation, properties["start"], arguments)
    member = operation["member"]
    return {
        "physical_id": f"{member['server_id']}/{properties['start']}",
        "attributes": {"output": result.stdout[-1000:]},
    }


def _command(
    tools: Tools, operation: Document, name: str, arguments: dict[str, Any]
) -> CommandResult:
    server_id = member_server(operation)
    member = operation["member"]
    command = Command(
        id=derived_id(operation["key"], name),
        group=operation["group"],
        member=member["name"],
        server_id=server_id,
        epoch=member["epoch"],
        name=name,
        arguments=arguments,
        limit=operation["timeout"],
    )
    return run_command(tools.channel, command)


def run_command(channel: Channel, command: Command) -> CommandResult:
    """Run a command on a member. Raises ChannelError, or ActionError COMMAND_FAILED."""
    result = channel.run(command)
    if result.exit_code != 0:
        said = (result.stderr or result.stdout).strip()[-500:]
        raise ActionError(
            "COMMAND_FAILED",
            f"{command.name} on {command.member} ended with {result.exit_code}: {said}",
            f"Look at {command.name} on {command.member}, then start the failover again.",
        )
    return result
