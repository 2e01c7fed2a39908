# SPDX-License-Identifier: Apache-2.0
"""What the benchmarks of whole failovers share."""

from __future__ import annotations

import contextlib
import logging
import os
import resource
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from mistral_lib.actions.context import ActionContext, ExecutionContext, SecurityContext

from mistral_failover.lab.drill.run import measure
from mistral_failover.lab.drill.scene import Scene
from mistral_failover.lab.emulator.latency import profile
from mistral_failover.mistral.client import ExecutionBody
from mistral_failover.model.decisions import Decision
from mistral_failover.runtime import process
from mistral_failover.runtime.request import Request
from mistral_failover.store.tables import incidents, traversals

CLOUD: dict[str, Any] = {"idle_exit": 3600.0, "save_every": 10.0}
"""Of the scene's cloud. It does not end while duplicates ask it nothing, and does not write
thousands of servers at each change."""
SETTINGS: dict[str, Any] = {"lease": 30.0, "lease_margin": 2.0, "storm_groups": 0}
"""Of ``[failover]``. All groups fail at once here, and shall be failed over."""


@dataclass(frozen=True)
class Run:
    """One failover: seconds from its alarm to the end, the cloud's share of them, and how many
    tasks it took Mistral."""

    total: float
    critical_path: float
    tasks: int


@dataclass(frozen=True)
class Usage:
    """The seconds of CPU that Mistral with the package has used until now, and what serves it; and
    the resident memory of its engines and executors in MiB."""

    mistral: float
    memory: float
    cloud: float = 0.0
    database: float = 0.0
    broker: float = 0.0


@contextlib.contextmanager
def stage(latency: str = "zero", **more: Any) -> Iterator[Scene]:
    """A scene in which groups are made without latency; see :func:`set_latency`. ``more``: further
    options of ``[failover]``."""
    logging.getLogger().setLevel(logging.ERROR)
    with (
        tempfile.TemporaryDirectory(prefix="failover-bench-") as folder,
        Scene(Path(folder), latency=latency, settings={**SETTINGS, **more}, **CLOUD) as scene,
    ):
        yield scene


def set_latency(scene: Scene, name: str) -> None:
    """Let the cloud be as fast as a profile says from now on."""
    scene.cloud.set_latency(**profile(name).seconds)


def bring_up(scene: Scene, name: str, volumes: int = 1, **more: Any) -> None:
    """A group with its first activation behind it; ``more``: further keys of its file."""
    add(scene, name, volumes, **more)
    activate(scene, name)


def add(scene: Scene, name: str, volumes: int = 1, **more: Any) -> None:
    """A group that is not active yet; ``more``: further keys of its file."""
    scene.add_group(name, volumes, lambda definition: {**definition, **more})


def activate(scene: Scene, name: str) -> None:
    """Activate a group for the first time."""
    must(scene.run("failover.activate_first", group=name))


def must(execution: ExecutionBody) -> ExecutionBody:
    """An execution that succeeded."""
    if execution["state"] != "SUCCESS":
        raise RuntimeError(f"{execution['workflow_name']}: {execution['state_info']}")
    return execution


def finished(scene: Scene, group: str, execution: ExecutionBody, alarm_at: float) -> Run:
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


def all_ended(scene: Scene, limit: float = 300) -> None:
    """Watch the state database: asking Mistral so often would be a load of its own."""
    deadline = time.monotonic() + limit
    while time.monotonic() < deadline:
        time.sleep(0.2)
        if not under_way(scene):
            return
    raise RuntimeError(f"not all groups ended within {limit} s")


def under_way(scene: Scene) -> int:
    """Return how many failovers are under way, or admitted and not started."""
    moving = sa.select(sa.func.count()).where(traversals.c.status == "IN_PROGRESS")
    unstarted = sa.select(sa.func.count()).where(
        incidents.c.decision == Decision.ADMITTED,
        incidents.c.group_id.is_not(None),
        incidents.c.traversal_id.is_(None),
    )
    return scene.read(
        lambda tx: sum(tx.connection.execute(q).scalar_one() for q in (moving, unstarted))
    )


def cpu(pid: int | None) -> float:
    """Return the seconds of CPU that a process has used. Raises OSError if it does not run."""
    used = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
    return (int(used[11]) + int(used[12])) / os.sysconf("SC_CLK_TCK")


def used_here() -> Usage:
    """Return what this process has used, which runs Mistral and everything else but the cloud."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return Usage(mistral=time.process_time(), memory=pages * resource.getpagesize() / 2**20)


def request() -> Request:
    """A request with the rights of this process's configuration."""
    anonymous = ActionContext(SecurityContext(), ExecutionContext())
    return Request(process.runtime(), anonymous)


def traversals_in(scene: Scene) -> int:
    """How many traversals there are."""
    query = sa.select(sa.func.count()).select_from(traversals)
    return scene.read(lambda tx: int(tx.connection.execute(query).scalar_one()))
