# SPDX-License-Identifier: Apache-2.0
"""A program of this machine holds slow connections to every port of a server while a group fails
over: Mistral's API, the webhook, the metrics and the web page, all in this process.

*slow* clients stay connected as long as they may, and connect again a second later; *eager* ones
connect again at once. They are a process of their own. *active* is the time from the alarm to the
application's start on the other server, the median of all runs; *ended* is how many connections the
server ended, and *CPU* that of this process in a run. The aim is at most 1.3 against none with slow
clients. Eager ones also use the processors of this machine up, which is not the server's doing.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import statistics
from collections.abc import Iterator, Sequence
from multiprocessing.synchronize import Event
from typing import Any
from urllib.parse import urlsplit

from bench.flood import failover_of
from bench.slow_clients import SlowClients
from bench.staging import audited, request, stage
from mistral_failover.lab.drill.scene import Scene
from mistral_failover.metrics.server import MetricsServer
from mistral_failover.server.addresses import Address, bound
from mistral_failover.server.receiver import AlarmReceiver
from mistral_failover.server.secret import Secret
from mistral_failover.server.webhook import Webhook
from mistral_failover.ui.serving import serving

CLIENTS = 300
"""At each port."""
REPEATS = 5
_WAYS = {"none": None, "slow": 1.0, "eager": 0.02}
"""Seconds after which they connect again."""


def main() -> None:
    """Print the table."""
    print("   clients  runs  active s  against none   ended   CPU s")
    with stage("measured") as scene, _ports(scene) as ports:
        failover_of(scene, "the-first-is-slower")
        alone = None
        for way, pause in _WAYS.items():
            with _flood(ports, pause) as ended:
                runs = [failover_of(scene, f"{way}-{number}") for number in range(REPEATS)]
            active = statistics.median(run.active for run in runs)
            alone = active if alone is None else alone
            busy = statistics.median(run.cpu for run in runs)
            print(
                f"   {way:8} {len(runs):4} {active:9.2f} {active / alone:13.2f} {ended[0]:7}"
                f" {busy:7.2f}",
                flush=True,
            )
        audited(scene)


@contextlib.contextmanager
def _ports(scene: Scene) -> Iterator[list[int]]:
    """Serve what a server serves; yield the ports."""
    taking = AlarmReceiver(
        Secret(b"the secret of a benchmark, 32 bytes"), scene.mistral.client, request()
    )
    no_questions: Any = None
    with (
        Webhook(bound(Address("127.0.0.1", 0)), taking, lambda: True) as webhook,
        MetricsServer(lambda: {"families": {}, "bounds": [], "now": 0.0}) as metrics,
        serving(no_questions, "127.0.0.1", 0, read_only=True, announce=lambda _: None) as page,
    ):
        urls = (scene.mistral.url, webhook.url, metrics.url, page)
        yield [int(urlsplit(url).port or 0) for url in urls]


@contextlib.contextmanager
def _flood(ports: Sequence[int], pause: float | None) -> Iterator[list[int]]:
    """Flood the ports while the block lasts; what is yielded then has how many were ended."""
    ended = [0]
    if pause is None:
        yield ended
        return
    context = multiprocessing.get_context("spawn")
    ready, stop, count = context.Event(), context.Event(), context.Value("i", 0)
    arguments = (ports, pause, ready, stop, count)
    process = context.Process(target=_connect, args=arguments, daemon=True)
    process.start()
    if not ready.wait(60):
        raise RuntimeError("the flood has not begun")
    try:
        yield ended
    finally:
        stop.set()
        process.join(60)
        ended[0] = count.value


def _connect(ports: Sequence[int], pause: float, ready: Event, stop: Event, count: Any) -> None:
    with contextlib.ExitStack() as stack:
        floods = [stack.enter_context(SlowClients(port, CLIENTS, pause=pause)) for port in ports]
        for flood in floods:
            flood.wait_until_ended(CLIENTS // 2, 30.0)
        ready.set()
        stop.wait(3600)
        count.value = sum(flood.ended for flood in floods)
