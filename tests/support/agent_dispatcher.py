# SPDX-License-Identifier: Apache-2.0
"""The agent's own handling of messages, with its journal, and without a broker."""

from __future__ import annotations

import json
import time
import uuid
from pathlib import Path
from typing import Any

from mistral_failover.agent import wire
from mistral_failover.agent.daemon import config
from mistral_failover.agent.daemon.dispatcher import CommandDispatcher, Job
from mistral_failover.agent.daemon.journal import Journal
from mistral_failover.agent.daemon.outbox import AgentReports, Outbox
from support.agents import GROUP_ID, GROUP_KEY, MEMBER_KEY, SERVER, Node

SENTINEL = "s3ntinel-of-the-body"
"""Text that no log may show."""


class Delivery:
    """A message as a transport hands it over."""

    def __init__(self, body: Any, headers: Any) -> None:
        self.body, self.headers = body, headers
        self.acked = 0

    def ack(self) -> None:
        """Let the broker forget it."""
        self.acked += 1


class DispatcherRig:
    """The agent's own handling, with its journal, and what it would say."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        node = Node(folder, "memory://fuzz")
        node.commands["say"] = {"argv": ["/bin/echo", "{word}"], "arguments": {"word": "[a-z]+"}}
        self.config = config.load(node.write(epoch=3, **settings))
        self.journal = Journal(self.config.journal)
        self.outbox = Outbox()
        self.dispatcher = CommandDispatcher(
            self.config, self.journal, AgentReports(self.config.identity, self.outbox)
        )
        self.begun: list[Job] = []
        self.logged: list[str] = []

    def command(self, body: Any, headers: Any) -> Delivery:
        """A message from a queue of commands; what may begin then has begun."""
        delivery = Delivery(body, headers)
        self.dispatcher.take_command(delivery)
        self.dispatcher.begin(self.begun.append)
        return delivery

    def said(self) -> list[dict[str, Any]]:
        """Take what waits to be said."""
        found = []
        while (first := self.outbox.first(0)) is not None:
            key, message = first
            self.outbox.sent(key, message)
            found.append(json.loads(message.sealed[0]))
        return found

    def check_refused(self, delivery: Delivery) -> None:
        """Nothing came of it."""
        assert delivery.acked == 1
        assert self.begun == []
        assert self.journal.latest(1) == []
        assert self.dispatcher.epoch == 3
        logged = " ".join(self.logged)
        for secret in (SENTINEL, MEMBER_KEY.hex(), GROUP_KEY.hex(), str(MEMBER_KEY)):
            assert secret not in logged

    def check_lives(self) -> None:
        """A valid command begins."""
        body, headers = sealed(document(id=uuid.uuid4().hex))
        self.command(body, headers)
        job = self.begun.pop()
        assert job.request.name == "say"
        self.dispatcher.end(job, None)


def document(**changes: Any) -> dict[str, Any]:
    """A command's document, as an executor sends it."""
    return {
        "protocol": wire.PROTOCOL,
        "id": "key-1",
        "group_id": GROUP_ID,
        "member": "db_a",
        "server_id": SERVER,
        "epoch": 3,
        "name": "say",
        "arguments": {"word": "hello"},
        "limit": 30.0,
        "longest": 30.0,
        "sent_at": time.time(),
        "reply_to": "reply",
        **changes,
    }


def sealed(
    content: dict[str, Any],
    kind: str = "command",
    server: str = SERVER,
    member_key: bytes = MEMBER_KEY,
    epoch: int | None = None,
) -> tuple[bytes, dict[str, Any]]:
    """As an executor with these keys would send it, also what no executor sends."""
    epoch = content["epoch"] if epoch is None else epoch
    body = json.dumps(content).encode()
    key = wire.message_key(kind, member_key, server, epoch)
    return body, {
        wire.KIND: kind,
        wire.MEMBER: content["member"],
        wire.EPOCH: content["epoch"],
        wire.SIGNATURE: wire._sign(kind, body, key),
    }


def notice(**changes: Any) -> dict[str, Any]:
    """A notice's document."""
    return {
        "protocol": wire.PROTOCOL,
        "member": "db_a",
        "epoch": 9,
        "group_id": GROUP_ID,
        "server_id": SERVER,
        "sent_at": time.time(),
        **changes,
    }
