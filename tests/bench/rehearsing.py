# SPDX-License-Identifier: Apache-2.0
"""A failover during a rehearsal on its standby, beside the same failover without one.

The guest dies (crash), or only its application (app): then the fence takes 0.4 s, in which the
copies must be off the standby. Those that are not take their turn before the volumes: the emulated
compute service handles the attachments of one server one after another, as Nova's does. The alarm
comes at each moment of a rehearsal in turn. The shortest of the rounds counts: what else runs on
the machine only adds to it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from bench.goals import REHEARSED
from bench.staging import all_ended, audited, bring_up, finished, must, set_latency, stage
from mistral_failover.lab.drill.scene import Scene
from mistral_failover.lab.emulator.latency import profile
from mistral_failover.settings import Settings

ROUNDS, VOLUMES = 3, (1, 8)
FAULTS = ("crash", "app")
_OPTIONS = {"sweep_interval": Settings().sweep_interval}
"""As a server has it; a drill looks for unfinished work every second."""
_LIMIT = 300.0  # seconds until a moment must have come

MOMENTS: Mapping[str, Callable[[Mapping[str, Any], str], bool]] = {
    "snapshots": lambda event, _: event.get("name") == "snapshot_create",
    "copies": lambda event, _: event.get("name") == "volume_create",
    "attachment": lambda event, server: (
        event["kind"] == "attach_begin" and event["server"] == server
    ),
    "attached": lambda event, server: event["kind"] == "attached" and event["server"] == server,
    "start": lambda event, server: event["kind"] == "command_started" and event["server"] == server,
    "started": lambda event, server: (
        event["kind"] == "rehearsed_started" and event["server"] == server
    ),
    "detach": lambda event, server: event["kind"] == "detach_begin" and event["server"] == server,
}
"""By what follows it, the event of the cloud at which the alarm is sent; given the standby's id."""


def main(rounds: int = ROUNDS, slower: int = 1) -> None:
    """Print the table, and the worst ratio. ``slower``: how many times as long as measured the
    cloud takes; so a busy machine distorts the ratio less."""
    seconds = {name: slower * each for name, each in profile("measured").seconds.items()}
    print("   fault   volumes   alarm at     failover s   without s   ratio")
    for fault in FAULTS:
        ratios = [
            ratio for volumes in VOLUMES for ratio in _ratios(fault, volumes, rounds, seconds)
        ]
        REHEARSED.tell(max(ratios))


def _ratios(fault: str, volumes: int, rounds: int, seconds: Mapping[str, float]) -> Iterator[float]:
    """Print the rows of a fault, and yield their ratios."""
    taken: dict[str, list[float]] = {}
    with stage("measured", **_OPTIONS) as scene:
        for number in range(rounds):
            for moment in ("", *MOMENTS):
                name = f"rehearsing-{volumes}-{moment or 'without'}-{number}"
                set_latency(scene, "zero")
                bring_up(scene, name, volumes)
                scene.cloud.set_latency(**seconds)
                taken.setdefault(moment, []).append(_fail_over(scene, name, fault, moment))
        audited(scene)
    without = min(taken.pop(""))
    for moment, times in taken.items():
        ratio = min(times) / without
        print(
            f"   {fault:7} {volumes:7}   {moment:10} {min(times):12.2f} {without:11.2f}"
            f" {ratio:7.2f}",
            flush=True,
        )
        yield ratio


def _fail_over(scene: Scene, name: str, fault: str, moment: str) -> float:
    """Return how long a failover takes that begins at this moment of a rehearsal; "": without."""
    server, standby = scene.server(name, "db_a"), scene.server(name, "db_b")
    body = scene.cloud.alarm_body(server)
    if moment:
        since = max((int(event["seq"]) for event in scene.cloud.audit()), default=0)
        scene.start("failover.rehearse", group=name)
        _wait(scene, since, lambda event: MOMENTS[moment](event, standby), name, moment)
    scene.cloud.fault("server", server, fault)
    at = time.time()
    run = must(scene.run("failover.on_alarm", **body))
    taken = finished(scene, name, run, at).total
    all_ended(scene)  # the rehearsal's cleanup, too
    if moment and scene.action("failover.rehearsals", group=name)[0]["status"] == "RUNNING":
        raise RuntimeError(f"the failover of {name} did not end its rehearsal")
    return taken


def _wait(
    scene: Scene, since: int, came: Callable[[Mapping[str, Any]], bool], name: str, moment: str
) -> None:
    deadline = time.monotonic() + _LIMIT
    while time.monotonic() < deadline:
        if any(came(event) for event in scene.cloud.audit(since)):
            return
        time.sleep(0.01)
    raise RuntimeError(f"the rehearsal of {name} did not come to {moment} within {_LIMIT:.0f} s")
