# SPDX-License-Identifier: Apache-2.0
"""``failover drill``: a whole failover on this machine, watched and audited."""

from __future__ import annotations

import argparse
import contextlib
import logging
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cliff.show import ShowOne

from mistral_failover.cli.arguments import Arguments, argument, one_of
from mistral_failover.cli.connection import CommandFailed
from mistral_failover.cli.progress import Progress

LATENCIES = ("measured", "parallel", "zero")
FAULTS = ("crash", "hang", "app", "slow", "host", "confirmed", "returns")
RECOVERABLE = ("crash", "hang", "app")
"""The faults from which a member can recover, as in ``lab.drill.run.FAULTS``."""
ALONE = (*RECOVERABLE, "host", "confirmed")
"""The faults of a group without a standby, as in ``lab.drill.run.FAULTS_ALONE``."""
DEFAULT_DIR = Path("drill-state")
_DONE = "done"
_TERMINATED = 128 + signal.SIGTERM
_CLOUD, _KEPT_CLOUD = (
    60.0,
    900.0,
)  # seconds that a cloud waits for the next drill after one was killed


def _count(text: str) -> int:
    number = int(text)
    if not 1 <= number <= 100:
        raise argparse.ArgumentTypeError(f"{number} is not between 1 and 100")
    return number


class Drill(Arguments, ShowOne):
    """Fail over on this machine: real Mistral, emulated cloud, broken server.

    It brings the example group up, breaks its active server, shows each step, and then checks, by
    the logs of the cloud and of its guests, that no invariant was violated: no volume on two
    servers, no write from a server that was not proven off, nothing done twice. Exit code 1 if one
    was.

    With --keep everything stays in the state directory, also if the drill is killed: the next one
    with --keep continues there.
    """

    arguments = (
        argument(
            "--volumes",
            type=_count,
            default=1,
            metavar="N",
            help="how many volumes move (1 to 100; default 1)",
        ),
        argument(
            "--latency",
            choices=LATENCIES,
            default="measured",
            help=(
                "speed of the cloud: as measured on real services (default), the same without "
                "Nova's handling of one server's volumes one after the other, or immediate"
            ),
        ),
        argument(
            "--fault",
            choices=FAULTS,
            default="crash",
            help=(
                "what breaks: the guest crashes (default), it hangs and still writes, only the "
                "application dies, only a healthy server is slow, or the host loses power. The "
                "last one ends BLOCKED, as it must, because nothing proves that the server is off. "
                "confirmed: an operator confirms that it is off; returns: and then it comes back"
            ),
        ),
        one_of(
            argument(
                "--active-active",
                action="store_true",
                help=(
                    "two roles on two members, each with its own volumes: the remaining member "
                    "takes both, and in the end a failback distributes them again (with the faults "
                    "crash, hang and app, and without --agents)"
                ),
            ),
            argument(
                "--rehearse",
                action="store_true",
                help=(
                    "no failover: it is rehearsed on copies of the volumes while the group serves, "
                    "then a package is missing on the standby, and the next rehearsal finds it "
                    "(with --fault crash)"
                ),
            ),
            argument(
                "--single",
                action="store_true",
                help=(
                    "one server without a standby: it is started again, or Heat makes another one "
                    f"(with the faults {', '.join(ALONE)}, and without --agents)"
                ),
            ),
        ),
        argument(
            "--agents",
            action="store_true",
            help=(
                "guests of real processes: each has a failover-agent that is commanded through "
                "files, whose commands mount the volume (a directory) and run an application that "
                "writes to it"
            ),
        ),
        argument(
            "--broker",
            metavar="URL",
            help=(
                "command the agents over this RabbitMQ, as in amqp://user:password@host/vhost "
                "(implies --agents)"
            ),
        ),
        argument(
            "--keep",
            action="store_true",
            help="keep the state, and continue what an earlier drill left there",
        ),
        argument(
            "--state-dir",
            type=Path,
            metavar="DIR",
            help=f"the state directory (default {DEFAULT_DIR}; implies --keep)",
        ),
    )

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[list[str], list[Any]]:
        """Run, report, audit."""
        agents = parsed_args.agents or parsed_args.broker is not None
        for option, faults in (
            ("active_active", RECOVERABLE),
            ("single", ALONE),
            ("rehearse", ("crash",)),
        ):
            alone = "" if option == "rehearse" else ", and without --agents"
            if getattr(parsed_args, option) and (
                (agents and alone) or parsed_args.fault not in faults
            ):
                wrong = (
                    f"--{option.replace('_', '-')} works only with --fault "
                    f"{', '.join(faults)}{alone}"
                )
                self.get_parser("failover drill").error(wrong)
        if parsed_args.broker is not None:
            self._check_broker(parsed_args.broker)
        # A signal that ends the drill must end the cloud as well.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(_TERMINATED))
        for handler in logging.getLogger().handlers:
            handler.setLevel(logging.ERROR)  # Mistral's own log goes to the state directory
        from mistral_failover.embedded import boot

        boot.check_mistral()
        # Imported here, because every other command would wait a second for these imports.
        from mistral_failover.lab.drill.run import (
            ActiveActiveRun,
            DrillRun,
            RehearsalRun,
            SingleRun,
        )
        from mistral_failover.lab.drill.scene import Scene

        stream = sys.stdout if parsed_args.formatter == "table" else sys.stderr
        keep = parsed_args.keep or parsed_args.state_dir is not None
        with _state_dir(parsed_args.state_dir or DEFAULT_DIR, keep) as folder:
            with (
                Progress(stream) as tell,
                Scene(
                    folder,
                    latency=parsed_args.latency,
                    idle_exit=_KEPT_CLOUD if keep else _CLOUD,
                    agents=agents,
                    broker=parsed_args.broker,
                ) as scene,
            ):
                made = ActiveActiveRun if parsed_args.active_active else DrillRun
                made = SingleRun if parsed_args.single else made
                made = RehearsalRun if parsed_args.rehearse else made
                play = made(scene, tell=tell, fault=parsed_args.fault, volumes=parsed_args.volumes)
                outcome = play.run()
            (folder / _DONE).touch()
        self._exit_code = 1 if outcome.violations else 0
        facts = outcome.as_dict()
        if parsed_args.formatter == "table":
            facts = _readable(facts)
        return list(facts), list(facts.values())

    def _check_broker(self, url: str) -> None:
        """Check that the agents can be commanded over the broker, before anything starts. Raises
        CommandFailed; a URL that is none is a wrong command line."""
        from mistral_failover.agent.broker import ERRORS, BadUrl, Broker, forget
        from mistral_failover.agent.channel.links import BrokerUnavailable

        form = "amqp://user:password@host/vhost, or amqps://..."
        try:
            broker = Broker(url)
            wrong = "" if broker.real else f"expected {form}"
        except BadUrl:
            wrong = f"expected {form}"
        if wrong:
            self.get_parser("failover drill").error(f"argument --broker: {wrong}")
        try:
            forget(broker.connect())
        except ERRORS as error:
            raise CommandFailed(
                BrokerUnavailable(broker.shown, error),
                "Check its URL, user and password, and that it runs. [UNREACHABLE]",
            ) from None

    def run(self, parsed_args: argparse.Namespace) -> int:
        """The exit code reports violations."""
        self._exit_code = 0
        return int(super().run(parsed_args)) or self._exit_code


def _readable(facts: dict[str, Any]) -> dict[str, str]:
    seconds = {"to_active", "total", "critical_path"}
    shown = {}
    for name, value in facts.items():
        if value is None or value == "" or (name == "recovered" and not value):
            continue
        if name in seconds:
            shown[name] = f"{value:.2f} s"
        elif name == "ratio":
            shown[name] = f"{value:.2f} (total / critical path of the cloud and its guests)"
        elif name == "holders":
            shown[name] = _holders(value)
        elif name == "rehearsals":
            shown.update({name: "\n".join(value)} if value else {})
        elif name == "violations":
            shown["invariants"] = "\n".join(value) if value else "all held"
        else:
            shown[name] = str(value)
    return shown


def _holders(holders: dict[str, str]) -> str:
    """By member, since there may be a hundred volumes."""
    members: dict[str, list[str]] = {}
    for volume, member in sorted(holders.items()):
        members.setdefault(member, []).append(volume)
    return "; ".join(
        f"{member}: {', '.join(volumes) if len(volumes) < 4 else f'{len(volumes)} volumes'}"
        for member, volumes in members.items()
    )


@contextlib.contextmanager
def _state_dir(kept: Path, keep: bool) -> Iterator[Path]:
    if not keep:
        with tempfile.TemporaryDirectory(prefix="failover-drill-") as name:
            yield Path(name)
        return
    if (kept / _DONE).exists():
        _clear(kept)  # that drill has ended: this is a new one
    kept.mkdir(mode=0o700, parents=True, exist_ok=True)
    yield kept


def _clear(kept: Path) -> None:
    """Remove an ended drill's state. The mark that it has ended goes last, so that a drill killed
    in between is not continued."""
    for path in kept.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.name != _DONE:
            path.unlink()
    (kept / _DONE).unlink()
