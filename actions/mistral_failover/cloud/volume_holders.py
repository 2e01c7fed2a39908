# SPDX-License-Identifier: Apache-2.0
"""Which server holds a volume: according to Cinder, which keeps attachments, and to Nova, which
lists volumes.

While Nova attaches a volume, it lists the volume before Cinder has an attachment; while it
detaches, Cinder loses the attachment before Nova stops listing. So an attachment that Nova does not
list is an *orphan*: no request works on it, and none will. Only a server that is being built is not
listed in full.

Cinder lets a project delete an attachment that Nova does not list, and no other (409, since
CVE-2023-2088), but Cinder cannot know whether a host still has the device. That is decided here.

The errors say the cause, and the command that helps: those of python-openstackclient and
nova-manage, with the ids filled in. ``docs/volumes.md`` lists the cases and the measurements of
each. A ``blocked`` error waits for an operator; this package never takes a volume from a server by
force.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from mistral_failover.cloud.absence import SERVER, VOLUME, refuse_listed, unless_absent
from mistral_failover.cloud.clients import Cloud
from mistral_failover.cloud.errors import CloudError, if_there, translated
from mistral_failover.cloud.fields import Feature, Field
from mistral_failover.cloud.server_states import STOPPED, Hindrance
from mistral_failover.cloud.servers import (
    ServerState,
    attachment_shown,
    deletion_proof,
    off_proof,
    server_state,
    volumes_deleted_with,
)
from mistral_failover.cloud.url_paths import segment, url_path
from mistral_failover.cloud.volume_states import set_to, state_named
from mistral_failover.cloud.waits import ResendPolicy
from mistral_failover.fault_points import reach
from mistral_failover.model import remedies
from mistral_failover.model.remedies import Need, need

ANOTHER = (
    "In the group file, name a volume that your project has. Then: failover group create FILE, or, "
    "if there is the group already: failover group update FILE"
)
"""The remedy for a volume that does not exist, or not any more."""
MULTIATTACH = Field("Cinder", "multiattach")
BOOTABLE = Field("Cinder", "bootable")
ZONE = Field("Cinder", "availability_zone")
SERVER_ID, DEVICE = Field("Cinder", "server_id"), Field("Cinder", "device")
HELD_AS = Field("Cinder", "attachment_id")
"""Of a volume's attachment: its identity, another one after each attach and each live migration."""
"""Of an attachment that a volume shows; None if it belongs to no server, or has no device."""
KEEPING = Feature("Nova", "changing delete_on_termination", since="2.85")
"""By which a volume is kept when its server is deleted."""
_REFUSAL = 60.0
"""Seconds for which a refused target is asked again if no other one is chosen."""
HOST_RETURNS = 600.0
"""Seconds for which a compute service that stopped the server a while ago, and now counts as down,
is waited for. While the broker is away, Nova counts every compute service as down."""
LEFT_DEVICES = Feature("Nova", "devices that belong to no attachment", since="2.89")
_ATTACHMENT_ID, _BDM = (Field("Nova", n, LEFT_DEVICES.since) for n in ("attachment_id", "bdm_uuid"))
GONE = "gone"
"""The evidence of a TARGET_DOWN that never ends: Nova says that the server does not exist."""
UNANSWERED = "requests"
"""The evidence of a TARGET_DOWN that nothing but the unanswered requests shows."""
REFUSED = "refused"
"""The evidence of a TARGET_DOWN that is a refusal of Nova's, or an attach that it accepted and gave
up: the server lives, and does not get this volume."""
STATE = "state"
"""The evidence of a TARGET_DOWN that is a refusal because of the server's state, which may pass."""


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
    `CloudError` NOT_FOUND, whose remedy gives the group another volume, if Cinder does not list it
    either."""
    try:
        return cloud.volume(volume_id)
    except CloudError as error:
        if error.code == "NOT_FOUND":
            refuse_listed(cloud, VOLUME, volume_id)
            error.remedy = ANOTHER
        raise


def volume_if_there(cloud: Cloud, volume_id: str) -> Any | None:
    """As `volume_of`; None for a volume that does not exist."""
    return unless_absent(cloud, VOLUME, volume_id, lambda: cloud.volume(volume_id))


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
    found = cloud.volumes.attachments.list(search_opts={"volume_id": volume_id})
    rows = [VolumeHolder(each.id, each.instance or None, each.status) for each in found]
    return sorted(rows, key=lambda claim: claim.id)


def volumes_of_server(cloud: Cloud, server_id: str) -> list[str]:
    """Return the volumes that have an attachment to the server by Cinder's own records, also if the
    server is gone; sorted. Raises `CloudError`."""
    with translated(f"list the attachments to server {server_id}", "Cinder"):
        found = cloud.volumes.attachments.list(search_opts={"instance_id": server_id})
    return sorted({str(each.volume_id) for each in found})


def listed_by_nova(cloud: Cloud, server_id: str, volume_id: str) -> bool:
    """Return whether Nova lists the volume on the server; Nova does so once it has accepted an
    attach. Nova is asked for all volumes of the server, so operations on several share an answer.
    """
    path = url_path("servers", server_id, "os-volume_attachments")
    found = unless_absent(cloud, SERVER, server_id, lambda: cloud.read_nova(path))
    return found is not None and any(
        row["volumeId"] == volume_id for row in found["volumeAttachments"]
    )


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
    reach("orphan.before")
    # By its own id: a repeated deletion removes it only once, so the answer does not matter.
    with translated(f"delete attachment {claim.id} of volume {volume_id}"):
        if_there(lambda: cloud.volumes.attachments.delete(segment(claim.id)))
    reach("orphan.after")
    return f"{claim}, which Nova does not know, was deleted: {why}"


def volume_fingerprint(cloud: Cloud, volume_id: str, server_id: str) -> str:
    """Describe a volume and a server in words that change when their state changes."""
    volume = volume_if_there(cloud, volume_id)
    if volume is None:
        return f"volume {volume_id} is gone"
    claims = holders_of(cloud, volume_id)
    state, known = state_of(volume), ", ".join(str(claim) for claim in claims)
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
    proof = off_proof(cloud, server_id, state)
    return proof.observed.rstrip(".") if proof is not None and proof.proven else None


def _ways(*needed: Need) -> str:
    """Return the commands of remedies as a sentence."""
    return f"{remedies.sentence(needed, '')}."


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
        delete = need("DELETE_SERVER", server=server_id)
        return CloudError(
            "HOST_DOWN",
            f"{message}. The member is proven off ({off.rstrip('.')}), but the group does not "
            "allow deleting its server (when_host_is_down)",
            remedy=(
                f"{_ways(delete)} That frees the volume. Or start the host again. Or an "
                "administrator keeps the server, and evacuates it: docs/volumes.md, A dead host."
            ),
            needs=(delete,),
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
    what: str,
    server_id: str,
    why: str,
    evidence: str,
    *,
    host: str | None,
    held: bool,
    needs: tuple[Need, ...] = (),
) -> CloudError:
    """The server that is to get a volume or port can take nothing now; another server may.

    ``what``: as in "volume 4711". ``why``: in words, ``evidence``: ``server`` (Nova reports it),
    ``gone`` (it does not exist, and never will again), ``agent`` (it is silent), ``requests`` (its
    compute service took none), or as of :func:`target_refused`.
    ``held``: Cinder or Nova has an attachment of it to the server, so it may still arrive there.
    ``needs``: what a person does so that this server can take it.
    """
    where = f"server {server_id}" + (f" on host {host}" if host else "")
    error = CloudError(
        "TARGET_DOWN",
        f"Could not attach {what} to {where}: {why}",
        remedy="Repair the host (is nova-compute running there?) or the server.",
        retryable=False,  # by this wait: another server may be chosen
        transient=True,
        service=where,
        detail=why,
        unknown=True,
        needs=needs,
    )
    error.target = {"server": server_id, "why": why, "evidence": evidence, "held": held}
    return error


def target_refused(
    what: str, server_id: str, why: str, evidence: str, *, remedy: str, held: bool = False
) -> CloudError:
    """Nova does not give a volume or port to the server, which is well; another server may get it.

    ``what``: as in "volume 4711". ``why``: in words. ``evidence``: ``refused`` (it concerns the
    server and what it is to get, and rarely passes) or ``state`` (it concerns the server's present
    state, and is waited for). ``held`` as in :func:`target_down`.
    """
    error = target_down(what, server_id, why.rstrip("."), evidence, host=None, held=held)
    error.remedy = remedy
    error.unknown = held
    if evidence == "refused":
        error.patience = _REFUSAL
    return error


def server_in_error(what: str, server_id: str, off: str | None = None) -> CloudError:
    """Nova detaches nothing from a server in ERROR, even if its host is well. ``off``: the proof
    that the guest is off; then its host may be dead, and carry no stop out."""
    message = (
        f"Could not detach {what} from server {server_id}: the server is in ERROR, and Nova "
        "detaches nothing from it"
    )
    if off is None:
        ways = need("STOP_SERVER", server=server_id), need("RESET_SERVER", server=server_id)
        return CloudError("SERVER_IN_ERROR", message, remedy=_ways(*ways), needs=ways, blocked=True)
    delete = need("DELETE_SERVER", server=server_id)
    return CloudError(
        "SERVER_IN_ERROR",
        f"{message}. The member is proven off ({off.rstrip('.')}), so its host may be dead",
        remedy=_ways(delete),
        needs=(delete,),
        blocked=True,
    )


def server_busy(what: str, server_id: str, server: ServerState, by: Hindrance) -> CloudError:
    """The server gives ``what`` (a volume or port) not away in its present state, because of
    ``by``."""
    return CloudError(
        "SERVER_BUSY",
        f"Could not detach {what} from server {server_id}: the server is {server}",
        remedy=by.sentence(server_id) or "Repair the server.",
        needs=by.needs(server_id),
        blocked=True,
    )


def goes_along(server_id: str, volumes: Sequence[str], *, newest: str) -> CloudError:
    """The server may be deleted, but that would delete data with it. ``newest``: microversion that
    Nova offers."""
    ways = [need("KEEP_VOLUME", server=server_id, volume=volume) for volume in volumes]
    offered = KEEPING.offered_by(newest)
    return CloudError(
        "VOLUME_WOULD_GO",
        f"Deleting server {server_id} would delete {' and '.join(volumes)} with it "
        "(delete_on_termination)",
        remedy=f"Keep them. {_ways(*ways)}"
        if offered
        else "Bring its host back. Nova can keep them with microversion "
        f"{KEEPING.since}, and offers up to {newest}.",
        needs=tuple(ways) if offered else (),
        blocked=True,
    )


def in_state(cloud: Cloud, volume: Any, *servers: str) -> CloudError:
    """Nova neither attaches nor detaches the volume in its present state, which is none of
    `USABLE`.

    ``servers``: those that may have the volume; Nova is asked for each, if the advice is to set
    the state. Raises `CloudError` if Cinder or Nova cannot be asked.
    """
    state = state_named(volume.status)
    if state is None:
        raise ValueError(f"volume {volume.id} is {volume.status}")
    words = f"Volume {volume.id} {state.clause}: {state_of(volume)}"
    remedy = state.remedy.format(volume=volume.id)
    if not state.broken:
        return CloudError("VOLUME_BUSY", words, remedy=remedy, blocked=True)
    in_cinder = bool(volume.attachments) or bool(holders_of(cloud, volume.id))
    attached = in_cinder or any(listed_by_nova(cloud, s, volume.id) for s in servers)
    setting = set_to(volume.id, attached=attached, recorded=attached is in_cinder)
    remedy = f"{remedy} Then set the state. {_ways(setting)}"
    return CloudError("VOLUME_ERROR", words, remedy=remedy, needs=(setting,), blocked=True)


def stuck(volume: Any, known: Sequence[VolumeHolder], seconds: float) -> CloudError:
    """The volume is being attached or detached, and makes no progress."""
    if known:
        whose = f"by {' and '.join(str(claim) for claim in known)}, which Nova knows"
        look = f"nova-compute's log on the host of server {known[0].server_id}"
    else:
        whose = "without a request: neither Cinder nor Nova has an attachment"
        look = "that no server lists it (openstack server volume list SERVER), and cinder-api's log"
    setting = set_to(volume.id, attached=bool(known), recorded=False)
    return CloudError(
        "VOLUME_STUCK",
        f"Volume {volume.id} has made no progress for {seconds:.0f} s: {state_of(volume)}, {whose}",
        remedy=f"Check {look}. {_ways(setting)}",
        needs=(setting,),
        blocked=True,
    )


def unknown_to_nova(volume_id: str, claim: VolumeHolder, *, exists: bool) -> CloudError:
    """Cinder keeps an attachment that Nova does not know, and its guest may be writing."""
    delete = need("DELETE_ATTACHMENT", attachment=claim.id)
    first = delete
    if exists:
        fact = f"Nova does not list the volume on server {claim.server_id}, which may still have it"
        first = need("STOP_SERVER", server=str(claim.server_id))
        remedy = (
            f"{_ways(first)} The attachment is then deleted automatically. Or check in the guest "
            f"that the device is gone. {_ways(delete)}"
        )
    else:
        fact = (
            f"server {claim.server_id} is gone from Nova, and nothing proves that its guest is off"
        )
        remedy = f"Make sure that no guest with this id runs on any host. {_ways(delete)}"
    return CloudError(
        "VOLUME_DISPUTED",
        f"Volume {volume_id} is held by {claim}, but {fact}",
        remedy=remedy,
        needs=(first,),
        blocked=True,
    )


def unknown_to_cinder(
    cloud: Cloud,
    volume_id: str,
    server_id: str,
    *,
    released: bool = False,
    serves: bool = False,
    off: bool = False,
) -> CloudError:
    """Nova lists the volume on a server, and Cinder has no attachment: Nova cannot detach it.

    ``released``: Cinder's attachment was seen to go during this detach. ``serves``: the server is
    to have the volume. ``off``: its guest is proven off, so that it may be deleted; otherwise an
    administrator creates the attachment again, once the server is stopped.

    Raises `CloudError` when Nova cannot be asked whether it is, `LeaseLost`.
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
    delete = need("DELETE_SERVER", server=server_id)
    refresh = need("REFRESH_ATTACHMENT", server=server_id, volume=volume_id)
    stopped = server_state(cloud, server_id).status in STOPPED
    ways = (refresh,) if stopped else (need("STOP_SERVER", server=server_id), refresh)
    start = f" {_ways(need('START_SERVER', server=server_id))}" if serves else ""
    return CloudError(
        "VOLUME_DISPUTED",
        f"{fact}{cause}",
        remedy=(
            "Once nova-compute runs on the server's host, create the attachment again. "
            f"{_ways(*ways)}{start} Or delete the server. {_ways(delete)}"
        ),
        needs=(delete,) if off else ways,
        blocked=True,
    )


def device_left(volume_id: str, server_id: str) -> CloudError:
    """Nova keeps a device that never had an attachment, and does not drop it."""
    delete = need("DELETE_SERVER", server=server_id)
    return CloudError(
        "DEVICE_LEFT",
        f"Nova keeps a device for volume {volume_id} on server {server_id} that was never "
        "connected (Nova gave up an attach that the compute service still continued), so it "
        "attaches the volume nowhere else",
        remedy=(
            f"Delete the server. {_ways(delete)} Then give its member another one. Or have an "
            "administrator of Nova's database delete the row of block_device_mapping of this "
            "volume and server that has no attachment_id."
        ),
        needs=(delete,),
        blocked=True,
    )


def not_let_go(volume_id: str, claim: VolumeHolder, error: CloudError) -> CloudError:
    """Nova does not know an attachment, nothing is written through it, and Cinder does not delete
    it."""
    delete = need("DELETE_ATTACHMENT", attachment=claim.id)
    return CloudError(
        "VOLUME_DISPUTED",
        f"Volume {volume_id} is held by {claim}, which Nova does not know, and Cinder did not "
        f"delete it: {error.message}",
        remedy=(
            "Cinder asks Nova with the token of the request, which is not possible with a trust's "
            f"token. With a token of your own: {delete.command('')}."
        ),
        needs=(delete,),
        blocked=True,
    )


def called_free(volume: Any) -> CloudError:
    """Cinder shows the volume as available but still has attachments of it."""
    setting = set_to(volume.id, attached=True)
    return CloudError(
        "VOLUME_DISPUTED",
        f"Volume {volume.id} was set to available by force, but it is not: {state_of(volume)}",
        remedy=_ways(setting),
        needs=(setting,),
        blocked=True,
    )


def in_use(volume: Any) -> CloudError:
    """Another server has the volume, according to Cinder and Nova."""
    others = sorted({str(SERVER_ID.of(held)) for held in volume.attachments})
    ways = [need("DETACH_VOLUME", server=other, volume=str(volume.id)) for other in others]
    return CloudError(
        "VOLUME_IN_USE",
        f"Could not attach volume {volume.id}: {state_of(volume)}, and it is not multi-attach",
        remedy=f"Stop what uses it there. {_ways(*ways)}",
        needs=tuple(ways),
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
