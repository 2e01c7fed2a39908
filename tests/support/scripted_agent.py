# SPDX-License-Identifier: Apache-2.0
"""An agent without journal and processes: it speaks the protocol, and a test says its words."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from kombu.entity import Queue
from kombu.messaging import Consumer

from mistral_failover.agent import wire
from mistral_failover.agent.broker import ERRORS, Broker, forget, wait
from mistral_failover.agent.wire import Address

Say = Callable[..., None]
Script = Callable[[dict[str, Any], Say], None]


def done(command: dict[str, Any], say: Say) -> None:
    """The shortest script: everything succeeds."""
    say(state="done", exit_code=0, stdout=f"{command['name']} ran", stderr="", replayed=False)


class ScriptedAgent:
    """``with ScriptedAgent(url, secret, address, epoch, script):`` serves one server and epoch.

    ``commands`` and ``notices``: the documents that came, in their order.
    """

    def __init__(
        self, url: str, secret: bytes, to: Address, epoch: int, script: Script = done
    ) -> None:
        self.commands: list[dict[str, Any]] = []
        self.notices: list[dict[str, Any]] = []
        self.to, self.epoch = to, epoch
        self.key = wire.member_key(wire.group_key(secret, to.group_id), to.member)
        self._broker = Broker(url)
        self._script = script
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> ScriptedAgent:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(10)

    def document(self, **more: Any) -> dict[str, Any]:
        return {
            "group_id": self.to.group_id,
            "member": self.to.member,
            "server_id": self.to.server_id,
            "epoch": self.epoch,
            **more,
        }

    def beat(self, **more: Any) -> None:
        """Publish a heartbeat; ``key`` signs it instead of the right one."""
        fields = {"running": [], "deposed": None, "stopping": False, "at": time.time(), **more}
        key = fields.pop("key", None)
        document = self.document(**fields)
        epoch_key = wire.epoch_key(self.key, self.to.server_id, document["epoch"])
        with self._broker.connect() as connection:
            channel = connection.channel()
            queue = self._broker.declare_heartbeats(channel, self.to)
            sealed = wire.seal("heartbeat", document, key or epoch_key)
            self._broker.publish(channel, wire.HEARTBEATS, queue, sealed)

    def _serve(self) -> None:
        while not self._stop.is_set():
            connection = None
            with suppress(*ERRORS):
                connection = self._broker.connect()
                self._consume(connection)
            if connection is not None:
                forget(connection)
            self._stop.wait(0.02)

    def _consume(self, connection: Any) -> None:
        channel = connection.channel()
        queue = self.to.commands(self.epoch)
        self._broker.declare_notices(channel, self.to)
        self._consumer(channel, self.to.notices, self._on_notice)
        while not self._broker.queue_exists(connection, queue):
            if self._stop.wait(0.02):
                return
        self._consumer(channel, queue, lambda message: self._on_command(channel, message))
        while not self._stop.is_set():
            wait(connection, 0.05)

    @staticmethod
    def _consumer(channel: Any, queue: str, on_message: Callable[[Any], None]) -> None:
        Consumer(
            channel,
            queues=[Queue(queue, no_declare=True)],
            auto_declare=False,
            on_message=on_message,
            tag_prefix=queue,
        ).consume()

    def _on_notice(self, message: Any) -> None:
        self.notices.append(
            wire.unseal(
                "notice",
                message.body,
                message.headers,
                lambda _, __: wire.server_key(self.key, self.to.server_id),
            )
        )
        message.ack()

    def _on_command(self, channel: Any, message: Any) -> None:
        epoch_key = wire.epoch_key(self.key, self.to.server_id, self.epoch)
        command = wire.unseal("command", message.body, message.headers, lambda _, __: epoch_key)
        message.ack()
        self.commands.append(command)

        def say(**fields: Any) -> None:
            key = fields.pop("key", epoch_key)
            document = {"id": command["id"], "name": command["name"], **self.document(**fields)}
            self._broker.publish(
                channel, wire.RESULTS, command["reply_to"], wire.seal("result", document, key)
            )

        self._script(command, say)
