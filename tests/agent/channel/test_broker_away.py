# SPDX-License-Identifier: Apache-2.0
"""A broker that can not be reached is told apart from a member that does not answer."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from keystoneauth1.session import Session
from keystoneauth1.token_endpoint import Token

from mistral_failover.agent.channel import amqp
from mistral_failover.agent.channel.interface import (
    Channel,
    ChannelContext,
    ChannelError,
    channel_for,
)
from mistral_failover.cloud.transport import GuardedSession, Unguarded
from mistral_failover.runtime.errors import describe
from support.channels import command


@pytest.fixture
def port() -> Iterator[int]:
    """A port without a listener."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield int(taken.getsockname()[1])


def emulated(port: int, key_file: str) -> Channel:
    guard = Unguarded()
    session: Session = GuardedSession(guard=guard, timeout=1)
    session.auth = Token(f"http://127.0.0.1:{port}", "t")
    return channel_for(
        f"emulator+http://127.0.0.1:{port}", ChannelContext(session, guard, key_file)
    )


def over_amqp(port: int, key_file: str) -> Channel:
    url = f"amqp://executor:hunter2@127.0.0.1:{port}/failover"
    return channel_for(url, ChannelContext(Session(), Unguarded(), key_file))


CALLS: list[Callable[[Channel, Any], Any]] = [
    lambda channel, to: channel.run(command(to, limit=0.2)),
    lambda channel, to: channel.depose(to, 4),
    lambda channel, to: channel.heard(to),
]


@pytest.mark.parametrize("make", [over_amqp, emulated])
@pytest.mark.parametrize("call", CALLS, ids=["run", "depose", "heard"])
def test_a_refused_connection_is_the_broker_s(
    monkeypatch: pytest.MonkeyPatch,
    key_file: str,
    port: int,
    to: Any,
    make: Callable[[int, str], Channel],
    call: Callable[[Channel, Any], Any],
) -> None:
    monkeypatch.setattr(amqp, "PATIENCE", 0.2)
    began = time.monotonic()

    with pytest.raises(ChannelError) as raised:
        call(make(port, key_file), to)

    facts = describe(raised.value)
    assert facts["code"] == "UNREACHABLE"
    assert facts["transient"] is True
    assert (facts["service"], facts["detail"]) == ("the broker", "connection refused")
    assert "unknown" not in facts, "nothing was sent"
    assert "hunter2" not in str(facts)
    assert time.monotonic() - began < 10


@pytest.mark.parametrize("code", ["NO_ANSWER", "OLD_EPOCH", "REFUSED", "UNKNOWN_OUTCOME", "CONFIG"])
def test_what_a_member_or_the_configuration_says_is_nothing_to_wait_for(code: str) -> None:
    assert "transient" not in describe(ChannelError(code, "said"))
