# SPDX-License-Identifier: Apache-2.0
"""The convergence core on SQLite: nodes per second, and whether a node costs the same in a large
graph as in a small one."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

from mistral_failover.convergence.engine import Engine
from mistral_failover.convergence.loop import run
from mistral_failover.convergence.records import Outcome
from mistral_failover.model.goal import render_goal
from mistral_failover.model.group import parse_group
from mistral_failover.store import groups, schema
from mistral_failover.store.database import Database

SIZES = (10, 100, 1000)


def main() -> None:
    """Print the table."""
    print("   resources   start ms   node (check + conclude) ms   nodes per s   cost against 10")
    first = None
    for size in SIZES:
        start, nodes = _measure(size)
        first = nodes if first is None else first
        print(
            f"   {size:9} {start * 1000:10.1f} {nodes * 1000:28.2f} {1 / nodes:13.0f}"
            f" {nodes / first:17.2f}",
            flush=True,
        )


def _measure(size: int) -> tuple[float, float]:
    """Seconds to start the traversal, and seconds per node."""
    document = _document(size)
    group = parse_group(document, name="bench")
    with tempfile.TemporaryDirectory(prefix="failover-bench-") as folder:
        database = Database(f"sqlite:///{Path(folder) / 'core.sqlite'}")
        schema.upgrade(database)

        def define(tx: Any) -> str:
            identity = groups.define(tx, "p", "bench", {"document": document, "types": []})
            groups.see_members(tx, identity, [("a", "server-a", None), ("b", "server-b", None)])
            return identity

        identity = database.atomically(define)
        engine = Engine(database, lease=30.0)
        goal = render_goal(group, {"active": "a"}, ())
        begun = time.perf_counter()
        started = engine.start(
            identity, goal, traversal_id="first", expected=None, cause="a benchmark"
        )
        ready_at = time.perf_counter()
        run(engine, started.ready, lambda operation: Outcome(physical_id="x"), owner="bench")
        done = time.perf_counter()
        database.close()
    return ready_at - begun, (done - ready_at) / size


def _document(size: int) -> dict[str, Any]:
    """Volumes, each with an application of its own on it: many short branches."""
    resources: dict[str, Any] = {}
    for number in range(size // 2):
        resources[f"data_{number}"] = {
            "type": "volume_attachment",
            "properties": {"volume": f"volume_{number}", "server": {"get_param": "active"}},
        }
        resources[f"application_{number}"] = {
            "type": "activation",
            "depends_on": f"data_{number}",
            "properties": {"member": {"get_param": "active"}, "start": "on", "stop": "off"},
        }
    return {
        "failover_template_version": "2026-11-21",
        "stack": "bench",
        "members": {"servers": ["a", "b"]},
        "resources": resources,
    }
