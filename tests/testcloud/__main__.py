# SPDX-License-Identifier: Apache-2.0
"""``python -m testcloud``: start, stop and look at the test cloud.

Exit codes: 0 it did; 1 it failed, and said why; 2 the command line is wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from typing import Any

from testcloud import cloud, settings, status
from testcloud.errors import CloudError
from testcloud.machines import guests, network, power
from testcloud.settings import Settings

_CHANGES = {"power": ("on", "off"), "link": ("cut", "connect"), "guest": tuple(guests.CHANGES)}


def main(arguments: list[str] | None = None) -> int:
    """Run one command; return the exit code."""
    chosen = _parser().parse_args(arguments)
    try:
        return int(chosen.run(settings.load(), chosen))
    except CloudError as error:
        print(f"{error}\n{error.remedy}".rstrip(), file=sys.stderr)
        return 1


def _say(line: str) -> None:
    print(line, flush=True)


def _tell(what: str, seconds: float | None) -> None:
    if seconds is None:
        _say(what)
    elif not what.startswith("start "):
        _say(f"{what:32} {seconds:6.1f} s")


def _up(where: Settings, chosen: argparse.Namespace) -> int:
    del chosen
    begun = time.monotonic()
    started = cloud.up(where, _tell)
    if started:
        _say(f"{'up after':32} {time.monotonic() - begun:6.1f} s")
    else:
        _say("The cloud is up already.")
    _say(f"OS_CLIENT_CONFIG_FILE={where.clouds_yaml} OS_CLOUD=testcloud-demo")
    return 0


def _down(where: Settings, chosen: argparse.Namespace) -> int:
    begun = time.monotonic()
    cloud.down(where, wipe=chosen.wipe)
    _say(f"down after {time.monotonic() - begun:.1f} s")
    return 0


def _status(where: Settings, chosen: argparse.Namespace) -> int:
    rows = status.rows(where)
    _say(json.dumps(rows, indent=1) if chosen.format == "json" else status.table(rows))
    return 0


def _start(where: Settings, chosen: argparse.Namespace) -> int:
    for name in cloud.start(where, chosen.name):
        _say(f"{name} started")
    return 0


def _stop(where: Settings, chosen: argparse.Namespace) -> int:
    for name in cloud.stop(where, chosen.name, kill=chosen.kill):
        _say(f"{name} {'killed' if chosen.kill else 'stopped'}")
    return 0


def _install(where: Settings, chosen: argparse.Namespace) -> int:
    del chosen
    cloud.install(where, _tell)
    return 0


def _run(where: Settings, chosen: argparse.Namespace) -> int:
    network.enter(where)
    if not chosen.command:
        raise CloudError("NO_COMMAND", "There is no command to run.", "Append one.")
    try:
        os.execvp(chosen.command[0], chosen.command)  # noqa: S606  # what the user asked for
    except OSError as error:
        raise CloudError("NO_COMMAND", f"{chosen.command[0]}: {error.strerror}.") from None


def _power(where: Settings, chosen: argparse.Namespace) -> int:
    network.enter(where)
    (power.on if chosen.change == "on" else power.off)(where, _host(where, chosen.name))
    return 0


def _link(where: Settings, chosen: argparse.Namespace) -> int:
    network.plug(where, _host(where, chosen.name), chosen.leg, connected=chosen.change == "connect")
    return 0


def _guest(where: Settings, chosen: argparse.Namespace) -> int:
    guests.CHANGES[chosen.change](where, chosen.name)
    return 0


def _host(where: Settings, name: str) -> str:
    if name not in where.hosts:
        known = ", ".join(where.hosts)
        raise CloudError("NO_SUCH_HOST", f"There is no host {name}.", f"One of {known}.")
    return name


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m testcloud",
        description="A real, miniature OpenStack on loopback, with the package in its Mistral. "
        "Environment: FAILOVER_CLOUD_STATE, _PORT, _PASSWORD, _LATENCY (docs/testcloud.md).",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, run: Any, text: str) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=text, description=text)
        made.set_defaults(run=run)
        return made

    command("up", _up, "start what does not run; install and initialise it the first time")
    command("down", _down, "stop everything").add_argument(
        "--wipe", action="store_true", help="forget its data; the saved databases stay"
    )
    command("status", _status, "show every process").add_argument(
        "-f", "--format", choices=("table", "json"), default="table"
    )
    for name, run, text in (
        ("start", _start, "start processes, or all of a service"),
        ("stop", _stop, "stop processes, or all of a service"),
    ):
        made = command(name, run, text)
        made.add_argument("name", nargs="+", metavar="NAME")
        if name == "stop":
            made.add_argument("--kill", action="store_true", help="KILL at once, as a crash would")
    made = command("run", _run, "run a command in the network of the machines")
    made.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND")
    for name, run, text in (
        ("power", _power, "cut the power of a host, or switch it on"),
        ("link", _link, "cut a cable of a host, or connect it"),
        ("guest", _guest, "freeze a guest and thaw it, hang it, or have its kernel panic"),
    ):
        made = command(name, run, text)
        made.add_argument("change", choices=_CHANGES[name])
        if name == "link":
            made.add_argument("leg", choices=("management", "storage"))
        made.add_argument("name", help="the server's id" if name == "guest" else "the host")
    command("install", _install, "install what is missing, and start nothing")
    return parser


if __name__ == "__main__":
    # An installation that is stopped removes what it has unpacked.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    sys.exit(main())
