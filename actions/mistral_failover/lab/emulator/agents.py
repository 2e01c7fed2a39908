# SPDX-License-Identifier: Apache-2.0
"""A broker's memory for a guest's agent, and how the agent reacts.

The notice of an epoch waits for an agent that is out of reach. An agent that reads a notice of a
newer epoch is deposed: its commands of older epochs are killed, its on_deposed command stops the
guest's applications, and only then does it take commands again.
"""

from __future__ import annotations

import time
from typing import Any

from mistral_failover.lab.emulator import guests
from mistral_failover.lab.emulator.core import Emulation, transition
from mistral_failover.lab.emulator.state import Guest
from mistral_failover.lab.emulator.web import Call, plain_error, take_fault

_AGAIN = 0.2  # seconds until an on_deposed command that failed is tried again


async def depose(call: Call) -> Any:
    """POST /emulator/guests/{server_id}/epoch: makes the commands of epochs before `epoch` void.

    A broker knows queues, not servers: a missing server is no error.
    """
    emulation, guest = call.emulation, _guest(call)
    epoch = call.body.get("epoch")
    if not isinstance(epoch, int) or isinstance(epoch, bool):
        raise plain_error("BAD_REQUEST", 400, "epoch is not a number.", "Correct the request.")
    if guest is not None and epoch > guest.notice:
        guest.notice = epoch
        emulation.audit.record("notice", server=guest.server_id, epoch=epoch)
        if guests.answers(emulation, guest):
            emulation.fire("notice.read", server_id=guest.server_id)
        emulation.changed()
    return {"epoch": epoch}


async def heartbeat(call: Call) -> Any:
    """GET /emulator/guests/{server_id}/heartbeat: the agent's latest heartbeat, or null."""
    guest = _guest(call)
    if guest is None:
        return {"heartbeat": None}
    now = time.time()
    heard_at = now if guests.answers(call.emulation, guest) else guest.heard_at
    if heard_at is None:
        return {"heartbeat": None}
    running = [
        record.get("name", "a command")
        for record in guest.journal.values()
        if guests.runs_on(guest, record)
    ]
    said = {
        "epoch": guest.epoch,
        "running": sorted(running),
        "deposed": guest.deposed,
        "stopping": guest.stopping,
        "commands": guests.commands_of(call.emulation, guest),
    }
    return {"heartbeat": {**said, "ago": now - heard_at}}


def _guest(call: Call) -> Guest | None:
    guest = call.emulation.state.guests.get(call.path("server_id"))
    return guest if guest is not None and call.sees(guest.project_id) else None


@transition("notice.read")
def _read(emulation: Emulation, server_id: str) -> None:
    guest = emulation.state.guests.get(server_id)
    if guest is None or not guests.answers(emulation, guest):
        return
    if guest.notice > guest.epoch:
        known, guest.epoch = guest.epoch, guest.notice
        guest.busy_until = 0.0  # what ran is killed
        if known > 0:
            _begin_to_stop(emulation, guest)
        for command_id in guest.journal:  # of the older epoch: wakes those that wait for it
            emulation.wake(f"command:{server_id}:{command_id}")
    elif guest.stopping:  # its boot ended the command, and the applications with it
        _quiet(emulation, guest.server_id, None)


def _begin_to_stop(emulation: Emulation, guest: Guest) -> None:
    running = sorted(guest.applications)
    emulation.audit.record(
        "deposed", server=guest.server_id, epoch=guest.epoch, applications=running
    )
    if not running:
        guest.deposed = "nothing ran"
        return
    guest.deposed, guest.stopping = f"stopping {', '.join(running)}", True
    _stop_soon(emulation, guest, emulation.latency.of("command_stop"))


def _stop_soon(emulation: Emulation, guest: Guest, delay: float) -> None:
    operation = emulation.begin("command", server=guest.server_id, command="on_deposed")
    facts = {"server_id": guest.server_id, "operation": operation}
    if delay > 0:
        emulation.after(delay, "guest.quiet", **facts)
    else:
        emulation.fire("guest.quiet", **facts)


@transition("guest.quiet")
def _quiet(emulation: Emulation, server_id: str, operation: str | None) -> None:
    guest = emulation.state.guests.get(server_id)
    if guest is None or not guest.stopping or not guests.answers(emulation, guest):
        emulation.finish(operation, "no_answer")  # an agent that is reachable again continues it
        return
    if guest.applications and take_fault(emulation, "on_deposed", ("fail",)):
        emulation.finish(operation, "failed")
        guest.deposed = "its on_deposed command failed, and is retried"
        _stop_soon(emulation, guest, _AGAIN)
        return
    stopped = sorted(guest.applications)
    for name in stopped:
        del guest.applications[name]
        emulation.audit.record("application_stopped", application=name, server=server_id)
    guest.stopping = False
    guest.deposed = f"stopped {', '.join(stopped)}" if stopped else "nothing ran"
    emulation.finish(operation, "done")
    emulation.wake(f"quiet:{server_id}")
    emulation.changed()
