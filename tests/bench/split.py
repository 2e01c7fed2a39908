# SPDX-License-Identifier: Apache-2.0
"""Where our own time goes: a failover of one volume in a cloud without latency.

Steps work beside Mistral's chain of stages, so the seconds in the state store and in HTTP calls are
those of all threads, and their sum may exceed the total. CPU is that of the process: Mistral's and
ours; the cloud is another process.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any
from unittest import mock

from bench.staging import audited, bring_up, finished, must, stage
from mistral_failover.cloud.transport import _GuardedTransport
from mistral_failover.store.database import Database

REPEATS = 5


class Meter:
    """Seconds spent in named functions; a function within itself counts once."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.calls: Counter[str] = Counter()
        self._inside = threading.local()

    def around(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The same function, measured."""

        def measured(*args: Any, **kwargs: Any) -> Any:
            if getattr(self._inside, name, False):
                return function(*args, **kwargs)
            setattr(self._inside, name, True)
            begun = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                setattr(self._inside, name, False)
                self.seconds[name] += time.perf_counter() - begun
                self.calls[name] += 1

        return measured


def main() -> None:
    """Print the median of some failovers."""
    rows = []
    with stage() as scene:
        for number in range(REPEATS + 1):
            name = f"split-{number}"
            bring_up(scene, name)
            server = scene.server(name, "db_a")
            body = scene.cloud.alarm_body(server)
            scene.cloud.fault("server", server, "app")
            meter = Meter()
            with (
                mock.patch.object(Database, "run", meter.around("store", Database.run)),
                mock.patch.object(
                    _GuardedTransport, "send", meter.around("http", _GuardedTransport.send)
                ),
            ):
                at, busy = time.time(), time.process_time()
                run = finished(scene, name, must(scene.run("failover.on_alarm", **body)), at)
            rows.append((run.total, time.process_time() - busy, meter))
        audited(scene)
    rows = rows[1:]  # the first one warms up

    def median(of: Callable[[float, float, Meter], float]) -> float:
        return statistics.median(of(*row) for row in rows) * 1000

    total = median(lambda total, cpu, meter: total)
    cpu = median(lambda total, cpu, meter: cpu)
    store = median(lambda total, cpu, meter: meter.seconds["store"])
    http = median(lambda total, cpu, meter: meter.seconds["http"])
    *_, last = rows[-1]
    print(f"   total {total:7.0f} ms (alarm to goal reached, median of {REPEATS})")
    print(f"   CPU   {cpu:7.0f} ms (until the chain has ended)")
    print(f"   store {store:7.0f} ms in {last.calls['store']} transactions")
    print(f"   HTTP  {http:7.0f} ms in {last.calls['http']} calls")
