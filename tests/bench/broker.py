# SPDX-License-Identifier: Apache-2.0
"""The command channel with 1,000 members on one broker: memory, rate, latency.

Against a bare round trip over kombu in the same run: a request to a queue, its reply to an
exclusive queue, nothing declared, signed, confirmed or kept.
"""

from __future__ import annotations

import itertools
import logging
import multiprocessing
import secrets
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from keystoneauth1.session import Session
from kombu.entity import Queue
from kombu.messaging import Consumer, Producer

from bench import members
from bench.staging import cpu
from mistral_failover.agent.broker import Broker, wait
from mistral_failover.agent.channel.interface import Channel, ChannelContext, Command, channel_for
from mistral_failover.cloud.transport import Unguarded
from testbroker.broker import PrivateBroker
from testcloud.errors import CloudError

MEMBERS = 1000
PROCESSES = 2
SERIAL = 400
"""Round trips one after another, for the latency."""
AT_ONCE = 8
"""Threads of one executor, for the rate."""
QUIET = 15.0
"""Seconds without a command, for what heartbeats cost."""
LIMIT = 60.0


def main() -> None:
    """Print the figures, where there is a RabbitMQ."""
    logging.getLogger().setLevel(logging.ERROR)
    try:
        _measure()
    except CloudError as error:
        if error.code != "PACKAGES_MISSING":
            raise
        print(f"   not measured: {error}")


def _measure() -> None:
    with tempfile.TemporaryDirectory(prefix="failover-bench-") as name:
        folder = Path(name)
        secret = secrets.token_hex(16).encode()
        key_file = folder / "agents.key"
        key_file.touch(mode=0o600)
        key_file.write_bytes(secret)
        with PrivateBroker(folder / "broker") as broker:
            channel = channel_for(broker.url, ChannelContext(Session(), Unguarded(), str(key_file)))
            with Broker(broker.url).connect() as connection:
                Broker(broker.url).declare_exchanges(connection.channel())
            empty = _memory(broker)
            with _members(broker, secret):
                connected = _memory(broker)
                first = _timed(lambda: _each(channel, "first"))
                told = _memory(broker)
                _show_memory(empty, connected, told)
                begun = cpu(broker.pid)
                time.sleep(QUIET)
                share = (cpu(broker.pid) - begun) / QUIET
                print(f"   their heartbeats alone: {share:.0%} of a core of the broker's host")
                print(f"   a first command to each of {MEMBERS}, {AT_ONCE} at once: {first:.1f} s")
                _show_speed(broker, channel)


def _show_memory(empty: float, connected: float, told: float) -> None:
    print(f"   broker, MiB resident: {empty:.0f} alone, {connected:.0f} with {MEMBERS} agents,")
    print(
        f"   {told:.0f} once each had a command: {(told - empty) * 1024 / MEMBERS:.0f} KiB a member"
    )


def _show_speed(broker: PrivateBroker, channel: Channel) -> None:
    numbers = itertools.cycle(range(MEMBERS))
    with _echo(broker.url) as queue, _Caller(broker.url, queue) as caller:
        bare = _latencies(caller.call)
    whole = _latencies(lambda: _run(channel, next(numbers), secrets.token_hex(8)))
    print("   one after another      median ms   99 % ms")
    for name, found in (("bare round trip", bare), ("command", whole)):
        print(f"   {name:20} {found[0]:11.1f} {found[1]:9.1f}")
    print(f"   ratio of the medians: {whole[0] / bare[0]:.1f}")
    with _echo(broker.url) as queue:
        callers = [_Caller(broker.url, queue) for _ in range(AT_ONCE)]
        seconds = _timed(lambda: _together(callers))
        for one in callers:
            one.close()
    bare_rate = MEMBERS / seconds
    ours, theirs = time.process_time(), cpu(broker.pid)
    rate = MEMBERS / _timed(lambda: _each(channel, "again"))
    ours, theirs = time.process_time() - ours, cpu(broker.pid) - theirs
    print(f"   a second, {AT_ONCE} at once: {bare_rate:.0f} bare round trips, {rate:.0f} commands")
    print(f"   ratio: {bare_rate / rate:.1f}")
    print(
        f"   CPU of a command: {ours * 1000 / MEMBERS:.1f} ms executor, "
        f"{theirs * 1000 / MEMBERS:.1f} ms broker, which has the heartbeats as well"
    )


@contextmanager
def _members(broker: PrivateBroker, secret: bytes) -> Iterator[None]:
    context = multiprocessing.get_context("spawn")
    there, stop = context.Barrier(PROCESSES + 1), context.Event()
    share = MEMBERS // PROCESSES
    processes = [
        context.Process(
            target=members.serve,
            args=(broker.url, secret, range(n * share, (n + 1) * share), there, stop),
            daemon=True,
        )
        for n in range(PROCESSES)
    ]
    for process in processes:
        process.start()
    try:
        there.wait(300)
        yield
    finally:
        stop.set()
        for process in processes:
            process.join(20)


def _memory(broker: PrivateBroker) -> float:
    """MiB that the broker's process occupies, once it has tidied up."""
    broker.control("eval", "[garbage_collect(P) || P <- processes()], ok.")
    status = Path(f"/proc/{broker.pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


def _run(channel: Channel, number: int, identity: str) -> None:
    to = members.address(number)
    command = Command(identity, to, members.EPOCH, "pg-stop", {"volume": "data"}, LIMIT)
    if channel.run(command).exit_code != 0:
        raise RuntimeError("a command failed")


def _each(channel: Channel, word: str) -> None:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for _ in pool.map(lambda n: _run(channel, n, f"{word}-{n}"), range(MEMBERS)):
            pass


def _latencies(call: Callable[[], object]) -> tuple[float, float]:
    """Median and 99th percentile, in milliseconds."""
    for _ in range(20):
        call()
    found = [_timed(call) * 1000 for _ in range(SERIAL)]
    return statistics.median(found), statistics.quantiles(found, n=100)[98]


def _timed(call: Callable[[], object]) -> float:
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


# -- the bare round trip


class _Caller:
    """Sends a request and waits for its reply, over one connection."""

    def __init__(self, url: str, queue: str) -> None:
        self._queue = queue
        self._connection = _unconfirmed(url)
        channel = self._connection.channel()
        self._replies: list[Any] = []
        self._reply_to = channel.queue_declare(queue="", exclusive=True).queue
        self._producer = Producer(channel, auto_declare=False)
        _consume(channel, self._reply_to, self._replies.append)

    def __enter__(self) -> _Caller:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._connection.release()

    def call(self) -> None:
        """One round trip."""
        self._producer.publish(
            {"name": "pg-stop"}, exchange="", routing_key=self._queue, reply_to=self._reply_to
        )
        while not self._replies:
            wait(self._connection, LIMIT)
        self._replies.clear()


def _together(callers: list[_Caller]) -> None:
    def some(caller: _Caller) -> None:
        for _ in range(MEMBERS // AT_ONCE):
            caller.call()

    with ThreadPoolExecutor(AT_ONCE) as pool:
        for _ in pool.map(some, callers):
            pass


@contextmanager
def _echo(url: str) -> Iterator[str]:
    """A process that answers whatever comes to a queue."""
    context = multiprocessing.get_context("spawn")
    queue, there, stop = f"echo.{secrets.token_hex(4)}", context.Event(), context.Event()
    process = context.Process(target=_answer, args=(url, queue, there, stop), daemon=True)
    process.start()
    try:
        if not there.wait(30):
            raise RuntimeError("the echo did not start")
        yield queue
    finally:
        stop.set()
        process.join(10)


def _answer(url: str, queue: str, there: Any, stop: threading.Event) -> None:
    with _unconfirmed(url) as connection:
        channel = connection.channel()
        channel.queue_declare(queue=queue, auto_delete=True)
        producer = Producer(channel, auto_declare=False)

        def reply(message: Any) -> None:
            reply_to = message.properties["reply_to"]
            producer.publish({"exit_code": 0}, exchange="", routing_key=reply_to)

        _consume(channel, queue, reply)
        there.set()
        while not stop.is_set():
            wait(connection, 0.1)


def _unconfirmed(url: str) -> Any:
    connection: Any = Broker(url).connection()
    connection.transport_options["confirm_publish"] = False
    connection.ensure_connection(max_retries=0)
    return connection


def _consume(channel: Any, queue: str, on_message: Callable[[Any], None]) -> None:
    Consumer(
        channel,
        queues=[Queue(queue, no_declare=True)],
        auto_declare=False,
        no_ack=True,
        on_message=on_message,
        tag_prefix="bench",
    ).consume()
