# SPDX-License-Identifier: Apache-2.0
"""Channels over brokers that are none, and what is sent over them."""

import threading
import time
import uuid

import pytest
from keystoneauth1.session import Session

from mistral_failover.agent.channel.interface import (
    ChannelContext,
    ChannelError,
    Command,
    channel_for,
)
from mistral_failover.agent.wire import Address
from mistral_failover.cloud.guard import LeaseLost, Unguarded

SECRET = b"0123456789abcdef0123456789abcdef"


@pytest.fixture(params=["memory", "filesystem"])
def url(request, tmp_path):
    return {
        "memory": f"memory://{uuid.uuid4().hex}",
        "filesystem": f"filesystem://{tmp_path}/broker",
    }[request.param]


@pytest.fixture
def memory():
    return f"memory://{uuid.uuid4().hex}"


@pytest.fixture
def key_file(tmp_path):
    path = tmp_path / "agents.key"
    path.write_bytes(SECRET + b"\n")
    path.chmod(0o600)
    return str(path)


@pytest.fixture
def channel_to(key_file):
    def make(url, guard=None):
        return channel_for(url, ChannelContext(Session(), guard or Unguarded(), key_file))

    return make


@pytest.fixture
def to():
    return Address(str(uuid.uuid4()), "payments", "db_a", str(uuid.uuid4()))


class Lease:
    """A guard whose lease ends when a test says so; it counts what it was asked."""

    request_id = None

    def __init__(self):
        self.ended = threading.Event()
        self.asked = []

    def permit(self, method):
        self.asked.append(method)
        if self.ended.is_set():
            raise LeaseLost("The lease has ended.")
        return 5.0


def command(to, name="pg-start", **more):
    return Command(**{"id": "key-1", "to": to, "epoch": 3, "name": name, "limit": 5.0, **more})


def failure(channel, sent):
    with pytest.raises(ChannelError) as raised:
        channel.run(sent)
    return raised.value


def until(happened):
    deadline = time.monotonic() + 10
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.01)
