# SPDX-License-Identifier: Apache-2.0
"""A zone fails: the active servers of all groups are on one host, and one alarm reports it.

The cloud is as fast as measured. Groups have priorities from 0 to 9. *pairs*: so many pairs of an
engine and an executor, each a process, over RabbitMQ on MariaDB; 0 is the one process of ``failover
server`` on SQLite. CPU is that of one failover: Mistral's with the package, the emulated cloud's,
the database's and the broker's; *requests* are those of one failover to the cloud. *order* is how
many pairs of groups with different priorities started in the wrong order; *lost* how many groups
had no failover; *double* how many findings the audit has, two attachments of a volume among them.
Memory is that of the engines and executors. *waits* and *deadlocks* are those of MariaDB's
transactions for rows.

``--faults``: meanwhile an executor and an engine are killed, MariaDB is killed and starts again,
and RabbitMQ is cut off. ``--guard``: the servers crash, and the storm guard holds the alarms until
its evidence says so; otherwise it is off. ``--rounds``: the zone fails so often, and all groups are
moved home in between.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import openstack
import sqlalchemy as sa

from bench.goals import ZONE
from bench.services import SeparateProcesses, Services, check_installed
from bench.staging import (
    CLOUD,
    Usage,
    activate,
    add,
    cpu,
    must,
    set_latency,
    stage,
    under_way,
    used_here,
)
from mistral_failover.lab.drill.scene import CLOUD as CLOUD_NAME
from mistral_failover.lab.drill.scene import Scene
from mistral_failover.lab.emulator.state import HOSTS
from mistral_failover.mistral.client import ENDED
from mistral_failover.settings import Settings
from mistral_failover.store.tables import groups as known
from mistral_failover.store.tables import operations, resources, traversals
from testcloud.errors import CloudError

T = TypeVar("T")

GROUPS = (10, 100)
PAIRS = (0, 1, 2)
LIMIT = 3600.0  # seconds for everything
_AT_ONCE = 8  # first activations, and moves home
_GUARD = {"storm_groups": Settings().storm_groups}
_NO_LIMITS = {"cooldown": 0, "per_hour": 100}  # several rounds follow each other at once
_BOOT = 60.0  # seconds
_OUTAGE = 5.0  # seconds of each fault
_AWAY = 60.0  # seconds that the state store may be away
_SHOWN = 5  # groups that were lost


def main(
    groups: Sequence[int] = GROUPS,
    pairs: Sequence[int] = PAIRS,
    faults: bool = False,
    guard: bool = False,
    rounds: int = 1,
) -> None:
    """Print the table."""
    if any(pairs):
        try:
            check_installed()
        except CloudError as error:
            print(f"   pairs of processes are left out: {error} {error.remedy}")
            pairs = [count for count in pairs if not count]
    if faults and not all(pairs):
        raise SystemExit("--faults needs --pairs 1 or more: one process cannot lose a part")
    print(
        "   groups   pairs   all active s   all done s   CPU s   cloud   database   broker"
        "   requests   order"
        "   lost   double   memory MiB   before   waits   deadlocks"
    )
    for several in pairs:
        for count in groups:
            with _scene(several, _GUARD if guard else {}) as scene:
                set_latency(scene, "zero")
                names = [f"zone-{number}" for number in range(count)]
                for name in names:  # one after the other: the active servers come to one host
                    add(scene, name, priority=_priority(name), limits=_NO_LIMITS)
                with ThreadPoolExecutor(_AT_ONCE) as pool:
                    list(pool.map(lambda name: activate(scene, name), names))
                for number in range(rounds):
                    if number:
                        _move_home(scene, names)
                    set_latency(scene, "measured")
                    _measure(scene, names, several, faults=faults, guard=guard)


@contextlib.contextmanager
def _scene(pairs: int, settings: Mapping[str, Any]) -> Iterator[Scene]:
    if not pairs:
        with stage("measured", **settings) as scene:
            yield scene
        return
    logging.getLogger().setLevel(logging.ERROR)
    with (
        tempfile.TemporaryDirectory(prefix="failover-bench-") as folder,
        SeparateProcesses(
            Path(folder),
            services=Services(Path(folder) / "services", pairs),
            more=settings,
            **CLOUD,
        ) as separate,
    ):
        yield separate


def _move_home(scene: Scene, names: Sequence[str]) -> None:
    """Boot the servers that failed, and take the roles back."""
    set_latency(scene, "zero")
    servers = {scene.server(name, "db_a") for name in names}
    with openstack.connect(cloud=CLOUD_NAME) as cloud:
        for server in cloud.compute.servers():
            if server.id in servers and server.status == "SHUTOFF":
                cloud.compute.start_server(server)
    deadline = time.monotonic() + _BOOT
    while silent := servers - {s for s, guest in scene.cloud.guests().items() if guest["answers"]}:
        if time.monotonic() > deadline:
            raise RuntimeError(f"{len(silent)} servers did not boot within {_BOOT:g} s")
        time.sleep(0.5)

    def move(name: str) -> None:
        must(scene.run("failover.failback", group=name, recovered=["db_a"]))

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        list(pool.map(move, names))


def _measure(scene: Scene, names: Sequence[str], pairs: int, *, faults: bool, guard: bool) -> None:
    for name in names:
        scene.cloud.fault("server", scene.server(name, "db_a"), "crash" if guard else "app")
    services = scene.services if isinstance(scene, SeparateProcesses) else None
    known_violations = scene.violations()
    before, locks = _usage(scene, services), services.row_locks() if services else (0, 0)
    at = time.time()
    body = {"host": HOSTS[0], "id": f"the zone failed at {at}", "because": "the zone failed"}
    execution = scene.start("failover.on_event", body=body)
    with _faults(services if faults else None):
        _wait(scene, execution, len(names), at, faults=faults, guard=guard)
    used = _usage(scene, services)
    found = services.row_locks() if services else (0, 0)
    if faults:
        locks = (0, 0)  # MariaDB counts since its start
    moved = scene.read(lambda tx: _moved(tx, at))
    order = [_priority(name) for name in sorted(moved, key=lambda name: moved[name].started)]
    wrong = sum(one < other for one, other in itertools.combinations(order, 2))
    active = max((each.active for each in moved.values()), default=at)
    ended = max((each.ended for each in moved.values()), default=at)
    shares = [
        (getattr(used, part) - getattr(before, part)) / len(names)
        for part in ("mistral", "cloud", "database", "broker")
    ]
    asked = sum(event["t"] >= at for event in scene.cloud.audit(kind="request"))
    violations = [found for found in scene.violations() if found not in known_violations]
    print(
        f"   {len(names):6} {pairs:7} {active - at:14.1f} {ended - at:12.1f} {shares[0]:7.2f}"
        f" {shares[1]:7.2f} {shares[2]:10.2f} {shares[3]:8.2f} {asked / len(names):10.1f} {wrong:7}"
        f" {len(set(names) - moved.keys()):6} {len(violations):8}"
        f" {used.memory:12.0f} {before.memory:8.0f} {found[0] - locks[0]:7}"
        f" {found[1] - locks[1]:11}",
        flush=True,
    )
    if (len(names), pairs) == (1000, 2):
        ZONE.tell(active - at)
    for name in sorted(set(names) - moved.keys())[:_SHOWN]:
        status = scene.action("failover.status", group=name)
        print(f"      {name}: {status['status']}: {status['reason']}", flush=True)
    for violation in violations[:_SHOWN]:
        print(f"      {violation}", flush=True)


def _usage(scene: Scene, services: Services | None) -> Usage:
    announced = scene.state_dir / "cloud" / "emulator.json"
    cloud = cpu(json.loads(announced.read_text(encoding="utf-8"))["pid"])
    return replace(services.usage() if services else used_here(), cloud=cloud)


def _wait(
    scene: Scene, execution: str, count: int, at: float, *, faults: bool, guard: bool
) -> None:
    """Wait until so many failovers have started, and none is under way any more. Without a guard
    that holds some: until then, or until their execution has ended. Without faults also for the end
    of the execution."""
    failed_over = sa.func.count(traversals.c.group_id.distinct())
    started = sa.select(failed_over).where(traversals.c.started_at >= at)
    deadline = time.monotonic() + LIMIT
    complete = False
    while time.monotonic() < deadline:
        time.sleep(0.5)
        complete = complete or count <= _patiently(
            lambda: scene.read(lambda tx: int(tx.connection.execute(started).scalar_one()))
        )
        if not complete and not guard:
            complete = scene.client.execution(execution)["state"] in ENDED
        if complete and not _patiently(lambda: under_way(scene)):
            break
    else:
        print(f"   not all groups ended within {LIMIT:g} s", flush=True)
    # What is left to do for Mistral belongs to the cost. A killed engine leaves its executions.
    if not faults:
        scene.client.wait(execution, timeout=LIMIT)


def _patiently(read: Callable[[], T]) -> T:
    """Read the state store, which may be away for a while."""
    deadline = time.monotonic() + _AWAY
    while True:
        try:
            return read()
        except sa.exc.SQLAlchemyError:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.5)


@contextlib.contextmanager
def _faults(services: Services | None) -> Iterator[None]:
    """Let one part after the other fail meanwhile."""
    if services is None:
        yield
        return

    def fail() -> None:
        for name in (services.executors[0], services.engines[0]):
            time.sleep(_OUTAGE)
            services.kill(name)
            time.sleep(_OUTAGE)
            services.start_process(name)
        time.sleep(_OUTAGE)
        services.restart_database(_OUTAGE)
        time.sleep(_OUTAGE)
        services.cut_off_broker(_OUTAGE)

    thread = threading.Thread(target=fail)
    thread.start()
    try:
        yield
    finally:
        thread.join()


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
