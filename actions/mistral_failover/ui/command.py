# SPDX-License-Identifier: Apache-2.0
"""``failover ui``: the web page."""

from __future__ import annotations

import argparse
import importlib.util
from typing import Any

from cliff.command import Command

from mistral_failover.cli import connection
from mistral_failover.cli.exporter import address, told_to_end

LISTEN = "127.0.0.1:8991"
_NEEDED = ("jinja2", "starlette", "uvicorn")


class Ui(Command):
    """Serve a web page about your groups on this machine, until SIGTERM or Ctrl-C.

    It shows what the command line shows, live: which group is stuck and which command helps, who
    has which volume, the timeline of a failover, plans and the history. It uses the same Mistral as
    every other command, with your rights.

    It prints a link. Open it in a browser on this machine; the link works once, and then a new one
    is printed. It listens on loopback only. From another machine, use a tunnel: ssh -L
    8991:127.0.0.1:8991 HOST.

    With --read-only the page has no orders.

    Exit codes: 0 stopped by a signal, 1 it could not start, with the reason.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """The options."""
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        parser.add_argument(
            "--listen",
            type=address,
            default=address(LISTEN),
            metavar="HOST:PORT",
            help=f"the address to listen on, on loopback (default {LISTEN}); port 0 takes a free "
            "one",
        )
        parser.add_argument(
            "--read-only", action="store_true", help="show only: the page has no orders"
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Serve until a signal comes."""
        lacking = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
        if lacking:
            raise connection.CommandFailed(
                f"The page needs {', '.join(lacking)}",
                "Run: pip install 'mistral-failover[ui]'. [NOT_INSTALLED]",
            )
        # Imported here, because every other command would wait for these imports.
        from mistral_failover.ui.asking import OverMistral, Trouble
        from mistral_failover.ui.serving import NotLoopback, serving

        asking = OverMistral(self.app)
        host, port = parsed_args.listen
        try:
            asking.ask("failover.status")
            with (
                serving(
                    asking, host, port, read_only=parsed_args.read_only, announce=self._announce
                ),
                told_to_end() as ended,
            ):
                ended.wait()
        except Trouble as error:
            raise connection.CommandFailed(
                error.message, f"{error.remedy} [{error.code}]".lstrip()
            ) from None
        except NotLoopback:
            raise connection.CommandFailed(
                f"{host} is not an address of loopback",
                "Use 127.0.0.1 and a tunnel: ssh -L 8991:127.0.0.1:8991 HOST. [LOOPBACK_ONLY]",
            ) from None
        except (OSError, ValueError) as error:
            why: Any = getattr(error, "strerror", None) or error
            raise connection.CommandFailed(
                f"Cannot listen on {host}:{port}: {why}", "Give another --listen."
            ) from None

    def _announce(self, link: str) -> None:
        self.app.stdout.write(f"Open (once): {link}\n")
        self.app.stdout.flush()
