# SPDX-License-Identifier: Apache-2.0
"""Which server holds a volume: according to Cinder, which keeps attachments, and to Nova, which
lists volumes.

While Nova attaches a volume, it lists the volume before Cinder has an attachment; while it
detaches, Cinder loses the attachment before Nova stops listing. So an attachment that Nova does not
list is an *orphan*: no request works on it, and none will. Only a server that is being built is not
listed in full.

Cinder lets a project delete an attachment that Nova does not list, and no other (409, since
CVE-2023-2088), but Cinder cannot know whether a host still has the device. That is decided here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from mistral_failover.cloud.clients import Cloud
from mistral_failover.cloud.errors import CloudError, translated
from mistral_failover.cloud.fields import Feature, Field
from mistral_failover.cloud.servers import (
    attachment_shown,
    deletion_proof,
    off_proof,
    server_state,
    volumes_deleted_with,
)
from mistral_failover.cloud.url_paths import segment, url_path
from mistral_failover.cloud.waits import ResendPolicy
from mistral_failover.fault_points import reach

ANOTHER = (
    "Name a volume resource of the stack, or an existing volume's id, in the group file, then: "
    "failover group update FILE"
)
"""The remedy for a volume that does not exist, or not any more."""
MULTIATTACH = Field("Cinder", "multiattach")
BOOTABLE = Field("Cinder", "bootable")
SERVER_ID, DEVICE = Field("Cinder", "server_id"), Field("Cinder", "device")
"""Of an attachment that a volume shows; None if it belongs to no server, or has no device."""
LEFT_DEVICES = Feature("Nova", "devices that belong to no attachment", since="2.89")
_ATTACHMENT_ID, _BDM = (Field("Nova", n, LEFT_DEVICES.since) for n in ("attachment_id", "bdm_uuid"))


@dataclass(frozen=True, slots=True)
class VolumeHolder:
    """An attachment as Cinder keeps it.

    ``server_id``: None for one that belongs to no server. ``status``: reserved (no host knows the
    way to the volume yet), attaching, attached, detaching, error_attaching, error_detaching.
    """

    id: str
    server_id: str | None
    status: str

    def __str__(self) -> str:
        """Return it as part of a sentence."""
        whose = f"server {self.server_id}" if self.server_id else "no server"
        return f"attachment {self.id} ({self.status}) of {whose}"


def volume_of(cloud: Cloud, volume_id: str) -> Any:
    """Return the volume as Cinder shows it, to read its attributes only (`Cloud.volume`). Raises
    `CloudError` NOT_FOUND, whose remedy gives the group another volume."""
    try:
        with translated(f"read volume {volume_id}"):
            return cloud.volume(volume_id)
    except CloudError as error:
        if error.code == "NOT_FOUND":
            error.remedy = ANOTHER
        raise


def held_by(volume: Any, server_id: str) -> Iterator[dict[str, Any]]:
    """Return the server's attachments among those that the volume shows: attached or detaching
    ones."""
    return (held for held in volume.attachments if SERVER_ID.of(held) == server_id)


def state_of(volume: Any) -> str:
    """Return the volume's state as part of a sentence."""
    holders = " and ".join(
        f"server {SERVER_ID.of(held)} as {DEVICE.of(held) or 'a device'}"
        for held in volume.attachments
    )
    return f"it is {volume.status}" + (f", attached to {holders}" if holders else "")


def holders_of(cloud: Cloud, volume_id: str) -> list[VolumeHolder]:
    """Return every attachment of the volume, also those that the volume itself does not show
    yet."""
    with translated(f"list the attachments of volume {volume_id}"):
        found = cloud.volumes.attachments.list(search_opts={"volume_id": volume_id})
    rows = [VolumeHolder(each.id, each.instance or None, each.status) for each in found]
    return sorted(rows, key=lambda claim: claim.id)


def listed_by_nova(cloud: Cloud, server_id: str, volume_id: str) -> bool:
    """Return whether Nova lists the volume on the server; Nova does so once it has accepted an
    attach. Nova is asked for all volumes of the server, so operations on several share an answer.
    """
    try:
        with translated(f"look for volume {volume_id} on server {server_id}"):
            found = cloud.read_nova(url_path("servers", server_id, "os-volume_attachments"))
    except CloudError as error:
        if error.code == "NOT_FOUND":
            return False
        raise
    return any(row["volumeId"] == volume_id for row in found["volumeAttachments"])


def leftover_device(cloud: Cloud, server_id: str, volume_id: str) -> bool:
    """Return whether Nova lists a device on the server that belongs to no attachment.

    While Nova carries an attach out, that is so for a moment. It stays so if the compute service
    reserved the device after Nova had given the request up: nothing was connected, and nothing will
    be. (A server of before Nova's Queens may have real ones; Cinder knows those.) An older Nova
    than `LEFT_DEVICES` does not tell: then no device is removed, and an operator is asked.
    """
    if not LEFT_DEVICES.offered_by(cloud.newest("Nova")):
        return False
    row = attachment_shown(cloud, server_id, volume_id)
    return row is not None and bool(_BDM.of(row)) and not _ATTACHMENT_ID.of(row)


def holder_for(cloud: Cloud, volume_id: str, server_id: str, repeats: ResendPolicy) -> VolumeHolder:
    """Make Cinder show the volume as attached to the server, by an attachment that connects
    nothing. ``repeats``: allows a request now.

    One that an earlier attempt made is reused. Until it is deleted Cinder gives the volume to no
    other server. Raises `CloudError`, VOLUME_IN_USE if another server has it.
    """
    found = next((c for c in holders_of(cloud, volume_id) if c.server_id == server_id), None)
    if found is None:
        with repeats.sending(f"reserve volume {volume_id} for server {server_id}"):
            made = cloud.volumes.attachments.create(volume_id, None, server_id)
        found = VolumeHolder(made["id"], server_id, "reserved")
    if found.status == "reserved":
        with repeats.sending(f"complete attachment {found.id} of volume {volume_id}"):
            cloud.volumes.attachments.complete(segment(found.id))
    return found


def orphaned(cloud: Cloud, volume_id: str, claim: VolumeHolder) -> bool:
    """Return whether Nova knows nothing of a server's attachment, whether or not the server still
    exists."""
    if claim.server_id is None or attachment_shown(cloud, claim.server_id, volume_id) is not None:
        return False
    return server_state(cloud, claim.server_id).status != "BUILD"


def delete_orphan_attachment(
    cloud: Cloud, volume_id: str, claim: VolumeHolder, off: str | None
) -> str | None:
    """Delete an orphan if certainly nothing is written through it; return why that is certain.

    ``off``: the proof that its server's guest is off, if there is one; else Nova is asked. Return
    None without deleting when it is not certain. Safe to repeat.

    Raises `CloudError` CONFLICT if Nova knows the attachment after all.
    """
    why = "it was never connected" if claim.status == "reserved" else off
    if why is None and claim.server_id is not None:
        why = _off(cloud, claim.server_id)
    if why is None:
        return None
    try:
        reach("orphan.before")
        # By its own id: a repeated deletion removes it only once, so the answer does not matter.
        with translated(f"delete attachment {claim.id} of volume {volume_id}", changes=True):
            cloud.volumes.attachments.delete(segment(claim.id))
    except CloudError as error:
        if error.code != "NOT_FOUND":
            raise
    reach("orphan.after")
    return f"{claim}, which Nova does not know, was deleted: {why}"


def volume_fingerprint(cloud: Cloud, volume_id: str, server_id: str) -> str:
    """Describe a volume and a server in words that change when their state changes."""
    try:
        state = state_of(volume_of(cloud, volume_id))
        known = ", ".join(str(claim) for claim in holders_of(cloud, volume_id))
    except CloudError as error:
        if error.code != "NOT_FOUND":
            raise
        return f"volume {volume_id} is gone"
    server = server_state(cloud, server_id)
    listing = server.exists and listed_by_nova(cloud, server_id, volume_id)
    along = _along(cloud, server_id) if server.exists else ""
    return (
        f"Cinder reports volume {volume_id} as {state}, with {known or 'no attachment'}; "
        f"server {server_id} is {server} and Nova lists it {'there' if listing else 'not there'}"
        + (f"; deleting it also deletes {along}" if along else "")
    )


def _along(cloud: Cloud, server_id: str) -> str:
    """Return which volumes are deleted with a server, in words."""
    try:
        return ", ".join(sorted(volumes_deleted_with(cloud, server_id)))
    except CloudError as error:
        if error.code != "NOT_OFFERED":
            raise
        return "volumes that Nova does not show"


def _off(cloud: Cloud, server_id: str) -> str | None:
    """Return Nova's proof that the guest is off."""
    state = server_state(cloud, server_id)
    if not state.exists:
        evidence = deletion_proof(cloud, server_id)
        return evidence.observed if evidence.proven else None
    if not state.off:
        return None
    evidence = off_proof(cloud, server_id, state)
    return evidence.observed.rstrip(".") if evidence.proven else None
