# SPDX-License-Identifier: Apache-2.0
"""What can go wrong with a server or a host, and how it comes back.

server booting: the guest boots for the first time, so its agent was never heard. server crash: the
guest is dead, Nova still says ACTIVE, its host works. server hang: the guest
answers nothing, its applications still write; thaw: it answers again, and they still run. server
app: the applications died, the guest still runs. server disk_full, disk_read_only: nothing can be
written to the guest's own disk, on which its agent has its journal; disk_writable: it can again.
server lacks_package, misconfigured, data_full, lacks_mount_point, denied: the guest serves on, and
can start no application, which only shows when it has to; old_agent: its agent does not know
rehearsals; not_isolated: it cannot isolate one; repaired: nothing of these.
host compute_down: nova-compute is dead, the
guests still run. host power_off: both are dead. revive: a server's guest boots again, without
applications; a host's compute service returns, handles the messages that waited for it, removes
guests whose server was deleted or evacuated in the meantime, and after a power loss boots the
guests that are ACTIVE in Nova. A guest that is dead, answers nothing or still boots keeps its
devices: Nova accepts a detach, waits for the guest, and gives up.
"""

import time
from collections.abc import Callable, Iterable
from typing import Any

from mistral_failover.lab.emulator import guests, ports
from mistral_failover.lab.emulator.core import Emulation
from mistral_failover.lab.emulator.state import ApiFault, Guest, Host, new_id
from mistral_failover.lab.emulator.web import plain_error

API_FAULTS = (
    "error",
    "gateway",
    "lost",
    "mute",
    "drop",
    "hold",
    "queue",
    "unsent",
    "fail",
    "stuck",
    "torn",
    "cancel",
    "hang",
    "unplaced",
)


def booting(emulation: Emulation, guest: Guest) -> None:
    """Lets a guest boot without end: its agent was not heard yet."""
    guests.end_agent(emulation, guest.server_id)
    guest.heartbeat = None
    guest.condition = "booting"


def _crash(emulation: Emulation, guest: Guest) -> None:
    emulation.fire("agent.silent", server_id=guest.server_id)
    guests.end_agent(emulation, guest.server_id)
    guest.condition = "crashed"
    guests.end_applications(emulation, guest, "crash")


def _hang(emulation: Emulation, guest: Guest) -> None:
    emulation.fire("agent.silent", server_id=guest.server_id)
    guest.condition = "hung"


def _thaw(emulation: Emulation, guest: Guest) -> None:
    if guest.condition == "hung":
        guest.condition = "healthy"
        emulation.fire("agent.back", server_id=guest.server_id)


def _on_disk(disk: str) -> Callable[[Emulation, Guest], None]:
    def strike(emulation: Emulation, guest: Guest) -> None:
        guest.disk = disk
        emulation.fire("agent.disk", server_id=guest.server_id)

    return strike


def _broken(how: str) -> Callable[[Emulation, Guest], None]:
    def strike(emulation: Emulation, guest: Guest) -> None:
        guest.broken = how
        emulation.changed()

    return strike


def _application(emulation: Emulation, guest: Guest) -> None:
    guests.end_applications(emulation, guest, "application fault")


def _revive_server(emulation: Emulation, guest: Guest) -> None:
    server = emulation.state.servers.get(guest.server_id)
    guests.end_applications(emulation, guest, "reboot")
    if server is not None and server.status == "ACTIVE":
        guests.boot(emulation, server)


def _compute_down(emulation: Emulation, host: Host) -> None:
    del emulation
    host.stop_reports()


def _power_off(emulation: Emulation, host: Host) -> None:
    host.stop_reports()
    for guest in emulation.state.guests.values():
        if guest.host == host.name:
            guests.lose_power(emulation, guest, "power loss")
    host.powered = False  # last: what the agents said until then was heard


def _revive_host(emulation: Emulation, host: Host) -> None:
    host.broken_for = []
    if host.powered and host.compute_up:
        return
    power_lost = not host.powered
    host.compute_up = host.powered = True
    guests.remove_left(emulation, host.name)
    for action in emulation.state.server_actions.values():
        if (action.action, action.host) == ("evacuate", host.name) and action.finished_at:
            action.cleaned = True
    for guest in list(emulation.state.guests.values()):
        if guest.host != host.name:
            continue
        server = emulation.state.servers.get(guest.server_id)
        if server is None:
            guests.destroy(emulation, guest.server_id, "its server was deleted")
        elif power_lost and server.status == "ACTIVE":
            guests.boot(emulation, server)
        else:
            ports.refresh_guest(emulation, guest)
    emulation.deliver_deferred(host.name)


SERVER_FAULTS: dict[str, Callable[[Emulation, Guest], None]] = {
    "booting": booting,
    "crash": _crash,
    "hang": _hang,
    "thaw": _thaw,
    "app": _application,
    "disk_full": _on_disk("full"),
    "disk_read_only": _on_disk("read-only"),
    "disk_writable": _on_disk("writable"),
    "revive": _revive_server,
    **{how: _broken(how) for how in guests.BREAKAGES},
    "repaired": _broken(""),
}
HOST_FAULTS: dict[str, Callable[[Emulation, Host], None]] = {
    "compute_down": _compute_down,
    "power_off": _power_off,
    "revive": _revive_host,
}

_RETURNS = ("revive", "thaw", "disk_writable", "repaired", *guests.BREAKAGES)
"""Those that harm nothing that runs."""


def strike_server(emulation: Emulation, server_id: str, fault: str) -> None:
    """Applies a fault to a server's guest."""
    guest = emulation.state.guests.get(server_id)
    if guest is None:
        raise plain_error("NOT_FOUND", 404, f"No guest of {server_id}.", "Check the server's id.")
    if fault not in SERVER_FAULTS:
        raise _unknown(fault, "server", SERVER_FAULTS)
    SERVER_FAULTS[fault](emulation, guest)
    _note(emulation, "server", server_id, fault)


def strike_host(emulation: Emulation, name: str, fault: str, member: str = "") -> None:
    """Applies a fault to a host, for the sake of a member (GROUP/MEMBER): the repair for that
    member finds the host by it, wherever the member is by then."""
    host = emulation.state.hosts.get(name)
    if host is None:
        known = ", ".join(emulation.state.hosts)
        raise plain_error("NOT_FOUND", 404, f"There is no host {name}.", f"Hosts: {known}.")
    if fault not in HOST_FAULTS:
        raise _unknown(fault, "host", HOST_FAULTS)
    HOST_FAULTS[fault](emulation, host)
    if member and fault not in _RETURNS:
        host.broken_for = sorted({*host.broken_for, member})
    _note(emulation, "host", name, fault)


def _unknown(fault: str, target: str, known: Iterable[str]) -> Exception:
    return plain_error(
        "BAD_REQUEST",
        400,
        f"{fault!r} is not a fault of target {target}.",
        f"Use one of {', '.join(known)}.",
    )


def inject(emulation: Emulation, body: dict[str, object]) -> None:
    """Lets the next uses of a named operation go wrong.

    error: refused with `status`. gateway: the request does not reach the service, and something
    before it answers with `status` and the body `says`. lost: it takes effect, the answer is
    `status`. mute: it takes effect, and is answered `seconds` later. drop: it takes effect, and the
    connection breaks in the middle of the answer. hold: it waits unseen for `seconds`, and takes
    effect then.
    queue, of an attach: Nova's API takes it, and it waits for `seconds` in the queue of the compute
    service; Nova gives up after `rpc_timeout`, and what the compute service then reserves belongs
    to no attachment. unsent, of a detach: Nova's API marks the volume as detaching, and the broker
    of its messages is away, so the compute service hears nothing; the answer is `status`. It is 202
    if the broker took the message and lost it.
    unplaced, of the boot of a server: no host has room for it.
    fail: accepted, and fails when it should have finished. stuck: accepted, and never finishes.
    torn, of a detach: the compute service ends between Cinder's record and Nova's. cancel, of an
    update of a stack: it fails when it should have finished, as one does that superseded another
    one in a nested stack. ``says``: the text of an error, or the reason of a stack that fails.
    """
    try:
        fault = ApiFault(
            operation=str(body["operation"]),
            fault=str(body["fault"]),
            status=int(str(body.get("status", 503))),
            seconds=float(str(body.get("seconds", 0))),
            times=int(str(body.get("times", 1))),
            says=str(body.get("says", "")),
        )
    except (KeyError, ValueError):
        raise plain_error(
            "BAD_REQUEST",
            400,
            "An API fault has operation, fault, status, seconds, times, says.",
            "Correct the request.",
        ) from None
    if fault.fault not in API_FAULTS:
        raise _unknown(fault.fault, "api", API_FAULTS)
    emulation.state.api_faults.append(fault)
    _note(emulation, "api", fault.operation, fault.fault)


def _note(emulation: Emulation, target: str, name: str, fault: str) -> None:
    """Audits a fault; one that harms a server or host begins a new incident of it."""
    emulation.audit.record("fault", target=target, id=name, fault=fault)
    if target == "server" and fault not in _RETURNS:
        begin_incident(emulation, name)
    elif target == "host" and fault not in _RETURNS:
        for server in emulation.state.servers.values():
            if server.host == name:
                begin_incident(emulation, server.id)
    emulation.changed()


def begin_incident(emulation: Emulation, server_id: str) -> dict[str, Any]:
    """A new fault instance of a server: alarms about it carry its id and time."""
    incident: dict[str, Any] = {"message_id": new_id(), "at": time.time()}
    emulation.state.incidents[server_id] = incident
    return incident
