# SPDX-License-Identifier: Apache-2.0
"""``failover ui``: the web page."""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TextIO

from cliff.command import Command

from mistral_failover.cli import connection
from mistral_failover.cli.arguments import Arguments, argument
from mistral_failover.cli.exporter import address, stop_signals
from mistral_failover.loopback import NotLoopback, require_loopback

LISTEN = "127.0.0.1:8991"
_NEEDED = ("jinja2", "starlette", "uvicorn")


class Ui(Arguments, Command):
    """Serve a web page about your groups on this machine, until SIGTERM or Ctrl-C.

    It shows what the command line shows, live: which group waits for you and which command helps,
    who has which volume, the timeline of a failover, plans and the history. It uses the same
    Mistral as every other command, with your rights.

    It prints a link. Open it in a browser on this machine; the link works once, and then a new one
    is printed. It listens on loopback only. From another machine, use a tunnel: ssh -L
    8991:127.0.0.1:8991 HOST.

    With --read-only the page has no orders.

    Exit codes: 0 stopped by a signal, 1 it could not start, with the reason.
    """

    arguments = (
        argument(
            "--listen",
            type=address,
            default=address(LISTEN),
            metavar="HOST:PORT",
            help=f"the address to listen on, on loopback (default {LISTEN}); port 0 takes a free "
            "one",
        ),
        argument("--read-only", action="store_true", help="show only: the page has no orders"),
    )

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Serve until a signal comes."""
        self.check()
        from mistral_failover.ui.action_client import ActionFailed, MistralActionClient

        host, port = parsed_args.listen
        check_address(host, port)
        try:
            MistralActionClient(self.app).run_action("failover.status")
        except ActionFailed as error:
            raise connection.CommandFailed(
                error.message, f"{error.remedy} [{error.code}]".lstrip()
            ) from None
        with (
            page(self.app, self.app.stdout, host, port, read_only=parsed_args.read_only),
            stop_signals() as ended,
        ):
            # A signal may reach another thread, but only this one runs its handler.
            while not ended.wait(1.0):
                pass

    @staticmethod
    def check() -> None:
        """Check that the packages of the extra ``ui`` are there. Raises CommandFailed."""
        if lacking := [name for name in _NEEDED if importlib.util.find_spec(name) is None]:
            raise connection.CommandFailed(
                f"The page needs {', '.join(lacking)}",
                "Run: pip install 'mistral-failover[ui]'. [NOT_INSTALLED]",
            )

    @classmethod
    def beside(
        cls, state_dir: Path, stream: TextIO, listen: tuple[str, int], *, read_only: bool
    ) -> AbstractContextManager[None]:
        """Check what the page needs, and return a context manager that serves it for the ``failover
        server`` with this state directory. It writes the links to ``stream``. Both raise
        CommandFailed."""
        cls.check()
        check_address(*listen)
        options = SimpleNamespace(embedded=True, server_state=state_dir)
        return page(SimpleNamespace(options=options), stream, *listen, read_only=read_only)


def check_address(host: str, port: int) -> None:
    """Check that the page may be served there. Raises CommandFailed."""
    with _cannot_listen(host, port):
        require_loopback(host)


@contextlib.contextmanager
def page(
    app: Any, stream: TextIO, host: str, port: int, *, read_only: bool = False
) -> Iterator[None]:
    """Serve the page over the Mistral of ``app`` while the block lasts. Raises CommandFailed if it
    cannot listen."""
    # Imported here, because every other command would wait for these imports.
    from mistral_failover.ui.action_client import MistralActionClient
    from mistral_failover.ui.serving import serving

    def announce(link: str) -> None:
        stream.write(f"Open (once): {link}\n")
        stream.flush()

    with contextlib.ExitStack() as stack:
        with _cannot_listen(host, port):
            stack.enter_context(
                serving(
                    MistralActionClient(app), host, port, read_only=read_only, announce=announce
                )
            )
        yield


@contextlib.contextmanager
def _cannot_listen(host: str, port: int) -> Iterator[None]:
    """Turn what keeps a server from listening into a failed command."""
    try:
        yield
    except NotLoopback as error:
        raise connection.CommandFailed(
            str(error),
            "Use 127.0.0.1 and a tunnel: ssh -L 8991:127.0.0.1:8991 HOST. [LOOPBACK_ONLY]",
        ) from None
    except (OSError, ValueError) as error:
        why: Any = getattr(error, "strerror", None) or error
        raise connection.CommandFailed(
            f"Cannot serve the page at {host}:{port}: {why}", "Give another address."
        ) from None
