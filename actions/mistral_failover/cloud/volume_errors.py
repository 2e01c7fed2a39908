# SPDX-License-Identifier: Apache-2.0
"""Errors for a volume that is neither released nor attached: the cause, and the command that helps.
``docs/volumes.md`` lists the cases and the measurements of each.

The commands are those of python-openstackclient and nova-manage, with the ids filled in. A
``blocked`` error waits for an operator; this package never takes a volume from a server by
force.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mistral_failover.cloud.errors import CloudError
from mistral_failover.cloud.fields import Feature
from mistral_failover.cloud.volume_holders import SERVER_ID, VolumeHolder, state_of

_ATTACHMENT_API = "openstack --os-volume-api-version 3.27 volume attachment"
KEEPING = Feature("Nova", "changing delete_on_termination", since="2.85")
"""By which a volume is kept when its server is deleted."""


HOST_RETURNS = 600.0
"""Seconds for which a compute service that stopped the server a while ago, and now counts as down,
is waited for. While the broker is away, Nova counts every compute service as down."""


def host_down(
    volume_id: str, server_id: str, why: str, off: str | None, *, fenced: bool, returns: bool
) -> CloudError:
    """Nova cannot detach, because the compute service of the server's host is down.

    ``why``: the evidence. ``off``: the proof that the guest is off. ``fenced``: the member is
    fenced, perhaps by a proof that leaves the guest running. ``returns``: the compute service
    worked during the fence, so it is more likely out of reach than dead, and waited for.
    """
    message = (
        f"Could not detach volume {volume_id} from server {server_id}: {why}, so Nova cannot reach "
        "the guest"
    )
    if off is not None:
        return CloudError(
            "HOST_DOWN",
            f"{message}. The member is proven off ({off.rstrip('.')}), but the group does not "
            "allow deleting its server (when_host_is_down)",
            remedy=(
                f"Free the volume by deleting the server: openstack server delete {server_id}. Or, "
                "as an administrator, keep the server: openstack compute service set --down HOST "
                "nova-compute, then openstack --os-compute-api-version 2.95 server evacuate "
                f"{server_id} (it arrives switched off). Or start the host again."
            ),
            blocked=True,
            transient=returns,
            service=f"the compute service on the host of server {server_id}" if returns else "",
            detail="Nova counts it as down" if returns else "",
            patience=HOST_RETURNS if returns else None,
        )
    if fenced:
        return CloudError(
            "HOST_DOWN",
            f"{message}. The member only confirmed that it quiesced; its guest may be running",
            remedy="Start nova-compute on its host again.",
            blocked=True,
        )
    return CloudError(
        "HOST_DOWN",
        message,
        remedy="Start nova-compute on its host again.",
    )


def target_down(
    volume_id: str, server_id: str, why: str, evidence: str, *, host: str | None, held: bool
) -> CloudError:
    """The server that is to get the volume can take nothing now; another server may.

    ``why``: in words, ``evidence``: ``server`` (Nova reports it), ``gone`` (it does not exist, and
    never will again), ``agent`` (it is silent) or ``requests`` (its compute service took none).
    ``held``: Cinder or Nova has an attachment of the volume to the server, so the volume may still
    arrive there.
    """
    where = f"server {server_id}" + (f" on host {host}" if host else "")
    error = CloudError(
        "TARGET_DOWN",
        f"Could not attach volume {volume_id} to {where}: {why}",
        remedy="Repair the host (is nova-compute running there?) or the server.",
        retryable=False,  # by this wait: another server may be chosen
        transient=True,
        service=where,
        detail=why,
        unknown=True,
    )
    error.target = {"server": server_id, "why": why, "evidence": evidence, "held": held}
    return error


def server_in_error(volume_id: str, server_id: str) -> CloudError:
    """Nova detaches nothing from a server in ERROR, even if its host is well."""
    return CloudError(
        "SERVER_IN_ERROR",
        f"Could not detach volume {volume_id} from server {server_id}: the server is in ERROR, and "
        "Nova detaches nothing from it",
        remedy=(
            f"Switch the server off, which its project may do: openstack server stop {server_id}. "
            "Or, as an administrator, if the server is healthy: openstack server set --state "
            f"active {server_id}."
        ),
        blocked=True,
    )


def goes_along(server_id: str, volumes: Sequence[str], *, newest: str) -> CloudError:
    """The server may be deleted, but that would delete data with it. ``newest``: microversion that
    Nova offers."""
    commands = "; ".join(
        f"openstack --os-compute-api-version {KEEPING.since} server volume update "
        f"--preserve-on-termination {server_id} {volume}"
        for volume in volumes
    )
    return CloudError(
        "VOLUME_WOULD_GO",
        f"Deleting server {server_id} would delete {' and '.join(volumes)} with it "
        "(delete_on_termination)",
        remedy=f"Keep them: {commands}."
        if KEEPING.offered_by(newest)
        else "Bring its host back. Nova can keep them with microversion "
        f"{KEEPING.since}, and offers up to {newest}.",
        blocked=True,
    )


def broken(volume: Any) -> CloudError:
    """The volume is in an error state, which only an administrator may end."""
    wanted = "in-use" if volume.attachments else "available"
    lost = " Its deletion has begun: check first whether its data still exists."
    return CloudError(
        "VOLUME_ERROR",
        f"Volume {volume.id} is not usable: {state_of(volume)}",
        remedy=(
            "Find the cause (openstack volume message list, cinder-volume's "
            f"log).{lost if volume.status == 'error_deleting' else ''} Then, as an administrator: "
            f"openstack volume set --state {wanted} {volume.id}."
        ),
        blocked=True,
    )


def stuck(volume: Any, known: Sequence[VolumeHolder], seconds: float) -> CloudError:
    """The volume is being attached or detached, and makes no progress."""
    if known:
        whose = f"by {' and '.join(str(claim) for claim in known)}, which Nova knows"
        state = "in-use --attached"
        look = f"nova-compute's log on the host of server {known[0].server_id}"
    else:
        whose = "without a request: neither Cinder nor Nova has an attachment"
        state = "available --detached"
        look = "cinder-api's log"
    return CloudError(
        "VOLUME_STUCK",
        f"Volume {volume.id} has made no progress for {seconds:.0f} s: {state_of(volume)}, {whose}",
        remedy=(
            f"Check {look}. When no request works on the volume any more, as an administrator: "
            f"openstack volume set --state {state} {volume.id}."
        ),
        blocked=True,
    )


def unknown_to_nova(volume_id: str, claim: VolumeHolder, *, exists: bool) -> CloudError:
    """Cinder keeps an attachment that Nova does not know, and its guest may be writing."""
    delete = f"{_ATTACHMENT_API} delete {claim.id}"
    if exists:
        fact = f"Nova does not list the volume on server {claim.server_id}, which may still have it"
        remedy = (
            f"Switch the server off (openstack server stop {claim.server_id}); the attachment is "
            "then deleted automatically. Or check in the guest that the device is gone, and "
            f"{delete}"
        )
    else:
        fact = (
            f"server {claim.server_id} is gone from Nova, and nothing proves that its guest is off"
        )
        remedy = f"Make sure that no guest with this id runs on any host, then: {delete}"
    return CloudError(
        "VOLUME_DISPUTED",
        f"Volume {volume_id} is held by {claim}, but {fact}",
        remedy=f"{remedy}.",
        blocked=True,
    )


def unknown_to_cinder(
    volume_id: str, server_id: str, *, released: bool = False, serves: bool = False
) -> CloudError:
    """Nova lists the volume on a server, and Cinder has no attachment: Nova cannot detach it.

    ``released``: Cinder's attachment was seen to go during this detach. ``serves``: the server is
    to have the volume.
    """
    fact = f"Nova lists volume {volume_id} on server {server_id}"
    if released:
        cause = (
            ", although Cinder released it during this detach: the server's compute service "
            "probably stopped before it removed its own record"
        )
    else:
        cause = (
            ", but Cinder has no attachment: the compute service stopped at the end of a detach, "
            "or the volume was set to detached by force, and then the guest may write to it"
        )
    start = f", and openstack server start {server_id}" if serves else ""
    return CloudError(
        "VOLUME_DISPUTED",
        f"{fact}{cause}",
        remedy=(
            "Once nova-compute runs on the server's host, create the attachment again: openstack "
            f"server stop {server_id}; then, as an administrator on the host, nova-manage "
            "volume_attachment get_connector --json > connector.json and nova-manage "
            f"volume_attachment refresh {server_id} {volume_id} connector.json{start}. Or delete "
            f"the server: openstack server delete {server_id}."
        ),
        blocked=True,
    )


def device_left(volume_id: str, server_id: str) -> CloudError:
    """Nova keeps a device that never had an attachment, and does not drop it."""
    return CloudError(
        "DEVICE_LEFT",
        f"Nova keeps a device for volume {volume_id} on server {server_id} that was never "
        "connected (Nova gave up an attach that the compute service still continued), so it "
        "attaches the volume nowhere else",
        remedy=(
            f"Delete the server: openstack server delete {server_id}. Heat then makes another one "
            "for its member. Or have an administrator of Nova's database delete the row of "
            "block_device_mapping of this volume and server that has no attachment_id."
        ),
        blocked=True,
    )


def not_let_go(volume_id: str, claim: VolumeHolder, error: CloudError) -> CloudError:
    """Nova does not know an attachment, nothing is written through it, and Cinder does not delete
    it."""
    return CloudError(
        "VOLUME_DISPUTED",
        f"Volume {volume_id} is held by {claim}, which Nova does not know, and Cinder did not "
        f"delete it: {error.message}",
        remedy=(
            "Cinder asks Nova with the token of the request, which is not possible with a trust's "
            f"token. With a token of your own: {_ATTACHMENT_API} delete {claim.id}."
        ),
        blocked=True,
    )


def called_free(volume: Any) -> CloudError:
    """Cinder shows the volume as available but still has attachments of it."""
    return CloudError(
        "VOLUME_DISPUTED",
        f"Volume {volume.id} was set to available by force, but it is not: {state_of(volume)}",
        remedy=f"As an administrator: openstack volume set --state in-use {volume.id}.",
        blocked=True,
    )


def in_use(volume: Any) -> CloudError:
    """Another server has the volume, according to Cinder and Nova."""
    others = sorted({str(SERVER_ID.of(held)) for held in volume.attachments})
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
    """Several members need the volume at once, but it allows only one."""
    return CloudError(
        "VOLUME_NOT_SHARED",
        f"Volume {volume.id} is needed on {' and '.join(members)} at once, but it is not "
        "multi-attach",
        remedy=(
            "Give each member its own volume, or use a volume of a type that is multi-attach "
            "(openstack volume type set --property multiattach='<is> True' TYPE)."
        ),
        retryable=False,
    )


def not_usable(volume: Any) -> CloudError:
    """The volume is in a state that does not allow attaching it."""
    return CloudError(
        "CONFLICT",
        f"Could not use volume {volume.id}: {state_of(volume)}",
        remedy="Wait until its present action has ended (a deletion, a transfer).",
        retryable=False,
    )
