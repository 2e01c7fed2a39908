# SPDX-License-Identifier: Apache-2.0
"""A project floods the state store with alarms while another project fails over.

The flood comes from a process of its own, as from the server of the other project: each alarm is
about another unknown server, so each has to be judged, recorded, or refused because the list is
full. *webhook* lets through what the webhook's rate allows of one sender, and failovers continue
until all alarms are sent; *no rate* lets everything through, for as long as some failovers take.
*active* is the time from the alarm to the application's start on the other server, the median of
all *runs*; *rows* and *not listed* are those of the flooding project.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import multiprocessing
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.sharedctypes import Synchronized
from multiprocessing.synchronize import Event
from typing import Any

import sqlalchemy as sa
from mistral_lib.actions.context import ActionContext, ExecutionContext, SecurityContext

from bench.staging import all_ended, audited, bring_up, finished, must, set_latency, stage
from mistral_failover.alarms.intake import MOST_WITHOUT_GROUP
from mistral_failover.http_server import Refused
from mistral_failover.lab.drill.scene import Scene
from mistral_failover.runtime.process import Runtime
from mistral_failover.runtime.request import Request
from mistral_failover.server import receiver
from mistral_failover.server.secret import Secret
from mistral_failover.settings import Settings
from mistral_failover.store.counters import unlisted_of
from mistral_failover.store.tables import incidents, operations, resources

ALARMS = 100_000
REPEATS = 5
FLOODING = "another project"


def main(alarms: int = ALARMS) -> None:
    """Print the table. Fails if the flood made more rows than the list of held alarms may have."""
    print("   flood    runs  active s  against none   alarms   taken   rows   not listed   CPU s")
    with stage("measured") as scene:
        failover_of(scene, "the-first-is-slower")
        alone = None
        for way in ("none", "webhook", "no rate"):
            with _Flood(scene, way, alarms) if way != "none" else contextlib.nullcontext() as flood:
                runs = list(_failovers(scene, way, flood))
            active = statistics.median(run.active for run in runs)
            alone = active if alone is None else alone
            sent, taken = (flood.sent, flood.taken) if flood else (0, 0)
            rows, left_out = _kept(scene, way)
            busy = sum(run.cpu for run in runs) / len(runs)
            print(
                f"   {way:8} {len(runs):4} {active:9.2f} {active / alone:13.2f} {sent:8} {taken:7}"
                f" {rows:6} {left_out:12} {busy:7.2f}",
                flush=True,
            )
            if rows > MOST_WITHOUT_GROUP:
                raise RuntimeError(f"{rows} rows of a flood, of at most {MOST_WITHOUT_GROUP}")
        audited(scene)


@dataclass(frozen=True)
class Run:
    """A failover: seconds until the application started on the other server, and CPU seconds of
    this process."""

    active: float
    cpu: float


def _failovers(scene: Scene, way: str, flood: _Flood | None) -> Iterator[Run]:
    for number in itertools.count():
        if number >= REPEATS and (flood is None or way == "no rate" or flood.over):
            return
        yield failover_of(scene, f"{way.replace(' ', '-')}-{number}")


def failover_of(scene: Scene, name: str) -> Run:
    """Bring a group up without latency, and fail it over with that of a real cloud."""
    set_latency(scene, "zero")
    bring_up(scene, name)
    set_latency(scene, "measured")
    busy = time.process_time()
    active = _active(scene, name)
    return Run(active, time.process_time() - busy)


class _Flood:
    """A process that sends alarms while the block lasts."""

    def __init__(self, scene: Scene, way: str, alarms: int) -> None:
        self._alarms = alarms
        context = multiprocessing.get_context("spawn")
        self._stop: Event = context.Event()
        self._ready: Event = context.Event()
        self._sent: Synchronized[int] = context.Value("i", 0)
        self._taken: Synchronized[int] = context.Value("i", 0)
        self._process = context.Process(
            target=_send,
            args=(
                scene.database_url,
                way,
                alarms,
                self._ready,
                self._stop,
                self._sent,
                self._taken,
            ),
            daemon=True,
        )

    def __enter__(self) -> _Flood:
        self._process.start()
        if not self._ready.wait(60):
            raise RuntimeError("the flood has not begun")
        return self

    def __exit__(self, *exception: object) -> None:
        self._stop.set()
        self._process.join(60)

    @property
    def over(self) -> bool:
        """Whether all alarms are sent."""
        if self._process.exitcode and self.sent < self._alarms:
            raise RuntimeError("the flood ended with an error")
        return self.sent >= self._alarms

    @property
    def sent(self) -> int:
        """How many alarms were sent."""
        return self._sent.value

    @property
    def taken(self) -> int:
        """How many of them were not refused because of the rate."""
        return self._taken.value


def _send(
    url: str,
    way: str,
    alarms: int,
    ready: Event,
    stop: Event,
    sent: Synchronized[int],
    taken: Synchronized[int],
) -> None:
    """Send alarms from a process of its own."""
    if way == "no rate":
        receiver.RATE = float("inf")
    runtime = Runtime(Settings(database=url, project=_project(way)))
    anonymous = ActionContext(SecurityContext(), ExecutionContext())
    secret = Secret(b"the secret of a benchmark, 32 bytes")
    taking = receiver.AlarmReceiver(secret, _NoMistral(), Request(runtime, anonymous))
    path = f"{receiver.PATH}/{secret.token}"
    ready.set()
    for number in range(alarms):
        if stop.is_set():
            return
        body = json.dumps({"server": f"unknown-{number}", "id": str(number)}).encode()
        try:
            taking.take(receiver.Delivery(path, "", {}, body))
            taken.value += 1
        except Refused as refused:
            if refused.status != 429:
                raise
            time.sleep(0.001)  # its way to the webhook and back
        sent.value += 1


class _NoMistral:
    """Nothing of the flood is admitted."""

    def start(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("an alarm about an unknown server was admitted")


def _active(scene: Scene, name: str) -> float:
    """Fail a group over; seconds until its application started on the other server."""
    server = scene.server(name, "db_a")
    body = scene.cloud.alarm_body(server)
    scene.cloud.fault("server", server, "app")
    at = time.time()
    finished(scene, name, must(scene.run("failover.on_alarm", **body)), at)
    all_ended(scene)
    started = (
        sa.select(sa.func.max(operations.c.ended_at))
        .join(resources, resources.c.id == operations.c.resource_id)
        .where(resources.c.type == "activation", operations.c.verb == "create")
    )
    return float(scene.read(lambda tx: tx.connection.execute(started).scalar_one())) - at


def _kept(scene: Scene, way: str) -> tuple[int, int]:
    """How many incidents the flooding project has, and how many had no room."""
    store = scene.database.for_project(_project(way))
    rows = sa.select(sa.func.count()).select_from(incidents)
    return (
        int(store.reading(lambda tx: tx.connection.execute(rows).scalar_one())),
        store.reading(unlisted_of)[0],
    )


def _project(way: str) -> str:
    return f"{FLOODING}, {way}"
