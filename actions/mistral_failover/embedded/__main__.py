# SPDX-License-Identifier: Apache-2.0
"""Run the embedded Mistral as a program: ``python -m mistral_failover.embedded STATE_DIR``.

Prints one line of JSON (``url``, ``pid``) when it is ready, runs until SIGTERM or SIGINT.
"""

import argparse
import contextlib
import json
import os
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from mistral_failover.embedded.server import EmbeddedMistral, known_to_actions
from mistral_failover.errors import CodedError


def serve(argv: Sequence[str] | None = None) -> int:
    """Start, print the address, wait for a signal, stop; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m mistral_failover.embedded")
    parser.add_argument("state_dir", type=Path)
    parser.add_argument("--port", type=int, default=0, help="default: a free one")
    parser.add_argument("--auth-url", help="Keystone's URL, for the actions")
    parser.add_argument("--log-file", type=Path, help="default: STATE_DIR/mistral.log")
    parser.add_argument("--threads", type=int, default=128, help="actions at the same time")
    parser.add_argument(
        "--sweep",
        action="store_true",
        help=(
            "continue stalled work of dead processes: end the executions of a former process on "
            "STATE_DIR, then check every [failover] sweep_interval; needs the package's workflows"
        ),
    )
    parser.add_argument(
        "--set", action="append", default=[], metavar="GROUP.OPTION=VALUE", dest="overrides"
    )
    parser.add_argument("--workflows", nargs="*", type=Path, default=[], metavar="FILE")
    args = parser.parse_args(argv)

    os.umask(0o077)
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    try:
        server = EmbeddedMistral(
            args.state_dir,
            args.port,
            log_file=args.log_file or args.state_dir / "mistral.log",
            auth_url=args.auth_url,
            overrides=dict(pair.split("=", 1) for pair in args.overrides),
            threads=args.threads,
        )
        with server, known_to_actions(server), contextlib.ExitStack() as sweeping:
            server.install_workflows(args.workflows)
            if args.sweep:
                # Imported here, so that the generic Mistral does not need the package.
                from mistral_failover.embedded.background_sweep import BackgroundSweep

                server.cancel_stale()
                sweeping.enter_context(BackgroundSweep(server))
            print(json.dumps({"url": server.url, "pid": os.getpid()}), flush=True)  # noqa: T201
            # A signal may reach another thread, but only this one runs its handler.
            while not ended.wait(1.0):
                pass
    except CodedError as e:
        print(f"{e.code}: {e}", file=sys.stderr)  # noqa: T201 - this is a program's answer
        return 1
    return 0


def main() -> None:
    """Serve and end the process, whatever actions are still running.

    They run in threads that Python waits for at its end. A program that must stop cannot wait for
    them: their operations have leases and a ledger, which recovery relies on.
    """
    code = serve()
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
