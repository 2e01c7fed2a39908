# SPDX-License-Identifier: Apache-2.0
"""What further volumes cost: CPU of a failover, and rows of the state store, for each group."""

from __future__ import annotations

import sqlite3
import time

from bench.staging import all_ended, audited, bring_up, must, stage
from mistral_failover.lab.drill.scene import Scene

VOLUMES, GROUPS = (1, 3, 9), 3


def main() -> None:
    """Print the table."""
    print("   volumes   CPU s per failover   KiB per group   KiB per failover")
    with stage("zero") as scene:
        bring_up(scene, "warms-up")
        for volumes in VOLUMES:
            names = [f"volumes-{volumes}-{number}" for number in range(GROUPS)]
            before = _size(scene)
            for name in names:
                bring_up(scene, name, volumes)
            made = _size(scene)
            bodies = []
            for name in names:
                server = scene.server(name, "db_a")
                bodies.append(scene.cloud.alarm_body(server))
                scene.cloud.fault("server", server, "app")
            busy = time.process_time()
            ids = [scene.start("failover.on_alarm", **body) for body in bodies]
            all_ended(scene)
            for identity in ids:
                must(scene.mistral.client.wait(identity))
            busy = time.process_time() - busy
            moved = _size(scene)
            print(
                f"   {volumes:7} {busy / GROUPS:20.2f} {(made - before) / GROUPS:15.1f}"
                f" {(moved - made) / GROUPS:18.1f}",
                flush=True,
            )
        audited(scene)


def _size(scene: Scene) -> float:
    """KiB of the state store that are in use."""
    with sqlite3.connect(scene.state_dir / "failover.sqlite") as connection:
        values = [
            connection.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("page_count", "freelist_count", "page_size")
        ]
    connection.close()
    return float((values[0] - values[1]) * values[2] / 1024)
