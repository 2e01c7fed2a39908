# SPDX-License-Identifier: Apache-2.0
"""Channels over brokers that are none, and what is sent over them."""

import threading
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from keystoneauth1.session import Session

from mistral_failover.agent.channel.interface import (
    Channel,
    ChannelContext,
    ChannelError,
    Command,
    channel_for,
)
from mistral_failover.agent.wire import Address
from mistral_failover.cloud.transport import Guard, LeaseLost, Unguarded

SECRET = b"0123456789abcdef0123456789abcdef"


@pytest.fixture(params=["memory", "filesystem"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    urls = {
        "memory": f"memory://{uuid.uuid4().hex}",
        "filesystem": f"filesystem://{tmp_path}/broker",
    }
    return urls[request.param]


@pytest.fixture
def memory() -> str:
    return f"memory://{uuid.uuid4().hex}"


@pytest.fixture
def key_file(tmp_path: Path) -> str:
    path = tmp_path / "agents.key"
    path.write_bytes(SECRET + b"\n")
    path.chmod(0o600)
    return str(path)


@pytest.fixture
def channel_to(key_file: str) -> Callable[..., Channel]:
    def make(url: str, guard: Guard | None = None) -> Channel:
        return channel_for(url, ChannelContext(Session(), guard or Unguarded(), key_file))

    return make


@pytest.fixture
def to() -> Address:
    return Address(str(uuid.uuid4()), "payments", "db_a", str(uuid.uuid4()))


class Lease:
    """A guard whose lease ends when a test says so; it counts what it was asked."""

    request_id = None

    def __init__(self) -> None:
        self.ended = threading.Event()
        self.asked: list[str] = []

    def permit(self, method: str) -> float:
        self.asked.append(method)
        if self.ended.is_set():
            raise LeaseLost("The lease has ended.")
        return 5.0


def command(to: Address, name: str = "pg-start", **more: Any) -> Command:
    given: dict[str, Any] = {"id": "key-1", "to": to, "epoch": 3, "name": name, "limit": 5.0}
    return Command(**{**given, **more})


def failure(channel: Channel, sent: Command) -> ChannelError:
    with pytest.raises(ChannelError) as raised:
        channel.run(sent)
    return raised.value
