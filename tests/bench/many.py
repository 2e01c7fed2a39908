# SPDX-License-Identifier: Apache-2.0
"""1, 10 and 50 groups that fail over at once, as when a host dies: one volume each.

CPU is that of this process until the last execution has ended, so with all that Mistral does after
the goal is reached; the cloud is another process. *ours*: of that, the actions and the workers.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from unittest import mock

from bench.goals import FAILOVER, FIFTY, OURS
from bench.staging import all_ended, audited, bring_up, finished, must, set_latency, stage
from mistral_failover.actions.base import FailoverAction
from mistral_failover.lab.drill.scene import Scene
from mistral_failover.runtime.workers import Workers
from mistral_failover.settings import Settings

GROUPS = (1, 10, 50)
_OPTIONS = {"sweep_interval": Settings().sweep_interval}
"""As a server has it; a drill looks for the unfinished work of a killed one every second."""


class Ours:
    """The CPU seconds of the threads that work for the package, while they do."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._lock = threading.Lock()

    def measured(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The same function, measured. It must not call another one that is."""

        def run(*args: Any, **kwargs: Any) -> Any:
            begun = time.thread_time()
            try:
                return function(*args, **kwargs)
            finally:
                with self._lock:
                    self.seconds += time.thread_time() - begun

        return run

    @contextlib.contextmanager
    def counting(self) -> Iterator[None]:
        """Measure while the block runs."""
        with (
            mock.patch.object(FailoverAction, "run", self.measured(FailoverAction.run)),
            mock.patch.object(Workers, "_run", self.measured(Workers._run)),
        ):
            yield


def main() -> None:
    """Print the table."""
    print(
        "   groups   all done s   slowest group s   alone s   tasks   CPU s per failover     ours"
    )
    alone = 0.0
    for count in GROUPS:
        with stage("measured", **_OPTIONS) as scene:
            set_latency(scene, "zero")
            names = [f"many-{number}" for number in range(count)]
            for name in names:
                bring_up(scene, name)
            set_latency(scene, "measured")
            servers = {name: scene.server(name, "db_a") for name in names}
            bodies = {name: scene.cloud.alarm_body(servers[name]) for name in names}
            for server in servers.values():
                scene.cloud.fault("server", server, "app")
            ours = Ours()
            with ours.counting():
                begun, busy = time.time(), time.process_time()
                with ThreadPoolExecutor(count) as pool:
                    started = pool.map(
                        lambda body: scene.start("failover.on_alarm", **body), bodies.values()
                    )
                    ids = list(started)
                all_ended(scene)
                _executions_ended(scene)
                busy = (time.process_time() - busy) / count
            runs = [
                finished(scene, name, must(scene.mistral.client.wait(identity)), begun)
                for name, identity in zip(names, ids, strict=True)
            ]
            audited(scene)
        slowest = max(run.total for run in runs)
        alone = alone or slowest
        tasks = sum(run.tasks for run in runs)
        mine = ours.seconds / count
        print(
            f"   {count:6} {slowest:12.2f} {slowest:17.2f} {alone:9.2f} {tasks:7}"
            f" {busy:20.2f} {mine:8.2f}",
            flush=True,
        )
    FAILOVER.tell(busy)
    OURS.tell(mine)
    FIFTY.tell(slowest / alone)


def _executions_ended(scene: Scene, limit: float = 300) -> None:
    """Wait until no execution is under way."""
    deadline = time.monotonic() + limit
    wanted = {"fields": "id", "state": "RUNNING", "limit": 1}
    while time.monotonic() < deadline:
        if not scene.mistral.client.request("GET", "executions", params=wanted)["executions"]:
            return
        time.sleep(0.5)
    raise RuntimeError(f"not all executions ended within {limit} s")
