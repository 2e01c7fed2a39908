# SPDX-License-Identifier: Apache-2.0
"""The operations of a ``volume_attachment``."""

from __future__ import annotations

from functools import partial
from typing import Any

from mistral_failover.agent.channel.interface import ChannelError
from mistral_failover.agent.wire import Address
from mistral_failover.alongside import alongside
from mistral_failover.cloud import boot_disks, volumes
from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.heat_replacements import replaced_volume
from mistral_failover.cloud.project_listing import ListedVolume
from mistral_failover.cloud.servers import server_state
from mistral_failover.cloud.volume_holders import (
    GONE,
    MULTIATTACH,
    SERVER_ID,
    in_state,
    in_use,
    state_of,
    volume_if_there,
    volume_of,
)
from mistral_failover.cloud.volume_states import TAKEN, USABLE, state_named
from mistral_failover.cloud.volumes import Release
from mistral_failover.convergence.records import Record
from mistral_failover.groups.agent_health import unready
from mistral_failover.groups.project_view import ProjectView, unknown
from mistral_failover.mistral.operation_documents import OperationDocument
from mistral_failover.model.goal import ATTACHMENT
from mistral_failover.model.group import Group
from mistral_failover.model.observation import AS_RECORDED, ObservedPresence, Presence
from mistral_failover.model.remedies import Need, need
from mistral_failover.model.rungs import ServerAfter, rung_kind
from mistral_failover.resources.modules import ExaminedResource, about
from mistral_failover.resources.operation_context import (
    OperationContext,
    fence_proof,
    kept_for,
    member_of,
    member_server,
    physical_id_of,
    recorded_server,
    refuse_started,
    refuse_unproven,
    say_how_to_go_on,
    says_how_to_leave_a_dead_host,
)
from mistral_failover.resources.restart import evacuate
from mistral_failover.runtime.errors import ActionError, says_how_to_continue
from mistral_failover.store import views
from mistral_failover.store.views import AttachedVolume

_WHEN_DOWN, _DELETES = "when_host_is_down", "delete_server"


def kept_on_a_dead_host(group: Group) -> str:
    """Return, in words, what a failover waits for after the fence of a member whose host stays
    down, because the group allows neither deleting nor evacuating its server; empty if nothing."""
    kept = sorted(
        name
        for name, spec in group.resources.items()
        if spec.type == ATTACHMENT and spec.properties.get(_WHEN_DOWN) != _DELETES
    )
    if not kept or evacuate.NAME in group.members.restart:
        return ""
    return (
        f"while the host of a lost member is down, Nova does not give {' and '.join(kept)} away: "
        "the failover then waits until you delete the member's server, or the host is back "
        "(when_host_is_down: ask)"
    )


def deletes_on_dead_host(record: Record) -> bool:
    """Return whether the server that has a volume may be deleted for it, if its host is down."""
    return (record.properties or {}).get(_WHEN_DOWN) == _DELETES


def attach_volume(context: OperationContext, operation: OperationDocument) -> dict[str, Any]:
    """Attach the volume to the member's server; return device, server_id, attachment_id.

    If the name that the resource had before now refers to another volume, Heat has created a new,
    empty one. Only an operator can decide which one is meant, by another name for it in the group
    file; or by taking a new stack, if Cinder does not have the former volume any more. Raises
    CloudError VOLUME_REPLACED; TARGET_DOWN if the attach makes no progress because the server can
    take nothing now.
    """
    known = _formerly(context, operation)
    server_id = member_server(operation)
    volume = operation["properties"]["volume"]
    with alongside(lambda: server_state(context.cloud, server_id)) as server:
        volume_id = volumes.resolve_volume(context.cloud, operation["stack"], volume)
    with says_how_to_continue(operation["group"]):
        if (
            known is not None
            and known.name == volume
            and known.volume_id != volume_id
            and not (
                known.of_former_stack and volume_if_there(context.cloud, known.volume_id) is None
            )
        ):
            raise replaced_volume(operation["group"], volume, known.volume_id, volume_id)
        try:
            attributes = volumes.attach(
                context.cloud,
                volume_id,
                server_id,
                operation["timeout"],
                unknown=operation["unknown"],
                silence=lambda: _silence(context, operation, server_id),
                server=server,
            )
        except CloudError as error:
            if error.target is not None:
                gone = error.target["evidence"] == GONE
                say_how_to_go_on(operation, error, gone=gone)
            raise
    return {"physical_id": volume_id, "attributes": attributes}


def _formerly(context: OperationContext, operation: OperationDocument) -> AttachedVolume | None:
    group_id, resource = operation["group_id"], operation["resource"]
    known = context.request.store.reading(
        lambda tx: views.attached_volumes(tx, group_id, resource["type"], resource["name"])
    )
    return known.get(resource["name"])


def _silence(context: OperationContext, operation: OperationDocument, server_id: str) -> str:
    """Return why the agent on the server carries out no command, in words; empty if it does, or
    if nothing is known of it."""
    to = Address(operation["group_id"], operation["group"], member_of(operation)["name"], server_id)
    try:
        return unready(context.channel.heard(to))
    except ChannelError:
        return ""


def detach_volume(context: OperationContext, operation: OperationDocument) -> dict[str, Any]:
    """Detach the volume from the server that it was attached to, and check that it is gone.

    It stays if another resource of the group has it there too. A volume that no longer exists is
    attached nowhere: whatever prevents the detach, there is nothing left to protect.
    """
    if (kept := kept_for(context, operation)) is not None:
        return kept
    volume_id = physical_id_of(context, operation, volumes.resolve_volume, "volume")
    if volume_id is None:
        return {}
    try:
        _detach(context, operation, volume_id)
    except (ActionError, CloudError):
        if not volumes.is_gone(context.cloud, volume_id):
            raise
    return {}


def _detach(context: OperationContext, operation: OperationDocument, volume_id: str) -> None:
    """As :func:`detach_volume`, for an existing volume.

    The server is the recorded one, not the member's present one. If its host is down, the server
    may be evacuated or deleted, provided the user allowed it and a fence proves it off. An agent's
    confirmation that it quiesced is not enough, because the guest is alive.
    """
    server_id = recorded_server(operation)
    proof = fence_proof(operation)
    after = rung_kind(proof["rung"]).server_after if proof else None
    if proof is None:
        refuse_unproven(context, operation, server_id)
    elif after is ServerAfter.SHUTOFF:
        refuse_started(context, operation, server_id)
    delete_server = operation["properties"].get(_WHEN_DOWN) == _DELETES
    not_evacuated = evacuate.before_release(context, operation, server_id, or_delete=delete_server)
    release = Release(
        off=proof["observed"] if proof and after is not ServerAfter.RUNNING else None,
        fenced=proof is not None,
        delete_server=delete_server,
        cut_off=after is ServerAfter.CUT_OFF,
        stopped=after is ServerAfter.SHUTOFF,
        keeps_boot_disk=partial(boot_disks.must_stay, context.cloud, operation["stack"], server_id),
    )
    with (
        says_how_to_continue(operation["group"]),
        says_how_to_leave_a_dead_host(operation, ServerAfter.RUNNING),
        evacuate.says_why_not(operation, not_evacuated),
    ):
        volumes.detach(
            context.cloud,
            volume_id,
            server_id,
            operation["timeout"],
            release,
        )


OPERATIONS = (attach_volume, detach_volume)


def examine(subject: ExaminedResource) -> str:
    """Return what is right about a volume. Raises CloudError for what would fail: it does not
    exist, is the disk of a server, is in a state in which Nova attaches nothing, or belongs to a
    server that is no member."""
    cloud = subject.cloud
    with about("volume"):
        named = str(subject.spec.properties["volume"])
        found = volume_of(cloud, volumes.resolve_volume(cloud, subject.stack, named))
        for held in found.attachments:
            volumes.refuse_root(found, held)
        if found.status not in USABLE:
            raise in_state(cloud, found, *subject.members)
        holders = [str(SERVER_ID.of(held)) for held in found.attachments]
        if not all(map(subject.is_ours, holders)) and not MULTIATTACH.of(found):
            raise in_use(found)
    return f"volume {found.id}, {state_of(found)}"


def holders(subject: ExaminedResource) -> list[str]:
    """Return the server that has a volume. One that several may have does not tell whose turn it
    is."""
    named = str(subject.spec.properties["volume"])
    found = volume_of(subject.cloud, volumes.resolve_volume(subject.cloud, subject.stack, named))
    servers = [SERVER_ID.of(held) for held in found.attachments]
    return [] if MULTIATTACH.of(found) else [str(each) for each in servers if each]


def observe(view: ProjectView, record: Record, group: str) -> ObservedPresence:
    """Return whether the volume is still attached to the same server."""
    volume_id, server_id = record.physical_id, record.attributes.get("server_id")
    if volume_id is None or server_id is None:
        return ObservedPresence(Presence.UNKNOWN, "no volume or no server is recorded")
    try:
        volume = view.listing.volume(volume_id)
    except CloudError as error:
        return unknown(error)
    if volume is None:
        return ObservedPresence(
            Presence.GONE, f"volume {volume_id} no longer exists", (need("ANOTHER_VOLUME"),)
        )
    if server_id in volume.servers:
        return _attached(volume)
    where = " and ".join(f"server {each}" for each in sorted(volume.servers)) or "no server"
    words = f"volume {volume_id} is {volume.status} and attached to {where}, not to {server_id}"
    presence = Presence.CHANGED if volume.servers else Presence.GONE
    return ObservedPresence(presence, words, _gives_back(volume, server_id))


def _gives_back(volume: ListedVolume, server_id: str) -> tuple[Need, ...]:
    """Return the remedies that attach a volume to this server and to no other; empty in a state in
    which Nova does not attach it, where the doctor says what ends that."""
    if state_named(volume.status) is not None:
        return ()
    away = [need("DETACH_VOLUME", server=each, volume=volume.id) for each in sorted(volume.servers)]
    return (*away, need("ATTACH_VOLUME", server=server_id, volume=volume.id))


def _attached(volume: ListedVolume) -> ObservedPresence:
    """The guest goes on using it in each state but those of an attachment that begins or ends; a
    failover could not take it in some."""
    if volume.status == "in-use":
        return AS_RECORDED
    meaning = state_named(volume.status)
    if meaning is None or volume.status in TAKEN:
        words = f"volume {volume.id} is attached, but Cinder reports it as {volume.status}"
        return ObservedPresence(Presence.UNKNOWN, words)
    words = f"volume {volume.id} {meaning.clause} ({volume.status}), so it could not move now"
    return ObservedPresence(Presence.PRESENT, words)
