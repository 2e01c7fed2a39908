# SPDX-License-Identifier: Apache-2.0
"""What the benchmarks of whole failovers share."""

from __future__ import annotations

import contextlib
import logging
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mistral_failover.drill.play import measure
from mistral_failover.drill.scene import Scene
from mistral_failover.emulator.latency import profile

_IDLE = 3600.0  # seconds that the cloud waits for a request: duplicates ask it nothing
# All groups fail at once here, and shall be failed over.
_SETTINGS = {"lease": 30.0, "lease_margin": 2.0, "storm_groups": 0}


@dataclass(frozen=True)
class Run:
    """One failover: seconds from its alarm to the end, the cloud's share of them, and how many
    tasks it took Mistral."""

    total: float
    critical_path: float
    tasks: int


@contextlib.contextmanager
def stage(latency: str = "zero") -> Iterator[Scene]:
    """A scene in which groups are made without latency; see :func:`set_latency`."""
    logging.getLogger().setLevel(logging.ERROR)
    with (
        tempfile.TemporaryDirectory(prefix="failover-bench-") as folder,
        Scene(Path(folder), latency=latency, settings=_SETTINGS, idle_exit=_IDLE) as scene,
    ):
        yield scene


def set_latency(scene: Scene, name: str) -> None:
    """Let the cloud be as fast as a profile says from now on."""
    scene.cloud.set_latency(**profile(name).seconds)


def bring_up(scene: Scene, name: str, volumes: int = 1) -> None:
    """A group with its first activation behind it."""
    scene.add_group(name, volumes)
    must(scene.run("failover.activate_first", group=name))


def must(execution: dict[str, Any]) -> dict[str, Any]:
    """An execution that succeeded."""
    if execution["state"] != "SUCCESS":
        raise RuntimeError(f"{execution['workflow_name']}: {execution['state_info']}")
    return execution


def finished(scene: Scene, group: str, execution: dict[str, Any], alarm_at: float) -> Run:
    """Measure a failover that an execution of on_alarm carried out."""
    traversal = execution["output"]["admission"]["traversal"]
    status = scene.action("failover.status", group=group)
    if status["status"] != "COMPLETE":
        raise RuntimeError(f"{group} ended {status['status']}: {status['reason']}")
    return Run(
        total=status["traversal"]["ended_at"] - alarm_at,
        critical_path=measure(scene, group, traversal),
        tasks=scene.task_count(execution["id"]),
    )


def audited(scene: Scene) -> None:
    """No benchmark of something that does it wrong."""
    violations = scene.violations()
    if violations:
        raise RuntimeError(f"invariants were broken: {', '.join(map(str, violations))}")
