# SPDX-License-Identifier: Apache-2.0
"""What the channel does with a real broker, and with one that goes away, hangs or refuses."""

from __future__ import annotations

import bz2
import os
import pickle
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from keystoneauth1.session import Session
from kombu.messaging import Producer

from faults.slot import until
from mistral_failover.agent import wire
from mistral_failover.agent.broker import NOTICES, Broker, reading_channel, take
from mistral_failover.agent.channel import amqp
from mistral_failover.agent.channel.interface import (
    Channel,
    ChannelContext,
    ChannelError,
    Command,
    channel_for,
)
from mistral_failover.agent.channel.links import ANSWERS, KEPT
from mistral_failover.agent.wire import Address
from mistral_failover.cloud.transport import Unguarded
from support.scripted_agent import ScriptedAgent
from testbroker.broker import PrivateBroker

pytestmark = [pytest.mark.broker, pytest.mark.timeout(180)]

SECRET = b"0123456789abcdef0123456789abcdef"
LIMIT = 20.0


@pytest.fixture
def to() -> Address:
    return Address(str(uuid.uuid4()), "payments", "db_a", str(uuid.uuid4()))


@pytest.fixture
def channel_to(tmp_path: Path) -> Callable[[str], Channel]:
    key_file = tmp_path / "agents.key"
    key_file.write_bytes(SECRET)
    key_file.chmod(0o600)
    return lambda url: channel_for(url, ChannelContext(Session(), Unguarded(), str(key_file)))


def command(to: Address, **more: Any) -> Command:
    return Command(**{"id": "key-1", "to": to, "epoch": 3, "name": "pg-stop", "limit": 5.0, **more})


def failure(channel: Channel, sent: Command) -> ChannelError:
    with pytest.raises(ChannelError) as raised:
        channel.run(sent)
    return raised.value


def exists(url: str, queue: str) -> bool:
    with Broker(url).connect() as connection:
        return Broker(url).queue_exists(connection, queue)


@contextmanager
def frozen(broker: PrivateBroker) -> Iterator[None]:
    assert broker.pid is not None
    os.kill(broker.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(broker.pid, signal.SIGCONT)


def in_thread(call: Callable[[], object]) -> tuple[threading.Thread, list[object]]:
    outcome: list[object] = []

    def run() -> None:
        try:
            outcome.append(call())
        except Exception as error:  # noqa: BLE001 - the test looks at it
            outcome.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, outcome


def test_a_conversation_leaves_nothing_but_the_members_queues(
    broker: PrivateBroker, channel_to: Callable[[str], Channel], to: Address
) -> None:
    channel = channel_to(broker.url)
    with ScriptedAgent(broker.url, SECRET, to, 3):
        for _ in range(3):
            channel.run(command(to))
    queues = broker.queues()
    mine = {to.commands(3), to.notices, to.heartbeats}
    assert {name for name in queues if to.group_id in name} == mine
    replies = [name for name in queues if name.startswith("failover.replies.")]
    assert len(replies) <= KEPT  # of idle connections


def test_a_broker_that_is_killed_while_the_result_is_waited_for_costs_no_result(
    broker: PrivateBroker, channel_to: Callable[[str], Channel], to: Address
) -> None:
    taken = threading.Event()

    def script(_: Any, say: Any) -> None:
        if not taken.is_set():
            taken.set()
            raise ConnectionResetError
        say(state="done", exit_code=0, stdout="", stderr="", replayed=True)

    with ScriptedAgent(broker.url, SECRET, to, 3, script) as agent:
        channel = channel_to(broker.url)
        thread, outcome = in_thread(lambda: channel.run(command(to, limit=60.0)))
        assert taken.wait(LIMIT)
        broker.kill()
        broker.start()
        thread.join(60)
    assert getattr(outcome[0], "replayed", outcome)
    assert {sent["id"] for sent in agent.commands} == {"key-1"}


def test_a_conversation_that_goes_on_does_not_bring_back_the_queue_of_a_deposed_epoch(
    broker: PrivateBroker, channel_to: Callable[[str], Channel], to: Address
) -> None:
    late, now = channel_to(broker.url), channel_to(broker.url)
    thread, outcome = in_thread(lambda: late.run(command(to, limit=6.0)))
    until(lambda: broker.depth(to.commands(3)) is not None, LIMIT, lambda: "sent")
    now.depose(to, 4)
    thread.join(30)
    assert getattr(outcome[0], "code", outcome) == "NO_ANSWER"
    assert not exists(broker.url, to.commands(3))
    assert exists(broker.url, to.commands(4))


def test_an_agent_that_was_away_finds_the_latest_notices(
    broker: PrivateBroker, channel_to: Callable[[str], Channel], to: Address
) -> None:
    channel = channel_to(broker.url)
    for epoch in range(1, NOTICES + 5):
        channel.depose(to, epoch)
    assert broker.depth(to.notices) == NOTICES
    channel.depose(to, 2)  # by one that was late
    with ScriptedAgent(broker.url, SECRET, to, NOTICES + 4) as agent:
        until(lambda: len(agent.notices) == NOTICES, LIMIT, lambda: "told")
    assert max(notice["epoch"] for notice in agent.notices) == NOTICES + 4


def test_the_latest_heartbeat_stays_where_it_is_read(
    broker: PrivateBroker, channel_to: Callable[[str], Channel], to: Address
) -> None:
    channel = channel_to(broker.url)
    assert channel.heard(to) is None
    agent = ScriptedAgent(broker.url, SECRET, to, 3)
    for name in ("pg-start", "pg-stop"):
        agent.beat(running=[name])
    for _ in range(3):
        heartbeat = channel.heard(to)
        assert heartbeat is not None
        assert heartbeat.running == ("pg-stop",)
    until(lambda: broker.depth(to.heartbeats) == 1, LIMIT, lambda: "put back")


def test_a_broker_that_hangs_is_waited_for_no_longer_than_the_limit_and_one_call(
    broker: PrivateBroker, channel_to: Callable[[str], Channel], to: Address
) -> None:
    channel = channel_to(broker.url)
    with frozen(broker):
        begun = time.monotonic()
        error = failure(channel, command(to, limit=1.0))
        assert time.monotonic() - begun < 12
    assert error.code == "UNREACHABLE"
    thread, outcome = in_thread(lambda: channel.run(command(to, limit=2.0)))
    until(lambda: broker.depth(to.commands(3)) == 1, LIMIT, lambda: "sent")
    with frozen(broker):
        thread.join(30)
        assert not thread.is_alive()
    assert getattr(outcome[0], "code", outcome) == "NO_ANSWER"


@pytest.mark.parametrize("why", ["rights", "password", "virtual host"])
def test_a_refusal_is_an_error_of_the_configuration(
    broker: PrivateBroker, channel_to: Callable[[str], Channel], to: Address, why: str
) -> None:
    stranger = broker.add_user(f"stranger-{to.server_id}", configure="^$", write="^$", read="^$")
    url = {
        "rights": stranger,
        "password": broker.url_of(f"stranger-{to.server_id}", "guessed"),
        "virtual host": broker.url.replace("/failover", "/elsewhere"),
    }[why]

    # Refusals are repeated up to the limit. RabbitMQ needs some seconds for one on a busy machine.
    error = failure(channel_to(url), command(to, limit=15.0))

    assert error.code == "CONFIG"
    assert broker.password not in str(error)
    assert "guessed" not in str(error)


# -- a node that was broken into


def beat(broker: PrivateBroker, to: Address, body: bytes, **properties: Any) -> None:
    """What such a node may publish."""
    with Broker(broker.url).connect() as connection:
        channel = connection.channel()
        Producer(channel, auto_declare=False).publish(
            body,
            exchange=wire.HEARTBEATS,
            routing_key=to.heartbeats,
            **{"content_type": "x/y", "content_encoding": "binary", **properties},
        )


@pytest.mark.parametrize(
    "properties",
    [
        {"headers": {"compression": "application/x-bz2"}},
        {"headers": {"compression": "bzip2"}},
        {"content_type": "application/x-python-serialize"},
        {"content_type": "application/json", "content_encoding": "utf-8"},
        {"content_type": "text/plain", "content_encoding": "punycode"},
        {"content_encoding": "utf-16"},
    ],
    ids=str,
)
def test_a_message_is_read_as_it_came(
    broker: PrivateBroker,
    channel_to: Callable[[str], Channel],
    to: Address,
    properties: dict[str, Any],
) -> None:
    channel = channel_to(broker.url)
    assert channel.heard(to) is None
    for body in (bz2.compress(bytes(8 << 20)), pickle.dumps(["never read"]), b"plain text"):
        beat(broker, to, body, **properties)
        with Broker(broker.url).connect() as connection:
            message = take(reading_channel(connection), to.heartbeats)
            assert message.body == message.payload == body
            assert type(message.body) is bytes
            assert "compression" not in message.headers
            message.requeue()
        assert channel.heard(to) is None


class Distant(datetime):
    """A date that AMQP can say, and Python can not."""

    def utctimetuple(self) -> Any:
        return (9999, 12, 31, 10**9, 0, 0)


def test_a_message_that_can_not_be_read_at_all_makes_the_channel_unreachable_for_a_while(
    broker: PrivateBroker,
    channel_to: Callable[[str], Channel],
    to: Address,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(amqp, "PATIENCE", 0.5)
    channel = channel_to(broker.url)
    assert channel.heard(to) is None
    beat(broker, to, b"{}", headers={"when": Distant(2026, 1, 1)})
    with pytest.raises(ChannelError) as raised:
        channel.heard(to)
    assert raised.value.code == "UNREACHABLE"
    ScriptedAgent(broker.url, SECRET, to, 3).beat()  # the queue keeps the latest
    until(lambda: channel.heard(to) is not None, LIMIT, lambda: "heard")


def test_results_that_no_executor_takes_do_not_fill_the_broker(
    broker: PrivateBroker, channel_to: Callable[[str], Channel], to: Address
) -> None:
    channel_to(broker.url).heard(to)
    told = broker.control("list_queues", "-p", "failover", "name", "arguments")
    replies = [line for line in told.splitlines() if line.startswith("failover.replies.")]
    assert replies
    assert all(f'"x-max-length",{ANSWERS}' in line.replace(" ", "") for line in replies), replies
