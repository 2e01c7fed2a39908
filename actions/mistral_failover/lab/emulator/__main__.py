# SPDX-License-Identifier: Apache-2.0
"""`python -m mistral_failover.lab.emulator --state-dir DIR`: the emulated cloud as a process."""

import argparse
import sys
from pathlib import Path

from mistral_failover.lab.emulator.latency import MEASURED, PROFILES
from mistral_failover.lab.emulator.server import LOOPBACK, EmulatedCloud, announce


def _pair(text: str) -> tuple[str, float]:
    name, _, seconds = text.partition("=")
    if name not in MEASURED:
        raise argparse.ArgumentTypeError(f"unknown time {name!r}; known: {', '.join(MEASURED)}")
    try:
        return name, float(seconds)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=SECONDS") from None


def _host(text: str) -> str:
    if text != LOOPBACK:
        raise argparse.ArgumentTypeError(f"the emulator serves {LOOPBACK} only, not {text}")
    return text


def main(arguments: list[str] | None = None) -> int:
    """Runs the emulator; prints {"url", "pid"} as a line of JSON when it listens."""
    parser = argparse.ArgumentParser(prog="mistral_failover.lab.emulator", description=__doc__)
    parser.add_argument("--state-dir", type=Path, required=True)
    parser.add_argument("--host", type=_host, default=LOOPBACK)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--latency", choices=PROFILES, default="measured")
    parser.add_argument(
        "--latency-set", type=_pair, action="append", default=[], metavar="NAME=SECONDS"
    )
    parser.add_argument(
        "--workflow-url", metavar="URL", help="a Mistral's API, ending in /v2, for the catalog"
    )
    parser.add_argument(
        "--idle-exit",
        type=float,
        default=900.0,
        metavar="SECONDS",
        help="exit when no request came for so long; 0: never",
    )
    parser.add_argument(
        "--save-every",
        type=float,
        default=0.0,
        metavar="SECONDS",
        help="write the state so often, not with each change",
    )
    options = parser.parse_args(arguments)
    try:
        cloud = EmulatedCloud(
            options.state_dir,
            options.latency,
            overrides=dict(options.latency_set),
            port=options.port,
            workflow_url=options.workflow_url,
            save_every=options.save_every,
        )
    except (OSError, ValueError) as error:
        parser.error(str(error))
    sys.stdout.write(announce(cloud.url, options.state_dir) + "\n")
    sys.stdout.flush()
    cloud.serve(idle_exit=options.idle_exit)
    return 0


if __name__ == "__main__":
    sys.exit(main())
