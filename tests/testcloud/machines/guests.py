# SPDX-License-Identifier: Apache-2.0
"""What can be done to a guest from its host, and read from it."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from testcloud.errors import CloudError
from testcloud.machines import host as machine
from testcloud.machines import places
from testcloud.settings import Settings

PAUSE = 0.1


def host_of(settings: Settings, server: str, but: Collection[str] = ()) -> str:
    """The host on which a guest runs now, by its process: Nova may not know, and a libvirt may hang
    or start.

    :param but: hosts that do not count, where a guest that was evacuated may run on.
    :raises CloudError: NO_SUCH_GUEST.
    """
    for host in (each for each in settings.hosts if each not in but):
        try:
            machine.inside(settings, host, "pgrep", "-f", _process(server))
        except CloudError as error:
            if error.code not in ("NO_POWER", "COMMAND_FAILED"):
                raise
        else:
            return host
    raise CloudError("NO_SUCH_GUEST", f"Server {server} runs on no host that has power.")


def running(settings: Settings, host: str) -> list[str]:
    """The ids of the servers whose guests run on a host; none where it has no power."""
    try:
        return machine.inside(settings, host, *_VIRSH, "list", "--uuid").split()
    except CloudError as error:
        if error.code == "NO_POWER":
            return []
        raise


def console(settings: Settings, server: str) -> Path:
    """The file with everything that a guest wrote on its console.

    :raises CloudError: NO_SUCH_GUEST.
    """
    for host in settings.hosts:
        path = places.instances(settings, host) / server / "console.log"
        if path.exists():
            return path
    raise CloudError("NO_SUCH_GUEST", f"Server {server} has never run.")


def execute(settings: Settings, server: str, script: str, limit: float = 60) -> str:
    """Run a shell script in a guest by its QEMU agent, which needs no network; return its output.

    :raises CloudError: NO_SUCH_GUEST, NO_POWER, COMMAND_FAILED.
    """
    host = host_of(settings, server)
    command = {"path": "/bin/sh", "arg": ["-c", script], "capture-output": True}
    pid = _ask(settings, host, server, "guest-exec", command)["pid"]
    deadline = time.monotonic() + limit
    while not (done := _ask(settings, host, server, "guest-exec-status", {"pid": pid}))["exited"]:
        if time.monotonic() > deadline:
            raise CloudError("COMMAND_FAILED", f"{script[:80]} did not end within {limit:g} s.")
        time.sleep(PAUSE)
    said = "".join(
        base64.b64decode(done.get(stream, "")).decode(errors="replace")
        for stream in ("out-data", "err-data")
    )
    if done.get("exitcode") != 0:
        raise CloudError("COMMAND_FAILED", f"{script[:80]}: {done.get('exitcode')}: {said[-500:]}")
    return said


def freeze(settings: Settings, server: str) -> None:
    """Stop a guest's processor, as SIGSTOP does: afterwards it does not know that time passed."""
    _virsh(settings, server, "suspend")


def thaw(settings: Settings, server: str) -> None:
    """Have a frozen guest run on."""
    _virsh(settings, server, "resume")


def hang(settings: Settings, server: str) -> None:
    """Stop a guest by SIGSTOP to its QEMU: nothing of it answers, its monitor neither."""
    _signal(settings, server, "STOP")


def go_on(settings: Settings, server: str) -> None:
    """Have a guest run on that hangs. It does not know that time has passed."""
    _signal(settings, server, "CONT")


def panic(settings: Settings, server: str) -> None:
    """Have the guest's kernel panic: it stands still, and Nova still says ACTIVE."""
    command = {"path": "/bin/sh", "arg": ["-c", "sleep 0.2; echo c > /proc/sysrq-trigger"]}
    _ask(settings, host_of(settings, server), server, "guest-exec", command)


CHANGES: dict[str, Callable[[Settings, str], None]] = {
    "freeze": freeze,
    "thaw": thaw,
    "hang": hang,
    "go-on": go_on,
    "panic": panic,
}


_VIRSH = ("virsh", "-q", "-c", places.URI)


def _virsh(settings: Settings, server: str, *words: str) -> str:
    return machine.inside(settings, host_of(settings, server), *_VIRSH, *words, server)


def _signal(settings: Settings, server: str, name: str) -> None:
    host = host_of(settings, server)
    machine.inside(settings, host, "pkill", f"-{name}", "-f", _process(server))


def _process(server: str) -> str:
    """What pgrep and pkill find a guest by; the brackets keep them from finding themselves."""
    return f"[u]uid {server}"


def _ask(
    settings: Settings, host: str, server: str, execute: str, arguments: dict[str, Any]
) -> dict[str, Any]:
    text = json.dumps({"execute": execute, "arguments": arguments})
    answer: dict[str, dict[str, Any]] = json.loads(
        machine.inside(settings, host, *_VIRSH, "qemu-agent-command", server, text)
    )
    return answer["return"]
