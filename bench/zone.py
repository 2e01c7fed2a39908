# SPDX-License-Identifier: Apache-2.0
"""A zone fails: the active servers of all groups are on one host, and one alarm reports it.

The cloud is as fast as measured. Groups have priorities from 0 to 9. *order* is how many pairs of
groups with different priorities started in the wrong order; *lost* how many groups had no failover;
*double* how many findings the audit has, two attachments of a volume among them. Memory is that of
this process, which runs Mistral and everything else but the cloud.
"""

from __future__ import annotations

import itertools
import resource
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from bench.staging import all_ended, bring_up, must, set_latency, stage
from mistral_failover.drill.scene import Scene
from mistral_failover.emulator.state import HOSTS
from mistral_failover.store.tables import groups as known
from mistral_failover.store.tables import operations, resources, traversals

GROUPS = (10, 100)
LIMIT = 3600.0  # seconds for everything


def main(groups: Sequence[int] = GROUPS) -> None:
    """Print the table."""
    print(
        "   groups   all active s   all done s   CPU s per failover   order   lost   double"
        "   memory MiB   before"
    )
    for count in groups:
        with stage("measured") as scene:
            set_latency(scene, "zero")
            names = [f"zone-{number}" for number in range(count)]
            for name in names:  # one after the other: the active servers come to one host
                bring_up(scene, name, priority=_priority(name))
            set_latency(scene, "measured")
            print(_line(scene, names), flush=True)


def _line(scene: Scene, names: Sequence[str]) -> str:
    for name in names:
        scene.cloud.fault("server", scene.server(name, "db_a"), "app")
    before = _memory()
    at, busy = time.time(), time.process_time()
    body = {"host": HOSTS[0], "id": "the zone failed"}
    must(scene.run("failover.on_event", timeout=LIMIT, body=body))
    all_ended(scene, LIMIT)
    busy = time.process_time() - busy
    memory = _memory()
    moved = scene.read(lambda tx: _moved(tx, at))
    order = [_priority(name) for name in sorted(moved, key=lambda name: moved[name].started)]
    wrong = sum(one < other for one, other in itertools.combinations(order, 2))
    active = max((each.active for each in moved.values()), default=0.0)
    ended = max((each.ended for each in moved.values()), default=0.0)
    return (
        f"   {len(names):6} {active - at:14.1f} {ended - at:12.1f} {busy / len(names):20.2f}"
        f" {wrong:7} {len(set(names) - moved.keys()):6} {len(scene.violations()):8}"
        f" {memory:12.0f} {before:8.0f}"
    )


@dataclass(frozen=True)
class _Moved:
    """A failover: when it started, when the application was active, and when it ended."""

    started: float
    active: float
    ended: float


def _moved(tx: Any, at: float) -> dict[str, _Moved]:
    """The failovers since a time that reached their goal, by group."""
    query = (
        sa.select(
            known.c.name,
            traversals.c.started_at,
            sa.func.max(operations.c.ended_at),
            traversals.c.ended_at,
        )
        .join(traversals, traversals.c.id == known.c.current_traversal)
        .join(resources, resources.c.group_id == known.c.id)
        .join(operations, operations.c.resource_id == resources.c.id)
        .where(
            traversals.c.started_at >= at,
            traversals.c.status == "COMPLETE",
            resources.c.type == "activation",
            operations.c.verb == "create",
        )
        .group_by(known.c.name, traversals.c.started_at, traversals.c.ended_at)
    )
    return {row[0]: _Moved(*row[1:]) for row in tx.connection.execute(query)}


def _priority(name: str) -> int:
    return int(name.rpartition("-")[2]) % 10


def _memory() -> float:
    """The resident memory of this process in MiB."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize() / 2**20
