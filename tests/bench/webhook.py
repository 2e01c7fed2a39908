# SPDX-License-Identifier: Apache-2.0
"""The webhook of a server: one alarm that is delivered again and again, mixed with many that come
once and each fail over a group.

Everything of the server runs in this process: its webhook, its Mistral, and the failovers. The
cloud and the senders are processes of their own. *Mistral* is the baseline: the same alarm, each
delivery an execution of failover.on_event, as without a webhook that decides. *repeats* are
deliveries while nothing else happens.
"""

from __future__ import annotations

import http.client
import json
import multiprocessing
import random
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import sqlalchemy as sa

from bench.goals import DECISIONS, REPEAT
from bench.staging import all_ended, audited, bring_up, must, request, stage, traversals_in
from mistral_failover.lab.drill.scene import Scene
from mistral_failover.server.addresses import Address, bound
from mistral_failover.server.receiver import AlarmReceiver
from mistral_failover.server.secret import Secret
from mistral_failover.server.webhook import Webhook
from mistral_failover.store.tables import incidents

ALARMS, GROUPS = 10_000, (100,)
LIMIT = 3600.0  # seconds for the failovers
BASELINE, REPEATS = 100, 2000
THREADS = 8
_LATER = (429, 503)


@dataclass(frozen=True)
class Sent:
    """Seconds from the first delivery to the last decision, and how many were asked to come
    again."""

    seconds: float
    again: int


def main(alarms: int = ALARMS, groups: Sequence[int] = GROUPS) -> None:
    """Print a table for each number of groups."""
    for count in groups:
        _table(alarms, count)


def _table(alarms: int, count: int) -> None:
    secret = Secret(b"the secret of a benchmark, 32 bytes")
    with (
        stage("zero") as scene,
        Webhook(
            bound(Address("127.0.0.1", 0)),
            AlarmReceiver(secret, scene.mistral.client, request()),
            lambda: True,
        ) as webhook,
    ):
        url = f"{webhook.url}/{secret.token}"
        names = [f"alarmed-{number}" for number in range(count)]
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda name: bring_up(scene, name), names))
        servers = {name: scene.server(name, "db_a") for name in names}
        bodies = {name: scene.cloud.alarm_body(server) for name, server in servers.items()}
        for server in servers.values():
            scene.cloud.fault("server", server, "app")
        print("   way        deliveries         s   per second   CPU ms each   against Mistral")
        before = traversals_in(scene)
        todo = [*[bodies[names[0]]] * alarms, *(bodies[name] for name in names[1:])]
        random.Random(1).shuffle(todo)  # noqa: S311 - no secret
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as sender:
            sender.submit(int).result()  # it is started
            busy, begun = time.process_time(), time.monotonic()
            flood = sender.submit(send, url, todo, THREADS).result()
            flooded = time.process_time() - busy
            all_ended(scene, LIMIT)
            ended, everything = time.monotonic() - begun, time.process_time() - busy
            started = traversals_in(scene) - before
            repeats, alone = _measured(
                lambda: sender.submit(send, url, [bodies[names[0]]] * REPEATS, THREADS).result()
            )
            base, mistral = _measured(lambda: _executions(scene, bodies[names[0]], BASELINE))
        slow = BASELINE / base
        for way, number, seconds, cpu in (
            ("Mistral", BASELINE, base, mistral),
            ("repeats", REPEATS, repeats, alone),
            ("flood", len(todo), flood.seconds, flooded),
        ):
            rate = number / seconds
            print(
                f"   {way:9} {number:11} {seconds:9.1f} {rate:12.1f} {cpu / number * 1000:13.2f}"
                f" {rate / slow:17.1f}",
                flush=True,
            )
        print(
            f"   flood: {started} failovers, all done after {ended:.1f} s with {everything:.1f} s "
            f"of CPU; {flood.again} deliveries were asked to come again",
            flush=True,
        )
        DECISIONS.tell(len(todo) / flood.seconds)
        REPEAT.tell(mistral / BASELINE * 1000)
        counted = _counted(scene)
        wanted = (count, len(todo) - count + REPEATS + BASELINE)
        if (started, counted) != wanted:
            raise RuntimeError(f"failovers, repeats: {(started, counted)} instead of {wanted}")
        audited(scene)


def _measured(work: Callable[[], Any]) -> tuple[float, float]:
    """Seconds, and CPU seconds of this process."""
    busy, begun = time.process_time(), time.monotonic()
    work()
    return time.monotonic() - begun, time.process_time() - busy


def _executions(scene: Scene, body: dict[str, Any], number: int) -> None:
    """Deliver an alarm without a webhook; returns when each delivery is decided."""
    with ThreadPoolExecutor(THREADS) as pool:
        ids = list(pool.map(lambda _: scene.start("failover.on_alarm", **body), range(number)))
    for identity in ids:
        must(scene.mistral.client.wait(identity))


def _counted(scene: Scene) -> int:
    query = sa.select(sa.func.sum(incidents.c.duplicates))
    return scene.read(lambda tx: int(tx.connection.execute(query).scalar_one()))


def send(url: str, bodies: Sequence[dict[str, Any]], threads: int) -> Sent:
    """Deliver all of them, each until it is taken."""
    where = urlsplit(url)
    assert where.hostname is not None
    host = where.hostname

    def deliver(body: dict[str, Any]) -> int:
        tries = 0
        while True:
            connection = http.client.HTTPConnection(host, where.port, timeout=120)
            connection.request("POST", where.path, json.dumps(body))
            status = connection.getresponse().status
            connection.close()
            if status not in _LATER:
                break
            tries += 1
            time.sleep(1.0)
        if status != 202:
            raise RuntimeError(f"answered with {status}")
        return tries

    begun = time.monotonic()
    with ThreadPoolExecutor(threads) as pool:
        again = sum(pool.map(deliver, bodies))
    return Sent(time.monotonic() - begun, again)
