# SPDX-License-Identifier: Apache-2.0
"""1, 10 and 50 groups that fail over at once, as when a host dies: one volume each."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

from bench.staging import all_ended, audited, bring_up, finished, must, set_latency, stage

GROUPS = (1, 10, 50)


def main() -> None:
    """Print the table."""
    print("   groups   all done s   slowest group s   alone s   tasks   CPU s per failover")
    alone = None
    for count in GROUPS:
        with stage("measured") as scene:
            set_latency(scene, "zero")
            names = [f"many-{number}" for number in range(count)]
            for name in names:
                bring_up(scene, name)
            set_latency(scene, "measured")
            servers = {name: scene.server(name, "db_a") for name in names}
            bodies = {name: scene.cloud.alarm_body(servers[name]) for name in names}
            for server in servers.values():
                scene.cloud.fault("server", server, "app")
            begun, busy = time.time(), time.process_time()
            with ThreadPoolExecutor(count) as pool:
                ids = list(
                    pool.map(lambda body: scene.start("failover.on_alarm", **body), bodies.values())
                )
            all_ended(scene)
            busy = time.process_time() - busy  # of Mistral and the pack; the cloud is another one
            runs = [
                finished(scene, name, must(scene.mistral.client.wait(identity)), begun)
                for name, identity in zip(names, ids, strict=True)
            ]
            audited(scene)
        slowest = max(run.total for run in runs)
        alone = slowest if alone is None else alone
        tasks = sum(run.tasks for run in runs)
        print(
            f"   {count:6} {slowest:12.2f} {slowest:17.2f} {alone:9.2f} {tasks:7}"
            f" {busy / count:20.2f}",
            flush=True,
        )
