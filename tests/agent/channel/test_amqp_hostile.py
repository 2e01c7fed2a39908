# SPDX-License-Identifier: Apache-2.0
"""A member that was broken into may send what it likes: it costs little, and holds up nothing."""

import bz2
import gzip
import pickle
import threading
import time

import pytest
from kombu.messaging import Producer

from mistral_failover.agent import wire
from mistral_failover.agent.broker import Broker, reading_channel, take, wait
from mistral_failover.agent.channel import amqp, conversation
from mistral_failover.agent.channel.interface import ChannelError
from mistral_failover.agent.channel.links import ANSWERS, Links
from mistral_failover.agent.daemon.intake import Intake
from support.channels import SECRET, command, failure
from support.scripted_agent import ScriptedAgent
from support.waiting import until

GOOD = {"state": "done", "exit_code": 0, "stdout": "", "stderr": "", "replayed": False}
BOMBS = {
    "gzip": gzip.compress(b"\0" * (4 << 20)),
    "application/x-gzip": gzip.compress(b"\0" * (4 << 20)),
    "bzip2": bz2.compress(b"\0" * (4 << 20)),
}
HUGE = 10**400


@pytest.fixture
def decompressed(monkeypatch):
    """What kombu was told to decompress."""
    seen = []
    monkeypatch.setattr("kombu.message.decompress", lambda body, kind: seen.append(kind) or b"")
    return seen


def send(broker, exchange, routing_key, body, **properties):
    with broker.connect() as connection:
        channel = connection.channel()
        broker.declare_exchanges(channel)
        given = {"content_type": "application/octet-stream", "content_encoding": "binary"}
        Producer(channel, auto_declare=False).publish(
            body, exchange=exchange, routing_key=routing_key, **{**given, **properties}
        )


# -- what is in a message is not unpacked


@pytest.mark.parametrize("kind", BOMBS)
def test_what_is_compressed_stays_so(url, to, kind):
    broker = Broker(url)
    with broker.connect() as connection:
        channel = reading_channel(connection)
        queue = broker.declare_heartbeats(channel, to, bind=True)
        send(broker, wire.HEARTBEATS, queue, BOMBS[kind], headers={"compression": kind, "more": 1})
        message = take(channel, queue)
    assert (message.body, message.headers) == (BOMBS[kind], {"more": 1})
    assert message.errors == []


@pytest.mark.parametrize(
    ("content_type", "encoding"),
    [
        ("application/x-python-serialize", "binary"),
        ("application/json", "utf-8"),
        ("application/x-yaml", "utf-7"),
        ("text/plain", "punycode"),
    ],
)
def test_no_content_type_or_encoding_has_anything_decoded(memory, to, content_type, encoding):
    broker, body = Broker(memory), pickle.dumps(["never read"])
    with broker.connect() as connection:
        channel = reading_channel(connection)
        queue = broker.declare_heartbeats(channel, to, bind=True)
        send(
            *(broker, wire.HEARTBEATS, queue, body),
            content_type=content_type,
            content_encoding=encoding,
        )
        message = take(channel, queue)
    assert message.body == message.payload == message.decode() == body
    assert channel.auto_decode is False


def test_an_executor_unpacks_neither_a_heartbeat_nor_a_result(memory, channel_to, to, decompressed):
    channel, broker = channel_to(memory), Broker(memory)
    assert channel.heard(to) is None
    send(broker, wire.HEARTBEATS, to.heartbeats, b"x", headers={"compression": "gzip"})
    assert channel.heard(to) is None

    def script(sent, say):
        send(broker, wire.RESULTS, sent["reply_to"], b"x", headers={"compression": "gzip"})
        say(**GOOD)

    with ScriptedAgent(memory, SECRET, to, 3, script):
        assert channel.run(command(to)).exit_code == 0
    assert decompressed == []


def test_an_agent_unpacks_neither_a_notice_nor_a_command(memory, to, decompressed):
    class Desk:
        epoch = 3
        taken = []

        def take_command(self, message):
            self.taken.append(message.body)
            message.ack()

        take_notice = take_command

        def drop_waiting(self):
            pass

    broker, dispatcher, stop = Broker(memory), Desk(), threading.Event()
    with broker.connect() as connection:
        broker.declare_exchanges(connection.channel())
        broker.declare_notices(connection.channel(), to, bind=True)
        broker.declare_commands(connection.channel(), to, 3)
    for queue in (to.notices, to.commands(3)):
        send(broker, wire.COMMANDS, queue, queue.encode(), headers={"compression": "gzip"})
    intake = Intake(broker, to, dispatcher, lambda: False, lambda: None)
    thread = threading.Thread(target=intake.run, args=(stop,))
    thread.start()
    try:
        until(lambda: len(dispatcher.taken) == 2)
    finally:
        stop.set()
        thread.join(10)
    assert sorted(dispatcher.taken) == sorted([to.notices.encode(), to.commands(3).encode()])
    assert decompressed == []


def test_what_the_library_can_not_read_costs_the_connection_and_nothing_else(memory, monkeypatch):
    with Broker(memory).connect() as connection:

        def unreadable(**_):
            raise ValueError("year 5000000000 is out of range")

        monkeypatch.setattr(connection, "drain_events", unreadable)
        with pytest.raises(ConnectionResetError, match="cannot be read"):
            wait(connection, 0.1)


# -- however much is sent


def test_of_a_flood_of_heartbeats_only_so_many_are_read(memory, channel_to, to):
    channel = channel_to(memory)
    channel.heard(to)
    broker = Broker(memory)
    with broker.connect() as connection:
        sender = connection.channel()
        for _ in range(4 * amqp.READ):
            broker.publish(sender, wire.HEARTBEATS, to.heartbeats, (b"{}", {}))
        assert channel.heard(to) is None
        left = sender._size(to.heartbeats)
    assert left == amqp.READ  # it looks three times


def test_of_a_flood_of_results_only_the_latest_are_kept(memory):
    links = Links(Broker(memory))
    with links.link(5) as link, link.listen("address"):
        for number in range(3 * ANSWERS):
            links.broker.publish(link.channel, wire.RESULTS, "address", (b"%d" % number, {}))
        while wait(link.connection, 0.0):
            pass
        assert len(link.answers) == ANSWERS
        assert link.answers[-1].body == b"%d" % (3 * ANSWERS - 1)


def test_a_flood_of_garbage_does_not_fill_the_log(memory, channel_to, to, caplog):
    def script(_, say):
        for _ in range(2 * conversation.STRANGE):
            say(state="sung")
            time.sleep(0.005)
        say(**GOOD)

    with ScriptedAgent(memory, SECRET, to, 3, script):
        assert channel_to(memory).run(command(to)).exit_code == 0
    assert (
        len([r for r in caplog.records if "claims to be" in r.getMessage()]) == conversation.STRANGE
    )


def test_a_connection_that_does_not_fall_silent_is_not_used_again(memory, monkeypatch):
    links = Links(Broker(memory))
    with links.link(5) as first:
        pass
    monkeypatch.setattr("mistral_failover.agent.channel.links.wait", lambda *_: True)
    with links.link(5) as second:
        assert second is not first


@pytest.mark.timeout(30)
def test_a_flood_of_garbage_neither_prolongs_the_wait_nor_the_patience(
    memory, channel_to, to, monkeypatch
):
    def flooded(connection, seconds):
        wait(connection, min(seconds, 0.01))
        return True  # something came

    monkeypatch.setattr(conversation, "wait", flooded)
    begun = time.monotonic()
    error = failure(channel_to(memory), command(to, limit=0.3, longest=60.0))
    assert error.code == "NO_ANSWER"

    ended = threading.Event()

    def script(_, say):
        while not ended.wait(0.02):
            say(state="running", seconds=1.0)

    with ScriptedAgent(memory, SECRET, to, 3, script):
        error = failure(channel_to(memory), command(to, limit=0.3, longest=0.6))
        ended.set()
    assert error.code == "NO_ANSWER"
    assert time.monotonic() - begun < 10


# -- whatever is signed


@pytest.mark.parametrize(
    "said",
    [
        {"at": HUGE},
        {"at": -HUGE},
        {"at": 1e15},
        {"at": True},
        {"running": ["pg-stop"] * 17},
        {"running": ["x" * 256]},
        {"running": ["\ud800"]},
        {"deposed": "\udfff"},
        {"deposed": "x" * (wire.MAX_OUTPUT + 1)},
        {"deposed": 1},
        {"stopping": "no"},
        {"boot": ""},
        {"boot": "x" * (wire.MAX_BOOT + 1)},
        {"boot": "a\nb"},
        {"in_effect": "pg-start"},
        {"in_effect": ["x" * 256]},
        {"ended": "4711"},
        {"ended": ["x" * 256]},
        {"ended": ["4711"] * 17},
    ],
    ids=lambda said: f"{next(iter(said))}",
)
def test_a_heartbeat_says_nothing_that_can_not_be_reckoned_or_written_down(
    memory, channel_to, to, said
):
    channel = channel_to(memory)
    channel.heard(to)
    agent = ScriptedAgent(memory, SECRET, to, 3)
    agent.beat(**said)
    assert channel.heard(to) is None
    agent.beat(running=["x" * 255] * 16, deposed="x" * wire.MAX_OUTPUT)
    assert len(channel.heard(to).running) == 16


HOSTILE = [
    {**GOOD, "exit_code": HUGE},
    {**GOOD, "exit_code": 2**31},
    {**GOOD, "exit_code": -(2**31) - 1},
    {**GOOD, "exit_code": 1.0},
    {**GOOD, "stdout": "\ud800"},
    {**GOOD, "boot": "\ud800"},
    {**GOOD, "stderr": "x" * (wire.MAX_OUTPUT + 1)},
    {"state": "running", "seconds": HUGE},
    {"state": "running", "seconds": True},
    {"state": "refused", "code": "REFUSED", "message": "\ud800"},
    {"state": "refused", "code": ["REFUSED"], "message": ""},
    {"state": "unknown", "code": "UNKNOWN_OUTCOME", "message": HUGE},
]


def test_nor_does_a_result(memory, channel_to, to, caplog):
    def script(_, say):
        for said in HOSTILE:
            say(**said)
        say(**GOOD, **{"more": HUGE})

    with ScriptedAgent(memory, SECRET, to, 3, script):
        result = channel_to(memory).run(command(to))
    assert (result.exit_code, result.stdout) == (0, "")
    refused = [r for r in caplog.records if "claims to be" in r.getMessage()]
    assert len(refused) == len(HOSTILE)


@pytest.mark.parametrize("exit_code", [-(2**31), 0, 255, 2**31 - 1])
def test_an_exit_code_has_32_bits(memory, channel_to, to, exit_code):
    def script(_, say):
        say(**{**GOOD, "exit_code": exit_code, "stdout": "x" * wire.MAX_OUTPUT})

    with ScriptedAgent(memory, SECRET, to, 3, script):
        try:
            result = channel_to(memory).run(command(to))
        except ChannelError as error:
            pytest.fail(str(error))
    assert result.exit_code == exit_code
