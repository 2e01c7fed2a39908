# SPDX-License-Identifier: Apache-2.0
"""Nodes with the real agent, in a thread or as a process, and the executors' side of its broker."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import yaml

from mistral_failover.agent import wire
from mistral_failover.agent.daemon import config
from mistral_failover.agent.daemon.daemon import Agent
from mistral_failover.agent.daemon.isolation import Isolating
from mistral_failover.agent.daemon.journal import Journal, JournalEntry
from mistral_failover.model.ids import group_id

if TYPE_CHECKING:
    from mistral_failover.agent.channel.amqp import AmqpChannel
    from mistral_failover.agent.channel.interface import Command, CommandResult

SECRET = "5e" * 32
T = TypeVar("T")
PROJECT = "0f6e8f31c2f54b0d9d8f6c1f6f6c2a11"
GROUP_ID = group_id(PROJECT, "payments")
SERVER = "6d1c9c3e-0b43-4c63-9c2e-3a1f0b9d7c01"
OTHER_SERVER = "6d1c9c3e-0b43-4c63-9c2e-3a1f0b9d7c02"
GROUP_KEY = wire.group_key(SECRET.encode(), GROUP_ID)
MEMBER_KEY = wire.member_key(GROUP_KEY, "db_a")


def shell(script: str) -> list[str]:
    """The argv of a script."""
    return ["/bin/sh", "-c", script]


class Node:
    """A node with the agent of member db_a, and an executor's channel to it."""

    def __init__(self, folder: Path, url: str, server_id: str = SERVER, **settings: Any) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.url = url
        self.file = folder / "failover-agent.yaml"
        self.counter = folder / "counter"
        self.journal = folder / "journal"
        self.server_id = server_id
        self.commands: dict[str, Any] = {
            "increment": {"argv": shell(f"echo x >> {self.counter}")},
            "checked": {
                "argv": shell(f"echo x >> {self.counter}"),
                "check": shell(f"test -s {self.counter}"),
            },
            "stop": {"argv": shell(f"echo stop >> {folder}/stops")},
        }
        self.settings = settings
        (folder / "secret").write_text(SECRET)
        (folder / "secret").chmod(0o600)

    def write(self, **settings: Any) -> Path:
        """Write the agent's file."""
        document = {
            "failover_agent_version": "2026-11-21",
            "broker": self.url,
            "project": PROJECT,
            "group": "payments",
            "member": "db_a",
            "key": MEMBER_KEY.hex(),
            "server": self.server_id,
            "journal": str(self.journal),
            "heartbeat": 0.2,
            "commands": self.commands,
            **self.settings,
            **settings,
        }
        self.file.write_text(
            yaml.safe_dump({k: v for k, v in document.items() if v is not None}), "utf-8"
        )
        self.file.chmod(0o600)
        return self.file

    @property
    def address(self) -> wire.Address:
        """Where executors reach it."""
        return wire.Address(GROUP_ID, "payments", "db_a", self.server_id)

    # -- the agent

    @contextmanager
    def agent(
        self, finish: float = 60.0, isolating: Isolating | None = None, **settings: Any
    ) -> Iterator[Agent]:
        """The agent in a thread, for as long as the block runs."""
        loaded = config.load(self.write(**settings))
        stop, ready = threading.Event(), threading.Event()
        agent = Agent(loaded, ready=ready.set, finish=finish, isolating=isolating)
        failed: list[BaseException] = []

        def serve() -> None:
            try:
                agent.run(stop)
            except BaseException as error:
                failed.append(error)
                raise

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        assert ready.wait(10)
        try:
            yield agent
        finally:
            stop.set()
            thread.join(30)
            assert not thread.is_alive()
            assert failed == []

    def process(
        self, dies_at: str = "", protocol: int = wire.PROTOCOL, **settings: Any
    ) -> subprocess.Popen[bytes]:
        """The agent as a process, which kills itself the first time it reaches a fault point, and
        speaks a version of the protocol."""
        self.write(**settings)
        options = (str(self.file), dies_at, str(protocol))
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "support.agent_process", *options],
                cwd=Path(__file__).parents[1],
                stdout=log,
                stderr=log,
                env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
            )

    # -- the executor, which a guest does not have

    @cached_property
    def channel(self) -> AmqpChannel:
        """An executor's channel to it."""
        from keystoneauth1.session import Session

        from mistral_failover.agent.channel.amqp import AmqpChannel
        from mistral_failover.agent.channel.interface import ChannelContext
        from mistral_failover.cloud.transport import Unguarded

        context = ChannelContext(Session(), Unguarded(), str(self.folder / "secret"))
        return AmqpChannel(self.url, context)

    def command(self, name: str = "increment", **more: Any) -> Command:
        """A command for it."""
        from mistral_failover.agent.channel.interface import Command

        return Command(
            **{
                "id": "key-1",
                "to": self.address,
                "epoch": 1,
                "name": name,
                "limit": 10.0,
                "longest": 60.0,
                **more,
            }
        )

    def run(self, name: str = "increment", **more: Any) -> CommandResult:
        """Have a command run."""
        return self.channel.run(self.command(name, **more))

    # -- what happened

    def count(self) -> int:
        """How often it was incremented."""
        return len(self.counter.read_text().splitlines()) if self.counter.exists() else 0

    def stops(self) -> int:
        """How often the stop command ran."""
        stops = self.folder / "stops"
        return len(stops.read_text().splitlines()) if stops.exists() else 0

    def rows(self) -> list[JournalEntry]:
        """What the journal has, newest first."""
        with Journal(self.journal, hold=False) as journal:
            return journal.latest(100)

    def log(self) -> str:
        """What the processes logged."""
        return (self.folder / "log").read_text("utf-8")


@contextmanager
def killed_at_the_end(process: subprocess.Popen[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """Leave no agent behind."""
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.wait(10)
