# SPDX-License-Identifier: Apache-2.0
"""Many members' agents in one process, for the broker's benchmark.

To the broker they are what agents are: two connections each, the queues, the keys and envelopes,
the question whether the epoch's queue still exists, a word at once and the result, both confirmed,
a heartbeat every ten seconds. What they leave out costs the broker nothing: no journal, no process.
"""

from __future__ import annotations

import random
import selectors
import time
import uuid
from collections.abc import Callable
from multiprocessing.synchronize import Barrier, Event
from typing import Any

from kombu.entity import Queue
from kombu.messaging import Consumer

from mistral_failover.agent import wire
from mistral_failover.agent.broker import HEARTBEAT, Broker, wait
from mistral_failover.agent.wire import Address

EPOCH = 1
GROUP = str(uuid.UUID(int=1))


def address(number: int) -> Address:
    """Where a member is found."""
    return Address(GROUP, "bench", f"member-{number}", str(uuid.UUID(int=number)))


def member_key(secret: bytes, number: int) -> bytes:
    """The key of a member."""
    return wire.member_key(wire.group_key(secret, GROUP), address(number).member)


class Member:
    """One agent."""

    def __init__(self, broker: Broker, secret: bytes, number: int) -> None:
        self._broker = broker
        self._to = address(number)
        self._key = wire.epoch_key(member_key(secret, number), self._to.server_id, EPOCH)
        self.reading, self.speaking = broker.connect(), broker.connect()
        self._hears, self._speaks = self.reading.channel(), self.speaking.channel()
        self._arrived: list[Any] = []
        self._subscribed = False
        self.beats_at = time.monotonic() + random.uniform(0, HEARTBEAT)  # noqa: S311
        self._broker.declare_heartbeats(self._speaks, self._to)
        notices = self._broker.declare_notices(self._hears, self._to)
        self._consume(self._hears, notices, self._notice)

    def look(self) -> None:
        """Take what came, and answer it."""
        while wait(self.reading, 0.0):
            pass
        while self._arrived:
            self._command(self._arrived.pop(0))

    def beat(self) -> None:
        """Publish a heartbeat, and keep both connections alive."""
        self.beats_at += HEARTBEAT
        queue = self._broker.declare_heartbeats(self._speaks, self._to)
        self._say("heartbeat", wire.HEARTBEATS, queue, running=[], deposed=None, at=time.time())
        for connection in (self.reading, self.speaking):
            connection.heartbeat_check()

    @staticmethod
    def _consume(channel: Any, queue: str, on_message: Callable[[Any], None]) -> None:
        Consumer(
            channel,
            queues=[Queue(queue, no_declare=True)],
            auto_declare=False,
            on_message=on_message,
            tag_prefix="member",
        ).consume()

    def _notice(self, message: Any) -> None:
        message.ack()
        if not self._subscribed:
            self._subscribed = True
            self._consume(self.reading.channel(), self._to.commands(EPOCH), self._arrived.append)

    def _command(self, message: Any) -> None:
        command = wire.unseal("command", message.body, message.headers, lambda *_: self._key)
        message.ack()
        about = {"id": command["id"], "name": command["name"]}
        self._say("result", wire.RESULTS, command["reply_to"], state="accepted", **about)
        if not self._broker.queue_exists(self.speaking, self._to.commands(EPOCH)):
            return
        self._say(
            "result",
            wire.RESULTS,
            command["reply_to"],
            state="done",
            exit_code=0,
            stdout="done",
            stderr="",
            replayed=False,
            **about,
        )

    def _say(self, kind: wire.Kind, exchange: str, routing_key: str, **more: Any) -> None:
        document = {
            "group_id": self._to.group_id,
            "member": self._to.member,
            "server_id": self._to.server_id,
            "epoch": EPOCH,
            **more,
        }
        sealed = wire.seal(kind, document, self._key)
        self._broker.publish(self._speaks, exchange, routing_key, sealed)


def serve(url: str, secret: bytes, numbers: range, there: Barrier, stop: Event) -> None:
    """Be so many members until ``stop``; ``there``: passed once all are connected."""
    broker = Broker(url)
    members = [Member(broker, secret, number) for number in numbers]
    selector = selectors.DefaultSelector()
    for member in members:
        selector.register(member.reading.connection.sock, selectors.EVENT_READ, member)
    there.wait()
    while not stop.is_set():
        for key, _ in selector.select(0.1):
            key.data.look()
        now = time.monotonic()
        for member in members:
            if now >= member.beats_at:
                member.beat()
