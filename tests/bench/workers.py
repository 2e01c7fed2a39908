# SPDX-License-Identifier: Apache-2.0
"""Many workers at once on one state database: nodes per second at 1, 4 and 16 of them.

Threads of one process, as Mistral's executor runs actions, and on a server processes as well. Once
all of them work on one group, where they meet in the rows of its traversal, and once each on a
group of its own.
"""

from __future__ import annotations

import multiprocessing
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from typing import Any

from bench.databases import Fresh, at_hand
from bench.groups import Bench
from mistral_failover.convergence.engine import Engine
from mistral_failover.convergence.loop import run
from mistral_failover.convergence.records import Outcome, Ready
from mistral_failover.store.database import Database

WORKERS = (1, 4, 16)
NODES = 240


def main() -> None:
    """Print the table."""
    print("   database   workers         one group: nodes per s   x   group each: nodes per s   x")
    with at_hand() as kinds:
        for kind, fresh in kinds.items():
            _rows(kind, "threads", fresh)
            if kind != "sqlite":
                _rows(kind, "processes", fresh)


def _rows(kind: str, of: str, fresh: Fresh) -> None:
    alone: list[float] = []
    for workers in WORKERS:
        rates = [_rate(of, fresh(), workers, groups) for groups in (1, workers)]
        alone = alone or rates
        columns = "  ".join(
            f"{rate:23.0f} {rate / base:5.1f}" for rate, base in zip(rates, alone, strict=True)
        )
        print(f"   {kind:8} {workers:4} {of:9}  {columns}", flush=True)


def _rate(of: str, url: str, workers: int, groups: int) -> float:
    """Nodes per second."""
    share: list[list[Ready]] = [[] for _ in range(workers)]
    with Bench(url) as bench:
        for number in range(groups):
            group = bench.group(f"bench-{number}", NODES // groups)
            ready = bench.start(group, "a", f"traversal-{number}", None).ready
            if groups == 1:
                share = [list(ready[i::workers]) for i in range(workers)]
            else:
                share[number] = list(ready)
        spans = _threads(bench.engine, share) if of == "threads" else _processes(url, share)
    return NODES / (max(end for _, end in spans) - min(begin for begin, _ in spans))


def _threads(engine: Engine, share: Sequence[Sequence[Ready]]) -> list[tuple[float, float]]:
    barrier = threading.Barrier(len(share))
    with ThreadPoolExecutor(len(share)) as pool:
        return _spread(pool, share, lambda ready: _carry(engine, ready, barrier))


def _processes(url: str, share: Sequence[Sequence[Ready]]) -> list[tuple[float, float]]:
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(len(share))
    with ProcessPoolExecutor(
        len(share), mp_context=context, initializer=_enter, initargs=(url, barrier)
    ) as pool:
        return _spread(pool, share, _carry_here)


def _spread(
    pool: Executor, share: Sequence[Sequence[Ready]], carry: Any
) -> list[tuple[float, float]]:
    return list(pool.map(carry, share))


_here: dict[str, Any] = {}


def _enter(url: str, barrier: Any) -> None:
    """A worker process begins: its connection and its engine."""
    _here.update(engine=Engine(Database(url), lease=30.0), barrier=barrier)


def _carry_here(ready: Sequence[Ready]) -> tuple[float, float]:
    return _carry(_here["engine"], ready, _here["barrier"])


def _carry(engine: Engine, ready: Sequence[Ready], barrier: Any) -> tuple[float, float]:
    """Carry these nodes and what follows from them; when that began and ended."""
    engine.check(Ready("none", ready[0].node), "bench")  # opens the connection
    barrier.wait(60)
    begun = time.monotonic()
    run(
        engine,
        ready,
        lambda operation: Outcome(physical_id="x"),
        owner=threading.current_thread().name,
    )
    return begun, time.monotonic()
