# SPDX-License-Identifier: Apache-2.0
"""``failover exporter``: the metrics of a project for Prometheus."""

from __future__ import annotations

import argparse
import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from cliff.command import Command

from mistral_failover.cli import connection
from mistral_failover.cli.arguments import Arguments, argument
from mistral_failover.loopback import NotLoopback

if TYPE_CHECKING:
    from mistral_failover.mistral.client import MistralClient

LISTEN = "127.0.0.1:9798"


def address(text: str) -> tuple[str, int]:
    """Parse a host and a port. Raises ArgumentTypeError."""
    host, separator, port = text.rpartition(":")
    if not separator or not port.isdecimal() or int(port) > 65535:
        raise argparse.ArgumentTypeError(f"expected HOST:PORT, got {text!r}")
    return host.strip("[]") or "127.0.0.1", int(port)


def seconds(text: str) -> float:
    """Parse a duration. Raises ArgumentTypeError."""
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0.1 <= found <= 3600:
        raise argparse.ArgumentTypeError(f"expected seconds from 0.1 to 3600, got {text!r}")
    return found


def _add_interval(parser: argparse.ArgumentParser) -> None:
    from mistral_failover.metrics.server import INTERVAL  # no other command waits for it

    parser.add_argument(
        "--interval",
        type=seconds,
        default=INTERVAL,
        metavar="SECONDS",
        help=f"seconds between two queries of Mistral (default {INTERVAL:g})",
    )


class Exporter(Arguments, Command):
    """Serve the metrics of your project to Prometheus, until SIGTERM or Ctrl-C.

    It queries Mistral in the background, with your rights, and answers
    http://127.0.0.1:9798/metrics with the last values and their age. If Mistral is down it
    continues: failover_up is then 0, and failover_scrape_age_seconds grows.

    It has no authentication, so it listens on loopback only. With --listen-anywhere everyone who
    can reach it may read the names of your groups and members; give each name by which
    Prometheus calls it with --name. Alert rules and a dashboard:
    examples/monitoring.

    Each query is an action execution in Mistral, which is deleted afterwards. Mistral allows that
    only with allow_action_execution_deletion = true in its section [api]; otherwise one record per
    --interval stays there.

    A 'failover server' needs no exporter: use its --metrics-port.

    Exit codes: 0 stopped by a signal, 1 it could not listen, with the reason.
    """

    arguments = (
        argument(
            "--listen",
            type=address,
            default=address(LISTEN),
            metavar="HOST:PORT",
            help=f"address to listen on (default {LISTEN}; port 0 takes a free one)",
        ),
        argument(
            "--listen-anywhere",
            action="store_true",
            help="listen on an address that other machines can reach; there is no authentication",
        ),
        argument(
            "--name",
            action="append",
            default=[],
            metavar="NAME",
            help="a further name by which Prometheus calls it, besides its address and localhost; "
            "may be repeated. Requests by other names are refused",
        ),
        argument(
            "--group-limit",
            type=int,
            default=500,
            metavar="N",
            help='number of groups with their own labels (default 500); the others are "other"',
        ),
        _add_interval,
    )

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Serve until a signal comes."""
        from mistral_failover.metrics.server import MetricsServer

        host, port = parsed_args.listen
        ask = _MetricsQuery(self.app, parsed_args.group_limit)
        try:
            server = MetricsServer(
                ask,
                port,
                host=host,
                interval=parsed_args.interval,
                anywhere=parsed_args.listen_anywhere,
                names=parsed_args.name,
            )
            with server, stop_signals() as ended:
                self.app.stdout.write(f"The metrics are at {server.url}\n")
                self.app.stdout.flush()
                # A signal may reach another thread, but only this one runs its handler.
                while not ended.wait(1.0):
                    pass
        except NotLoopback as error:
            raise connection.CommandFailed(
                f"{error}, and there is no authentication: everyone who can reach it could read "
                "the metrics. Put a proxy before it, or give --listen-anywhere. [LOOPBACK_ONLY]"
            ) from None
        except OSError as error:
            raise connection.CommandFailed(
                f"Cannot listen on {host}:{port}: {error.strerror}. Give another --listen."
            ) from None


@contextlib.contextmanager
def stop_signals() -> Iterator[threading.Event]:
    """Yield an event that SIGTERM and Ctrl-C set while the block runs."""
    ended = threading.Event()
    before = {
        number: signal.signal(number, lambda *_: ended.set())
        for number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        yield ended
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _MetricsQuery:
    """Queries Mistral repeatedly over one session, whose token is renewed when it expires; over a
    new one after a failure."""

    def __init__(self, app: Any, group_limit: int) -> None:
        self._app = app
        self._inputs = {"group_limit": group_limit}
        self._client: MistralClient | None = None

    def __call__(self) -> Any:
        # The client is used outside of the block, which only turns errors into messages.
        with contextlib.ExitStack() as stack:
            client, self._client = self._client, None
            if client is None:
                client = stack.enter_context(connection.mistral(self._app))
            # By an executor: without a record the engine itself would run it, and block.
            answer = client.run_action("failover.metrics", self._inputs, forget=True)
            self._client = client
            return answer
