# SPDX-License-Identifier: Apache-2.0
"""Guests: the applications in them, the volumes they write to, and the commands they obey.

A guest obeys named commands only. It journals each command's id: the same id again returns the
recorded result without effect, and an epoch lower than the highest seen is refused. The journal
lives on the guest's disk, so it outlives a reboot, but not the server.

Nothing here prevents harm: violations of invariants are written to the audit as a `violation`
(`two_writers`, `application_on_two_servers`, `address_on_two_servers`, `detached_while_writing`,
`write_to_lost_volume`, `attached_twice`).
"""

import dataclasses
import time
from collections.abc import Iterator
from typing import Any

from mistral_failover.agent.wire import UNKNOWN_COMMAND
from mistral_failover.lab.emulator.core import Emulation, transition
from mistral_failover.lab.emulator.state import Application, Guest, Server
from mistral_failover.lab.emulator.web import Call, plain_error, take_fault

MOUNT_FAILED = 32
NOT_RUNNING = 3
_NEXT = 0.005  # seconds between the end of a command and the beginning of the next one


def answers(emulation: Emulation, guest: Guest) -> bool:
    """Whether the guest's agent answers commands."""
    return runs(emulation, guest) and guest.condition == "healthy"


def runs(emulation: Emulation, guest: Guest) -> bool:
    """Whether the guest's processes run, even if the guest is out of reach."""
    host = emulation.state.hosts[guest.host]
    return host.powered and guest.powered and guest.condition != "crashed"


def keeps_devices(emulation: Emulation, server_id: str) -> bool:
    """Whether the guest is on and does not take part in the unplugging of a device."""
    guest = emulation.state.guests.get(server_id)
    return guest is not None and guest.powered and guest.condition != "healthy"


def writers(emulation: Emulation, volume_id: str) -> list[str]:
    """The servers whose guests write to a volume now."""
    guests = emulation.state.guests.values()
    return [g.server_id for g in guests if g.writes_on(volume_id) and runs(emulation, g)]


def boot(emulation: Emulation, server: Server) -> None:
    """Starts a server's guest; no application runs in it yet."""
    guest = emulation.state.guests.get(server.id)
    if guest is None:
        guest = Guest(server.id, server.project_id, server.host)
        emulation.state.guests[server.id] = guest
    guest.host, guest.powered, guest.condition = server.host, True, "healthy"
    guest.incarnation += 1
    guest.busy_until = 0.0
    emulation.audit.record("guest_started", server=server.id, host=server.host)
    emulation.fire("guest.ports", server_id=server.id)
    emulation.fire("notice.read", server_id=server.id)


def runs_on(guest: Guest, record: dict[str, Any]) -> bool:
    """Whether a command of the guest's journal still runs, if its guest does."""
    return (
        record["finished_at"] is None
        and record["incarnation"] == guest.incarnation
        and record.get("epoch", guest.epoch) >= guest.epoch
    )


def fall_silent(guest: Guest) -> None:
    """Notes when a guest's agent last answered: now, if it answered until now."""
    if guest.powered and guest.condition == "healthy":
        guest.heard_at = time.time()


def end_applications(emulation: Emulation, guest: Guest, cause: str) -> None:
    """Ends everything that runs in a guest, without a command."""
    for name in list(guest.applications):
        del guest.applications[name]
        emulation.audit.record(
            "application_ended", application=name, server=guest.server_id, cause=cause
        )
    emulation.changed()


def power_off(emulation: Emulation, server_id: str, cause: str) -> None:
    """Switches the guest off that is where Nova has its server."""
    guest = emulation.state.guests.get(server_id)
    if guest is not None:
        lose_power(emulation, guest, cause)


def lose_power(emulation: Emulation, guest: Guest, cause: str) -> None:
    """Switches this guest off."""
    fall_silent(guest)
    end_applications(emulation, guest, cause)
    guest.powered = False


def leave_behind(emulation: Emulation, server: Server, target: str) -> None:
    """Makes a second guest of a server on another host, switched off, with the same disks. The
    first one stays where it was, and runs on if it runs: its host does not know of this."""
    guest = emulation.state.guests.pop(server.id, None)
    if guest is None:
        return
    emulation.state.guests[f"{server.id} left on {guest.host}"] = guest
    emulation.state.guests[server.id] = dataclasses.replace(
        guest,
        host=target,
        powered=False,
        condition="healthy",
        volumes=dict(guest.volumes),
        interfaces={},
        applications={},
        journal={key: dict(record) for key, record in guest.journal.items()},
        stopping=False,
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
    if server_id in writers(emulation, volume_id):
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


def commands_of(emulation: Emulation, guest: Guest) -> list[str]:
    """The names on the guest's allow-list."""
    return sorted(name for _, name, _ in _allow_list(emulation, guest))


def _allowed(emulation: Emulation, guest: Guest, name: str) -> tuple[str, Application] | None:
    for verb, allowed, application in _allow_list(emulation, guest):
        if allowed == name:
            return verb, application
    return None


def _allow_list(emulation: Emulation, guest: Guest) -> Iterator[tuple[str, str, Application]]:
    """Each command that the guest obeys: what it does, its name, the application that it is of."""
    stacks = _stacks_of(emulation, guest.server_id)
    for application in emulation.state.applications.values():
        if application.stack_id and application.stack_id not in stacks:
            continue
        for verb in ("start", "stop", "status"):
            if name := getattr(application, verb):
                yield verb, name, application


def _stacks_of(emulation: Emulation, server_id: str) -> list[str]:
    server = emulation.state.servers.get(server_id)
    stack = emulation.state.stacks.get(server.owner[0]) if server and server.owner else None
    ids = []
    while stack is not None:
        ids.append(stack.id)
        stack = emulation.state.stacks.get(stack.parent[0]) if stack.parent else None
    return ids


async def command(call: Call) -> Any:
    """POST /emulator/guests/{server_id}/commands: runs a named command of the allow-list.

    Answers when it has ended; else, after `timeout` seconds, with RUNNING if the agent reported
    that it is working, or with NO_ANSWER if not.
    """
    emulation, server_id = call.emulation, call.path("server_id")
    wanted = _parse(call.body)
    guest = emulation.state.guests.get(server_id)
    known = guest or emulation.state.servers.get(server_id)
    if known is None or not call.sees(known.project_id):
        raise plain_error(
            "NOT_FOUND", 404, f"There is no guest {server_id}.", "Check the server's id."
        )
    deadline = time.monotonic() + wanted["timeout"]
    key = f"command:{server_id}:{wanted['id']}"
    if guest is not None and answers(emulation, guest):
        await _obey_the_notice(emulation, guest, wanted, deadline)
        replay = _accept(emulation, guest, wanted)
        while time.monotonic() < deadline:
            _refuse_old(guest, wanted)
            record = guest.journal[wanted["id"]]
            if record["finished_at"] is not None and answers(emulation, guest):
                answer = {key: value for key, value in record.items() if key != "incarnation"}
                return {**answer, "replayed": replay}
            if not await emulation.wait_for(key, deadline - time.monotonic()):
                break
        _refuse_old(guest, wanted)
        if answers(emulation, guest):
            raise _running(wanted["name"])
    else:
        operation = emulation.begin("command", server=server_id, command=wanted["name"])
        emulation.flush()
        await emulation.wait_for(key, wanted["timeout"])
        emulation.finish(operation, "no_answer")
    emulation.audit.record("command_unanswered", server=server_id, command=wanted["name"])
    raise plain_error(
        "NO_ANSWER",
        504,
        f"The guest {server_id} did not answer within {wanted['timeout']:g} s.",
        "Check whether the guest still runs; fence it before another takes its role.",
    )


def _parse(body: dict[str, Any]) -> dict[str, Any]:
    try:
        parsed = {
            "id": str(body["id"]),
            "name": str(body["name"]),
            "epoch": int(body["epoch"]),
            "args": dict(body.get("args") or {}),
            "timeout": float(body.get("timeout", 30)),
        }
    except (KeyError, TypeError, ValueError):
        raise plain_error(
            "BAD_REQUEST",
            400,
            "A command has id, name, epoch (integer), args (object), timeout (seconds).",
            "Correct the request.",
        ) from None
    return parsed


async def _obey_the_notice(
    emulation: Emulation, guest: Guest, wanted: dict[str, Any], deadline: float
) -> None:
    """A command comes with a notice of its epoch. An agent that learns from it that it was deposed
    first stops what it must, and then takes commands."""
    _refuse_old(guest, wanted)
    if wanted["epoch"] > guest.notice:
        guest.notice = wanted["epoch"]
        emulation.fire("notice.read", server_id=guest.server_id)
    while guest.stopping:
        left = deadline - time.monotonic()
        if left <= 0 or not await emulation.wait_for(f"quiet:{guest.server_id}", left):
            raise _running("its on_deposed command")


def _refuse_old(guest: Guest, wanted: dict[str, Any]) -> None:
    if wanted["epoch"] < guest.epoch:
        raise plain_error(
            "OLD_EPOCH",
            409,
            f"The command's epoch {wanted['epoch']} is older than the guest's {guest.epoch}.",
            "A newer epoch is current; do not repeat the command.",
        )


def _running(name: str) -> Exception:
    return plain_error("RUNNING", 504, f"{name} is still running", "Ask again with the same id.")


def _accept(emulation: Emulation, guest: Guest, wanted: dict[str, Any]) -> bool:
    """Admits a command to the guest; True when its id was journaled before."""
    _refuse_old(guest, wanted)
    journaled = guest.journal.get(wanted["id"])
    # A command that died with an earlier boot, or was killed, took no effect: the guest runs it
    # again.
    if journaled and (journaled["finished_at"] or runs_on(guest, journaled)):
        emulation.audit.record(
            "command_replayed", server=guest.server_id, command=wanted["name"], id=wanted["id"]
        )
        return True
    found = _allowed(emulation, guest, wanted["name"])
    if found is None:
        raise plain_error(
            UNKNOWN_COMMAND,
            403,
            f"{wanted['name']} is not on the member's allow-list.",
            "Add it to the allow-list, or correct the name in the group file.",
        )
    verb, application = found
    if journaled:
        emulation.audit.record("command_died", server=guest.server_id, id=wanted["id"])
    operation = emulation.begin("command", server=guest.server_id, command=wanted["name"])
    guest.journal[wanted["id"]] = {
        "id": wanted["id"],
        "name": wanted["name"],
        "epoch": wanted["epoch"],
        "exit_code": None,
        "stdout": "",
        "stderr": "",
        "started_at": time.time(),
        "finished_at": None,
        "incarnation": guest.incarnation,
    }
    emulation.audit.record(
        "command_started",
        server=guest.server_id,
        command=wanted["name"],
        id=wanted["id"],
        epoch=wanted["epoch"],
    )
    now = time.time()
    begins = max(now, guest.busy_until + _NEXT)
    guest.busy_until = begins + emulation.latency.of(f"command_{verb}")
    emulation.after(
        guest.busy_until - now,
        "command.finish",
        server_id=guest.server_id,
        incarnation=guest.incarnation,
        command_id=wanted["id"],
        verb=verb,
        application=application.name,
        arguments=wanted["args"],
        operation=operation,
    )
    emulation.flush()
    return False


@transition("command.finish")
def _finish(
    emulation: Emulation,
    server_id: str,
    incarnation: int,
    command_id: str,
    verb: str,
    application: str,
    arguments: dict[str, Any],
    operation: str,
) -> None:
    guest = emulation.state.guests.get(server_id)
    same_boot = guest is not None and guest.incarnation == incarnation
    if guest is None or not same_boot or not runs(emulation, guest):
        # The command died with its guest: its id stays in the journal, without a result.
        emulation.finish(operation, "no_answer")
        return
    if guest.journal[command_id].get("epoch", guest.epoch) < guest.epoch:
        emulation.finish(operation, "killed")  # by its agent, when it learned of a newer epoch
        return
    if take_fault(emulation, f"command_{verb}", ("fail",)):
        code, out, err = 1, "", f"{application}: injected failure of {verb}"
    else:
        code, out, err = _VERBS[verb](emulation, guest, application, arguments)
    guest.journal[command_id].update(
        exit_code=code, stdout=out, stderr=err, finished_at=time.time()
    )
    emulation.audit.record(
        "command_finished", server=server_id, id=command_id, verb=verb, exit_code=code
    )
    emulation.finish(operation, "done" if code == 0 else "failed")
    emulation.wake(f"command:{server_id}:{command_id}")


def _start(
    emulation: Emulation, guest: Guest, name: str, arguments: dict[str, Any]
) -> tuple[int, str, str]:
    application = emulation.state.applications[name]
    asked = [v for v in arguments.values() if isinstance(v, str) and v.startswith("/dev/")]
    if application.needs_volume:
        missing = [device for device in asked if device not in guest.volumes.values()]
        if missing or not guest.volumes:
            what = ", ".join(missing) or "the data volume"
            return MOUNT_FAILED, "", f"mount: {what}: special device does not exist."
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
    guest.deposed = None
    told = guest.tell(name, asked) if application.told_only else {}
    emulation.audit.record("application_started", application=name, server=guest.server_id, **told)
    check_writers(emulation, guest)
    return 0, f"{name} started", ""


def _group(emulation: Emulation, guest: Guest) -> str | None:
    """The outermost stack of a guest; two stacks of one project are two installations."""
    stacks = _stacks_of(emulation, guest.server_id)
    return stacks[-1] if stacks else None


def _stop(
    emulation: Emulation, guest: Guest, name: str, arguments: dict[str, Any]
) -> tuple[int, str, str]:
    del arguments
    if guest.applications.pop(name, None) is None:
        return 0, f"{name} is not running", ""
    emulation.audit.record("application_stopped", application=name, server=guest.server_id)
    return 0, f"{name} stopped", ""


def _status(
    emulation: Emulation, guest: Guest, name: str, arguments: dict[str, Any]
) -> tuple[int, str, str]:
    del emulation, arguments
    running = name in guest.applications
    return (0, f"{name} is running", "") if running else (NOT_RUNNING, f"{name} is stopped", "")


_VERBS = {"start": _start, "stop": _stop, "status": _status}
