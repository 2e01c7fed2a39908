# SPDX-License-Identifier: Apache-2.0
"""A server's life as Nova leads it: boot, stop, start, rebuild, evacuate, delete. The rest is in
`server_tasks`."""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from mistral_failover.lab.emulator import attachments, faults, guests, ports
from mistral_failover.lab.emulator.attachments import end_operation
from mistral_failover.lab.emulator.core import Emulation, transition
from mistral_failover.lab.emulator.state import DEFAULT_ZONE, Network, Port, Server, new_id
from mistral_failover.lab.emulator.web import take_fault

RUNNING, SHUTDOWN, NOSTATE = 1, 4, 0


@dataclass(frozen=True)
class Disk:
    """A volume that a server is made with.

    :ivar root: the server boots from it. :ivar delete: it is deleted with the server.
    """

    volume_id: str
    root: bool = False
    delete: bool = False


def create(
    emulation: Emulation,
    *,
    project_id: str,
    name: str,
    host: str | None = None,
    owner: list[str] | None = None,
    disks: Iterable[Disk] = (),
    networks: Iterable[Network | Port] = (),
    server_group: str | None = None,
    **details: Any,
) -> Server:
    """Boots a server on `host`, or on the live host with the fewest servers.

    :param owner: [stack id, resource name] when a stack asked for it.
    :param disks: the volumes that it is made with.
    :param networks: it gets a port on each network, and the ports that are given.
    :param server_group: it shares a host with others of the group only if there is no other, as by
        the policy soft-anti-affinity.
    """
    now = time.time()
    place = host or free_host(emulation, server_group)
    server = Server(
        new_id(),
        project_id,
        name,
        place or "",
        created=now,
        updated=now,
        owner=owner,
        server_group=server_group,
        **details,
    )
    emulation.state.servers[server.id] = server
    operation = emulation.begin("boot", server=server.id)
    for disk in disks:
        volume = emulation.state.volumes[disk.volume_id]
        device = (
            attachments.ROOT_DEVICE if disk.root else attachments.next_device(emulation, server)
        )
        attachments.attach_at_boot(emulation, server, volume, device, delete=disk.delete)
    for each in networks:
        ports.give(emulation, server, each)
    emulation.later("boot", "server.booted", server_id=server.id, operation=operation)
    return server


def host_of_zone(emulation: Emulation, zone: str) -> str | None:
    """The host that an availability zone means: `zone:host` names it, which Nova allows to
    administrators only, and each host is a zone of its own name. None: any host will do."""
    name = zone.rpartition(":")[2]
    return name if name in emulation.state.hosts else None


def zone_shown(emulation: Emulation, zone: str) -> str:
    """The availability zone that a server for which `zone` was asked is in: the one that is named,
    if there is such a zone, otherwise Nova's default one."""
    name = zone.partition(":")[0]
    return name if name in emulation.state.hosts else DEFAULT_ZONE


def free_host(
    emulation: Emulation, server_group: str | None, besides: str | None = None
) -> str | None:
    """The live host with the fewest servers of the group, and of all; None if there is none."""
    hosts = emulation.state.hosts.values()
    load = {host.name: [0, 0] for host in hosts if host.up and host.name != besides}
    for server in emulation.state.servers.values():
        if server.host in load:
            load[server.host][0] += server_group is not None and server.server_group == server_group
            load[server.host][1] += 1
    return min(load, key=lambda name: (load[name], name), default=None)


@transition("server.booted")
def _booted(emulation: Emulation, server_id: str, operation: str) -> None:
    server = emulation.state.servers.get(server_id)
    if server is None:
        emulation.finish(operation, "gone")
        return
    fault = take_fault(emulation, "boot", ("fail", "hang", "unplaced"))
    if fault is not None and fault.fault == "unplaced":
        _lose_place(emulation, server)
    failed = fault is not None and fault.fault == "fail"
    if not server.host or failed:
        reason = "Injected failure of the boot." if failed else "No valid host was found."
        server.fault = reason
        set_state(server, "ERROR", "error", NOSTATE)
        emulation.finish(operation, "failed")
    elif not emulation.state.host_up(server.host):
        emulation.defer(server.host, "server.booted", server_id=server_id, operation=operation)
        return
    else:
        set_state(server, "ACTIVE", "active", RUNNING)
        server.launched_at = time.time()
        ports.bind(emulation, server)
        guests.boot(emulation, server)
        if fault is not None:
            faults.booting(emulation, emulation.state.guests[server_id])
        for attachment in emulation.state.attachments_of(server_id=server_id):
            attachments.settle(emulation, attachment)
        emulation.finish(operation)
    _tell_owner(emulation, server)


def _lose_place(emulation: Emulation, server: Server) -> None:
    """No compute service ever hears of the server; its disks are reserved for it."""
    server.host = ""
    for attachment in emulation.state.attachments_of(server_id=server.id):
        attachment.host, attachment.device, attachment.connected = "", "", False
        volume = emulation.state.volumes[attachment.volume_id]
        attachments.set_volume_status(emulation, volume, "reserved")


def stop(emulation: Emulation, server: Server, request_id: str) -> None:
    """Lets the compute service switch the guest off; with the host down it stays powering-off."""
    _task(emulation, server, "powering-off", "stop", request_id)


def start(emulation: Emulation, server: Server, request_id: str) -> None:
    """Lets the compute service switch the guest on."""
    _task(emulation, server, "powering-on", "start", request_id)


def _task(
    emulation: Emulation, server: Server, task_state: str, verb: str, request_id: str
) -> None:
    server.task_state, server.updated = task_state, time.time()
    operation = emulation.begin(verb, server=server.id)
    accepted = emulation.state.accept(server, request_id, verb, f"compute_{verb}_instance")
    accepted.operation = operation
    emulation.fire(f"server.{verb}", server_id=server.id, operation=operation)


def step_of(
    emulation: Emulation, server_id: str, operation: str, verb: str, **more: Any
) -> Server | None:
    """The server if the step can happen now; it waits for its host, or ends with its server."""
    server = emulation.state.servers.get(server_id)
    if server is None:
        end_operation(emulation, operation, "gone")
        return None
    if not emulation.state.host_up(server.host):
        ids = {"server_id": server_id, "operation": operation}
        emulation.defer(server.host, f"server.{verb}", **ids, **more)
        return None
    return server


@transition("server.stop")
def _stop(emulation: Emulation, server_id: str, operation: str) -> None:
    if step_of(emulation, server_id, operation, "stop") is not None:
        emulation.later("stop", "server.stopped", server_id=server_id, operation=operation)


@transition("server.stopped")
def _stopped(emulation: Emulation, server_id: str, operation: str) -> None:
    server = step_of(emulation, server_id, operation, "stop")
    if server is None:
        return
    fault = take_fault(emulation, "stop", ("fail", "stuck"))
    if fault is None:
        guests.power_off(emulation, server_id, "stopped by Nova")
        set_state(server, "SHUTOFF", "stopped", SHUTDOWN)
        emulation.audit.record("server_stopped", server=server_id)
        end_operation(emulation, operation)
    elif fault.fault == "fail":
        server.task_state = None
        end_operation(emulation, operation, "failed")


@transition("server.start")
def _start(emulation: Emulation, server_id: str, operation: str) -> None:
    if step_of(emulation, server_id, operation, "start") is not None:
        emulation.later("start", "server.started", server_id=server_id, operation=operation)


@transition("server.started")
def _started(emulation: Emulation, server_id: str, operation: str) -> None:
    server = step_of(emulation, server_id, operation, "start")
    if server is None:
        return
    fault = take_fault(emulation, "start", ("fail", "stuck", "hang"))
    if fault is None or fault.fault == "hang":
        set_state(server, "ACTIVE", "active", RUNNING)
        guests.boot(emulation, server)
        if fault is not None:
            faults.booting(emulation, emulation.state.guests[server_id])
        end_operation(emulation, operation)
    elif fault.fault == "fail":
        server.task_state = None
        end_operation(emulation, operation, "failed")


def evacuate(
    emulation: Emulation, server: Server, request_id: str, host: str | None, *, stays_off: bool
) -> None:
    """Makes the server again on another host: `host`, or the live one with the fewest servers. Its
    old host takes no part, so a guest that runs there runs on.

    :param stays_off: it arrives switched off, as since microversion 2.95; else as it was.
    """
    server.task_state, server.updated = "rebuilding", time.time()
    operation = emulation.begin("evacuate", server=server.id)
    accepted = emulation.state.accept(server, request_id, "evacuate", "compute_rebuild_instance")
    accepted.operation = operation
    emulation.later(
        "boot",
        "server.evacuated",
        server_id=server.id,
        operation=operation,
        target=host or free_host(emulation, server.server_group),
        stays_off=stays_off or server.vm_state == "stopped",
    )


@transition("server.evacuated")
def _evacuated(
    emulation: Emulation, server_id: str, operation: str, target: str | None, *, stays_off: bool
) -> None:
    server = emulation.state.servers.get(server_id)
    if server is None:
        end_operation(emulation, operation, "gone")
    elif target is None:
        server.fault = "No valid host was found."
        set_state(server, "ERROR", "error", server.power_state)
        end_operation(emulation, operation, "failed")
    elif take_fault(emulation, "evacuate", ("fail",)) is not None:
        server.task_state = None  # as when its server group forbids the host: it stays as it was
        end_operation(emulation, operation, "failed")
    else:
        if stays_off:
            # It runs for a moment, and is stopped. Until it is, Nova has the host of before.
            set_state(server, "ACTIVE", "active", RUNNING)
            where = {"server_id": server_id, "target": target, "operation": operation}
            emulation.later("stop", "server.made_elsewhere", **where)
        else:
            _moves(emulation, server, target)
            set_state(server, "ACTIVE", "active", RUNNING)
            ports.bind(emulation, server)
            guests.boot(emulation, server)
            end_operation(emulation, operation)


@transition("server.made_elsewhere")
def _made_elsewhere(emulation: Emulation, server_id: str, target: str, operation: str) -> None:
    server = emulation.state.servers.get(server_id)
    if server is not None:
        set_state(server, "SHUTOFF", "stopped", SHUTDOWN)
    where = {"server_id": server_id, "target": target, "operation": operation}
    emulation.later("stop", "server.arrived_off", **where)


@transition("server.arrived_off")
def _arrived_off(emulation: Emulation, server_id: str, target: str, operation: str) -> None:
    server = emulation.state.servers.get(server_id)
    if server is not None:
        _moves(emulation, server, target)
    end_operation(emulation, operation)


def _moves(emulation: Emulation, server: Server, target: str) -> None:
    """Puts an evacuated server on its new host; the guest on the old one stays there."""
    guests.leave_behind(emulation, server, target)
    server.host = target
    for attachment in emulation.state.attachments_of(server_id=server.id):
        attachment.host = target


def rebuild(emulation: Emulation, server: Server, request_id: str) -> None:
    """Lets the compute service make the guest again from an image; it keeps its volumes."""
    server.status = "REBUILD"
    _task(emulation, server, "rebuilding", "rebuild", request_id)


@transition("server.rebuild")
def _rebuild(emulation: Emulation, server_id: str, operation: str) -> None:
    if step_of(emulation, server_id, operation, "rebuild") is not None:
        guests.destroy(emulation, server_id, "rebuilt by Nova")
        emulation.later("boot", "server.rebuilt", server_id=server_id, operation=operation)


@transition("server.rebuilt")
def _rebuilt(emulation: Emulation, server_id: str, operation: str) -> None:
    server = step_of(emulation, server_id, operation, "rebuild")
    if server is None:
        return
    was_off = server.vm_state == "stopped"
    set_state(server, "ACTIVE", "active", RUNNING)
    guests.boot(emulation, server)
    for attachment in emulation.state.attachments_of(server_id=server_id):
        guests.plug(emulation, server_id, attachment.volume_id, attachment.device)
    if was_off:
        guests.power_off(emulation, server_id, "off before it was rebuilt")
        set_state(server, "SHUTOFF", "stopped", SHUTDOWN)
    end_operation(emulation, operation)


def reset(emulation: Emulation, server: Server, state: str) -> None:
    """Sets the server to active or error, without a task, whatever its state."""
    active = state == "active"
    set_state(server, "ACTIVE" if active else "ERROR", state, server.power_state)
    emulation.changed()


def delete(emulation: Emulation, server: Server, request_id: str) -> None:
    """Deletes a server. If its host is down, this is Nova's local delete: server and attachments
    are gone at once, but a guest that still runs there continues to run."""
    by_service = emulation.state.host_up(server.host)
    if server.task_state == "deleting" and by_service:
        return
    operation = emulation.begin("delete", server=server.id)
    server.task_state, server.updated = "deleting", time.time()
    event = "compute_terminate_instance" if by_service else None
    emulation.state.accept(server, request_id, "delete", event)
    if by_service:
        emulation.later("delete_server", "server.deleted", server_id=server.id, operation=operation)
        emulation.changed()
    else:
        _remove(emulation, server, operation, local=True)


@transition("server.deleted")
def _deleted(emulation: Emulation, server_id: str, operation: str) -> None:
    server = emulation.state.servers.get(server_id)
    if server is None:
        # Deleted in the database in the meantime: the message that waited still ends the guest.
        guests.destroy(emulation, server_id, "deleted by Nova")
        _record(emulation, server_id)
        emulation.finish(operation, "gone")
    elif not emulation.state.host_up(server.host):
        emulation.defer(server.host, "server.deleted", server_id=server_id, operation=operation)
    elif take_fault(emulation, "delete_server", ("stuck",)) is None:
        _remove(emulation, server, operation, local=False)


def _remove(emulation: Emulation, server: Server, operation: str, *, local: bool) -> None:
    if not local:
        guests.power_off(emulation, server.id, "deleted by Nova")
    for attachment in emulation.state.attachments_of(server_id=server.id):
        attachments.release(emulation, attachment, unplug=not local)
        if attachment.delete_on_termination:
            emulation.state.volumes.pop(attachment.volume_id, None)
    if not local:
        guests.destroy(emulation, server.id, "deleted by Nova")
        _record(emulation, server.id)
    ports.of_deleted_server(emulation, server.id)
    del emulation.state.servers[server.id]
    emulation.audit.record("server_deleted", server=server.id, local=local)
    emulation.finish(operation)
    _tell_owner(emulation, server)


def _record(emulation: Emulation, server_id: str) -> None:
    """The compute service's own record that it deleted a server."""
    for action in emulation.state.server_actions.values():
        mine = (action.server_id, action.action) == (server_id, "delete")
        if mine and action.event and action.finished_at is None:
            action.finish()
            return


def set_state(server: Server, status: str, vm_state: str, power_state: int) -> None:
    """Makes the server something, and ends its task."""
    server.status, server.vm_state, server.power_state = status, vm_state, power_state
    server.task_state, server.updated = None, time.time()


def _tell_owner(emulation: Emulation, server: Server) -> None:
    if server.owner is not None:
        stack_id, name = server.owner
        emulation.fire("stack.part_settled", stack_id=stack_id, name=name)
