# SPDX-License-Identifier: Apache-2.0
"""One look at many groups at rest: CPU and requests of a round, against the number of groups.

Each group has two servers and five resources: three volumes, an application, the parameters of its
stack. The cloud is a process of its own, so the CPU is that of the observer and its state store.
*first* reads each new stack's parameters; *next* finds that no stack was updated. Requests are
those to Nova, Cinder and Heat; the agents' last words are read besides, one for each member.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from unittest import mock

from mistral_lib.actions.context import ActionContext, ExecutionContext, SecurityContext

from bench.goals import LOOK
from mistral_failover.cloud import volumes
from mistral_failover.cloud.transport import GuardedSession, Unguarded
from mistral_failover.convergence.loop import run
from mistral_failover.convergence.records import Operation, Outcome
from mistral_failover.lab.drill import examples
from mistral_failover.lab.emulator.client import EmulatorClient, write_clouds_yaml
from mistral_failover.lab.emulator.server import EmulatedCloud
from mistral_failover.model.goal import render_goal
from mistral_failover.model.group import parse_group
from mistral_failover.recovery.observe import observe
from mistral_failover.runtime.process import Runtime
from mistral_failover.runtime.request import DEFAULT_PROJECT, Request
from mistral_failover.settings import Settings
from mistral_failover.store import groups
from mistral_failover.store.transaction import ProjectTransaction

GROUPS = (10, 100, 1000)
VOLUMES = 3
_IDLE = 3600.0  # seconds that the cloud waits for a request


def main() -> None:
    """Print the table."""
    print("   groups   resources   round    CPU s   CPU ms per group   requests   seconds")
    with observer() as bench:
        made = 0
        for count in GROUPS:
            for number in range(made, count):
                bench.bring_up(f"bench-{number}")
            made = count
            for name in ("first", "next"):
                cpu, requests, seconds = bench.look()
                print(
                    f"   {count:6} {count * (VOLUMES + 2):11}   {name:5} {cpu:8.2f}"
                    f" {cpu / count * 1000:18.2f} {requests:10} {seconds:9.1f}",
                    flush=True,
                )
        LOOK.tell(cpu)


class Observer:
    """A state store, a cloud, and what looks at both. ``options``: of [failover], for a Mistral
    over the same."""

    def __init__(self, cloud: EmulatorClient, options: Mapping[str, Any]) -> None:
        self.options = options
        settings = Settings(**options)
        self._client = cloud
        self._runtime = Runtime(settings)
        anonymous = ActionContext(SecurityContext(), ExecutionContext())
        self._request = Request(self._runtime, anonymous)
        self._cloud = self._request.cloud(Unguarded())

    def bring_up(self, name: str) -> None:
        """A group that serves on db_a: converged by the core, its volumes attached for real."""
        stack = self._client.create_stack(
            name, examples.stack(VOLUMES), parameters={"active": "db_a"}
        )
        # Without it the agents lack the group's commands, and every group is unwell.
        self._client.add_application(name, start="pg-start", stop="pg-stop", stack=name)
        made = self._client.resources(name)
        servers = {each: str(made[each]["physical_resource_id"]) for each in ("db_a", "db_b")}
        document = examples.group(VOLUMES, name)
        seen = [(member, server, None) for member, server in servers.items()]

        def define(tx: ProjectTransaction) -> str:
            definition = {"document": document, "types": []}
            identity = groups.define(tx, name, definition)
            groups.record_members(tx, identity, seen)
            return identity

        identity = self._runtime.database.for_project(DEFAULT_PROJECT).atomically(define)
        goal = render_goal(parse_group(document, name=name), {"active": "db_a"}, ())
        started = self._runtime.engine.start(
            identity, goal, traversal_id=f"walk-{name}", expected=None, cause="a benchmark"
        )

        def operate(operation: Operation) -> Outcome:
            kind, server = operation.record.type, servers["db_a"]
            if kind == "volume_attachment":
                volume = str(made[operation.properties["volume"]]["physical_resource_id"])
                attached = volumes.attach(self._cloud, volume, server, 60)
                return Outcome(physical_id=volume, attributes=attached)
            if kind == "stack_parameters":
                whole = f"{name}/{stack['id']}"
                return Outcome(physical_id=whole, attributes={"status": "UPDATE_COMPLETE"})
            return Outcome(physical_id=server, attributes={"server_id": server})

        run(self._runtime.engine, started.ready, operate, owner="bench")

    def look(self) -> tuple[float, int, float]:
        """One round over all groups: CPU seconds, requests, seconds. No group may be unwell."""
        calls: list[str] = []
        original = GuardedSession.request

        def counted(session: GuardedSession, url: str, method: str, **options: Any) -> Any:
            calls.append(url)
            return original(session, url, method, **options)

        begun, busy = time.monotonic(), time.process_time()
        with mock.patch.object(GuardedSession, "request", counted):
            rows = observe(self._request, None)
        spent = time.process_time() - busy, time.monotonic() - begun
        if rows:
            raise RuntimeError(f"a group is unwell: {rows[0]['sentence']}")
        time.sleep(1.1)  # the interval: the next round looks at all of them again
        services = [url for url in calls if "/emulator/" not in url]
        return spent[0], len(services), spent[1]


@contextmanager
def _cloud_of_its_own() -> Iterator[EmulatorClient]:
    """A cloud in another process that saves nothing: it would write thousands of servers at each
    change."""
    context = multiprocessing.get_context("spawn")
    receiving, sending = context.Pipe(duplex=False)
    process = context.Process(target=_serve, args=(sending,), daemon=True)
    process.start()
    try:
        yield EmulatorClient(receiving.recv())
    finally:
        process.terminate()
        process.join()


def _serve(announce: Connection) -> None:
    cloud = EmulatedCloud(latency="zero")
    announce.send(cloud.url)
    cloud.serve(idle_exit=_IDLE)


@contextmanager
def observer() -> Iterator[Observer]:
    """A state store in a folder of its own, a cloud, and what looks at both."""
    logging.getLogger().setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory(prefix="failover-bench-") as name:
        folder = Path(name)
        with _cloud_of_its_own() as cloud:
            clouds = folder / "clouds.yaml"
            write_clouds_yaml(clouds, "bench", cloud.url)
            options = {
                "database": f"sqlite:///{folder}/failover.sqlite",
                "cloud": "bench",
                "command_channel": f"emulator+{cloud.url}",
                "observe_interval": 1.0,
                "poll_first": 0.01,
            }
            with mock.patch.dict(os.environ, {"OS_CLIENT_CONFIG_FILE": str(clouds)}):
                yield Observer(cloud, options)
