# SPDX-License-Identifier: Apache-2.0
"""Alarms by the thousand: one that is delivered again and again, mixed with many that come once.

Everything goes through Mistral's API: a delivery is an execution of failover.on_alarm, and what
came of it is asked for by actions. So it runs against any Mistral whose project has groups in
service whose members may be lost (they are failed over!):

    OS_TOKEN=... python -m bench.admission --url URL --groups a,b,c --deliveries 1000
"""

from __future__ import annotations

import argparse
import os
import random
import threading
import time
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from mistral_lib.actions.context import ActionContext, ExecutionContext, SecurityContext

from bench.staging import audited, bring_up, stage
from mistral_failover.actions import alarms
from mistral_failover.mistral.client import MistralClient

DELIVERIES = 10_000
GROUPS = 100
THREADS = 8
LIMIT = 3600.0  # seconds for everything
OCCASION = uuid.uuid4().hex


@dataclass(frozen=True)
class Measured:
    """What came of it. ``posted`` and ``seconds``: until the last delivery was accepted, and until
    the last one was decided on. ``failed``: what the executions said that did not succeed.
    ``lost``: groups whose alarm left no incident."""

    deliveries: int
    posted: float
    seconds: float
    traversals: int
    duplicates: int
    failed: list[str]
    lost: list[str]

    def __str__(self) -> str:
        rate = self.deliveries / self.seconds
        return (
            f"   {self.deliveries:10} {self.posted:10.1f} {self.seconds:9.1f} {rate:11.1f} "
            f"{self.traversals:11} {self.duplicates:11} {len(self.failed):7}"
        )


HEAD = "   deliveries   posted s   ended s   per second   traversals   duplicates   failed"


def main() -> None:
    """Print the table, for the embedded Mistral and an emulated cloud."""
    with stage("zero") as scene:
        names = [f"alarmed-{number}" for number in range(GROUPS)]
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda name: bring_up(scene, name), names))
        for name in names:
            scene.cloud.fault("server", scene.server(name, "db_a"), "app")
        client = scene.mistral.client
        again = _body(client, names[0], OCCASION)
        print(HEAD, flush=True)
        spent = time.process_time()
        measured = check(deliver(client, names, DELIVERIES, THREADS), names)
        spent = (time.process_time() - spent) / measured.deliveries * 1000
        print(measured, flush=True)
        print(
            f"   CPU: {spent:.1f} ms a delivery, {_alone(again):.1f} ms without Mistral", flush=True
        )
        scene.recover()
        audited(scene)


def deliver(
    client: MistralClient,
    names: Sequence[str],
    deliveries: int,
    threads: int,
    occasion: str | None = None,
) -> Measured:
    """Deliver an alarm about the active member of each group, that of the first one ``deliveries``
    times, in any order; returns when the last is decided on, and every group is at rest. Another
    ``occasion`` makes other alarms."""
    occasion = occasion or OCCASION
    before = {name: _traversals(client, name) for name in names}
    bodies = {name: _body(client, name, occasion) for name in names}
    todo = [*[bodies[names[0]]] * deliveries, *(bodies[name] for name in names[1:])]
    random.Random(1).shuffle(todo)  # noqa: S311 - no secret
    begun = time.monotonic()
    ids = _post(client, todo, threads)
    posted = time.monotonic() - begun
    failed = _ended(client, ids, begun + LIMIT)
    seconds = time.monotonic() - begun
    found = {name: _incident(client, name, bodies[name]["alarm_name"]) for name in names}
    return Measured(
        len(todo),
        posted,
        seconds,
        sum(_at_rest(client, name, begun + LIMIT) - before[name] for name in names),
        sum(incident["duplicates"] for incident in found.values() if incident),
        failed,
        [name for name, incident in found.items() if incident is None],
    )


def check(measured: Measured, names: Sequence[str]) -> Measured:
    """Fail unless each alarm started one traversal, and nothing was lost."""
    duplicates = measured.deliveries - len(names)
    wanted: tuple[int, int, list[str], list[str]] = (len(names), duplicates, [], [])
    got = (measured.traversals, measured.duplicates, measured.failed, measured.lost)
    if got != wanted:
        raise RuntimeError(f"traversals, duplicates, failed, lost: {got} instead of {wanted}")
    return measured


def _alone(body: dict[str, Any], times: int = 300) -> float:
    """Milliseconds of this process that the admission of a repeat takes, and nothing else."""
    context = ActionContext(SecurityContext(), ExecutionContext())
    begun = time.process_time()
    for _ in range(times):
        decided = alarms.Admit(body).run(context)
        if decided["decision"] != "DUPLICATE":
            raise RuntimeError(f"not a duplicate: {decided}")
    return (time.process_time() - begun) / times * 1000


def _post(client: MistralClient, todo: Sequence[dict[str, Any]], threads: int) -> list[str]:
    """Start an execution for each; returns their ids."""
    turn, left = threading.Lock(), iter(todo)
    ids: list[str] = []

    def work(_: int) -> None:
        while True:
            with turn:
                body = next(left, None)
            if body is None:
                return
            ids.append(client.start("failover.on_alarm", body)["id"])

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, range(threads)))
    return ids


def _ended(client: MistralClient, ids: Sequence[str], deadline: float) -> list[str]:
    """Wait for all of them, the last ones first; what those said that did not succeed."""
    failed = []
    for identity in reversed(ids):
        while True:
            state = client.request("GET", f"executions/{identity}", params={"fields": "state"})
            if state["state"] != "RUNNING":
                break
            if time.monotonic() > deadline:
                raise RuntimeError(f"execution {identity} is {state['state']} after {LIMIT} s")
            time.sleep(0.5)
        if state["state"] != "SUCCESS":
            found = client.execution(identity)
            failed.append(str(found["output"].get("error") or found["state_info"]))
    return failed


def _body(client: MistralClient, group: str, occasion: str) -> dict[str, Any]:
    """What Aodh posts when an event alarm fires about the active member."""
    status = client.run_action("failover.status", {"group": group})
    active = next(iter(status["roles"].values()))
    server = next(m["server"] for m in status["members"] if m["name"] == active)
    message = str(uuid.uuid5(uuid.NAMESPACE_URL, f"{occasion}/{group}"))
    event = {
        "message_id": message,
        "event_type": "compute.instance.update",
        "traits": [["instance_id", 1, server], ["state", 1, "error"]],
    }
    return {
        "alarm_name": f"bench-{message[:8]}",
        "alarm_id": message,
        "severity": "critical",
        "previous": "ok",
        "current": "alarm",
        "reason": "an event hits the query",
        "reason_data": {"type": "event", "event": event},
        "group": group,  # several groups may protect one server
    }


def _traversals(client: MistralClient, group: str) -> int:
    """How many traversals the group has had; of a group of a benchmark, never a thousand rows."""
    rows = client.run_action("failover.history", {"group": group, "limit": 1000})
    return sum(row["kind"] == "traversal" for row in rows)


def _at_rest(client: MistralClient, group: str, deadline: float) -> int:
    """Wait until the group's traversal has ended; :func:`_traversals` then."""
    while client.run_action("failover.status", {"group": group})["status"] == "IN_PROGRESS":
        if time.monotonic() > deadline:
            raise RuntimeError(f"{group} is under way after {LIMIT} s")
        time.sleep(0.5)
    return _traversals(client, group)


def _incident(client: MistralClient, group: str, alarm: str) -> dict[str, Any] | None:
    """The incident of an alarm."""
    known = client.run_action("failover.status", {"group": group})["incidents"]
    return next((i for i in known if i["sentence"].startswith(f"alarm {alarm} ")), None)


def elsewhere() -> None:
    """Deliver to the Mistral that the command line names, and print the table."""
    parser = argparse.ArgumentParser(description=deliver.__doc__)
    parser.add_argument("--url", required=True, help="Mistral's API, ending in /v2")
    parser.add_argument("--project", help="its id, for a Mistral without authentication")
    parser.add_argument("--groups", required=True, help="names, with commas; in service")
    parser.add_argument("--deliveries", type=int, default=DELIVERIES)
    parser.add_argument("--threads", type=int, default=THREADS)
    given = parser.parse_args()
    headers = {"X-Auth-Token": os.environ.get("OS_TOKEN"), "X-Project-Id": given.project}
    client = MistralClient(given.url, headers={k: v for k, v in headers.items() if v})
    names = given.groups.split(",")
    print(HEAD, flush=True)
    print(check(deliver(client, names, given.deliveries, given.threads), names), flush=True)


if __name__ == "__main__":
    elsewhere()
