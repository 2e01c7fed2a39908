# SPDX-License-Identifier: Apache-2.0
"""Volumes on servers: what Nova's compute service and Cinder do together.

The compute service handles the attachments of one server one after another (profile
`measured`). Its messages wait in the queue of a host that is down.
"""

import string
import time

from mistral_failover.lab.emulator import guests
from mistral_failover.lab.emulator.core import Emulation, transition
from mistral_failover.lab.emulator.state import Attachment, Server, ServerAction, Volume, new_id
from mistral_failover.lab.emulator.web import take_fault

ROOT_DEVICE = "/dev/vda"


def next_device(emulation: Emulation, server: Server) -> str:
    """The first free device name after the root disk."""
    taken = {a.device for a in emulation.state.attachments_of(server_id=server.id)}
    letters = string.ascii_lowercase
    names = [*letters[1:], *(a + b for a in letters for b in letters)]
    return next(f"/dev/vd{name}" for name in names if f"/dev/vd{name}" not in taken)


def attach(
    emulation: Emulation,
    server: Server,
    volume: Volume,
    device: str | None,
    *,
    delete_on_termination: bool = False,
) -> Attachment:
    """Reserves the volume and lets the compute service attach it."""
    attachment = Attachment(
        new_id(),
        volume.id,
        server.id,
        device or next_device(emulation, server),
        host=server.host,
        delete_on_termination=delete_on_termination,
    )
    emulation.state.attachments[attachment.id] = attachment
    if volume.status != "in-use":
        set_volume_status(emulation, volume, "reserved")
    operation = emulation.begin("attach", server=server.id, volume=volume.id)
    emulation.audit.record("attach_begin", volume=volume.id, server=server.id)
    _queue(emulation, server, "attach", attachment, operation)
    return attachment


@transition("attach.left")
def reserve_without_server(
    emulation: Emulation, server_id: str, volume_id: str, device: str | None
) -> None:
    """The compute service reserves a device, and Nova has given the request up."""
    server = emulation.state.servers.get(server_id)
    if server is None or emulation.state.attachments_of(server_id=server_id, volume_id=volume_id):
        return
    attachment = Attachment(
        new_id(),
        volume_id,
        server_id,
        device or next_device(emulation, server),
        host=server.host,
        in_cinder=False,
        never_made=True,
    )
    emulation.state.attachments[attachment.id] = attachment
    emulation.audit.record("attach_left", volume=volume_id, server=server_id)
    emulation.changed()


def attach_at_boot(
    emulation: Emulation, server: Server, volume: Volume, device: str, *, delete: bool
) -> None:
    """Puts a volume on a server that is being built."""
    attachment = Attachment(
        new_id(), volume.id, server.id, device, host=server.host, delete_on_termination=delete
    )
    emulation.state.attachments[attachment.id] = attachment
    set_volume_status(emulation, volume, "attaching")
    emulation.audit.record("attach_begin", volume=volume.id, server=server.id, boot=True)


def detach(
    emulation: Emulation, server: Server, attachment: Attachment, action: ServerAction
) -> None:
    """Lets the compute service detach the volume, by a request of Nova's API."""
    begin_detaching(emulation, attachment)
    volume = emulation.state.volumes[attachment.volume_id]
    operation = emulation.begin("detach", server=server.id, volume=volume.id)
    emulation.audit.record("detach_begin", volume=volume.id, server=server.id)
    action.operation = operation
    _queue(emulation, server, "detach", attachment, operation)


def begin_detaching(emulation: Emulation, attachment: Attachment) -> None:
    """What Nova's API does in Cinder before it tells the compute service."""
    attachment.status = "detaching"
    volume = emulation.state.volumes[attachment.volume_id]
    set_volume_status(emulation, volume, "detaching")


def roll_detaching(emulation: Emulation, volume: Volume) -> None:
    """Takes `begin_detaching` back; a compute service that detaches the volume goes on."""
    if volume.status != "detaching":
        return
    for attachment in emulation.state.attachments_of(volume_id=volume.id):
        if attachment.status == "detaching":
            attachment.status = "attached"
    refresh_status(emulation, volume.id)


def _queue(
    emulation: Emulation, server: Server, verb: str, attachment: Attachment, operation: str
) -> None:
    now = time.time()
    start = max(now, server.busy_until) if emulation.latency.serial else now
    server.busy_until = start + emulation.latency.of(verb)
    args = {"attachment_id": attachment.id, "operation": operation}
    if start > now:
        emulation.at(start, f"{verb}.run", **args)
    else:
        emulation.fire(f"{verb}.run", **args)


def end_operation(emulation: Emulation, operation: str, outcome: str = "done") -> None:
    """Ends what the compute service did, and its own record of that."""
    for action in emulation.state.server_actions.values():
        if action.operation == operation:
            action.finish("Success" if outcome == "done" else "Error")
    emulation.finish(operation, outcome)


def _reachable(emulation: Emulation, attachment_id: str, operation: str, name: str) -> bool:
    """Whether this step can happen now; if not, it waits for its host or ends with its
    attachment."""
    attachment = emulation.state.attachments.get(attachment_id)
    if attachment is None:
        end_operation(emulation, operation, "gone")
        return False
    if not emulation.state.host_up(attachment.host):
        emulation.defer(attachment.host, name, attachment_id=attachment_id, operation=operation)
        return False
    return True


@transition("attach.run")
def _attach_run(emulation: Emulation, attachment_id: str, operation: str) -> None:
    if not _reachable(emulation, attachment_id, operation, "attach.run"):
        return
    attachment = emulation.state.attachments[attachment_id]
    attachment.status = "attaching"
    set_volume_status(emulation, emulation.state.volumes[attachment.volume_id], "attaching")
    emulation.later("attach", "attach.done", attachment_id=attachment_id, operation=operation)


@transition("attach.done")
def _attach_done(emulation: Emulation, attachment_id: str, operation: str) -> None:
    if not _reachable(emulation, attachment_id, operation, "attach.run"):
        return
    attachment = emulation.state.attachments[attachment_id]
    fault = take_fault(emulation, "attach", ("fail", "stuck"))
    locked = emulation.state.volumes[attachment.volume_id].encrypted
    locked = locked and not _reads_keys(emulation, attachment.server_id)
    if fault is None and not locked:
        settle(emulation, attachment)
        emulation.finish(operation)
    elif locked or (fault is not None and fault.fault == "fail"):
        del emulation.state.attachments[attachment_id]
        refresh_status(emulation, attachment.volume_id)
        emulation.audit.record(
            "attach_failed", volume=attachment.volume_id, server=attachment.server_id
        )
        emulation.finish(operation, "failed")


def _reads_keys(emulation: Emulation, server_id: str) -> bool:
    readable = emulation.state.config["keys_readable"]
    if isinstance(readable, list):
        return emulation.state.servers[server_id].host in readable
    return bool(readable)


def settle(emulation: Emulation, attachment: Attachment) -> None:
    """Makes an attachment real: Cinder shows it, the guest can write."""
    attachment.status, attachment.attached_at = "attached", time.time()
    refresh_status(emulation, attachment.volume_id)
    volume, server = attachment.volume_id, attachment.server_id
    emulation.audit.record("attached", volume=volume, server=server, device=attachment.device)
    holders = [
        a.server_id
        for a in emulation.state.attachments_of(volume_id=volume)
        if a.status in ("attached", "detaching")
    ]
    if len(holders) > 1 and not emulation.state.volumes[volume].multiattach:
        emulation.audit.record("violation", rule="attached_twice", volume=volume, servers=holders)
    guests.plug(emulation, server, volume, attachment.device)


@transition("detach.run")
def _detach_run(emulation: Emulation, attachment_id: str, operation: str) -> None:
    if _reachable(emulation, attachment_id, operation, "detach.run"):
        emulation.later("detach", "detach.done", attachment_id=attachment_id, operation=operation)


@transition("detach.done")
def _detach_done(emulation: Emulation, attachment_id: str, operation: str) -> None:
    if not _reachable(emulation, attachment_id, operation, "detach.run"):
        return
    attachment = emulation.state.attachments[attachment_id]
    fault = take_fault(emulation, "detach", ("fail", "stuck", "torn"))
    kept = guests.keeps_devices(emulation, attachment.server_id)
    if kept or (fault is not None and fault.fault == "fail"):
        attachment.status = "attached"
        refresh_status(emulation, attachment.volume_id)
        emulation.audit.record(
            "detach_failed", volume=attachment.volume_id, server=attachment.server_id
        )
        end_operation(emulation, operation, "failed")
    elif fault is None:
        release(emulation, attachment)
        end_operation(emulation, operation)
    elif fault.fault == "torn":
        guests.unplug(emulation, attachment.server_id, attachment.volume_id)
        attachment.in_cinder = False
        emulation.state.hosts[attachment.host].stop_reports()
        refresh_status(emulation, attachment.volume_id)


def refresh(emulation: Emulation, server: Server, attachment: Attachment) -> None:
    """nova-manage volume_attachment refresh: makes Cinder's record again."""
    attachment.in_cinder, attachment.status = True, "attached"
    refresh_status(emulation, attachment.volume_id)
    guests.plug(emulation, server.id, attachment.volume_id, attachment.device)


def release(emulation: Emulation, attachment: Attachment, *, unplug: bool = True) -> None:
    """Ends an attachment; without `unplug` the guest, which is out of reach, keeps the device."""
    volume, server = attachment.volume_id, attachment.server_id
    if unplug:
        guests.unplug(emulation, server, volume)
    else:
        guests.lose_sight(emulation, server, volume)
    emulation.state.attachments.pop(attachment.id, None)
    if attachment.never_made:
        # Without an attachment of its own Nova names Cinder the one that the volume shows.
        for other in emulation.state.attachments_of(volume_id=volume):
            if other.server_id == server:
                emulation.state.attachments.pop(other.id)
    emulation.audit.record("detached", volume=volume, server=server)
    refresh_status(emulation, volume)


def refresh_status(emulation: Emulation, volume_id: str) -> None:
    """Gives a volume the status that its attachments imply."""
    volume = emulation.state.volumes.get(volume_id)
    if volume is None:
        return
    held = {a.status for a in emulation.state.attachments_of(volume_id=volume_id)}
    order = (("attached", "in-use"), ("detaching", "detaching"), ("attaching", "attaching"))
    status = next((s for held_as, s in order if held_as in held), None)
    set_volume_status(emulation, volume, status or ("reserved" if held else "available"))


def set_volume_status(emulation: Emulation, volume: Volume, status: str) -> None:
    """Changes a volume's status."""
    volume.status, volume.updated = status, time.time()
    emulation.changed()
