# SPDX-License-Identifier: Apache-2.0
"""What is wrong with a volume that neither comes free nor arrives, and who can help, by which
command. ``docs/volumes.md`` lists the cases, and what was measured of each.

The commands are those of python-openstackclient and nova-manage, with the ids filled in. A
``blocked`` error waits for a person; nobody here forces a volume out of a server's hands.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.volume_holders import VolumeHolder, state_of

_ATTACHMENT_API = "openstack --os-volume-api-version 3.27 volume attachment"


def host_down(
    volume_id: str, server_id: str, why: str, off: str | None, *, fenced: bool
) -> CloudError:
    """Nova can not detach, for the compute service of the server's host is down.

    ``why``: what shows that. ``off``: what proves the guest off. ``fenced``: its member's fence
    stands, be it by a proof that leaves the guest running.
    """
    message = (
        f"Could not detach volume {volume_id} from server {server_id}: {why}, so Nova can not "
        "reach the guest"
    )
    if off is not None:
        return CloudError(
            "HOST_DOWN",
            f"{message}. The member is proven off ({off.rstrip('.')}), but nobody allowed to "
            "delete its server",
            remedy=f"Free the volume by deleting the server: openstack server delete {server_id}. "
            "Or, as an administrator, keep the server: openstack compute service set --down HOST "
            "nova-compute, then openstack --os-compute-api-version 2.95 server evacuate "
            f"{server_id} (it arrives switched off). Or bring the host back.",
            blocked=True,
        )
    if fenced:
        return CloudError(
            "HOST_DOWN",
            f"{message}. The member only confirmed that it quiesced; its guest may be running",
            remedy="Start nova-compute on its host again. Or switch the guest off, vouch for it "
            "with failover confirm-fenced, and go on with failover start.",
            blocked=True,
        )
    return CloudError(
        "HOST_DOWN",
        message,
        remedy="Start nova-compute on its host again. Or, only if the member is lost, say so with "
        "failover start GROUP --lost MEMBER, which fences it first.",
    )


def server_in_error(volume_id: str, server_id: str) -> CloudError:
    """Nova detaches nothing from a server that it has in ERROR, though its host be well."""
    return CloudError(
        "SERVER_IN_ERROR",
        f"Could not detach volume {volume_id} from server {server_id}: Nova has that in ERROR, and "
        "detaches nothing from it",
        remedy=f"Switch it off, which its project may do: openstack server stop {server_id}. Or, "
        "as an administrator, if the server is well: openstack server set --state active "
        f"{server_id}. Then run failover sweep.",
        blocked=True,
    )


def goes_along(server_id: str, volumes: Sequence[str]) -> CloudError:
    """The server may be deleted, but data would be deleted with it."""
    commands = "; ".join(
        "openstack --os-compute-api-version 2.85 server volume update --preserve-on-termination "
        f"{server_id} {volume}"
        for volume in volumes
    )
    return CloudError(
        "VOLUME_WOULD_GO",
        f"Deleting server {server_id} would delete {' and '.join(volumes)} with it "
        "(delete_on_termination)",
        remedy=f"Keep them: {commands}.",
        blocked=True,
    )


def broken(volume: Any) -> CloudError:
    """The volume is in an error state, which only an administrator may end."""
    wanted = "in-use" if volume.attachments else "available"
    lost = " Its deletion has begun: see first whether its data is still there."
    return CloudError(
        "VOLUME_ERROR",
        f"Volume {volume.id} can not be used: {state_of(volume)}",
        remedy="Find out why (openstack volume message list, cinder-volume's log)."
        f"{lost if volume.status == 'error_deleting' else ''} "
        f"Then, as an administrator: openstack volume set --state {wanted} {volume.id}.",
        blocked=True,
    )


def stuck(volume: Any, known: Sequence[VolumeHolder], seconds: float) -> CloudError:
    """The volume is on its way, and does not get anywhere."""
    if known:
        whose = f"by {' and '.join(str(claim) for claim in known)}, which Nova knows"
        state = "in-use --attached"
        look = f"nova-compute's log on the host of server {known[0].server_id}"
    else:
        whose = "by nobody: neither Cinder nor Nova has an attachment"
        state = "available --detached"
        look = "cinder-api's log"
    return CloudError(
        "VOLUME_STUCK",
        f"Volume {volume.id} has not got on for {seconds:.0f} s: {state_of(volume)}, {whose}",
        remedy=f"Look at {look}. When nothing is at work on it any more, as an administrator: "
        f"openstack volume set --state {state} {volume.id}.",
        blocked=True,
    )


def unknown_to_nova(volume_id: str, claim: VolumeHolder, *, exists: bool) -> CloudError:
    """Cinder keeps an attachment that Nova does not know, and its guest may be writing."""
    delete = f"{_ATTACHMENT_API} delete {claim.id}"
    if exists:
        fact = f"Nova does not list the volume on server {claim.server_id}, which may have it yet"
        remedy = (
            f"Switch the server off (openstack server stop {claim.server_id}); seen off, the "
            f"attachment is deleted here. Or see in the guest that the device is gone, and {delete}"
        )
    else:
        fact = (
            f"server {claim.server_id} is gone from Nova, and nothing shows that its guest is off"
        )
        remedy = f"Make sure that no guest of this id runs on any host, then: {delete}"
    return CloudError(
        "VOLUME_DISPUTED",
        f"Volume {volume_id} is held by {claim}, but {fact}",
        remedy=f"{remedy}.",
        blocked=True,
    )


def unknown_to_cinder(volume_id: str, server_id: str) -> CloudError:
    """Nova lists the volume on a server, and Cinder has no attachment: Nova can not detach it."""
    return CloudError(
        "VOLUME_DISPUTED",
        f"Nova lists volume {volume_id} on server {server_id}, where its guest may write on it, "
        "but Cinder knows of no attachment (somebody called it detached by force)",
        remedy=f"Make the attachment anew: openstack server stop {server_id}; then, as an "
        "administrator on its host, nova-manage volume_attachment get_connector --json > "
        f"connector.json and nova-manage volume_attachment refresh {server_id} {volume_id} "
        f"connector.json. Or give the server up: openstack server delete {server_id}.",
        blocked=True,
    )


def device_left(volume_id: str, server_id: str) -> CloudError:
    """Nova keeps a device that no attachment was ever made of, and does not give it up."""
    return CloudError(
        "DEVICE_LEFT",
        f"Nova keeps a device for volume {volume_id} on server {server_id} that was never "
        "connected (it gave an attach up which the compute service still carried on with), and "
        "attaches the volume nowhere else for it",
        remedy=f"Give the server up: openstack server delete {server_id}; Heat then makes another "
        "one for its member. Or have an administrator of Nova's database delete the row of "
        "block_device_mapping of this volume and server that has no attachment_id.",
        blocked=True,
    )


def not_let_go(volume_id: str, claim: VolumeHolder, error: CloudError) -> CloudError:
    """Nova does not know an attachment, nothing is written through it, and Cinder keeps it."""
    return CloudError(
        "VOLUME_DISPUTED",
        f"Volume {volume_id} is held by {claim}, which Nova does not know, and Cinder did not "
        f"delete it: {error.message}",
        remedy="Cinder asks Nova with the token of the request, which it can not do with a "
        f"trust's. With a token of your own: {_ATTACHMENT_API} delete {claim.id}.",
        blocked=True,
    )


def called_free(volume: Any) -> CloudError:
    """Cinder calls the volume available and keeps attachments of it all the same."""
    return CloudError(
        "VOLUME_DISPUTED",
        f"Volume {volume.id} is called available by force, and is not: {state_of(volume)}",
        remedy=f"As an administrator: openstack volume set --state in-use {volume.id}.",
        blocked=True,
    )


def in_use(volume: Any) -> CloudError:
    """Somebody else has the volume, by Cinder's and Nova's word."""
    others = sorted({str(held.get("server_id")) for held in volume.attachments})
    commands = "; ".join(f"openstack server remove volume {other} {volume.id}" for other in others)
    return CloudError(
        "VOLUME_IN_USE",
        f"Could not attach volume {volume.id}: {state_of(volume)}, and it is not multi-attach",
        remedy=f"Stop what uses it there, then: {commands}.",
        retryable=False,
    )


def is_root(volume_id: str, server_id: str) -> CloudError:
    """The server boots from the volume."""
    return CloudError(
        "VOLUME_IS_ROOT",
        f"Volume {volume_id} is the disk that server {server_id} boots from; it cannot move.",
        remedy="Name a data volume in the group file.",
        retryable=False,
    )


def not_shared(volume: Any, members: Sequence[str]) -> CloudError:
    """Several members are to have the volume at once, and it takes one."""
    return CloudError(
        "VOLUME_NOT_SHARED",
        f"Volume {volume.id} is to be on {' and '.join(members)} at once, and it is not "
        "multi-attach",
        remedy="Give each its own volume, or make the volume of a type that is multi-attach "
        "(openstack volume type set --property multiattach='<is> True' TYPE).",
        retryable=False,
    )


def not_usable(volume: Any) -> CloudError:
    """The volume is in a state that the attachment of a group has no business in."""
    return CloudError(
        "CONFLICT",
        f"Could not use volume {volume.id}: {state_of(volume)}",
        remedy="Wait until what is under way with it has ended (a deletion, a transfer).",
        retryable=False,
    )
