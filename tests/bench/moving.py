# SPDX-License-Identifier: Apache-2.0
"""One group with 1, 8 and 32 volumes, in a cloud as fast as measured.

The application dies on a healthy member: there is no limit to wait for, so the critical path is as
short as it can be. "measured" handles one server's volumes one after the other, as Nova does;
"parallel" does not, which leaves our own overhead nowhere to hide.
"""

from __future__ import annotations

import time

from bench.goals import DRILL
from bench.staging import (
    Run,
    all_ended,
    audited,
    bring_up,
    finished,
    must,
    set_latency,
    stage,
    traversals_in,
)
from mistral_failover.lab.drill.scene import Scene

VOLUMES = (1, 8, 32)


def main() -> None:
    """Print the table."""
    print("   cloud     volumes   total s   critical path s   ratio   Mistral tasks")
    for latency in ("measured", "parallel"):
        with stage(latency) as scene:
            for volumes in VOLUMES:
                name = f"moving-{volumes}"
                set_latency(scene, "zero")
                bring_up(scene, name, volumes)
                set_latency(scene, latency)
                run = _fail_over(scene, name)
                ratio = run.total / run.critical_path
                print(
                    f"   {latency:9} {volumes:7} {run.total:9.2f} {run.critical_path:17.2f}"
                    f" {ratio:7.2f} {run.tasks:15}",
                    flush=True,
                )
            audited(scene)
    DRILL.tell(ratio)


def _fail_over(scene: Scene, name: str) -> Run:
    server = scene.server(name, "db_a")
    body = scene.cloud.alarm_body(server)
    scene.cloud.fault("server", server, "app")
    before = traversals_in(scene)
    at = time.time()
    execution = scene.start("failover.on_alarm", **body)
    while traversals_in(scene) == before:  # asking Mistral so often would be a load of its own
        time.sleep(0.1)
    all_ended(scene)
    return finished(scene, name, must(scene.mistral.client.wait(execution)), at)
