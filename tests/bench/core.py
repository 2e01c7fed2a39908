# SPDX-License-Identifier: Apache-2.0
"""The convergence core alone: does a node cost the same in a large graph as in a small one, and
where does the time of starting a traversal go?

*our CPU* is what this process computes for a node; the rest is the database's. It is the number to
look at on a machine that has other work.
"""

from __future__ import annotations

import time
from typing import Any
from unittest import mock

from bench import groups
from bench.databases import at_hand
from bench.groups import Bench
from bench.split import Meter
from mistral_failover.convergence import traversals
from mistral_failover.convergence.loop import run
from mistral_failover.convergence.records import Outcome
from mistral_failover.store.transaction import SqlTransaction

SIZES = (10, 100, 1000)


def main() -> None:
    """Print both tables."""
    starts = []
    print("   database   resources   node ms   our CPU ms   nodes per s   cost, CPU against 10")
    with at_hand() as kinds:
        for kind, fresh in kinds.items():
            first = None
            for size in SIZES:
                (node, cpu), activate, move = _measure(fresh(), size)
                starts += [(kind, size, "activate", activate), (kind, size, "move", move)]
                first = (node, cpu) if first is None else first
                print(
                    f"   {kind:8} {size:11} {node * 1000:9.2f} {cpu * 1000:12.2f} {1 / node:13.0f}"
                    f" {node / first[0]:14.2f} {cpu / first[1]:6.2f}",
                    flush=True,
                )
    print("\n   start of a traversal: activate makes all resources; move replaces all of them")
    print("   database   resources   goal       total ms   render   plan   read   write   rest")
    for kind, size, goal, (total, meter) in starts:
        parts = [meter.seconds[name] for name in ("render", "plan", "read", "write")]
        columns = "  ".join(f"{part * 1000:5.0f}" for part in (*parts, total - sum(parts)))
        print(f"   {kind:8} {size:11}   {goal:9} {total * 1000:9.0f}    {columns}", flush=True)


Start = tuple[float, Meter]


def _measure(url: str, size: int) -> tuple[tuple[float, float], Start, Start]:
    """Seconds, and seconds of our CPU, per node (check and conclude); the start of the first
    activation and of a move to the other member."""
    with Bench(url) as bench:
        group = bench.group("bench", size)
        activate, ready = _start(bench, group, "a", "first", None)
        begun, computed = time.perf_counter(), time.process_time()
        run(bench.engine, ready, lambda operation: Outcome(physical_id="x"), owner="bench")
        node = (time.perf_counter() - begun) / size, (time.process_time() - computed) / size
        move, _ = _start(bench, group, "b", "second", "first")
    return node, activate, move


def _start(
    bench: Bench, group: str, active: str, identity: str, expected: str | None
) -> tuple[Start, Any]:
    meter = Meter()

    def measured(owner: Any, name: str, part: str) -> Any:
        return mock.patch.object(owner, name, meter.around(part, getattr(owner, name)))

    with (
        measured(groups, "render_goal", "render"),
        measured(traversals, "plan", "plan"),
        measured(SqlTransaction, "definition", "read"),
        measured(SqlTransaction, "records", "read"),
        measured(SqlTransaction, "open_traversal", "write"),
        measured(SqlTransaction, "drop_sync_points", "write"),
    ):
        begun = time.perf_counter()
        started = bench.start(group, active, identity, expected)
        return (time.perf_counter() - begun, meter), started.ready
