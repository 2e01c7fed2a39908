# SPDX-License-Identifier: Apache-2.0
"""What else Nova does with a server: pause, suspend, reboot, rescue, resize, shelve, migrate, copy,
lock.

One table: the ``vm_state`` in which each action is accepted (``nova.compute.api`` of Nova 34), the
task that runs, and what the server is afterwards. A live migration moves the server to another
host. A resize and a migration of a server that is off leave it on its host, and so does shelving,
after which Nova shows no host.
"""

import time
from dataclasses import dataclass

from mistral_failover.lab.emulator import guests
from mistral_failover.lab.emulator.attachments import end_operation as end
from mistral_failover.lab.emulator.core import Emulation, transition
from mistral_failover.lab.emulator.servers import (
    NOSTATE,
    RUNNING,
    SHUTDOWN,
    free_host,
    set_state,
    step_of,
)
from mistral_failover.lab.emulator.state import Server

_AWAKE = ("active", "stopped", "paused", "suspended")
_ACTIVE, _PAUSED = ("ACTIVE", "active", RUNNING), ("PAUSED", "paused", 3)


@dataclass(frozen=True)
class ServerTask:
    """An action of Nova's.

    `allowed`: the vm_states in which it is accepted; `task`: the task_state while it lasts; `then`:
    status, vm_state and power_state afterwards, None for those before; `shown`: the status while it
    lasts, None for the one before; `guest`: what becomes of the guest (freeze, thaw, off, boot,
    move); `unlocked`: whether a lock forbids it; `admin`: the policy rule that keeps it from users.
    """

    allowed: tuple[str, ...]
    task: str
    then: tuple[str, str, int] | None
    shown: str | None = None
    guest: str = ""
    unlocked: bool = True
    admin: str | None = None


TASKS = {
    "pause": ServerTask(("active",), "pausing", _PAUSED, guest="freeze"),
    "unpause": ServerTask(("paused",), "unpausing", _ACTIVE, guest="thaw"),
    "suspend": ServerTask(
        ("active",), "suspending", ("SUSPENDED", "suspended", SHUTDOWN), guest="freeze"
    ),
    "resume": ServerTask(("suspended",), "resuming", _ACTIVE, guest="thaw", unlocked=False),
    "reboot": ServerTask(("active",), "rebooting", _ACTIVE, "REBOOT", guest="boot"),
    "rescue": ServerTask(
        ("active", "stopped", "error"), "rescuing", ("RESCUE", "rescued", RUNNING), guest="off"
    ),
    "unrescue": ServerTask(("rescued",), "unrescuing", _ACTIVE, guest="boot"),
    "resize": ServerTask(
        ("active", "stopped"),
        "resize_migrating",
        ("VERIFY_RESIZE", "resized", RUNNING),
        "RESIZE",
        guest="boot",
    ),
    "migrate": ServerTask(
        ("active", "stopped"),
        "resize_migrating",
        ("VERIFY_RESIZE", "resized", RUNNING),
        "RESIZE",
        guest="boot",
        admin="os_compute_api:os-migrate-server:migrate",
    ),
    "confirmResize": ServerTask(("resized",), "resize_confirming", _ACTIVE),
    "revertResize": ServerTask(
        ("resized",), "resize_reverting", _ACTIVE, "REVERT_RESIZE", guest="boot"
    ),
    "shelve": ServerTask(
        _AWAKE, "shelving", ("SHELVED_OFFLOADED", "shelved_offloaded", NOSTATE), guest="off"
    ),
    "soft-delete": ServerTask(
        _AWAKE, "soft-deleting", ("SOFT_DELETED", "soft-delete", SHUTDOWN), guest="off"
    ),
    "restore": ServerTask(("soft-delete",), "restoring", _ACTIVE, guest="boot"),
    "unshelve": ServerTask(("shelved", "shelved_offloaded"), "unshelving", _ACTIVE, guest="boot"),
    "createImage": ServerTask(_AWAKE, "image_uploading", None, unlocked=False),
    "os-migrateLive": ServerTask(
        ("active", "paused"),
        "migrating",
        None,
        "MIGRATING",
        guest="move",
        admin="os_compute_api:os-migrate-server:migrate_live",
    ),
}


def begin(emulation: Emulation, server: Server, action: str, request_id: str) -> None:
    """Lets the compute service carry an action of `TASKS` out."""
    todo, before = TASKS[action], (server.status, server.vm_state, server.power_state)
    server.task_state, server.updated = todo.task, time.time()
    server.status = todo.shown or server.status
    verb = action.removeprefix("os-")
    operation = emulation.begin(verb, server=server.id)
    accepted = emulation.state.accept(server, request_id, verb, f"compute_{verb}_instance")
    accepted.operation = operation
    emulation.later(
        "server_task",
        "server.task",
        server_id=server.id,
        operation=operation,
        action=action,
        before=before,
    )


@transition("server.task")
def _done(
    emulation: Emulation,
    server_id: str,
    operation: str,
    action: str,
    before: tuple[str, str, int],
) -> None:
    arguments = {"action": action, "before": before}
    server = step_of(emulation, server_id, operation, "task", **arguments)
    if server is None:
        return
    todo = TASKS[action]
    status, vm_state, power_state = todo.then or before
    set_state(server, status, vm_state, power_state)
    if todo.guest:
        _GUEST[todo.guest](emulation, server)
    emulation.audit.record("server_task", server=server_id, action=action, status=status)
    end(emulation, operation)


def _freeze(emulation: Emulation, server: Server) -> None:
    guests.freeze(emulation, server.id)


def _thaw(emulation: Emulation, server: Server) -> None:
    guests.thaw(emulation, server.id)


def _off(emulation: Emulation, server: Server) -> None:
    guests.power_off(emulation, server.id, "switched off by Nova")


def _boot(emulation: Emulation, server: Server) -> None:
    guests.power_off(emulation, server.id, "started again by Nova")
    guests.boot(emulation, server)


def _move(emulation: Emulation, server: Server) -> None:
    target = free_host(emulation, server.server_group, besides=server.host)
    if target is None:
        return
    server.host = emulation.state.guests[server.id].host = target
    for attachment in emulation.state.attachments_of(server_id=server.id):
        attachment.host = target


_GUEST = {"freeze": _freeze, "thaw": _thaw, "off": _off, "boot": _boot, "move": _move}


def lock(emulation: Emulation, server: Server, *, locked: bool) -> None:
    """Locks a server against all requests but those of administrators, or unlocks it."""
    server.locked, server.updated = locked, time.time()
    emulation.changed()
