# SPDX-License-Identifier: Apache-2.0
"""``python -m bench [part ...]``: run the benchmarks and print what they measured."""

from __future__ import annotations

import argparse
import inspect
import sys
import time
from collections.abc import Callable
from typing import Any

from bench import (
    admission,
    broker,
    capacity,
    core,
    flood,
    many,
    moving,
    observe,
    page,
    rehearsing,
    slow,
    split,
    webhook,
    workers,
    zone,
)

PARTS: dict[str, tuple[Callable[..., Any], str]] = {
    "moving": (moving.main, "one group: total time over the cloud's critical path"),
    "split": (split.main, "one group, no latency: where our own time goes"),
    "rehearsing": (
        rehearsing.main,
        "a failover during a rehearsal, at each of its moments (--rounds, --slower)",
    ),
    "many": (many.main, "many groups at once: a host died"),
    "observe": (observe.main, "one look at many groups at rest: CPU and requests"),
    "page": (page.main, "the page of all groups, over a real Mistral (--groups)"),
    "admission": (admission.main, "one alarm delivered 10,000 times among 100 different ones"),
    "webhook": (webhook.main, "the same through a server's webhook, which decides (--alarms)"),
    "flood": (flood.main, "a project's flood of alarms while another one fails over (--alarms)"),
    "slow": (slow.main, "slow connections to every port of a server while a group fails over"),
    "zone": (
        zone.main,
        "a host with many groups dies (--groups, --pairs, --faults, --guard, --rounds)",
    ),
    "capacity": (capacity.main, "what further volumes cost: CPU and the state store"),
    "core": (core.main, "the convergence core without Mistral: size of the graph"),
    "broker": (broker.main, "commands to 1,000 members on one broker, and its memory"),
    "workers": (workers.main, "the convergence core without Mistral: many workers at once"),
}


def main() -> int:
    """Run the parts that were asked for, or all."""
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    listed = "; ".join(f"{name}: {what}" for name, (_, what) in PARTS.items())
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"default: all. {listed}")
    parser.add_argument("--alarms", type=int, metavar="N", help="deliveries of an alarm")
    parser.add_argument("--groups", type=int, action="append", metavar="N", help="may be repeated")
    parser.add_argument(
        "--pairs",
        type=int,
        action="append",
        metavar="N",
        help="engines, with an executor each; 0: one process; may be repeated",
    )
    parser.add_argument("--faults", action="store_true", help="let parts fail meanwhile")
    parser.add_argument("--guard", action="store_true", help="let the storm guard hold alarms")
    parser.add_argument("--rounds", type=int, metavar="N", help="how often it is measured")
    parser.add_argument("--slower", type=int, metavar="N", help="N times as slow a cloud")
    options = parser.parse_args()
    given = {name: value for name, value in vars(options).items() if value and name != "parts"}
    chosen = options.parts or list(PARTS)
    unknown = sorted(set(chosen) - set(PARTS))
    if unknown:
        parser.error(f"no such part: {', '.join(unknown)}; there are {', '.join(PARTS)}")
    for name in chosen:
        run, what = PARTS[name]
        print(f"== {name}: {what}", flush=True)
        begun = time.monotonic()
        known = inspect.signature(run).parameters
        run(**{name: value for name, value in given.items() if name in known})
        print(f"   ({time.monotonic() - begun:.0f} s)\n", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
