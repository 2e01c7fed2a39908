# SPDX-License-Identifier: Apache-2.0
"""The console script ``failover-agent``."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from mistral_failover.agent.broker import ERRORS, Broker, forget
from mistral_failover.agent.daemon import config as configuration
from mistral_failover.agent.daemon.config_reader import ConfigError
from mistral_failover.agent.daemon.daemon import Agent
from mistral_failover.agent.daemon.isolation import Isolating, Namespaces
from mistral_failover.agent.daemon.journal import Journal, JournalEntry
from mistral_failover.agent.daemon.journal_file import has_file, unusable, write_probe
from mistral_failover.agent.daemon.settings import AgentConfig
from mistral_failover.agent.systemd import Notifier, clock_is_set, log_to_stderr
from mistral_failover.errors import CodedError
from mistral_failover.model.text import clean

DESCRIPTION = """The agent on a server: carries out the commands that its file allows, each once.

Without a command it runs the agent. Exit codes: 0 success; 1 failure, with the reason; 2 wrong
command line or configuration file.
"""


def main(
    argv: Sequence[str] | None = None,
    *,
    isolating: Callable[[AgentConfig], Isolating] | None = None,
) -> int:
    """Run one command; return its exit code. ``isolating``: another way to isolate rehearsals."""
    options = _parser().parse_args(argv)
    options.isolating = isolating
    path = getattr(options, "config", configuration.DEFAULT_FILE)
    try:
        config = configuration.load(path)
    except ConfigError as error:
        _say(f"{path}: {error}")
        return 2
    try:
        return int(options.run(config, options))
    except CodedError as error:
        _say(f"{error.code}: {error}")
        return 1
    except sqlite3.Error as error:
        broken = unusable(config.journal, error)
        _say(f"{broken.code}: {broken}")
        return 1


def _parser() -> argparse.ArgumentParser:
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument(
        "--config",
        metavar="FILE",
        default=argparse.SUPPRESS,
        help=f"the agent's configuration file ({configuration.DEFAULT_FILE})",
    )
    parser = argparse.ArgumentParser(
        prog="failover-agent",
        description=DESCRIPTION,
        parents=[common],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=_run)
    shown = f"%(prog)s {version('mistral-failover-agent')}"
    parser.add_argument("--version", action="version", version=shown, help="show the version")
    commands = parser.add_subparsers(title="commands", metavar="")
    for name, run, text in (
        ("run", _run, "serve until SIGTERM"),
        ("check", _check, "check the file, the programs, the journal, the broker and the clock"),
        ("status", _status, "show the epoch and the latest commands"),
        ("settle", _settle, "state whether a command with an unknown outcome took effect"),
    ):
        command = commands.add_parser(name, help=text, description=text, parents=[common])
        command.set_defaults(run=run)
        if name == "status":
            command.add_argument("-f", "--format", choices=("text", "json"), default="text")
            command.add_argument("--last", type=int, default=20, metavar="N", help="commands (20)")
        if name == "settle":
            command.add_argument("id", metavar="ID", help="the command's id, as printed by status")
            word = command.add_mutually_exclusive_group(required=True)
            word.add_argument("--done", action="store_true", help="it took effect")
            word.add_argument(
                "--not-done", action="store_true", help="it did not take effect: it may run again"
            )
    return parser


# -- run


def _run(config: AgentConfig, options: argparse.Namespace) -> int:
    log_to_stderr()
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    notifier = Notifier()
    Agent(
        config,
        ready=notifier.ready,
        alive=notifier.alive,
        stopping=notifier.stopping,
        isolating=options.isolating(config) if options.isolating else None,
    ).run(stop)
    return 0


# -- check


def _check(config: AgentConfig, _: argparse.Namespace) -> int:
    address = config.identity.address
    _tell(f"the file is valid: server {address.server_id}, group {address.group_id}")
    faults = [
        f"commands.{spec.name}: {program} is not executable"
        for spec in config.commands.values()
        for program in [spec.argv[0], *(spec.check or ())[:1], *(spec.rehearse or ())[:1]]
        if "{" not in program and not os.access(program, os.X_OK)
    ]
    faults += [
        f"commands.{spec.name}.folder: {spec.folder} does not exist"
        for spec in config.commands.values()
        if not Path(spec.folder).is_dir()
    ]
    if config.rehearsable:
        _tell(_said_of_rehearsals(config))
    there = next(each for each in (config.journal, *config.journal.parents) if each.exists())
    try:
        write_probe(there)
        _tell(
            f"the journal's folder {config.journal} "
            + (
                "can be written"
                if there == config.journal
                else "does not exist yet: the agent makes it"
            )
        )
    except OSError as error:
        faults.append(str(unusable(config.journal, error)))
    broker = Broker(config.broker)
    try:
        connection = broker.connect()
        try:
            broker.declare_notices(connection.channel(), address)
        finally:
            forget(connection)
        _tell(f"the broker {broker.shown} is usable")
    except ERRORS as error:
        faults.append(f"the broker {broker.shown} is not usable: {_first_line(error)}")
    if clock_is_set():
        _tell("the clock is synchronised")
    else:
        _tell("the clock is not synchronised: commands are refused once it is minutes off")
    for fault in faults:
        _say(fault)
    return 1 if faults else 0


def _said_of_rehearsals(config: AgentConfig) -> str:
    namespaces = Namespaces(config.rehearsals)
    namespaces.try_it(config.rehearsable)
    if why := namespaces.why_not():
        return f"rehearsals cannot be isolated: {why}"
    unlimited = namespaces.why_unlimited()
    limits = "with limits" if unlimited is None else f"without limits: {unlimited}"
    return f"rehearsals can be isolated, {limits}"


def _first_line(error: BaseException) -> str:
    text = str(error).strip()
    return f"{type(error).__name__}: {text.splitlines()[0][:200]}" if text else type(error).__name__


# -- status


def _status(config: AgentConfig, options: argparse.Namespace) -> int:
    with _opened(config) as journal:
        epoch = journal.epoch(config.epoch)
        deposition = journal.deposition(epoch)
        status = {
            "server_id": config.identity.server_id,
            "group": config.identity.group,
            "member": config.identity.member or journal.member(),
            "epoch": epoch,
            "agent": "running" if journal.is_held() else "not running",
            "deposed": None
            if deposition is None
            else {
                "learnt_at": deposition.learnt_at,
                "done_at": deposition.done_at,
                "attempts": deposition.attempts,
                "message": deposition.message,
            },
            "commands": [_shown(row) for row in journal.latest(options.last)],
        }
    _tell(json.dumps(status, indent=2) if options.format == "json" else "\n".join(_lines(status)))
    return 0


def _shown(row: JournalEntry) -> dict[str, Any]:
    """Return a command for people: without its arguments' values."""
    return {
        "id": row.id,
        "epoch": row.epoch,
        "name": row.name,
        "state": row.state,
        "started_at": row.started_at,
        "seconds": row.seconds,
        "exit_code": row.exit_code,
        "stdout": row.stdout,
        "stderr": row.stderr,
        "message": row.said,
        "rehearsal": row.rehearsal or None,
    }


def _lines(status: dict[str, Any]) -> list[str]:
    lines = [
        f"server {status['server_id']}, member {status['member'] or '(not known yet)'} of "
        f"{status['group']}, epoch {status['epoch']}; the agent is {status['agent']}"
    ]
    deposed = status["deposed"]
    if deposed is not None:
        how = "quiet" if deposed["done_at"] else f"NOT QUIET after {deposed['attempts']} attempts"
        lines.append(f"deposed at {_when(deposed['learnt_at'])}, {how}: {deposed['message']}")
    for row in status["commands"]:
        code = "" if row["exit_code"] is None else f" exit {row['exit_code']}"
        took = "" if row["seconds"] is None else f" {row['seconds']:.1f} s"
        said = f" ({row['message']})" if row["message"] else ""
        where = "  rehearsed" if row["rehearsal"] else ""
        lines.append(
            f"{_when(row['started_at'])}  epoch {row['epoch']}  {row['name']}  {row['id']}{where}  "
            f"{row['state']}{code}{took}{said}"
        )
    return lines


def _when(seconds: float | None) -> str:
    return "-" if seconds is None else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


# -- settle


def _settle(config: AgentConfig, options: argparse.Namespace) -> int:
    with _opened(config) as journal:
        row = journal.settle(options.id, done=options.done)
    if row is None:
        _say(
            f"no command {options.id} has an unknown outcome; see failover-agent status. A command "
            "that ran when an agent died becomes unknown only after the next agent has started."
        )
        return 1
    how = "done" if options.done else "free to run again when it is requested"
    _tell(f"{row.name} ({row.id}) is {how}")
    return 0


# -- both


def _opened(config: AgentConfig) -> Journal:
    if not has_file(config.journal):
        raise CodedError(
            "JOURNAL",
            f"{config.journal} holds no journal",
            "Start the agent first: systemctl start failover-agent",
        )
    return Journal(config.journal, hold=False)


def _tell(text: str) -> None:
    sys.stdout.write(f"{clean(text)}\n")


def _say(text: str) -> None:
    sys.stderr.write(f"failover-agent: {clean(text)}\n")


if __name__ == "__main__":
    sys.exit(main())
