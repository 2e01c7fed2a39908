# SPDX-License-Identifier: Apache-2.0
"""Guests: the machines, the applications in them, and the volumes that these write to.

The agent in a guest is in `agents`. Its journal lives on the guest's disk, so it outlives a reboot,
but not the server.

Nothing here prevents harm: violations of invariants are written to the audit as a `violation`
(`two_writers`, `application_on_two_servers`, `address_on_two_servers`, `detached_while_writing`,
`write_to_lost_volume`, `attached_twice`, `rehearsal_on_real_volume`).
"""

import dataclasses
import shutil
import time
from collections.abc import Iterator

from mistral_failover.lab.emulator.core import Emulation
from mistral_failover.lab.emulator.state import Application, Guest, Server, new_id

MOUNT_FAILED = 32
NOT_RUNNING = 3
BREAKAGES: dict[str, tuple[int, str]] = {
    "lacks_package": (3, "refused: there is no PostgreSQL 15 on this machine; set PG_BIN"),
    "misconfigured": (4, 'failed: FATAL: unrecognized configuration parameter "shared_bufers"'),
    "data_full": (4, "failed: could not write lock file: No space left on device"),
    "lacks_mount_point": (MOUNT_FAILED, "mount: /srv/data: mount point does not exist."),
    "denied": (4, "failed: could not open file: Permission denied"),
    "old_agent": (0, ""),
    "not_isolated": (0, ""),
}
"""How a standby may be broken: exit code and stderr of a start; 0: it starts."""


def answers(emulation: Emulation, guest: Guest) -> bool:
    """Whether the guest's agent answers commands."""
    return runs(emulation, guest) and guest.condition == "healthy"


def runs(emulation: Emulation, guest: Guest) -> bool:
    """Whether the guest's processes run, even if the guest is out of reach."""
    host = emulation.state.hosts[guest.host]
    return host.powered and guest.powered and guest.condition not in ("crashed", "frozen")


_LAST_LINES = {
    "healthy": "login: ",
    "hung": "login: ",
    "booting": "cloud-init[411]: starting",
    "frozen": "login: ",
    "crashed": "Kernel panic - not syncing: Fatal exception",
}


def console(emulation: Emulation, server_id: str) -> str:
    """What a server's guest has written to its console, which is not much: it is emulated."""
    guest = emulation.state.guests.get(server_id)
    if guest is None or not guest.powered:
        return ""
    return f"Booting an emulated guest on {guest.host}\n{_LAST_LINES[guest.condition]}\n"


def keeps_devices(emulation: Emulation, server_id: str) -> bool:
    """Whether the guest is on and does not take part in the unplugging of a device."""
    guest = emulation.state.guests.get(server_id)
    return guest is not None and guest.powered and guest.condition != "healthy"


def writers(emulation: Emulation, volume_id: str) -> list[str]:
    """The servers whose guests write to a volume now."""
    guests = emulation.state.guests.values()
    return [g.server_id for g in guests if g.writes_on(volume_id) and runs(emulation, g)]


def boot(emulation: Emulation, server: Server) -> None:
    """Starts a server's guest, and in it what starts by itself."""
    end_agent(emulation, server.id)
    guest = emulation.state.guests.get(server.id)
    if guest is not None:
        end_rehearsal(emulation, guest)
    if guest is None:
        guest = Guest(server.id, server.project_id, server.host)
        emulation.state.guests[server.id] = guest
    guest.host, guest.powered, guest.condition = server.host, True, "healthy"
    guest.boot = new_id()
    emulation.audit.record("guest_started", server=server.id, host=server.host)
    emulation.fire("guest.ports", server_id=server.id)
    for name in guest.interrupted:
        if emulation.state.applications[name].at_boot:
            _start(emulation, guest, name, guest.devices.get(name, []))
    guest.interrupted.clear()
    emulation.fire("agent.back", server_id=server.id)


def end_agent(emulation: Emulation, server_id: str) -> None:
    """Ends the agent that runs in a server's guest, with its programs."""
    agent = emulation.agents.pop(server_id, None)
    if agent is not None:
        agent.end()


def end_rehearsal(emulation: Emulation, guest: Guest) -> None:
    """Ends everything that runs in the isolation of a rehearsal."""
    for name in list(guest.rehearsed):
        del guest.rehearsed[name]
        emulation.audit.record("rehearsed_ended", application=name, server=guest.server_id)
    emulation.changed()


def end_applications(emulation: Emulation, guest: Guest, cause: str) -> None:
    """Ends everything that runs in a guest, without a command."""
    for name in list(guest.applications):
        del guest.applications[name]
        guest.interrupted.append(name)
        emulation.audit.record(
            "application_ended", application=name, server=guest.server_id, cause=cause
        )
    emulation.changed()


def forget(guest: Guest, name: str) -> None:
    """Removes all that a guest has of an application."""
    for known in (guest.applications, guest.devices, guest.rehearsed):
        known.pop(name, None)
    guest.interrupted = [each for each in guest.interrupted if each != name]


def power_off(emulation: Emulation, server_id: str, cause: str) -> None:
    """Switches the guest off that is where Nova has its server."""
    guest = emulation.state.guests.get(server_id)
    if guest is not None:
        lose_power(emulation, guest, cause)


def lose_power(emulation: Emulation, guest: Guest, cause: str) -> None:
    """Switches this guest off."""
    if emulation.state.guests.get(guest.server_id) is guest:
        emulation.fire("agent.silent", server_id=guest.server_id)
        end_agent(emulation, guest.server_id)
    end_applications(emulation, guest, cause)
    end_rehearsal(emulation, guest)
    guest.powered = False


def freeze(emulation: Emulation, server_id: str) -> None:
    """Lets a guest do nothing, with all that runs in it, until `thaw`."""
    guest = emulation.state.guests.get(server_id)
    if guest is not None:
        emulation.fire("agent.silent", server_id=server_id)
        if guest.condition != "frozen":
            guest.before_frozen, guest.condition = guest.condition, "frozen"


def thaw(emulation: Emulation, server_id: str) -> None:
    """Lets a frozen guest go on where it was, also if it had crashed; its applications write
    again."""
    guest = emulation.state.guests.get(server_id)
    if guest is not None and guest.condition == "frozen":
        guest.condition = guest.before_frozen
        check_writers(emulation, guest)
        if guest.condition == "healthy":
            emulation.fire("agent.back", server_id=server_id)


def leave_behind(emulation: Emulation, server: Server, target: str) -> None:
    """Makes a second guest of a server on another host, switched off, with the same disks. The
    first one stays where it was, and runs on if it runs: its host does not know of this."""
    guest = emulation.state.guests.pop(server.id, None)
    if guest is None:
        return
    end_agent(emulation, server.id)
    emulation.state.guests[f"{server.id} left on {guest.host}"] = guest
    emulation.state.guests[server.id] = dataclasses.replace(
        guest,
        host=target,
        powered=False,
        condition="healthy",
        volumes=dict(guest.volumes),
        interfaces={},
        applications={},
        rehearsed={},
    )


def remove_left(emulation: Emulation, host: str) -> None:
    """Removes the guests on a host that were evacuated from there."""
    for key, guest in list(emulation.state.guests.items()):
        if key != guest.server_id and guest.host == host:
            lose_power(emulation, guest, "evacuated")
            del emulation.state.guests[key]
            emulation.audit.record(
                "guest_destroyed", server=guest.server_id, cause="it was evacuated"
            )


def destroy(emulation: Emulation, server_id: str, cause: str) -> None:
    """Removes a guest with its disk and journal."""
    power_off(emulation, server_id, cause)
    if emulation.state.guests.pop(server_id, None) is not None:
        shutil.rmtree(emulation.disk(server_id), ignore_errors=True)
        emulation.audit.record("guest_destroyed", server=server_id, cause=cause)


def plug(emulation: Emulation, server_id: str, volume_id: str, device: str) -> None:
    """Gives a guest a volume; a running application writes to it from now on."""
    guest = emulation.state.guests.get(server_id)
    if guest is not None:
        guest.volumes[volume_id] = device
        check_writers(emulation, guest)


def unplug(emulation: Emulation, server_id: str, volume_id: str) -> None:
    """Takes a volume from a guest."""
    guest = emulation.state.guests.get(server_id)
    if guest is None or volume_id not in guest.volumes:
        return
    if server_id in writers(emulation, volume_id) or (
        runs(emulation, guest) and guest.rehearses_on(volume_id)
    ):
        emulation.audit.record(
            "violation", rule="detached_while_writing", volume=volume_id, server=server_id
        )
    del guest.volumes[volume_id]


def lose_sight(emulation: Emulation, server_id: str, volume_id: str) -> None:
    """Notes that Cinder took a volume away to which a guest out of reach still writes."""
    if server_id in writers(emulation, volume_id):
        emulation.audit.record(
            "violation", rule="write_to_lost_volume", volume=volume_id, server=server_id
        )


def check_writers(emulation: Emulation, guest: Guest) -> None:
    """Notes each volume of this guest that is not shared and has more than one writer."""
    for volume_id in guest.volumes:
        volume = emulation.state.volumes.get(volume_id)
        servers = writers(emulation, volume_id)
        if len(servers) > 1 and guest.server_id in servers and not (volume and volume.multiattach):
            emulation.audit.record(
                "violation", rule="two_writers", volume=volume_id, servers=servers
            )


def allow_list(emulation: Emulation, guest: Guest) -> Iterator[tuple[str, str, Application]]:
    """Each command that the guest obeys: what it does, its name, the application that it is of."""
    stacks = _stacks_of(emulation, guest.server_id)
    for application in emulation.state.applications.values():
        if application.stack_id and application.stack_id not in stacks:
            continue
        for verb in ("start", "stop", "status"):
            if name := getattr(application, verb):
                yield verb, name, application
        for name in application.checks:
            yield "check", name, application


def _stacks_of(emulation: Emulation, server_id: str) -> list[str]:
    server = emulation.state.servers.get(server_id)
    stack = emulation.state.stacks.get(server.owner[0]) if server and server.owner else None
    ids = []
    while stack is not None:
        ids.append(stack.id)
        stack = emulation.state.stacks.get(stack.parent[0]) if stack.parent else None
    return ids


def run_program(
    emulation: Emulation, guest: Guest, verb: str, application: str, words: list[str]
) -> tuple[int, str, str]:
    """Carries out what a command does in a guest: starts, stops or looks at an application. The
    `words` of a start name its devices. Returns exit code, stdout, stderr."""
    return _VERBS[verb](emulation, guest, application, words)


def _start(emulation: Emulation, guest: Guest, name: str, words: list[str]) -> tuple[int, str, str]:
    application = emulation.state.applications[name]
    asked = _devices_of(words)
    if failed := _why_no_start(guest, application, asked):
        return failed
    if name in guest.applications:
        return 0, f"{name} is already running", ""
    elsewhere = [
        other.server_id
        for other in emulation.state.guests.values()
        if other is not guest
        and name in other.applications
        and runs(emulation, other)
        and other.project_id == guest.project_id
        and _group(emulation, other) == _group(emulation, guest)
    ]
    if elsewhere:
        emulation.audit.record(
            "violation",
            rule="application_on_two_servers",
            application=name,
            servers=[*elsewhere, guest.server_id],
        )
    guest.applications[name] = time.time()
    told = guest.tell(name, asked) if application.told_only else {}
    emulation.audit.record("application_started", application=name, server=guest.server_id, **told)
    check_writers(emulation, guest)
    return 0, f"{name} started", ""


def _devices_of(words: list[str]) -> list[str]:
    return [word for word in words if word.startswith("/dev/")]


def _why_no_start(
    guest: Guest, application: Application, asked: list[str]
) -> tuple[int, str, str] | None:
    code, said = BREAKAGES.get(guest.broken, (0, ""))
    if code:
        return code, "", said
    if application.needs_volume:
        missing = [device for device in asked if device not in guest.volumes.values()]
        if missing or not guest.volumes:
            what = ", ".join(missing) or "the data volume"
            return MOUNT_FAILED, "", f"mount: {what}: special device does not exist."
    return None


def _group(emulation: Emulation, guest: Guest) -> str | None:
    """The outermost stack of a guest; two stacks of one project are two installations."""
    stacks = _stacks_of(emulation, guest.server_id)
    return stacks[-1] if stacks else None


def _stop(emulation: Emulation, guest: Guest, name: str, words: list[str]) -> tuple[int, str, str]:
    del words
    if guest.applications.pop(name, None) is None:
        return 0, f"{name} is not running", ""
    emulation.audit.record("application_stopped", application=name, server=guest.server_id)
    return 0, f"{name} stopped", ""


def _status(
    emulation: Emulation, guest: Guest, name: str, words: list[str]
) -> tuple[int, str, str]:
    del emulation, words
    return _look(name, running=name in guest.applications)


def _check(emulation: Emulation, guest: Guest, name: str, words: list[str]) -> tuple[int, str, str]:
    del emulation, words
    return _query(name, running=name in guest.applications)


def _look(name: str, *, running: bool) -> tuple[int, str, str]:
    return (0, f"{name} is running", "") if running else (NOT_RUNNING, f"{name} is stopped", "")


def _query(name: str, *, running: bool) -> tuple[int, str, str]:
    return (0, "max(id) = 4711\n", "") if running else (1, "", f"{name} takes no connections")


_VERBS = {"start": _start, "stop": _stop, "status": _status, "check": _check}


def rehearse_program(
    emulation: Emulation, guest: Guest, verb: str, application: str, words: list[str]
) -> tuple[int, str, str]:
    """Carries out what a command does in the isolation of a rehearsal. Nothing of it is seen
    outside, and of what runs outside nothing is seen there; only the disks are the same."""
    running = application in guest.rehearsed
    if verb == "start":
        return (
            (0, f"{application} is already running", "")
            if running
            else _rehearse(emulation, guest, application, words)
        )
    if verb == "stop":
        if running:
            del guest.rehearsed[application]
            emulation.audit.record(
                "rehearsed_stopped", application=application, server=guest.server_id
            )
        return 0, f"{application} {'stopped' if running else 'is not running'}", ""
    return (_look if verb == "status" else _query)(application, running=running)


def _rehearse(
    emulation: Emulation, guest: Guest, name: str, words: list[str]
) -> tuple[int, str, str]:
    asked = _devices_of(words)
    if failed := _why_no_start(guest, emulation.state.applications[name], asked):
        return failed
    volumes = [v for v, device in guest.volumes.items() if not asked or device in asked]
    guest.rehearsed[name] = volumes
    emulation.audit.record(
        "rehearsed_started", application=name, server=guest.server_id, volumes=volumes
    )
    for volume in volumes:
        if servers := writers(emulation, volume):
            emulation.audit.record(
                "violation", rule="rehearsal_on_real_volume", volume=volume, servers=servers
            )
    return 0, f"{name} started", ""
