# SPDX-License-Identifier: Apache-2.0
"""What executors say to an agent over a broker, and what they take from it."""

import threading
import time

import pytest
from keystoneauth1.session import Session

from mistral_failover.agent import wire
from mistral_failover.agent.broker import Broker, wait
from mistral_failover.agent.channel import amqp, conversation
from mistral_failover.agent.channel.interface import ChannelContext, ChannelError, channel_for
from mistral_failover.agent.local import MemoryChannel
from mistral_failover.cloud.transport import LeaseLost, Unguarded
from support.channels import SECRET, Lease, command, failure
from support.scripted_agent import ScriptedAgent
from support.waiting import until


def test_a_command_reaches_the_agent_and_its_result_comes_back(url, channel_to, to):
    with ScriptedAgent(url, SECRET, to, 3) as agent:
        result = channel_to(url).run(command(to, arguments={"data_device": "/dev/vdb"}))
    assert (result.id, result.exit_code, result.stdout) == ("key-1", 0, "pg-start ran")
    [sent] = agent.commands
    assert sent["arguments"] == {"data_device": "/dev/vdb"}
    assert sent["epoch"] == 3
    assert 0 < sent["limit"] <= 5.0
    assert abs(time.time() - sent["sent_at"]) < 5


def test_the_agent_is_told_the_epoch_with_every_command(url, channel_to, to):
    with ScriptedAgent(url, SECRET, to, 3) as agent:
        channel_to(url).run(command(to))
        until(lambda: agent.notices)
    notice = agent.notices[0]
    assert (notice["epoch"], notice["server_id"], notice["group_id"]) == (
        3,
        to.server_id,
        to.group_id,
    )


def test_patience_ends_even_while_the_agent_says_that_the_command_runs(memory, channel_to, to):
    ended = threading.Event()

    def script(_, say):
        while not ended.wait(0.05):
            say(state="running", seconds=7.0)

    with ScriptedAgent(memory, SECRET, to, 3, script):
        error = failure(channel_to(memory), command(to, limit=3.0, longest=3.0))
        ended.set()
    assert error.code == "NO_ANSWER"
    assert "did not complete pg-start within 3 s" in error.message
    assert "pg-start had been running for 7 s" in error.heard


def test_an_agent_that_falls_silent_is_given_up_after_the_limit(memory, channel_to, to):
    heard = []

    def once(sent, say):
        if not heard:
            heard.append(sent)
            say(state="accepted")

    begun = time.monotonic()
    with ScriptedAgent(memory, SECRET, to, 3, once):
        error = failure(channel_to(memory), command(to, limit=3.0, longest=60.0))
    assert error.code == "NO_ANSWER"
    assert "no further message about pg-start" in error.message
    assert "it had received pg-start" in error.heard
    assert time.monotonic() - begun < 30


def test_without_an_agent_there_is_no_answer_and_the_command_waits_in_its_queue(
    url, channel_to, to
):
    error = failure(channel_to(url), command(to, limit=0.6))
    assert (error.code, error.heard) == ("NO_ANSWER", "")
    assert "db_a" in error.message
    with ScriptedAgent(url, SECRET, to, 3) as agent:
        until(lambda: agent.commands)
        assert agent.commands[0]["id"] == "key-1"


def test_a_command_is_sent_again_under_its_id_while_nothing_is_heard(memory, channel_to, to):
    def script(_, say):
        if len(agent.commands) == 2:
            say(state="done", exit_code=0, stdout="", stderr="", replayed=False)

    with ScriptedAgent(memory, SECRET, to, 3, script) as agent:
        assert channel_to(memory).run(command(to, limit=3.5)).exit_code == 0
    assert [sent["id"] for sent in agent.commands] == ["key-1", "key-1"]
    assert len({sent["reply_to"] for sent in agent.commands}) == 1
    assert agent.commands[1]["limit"] < agent.commands[0]["limit"]


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ({"state": "refused", "code": "OLD_EPOCH"}, "OLD_EPOCH"),
        ({"state": "refused", "code": "REFUSED"}, "REFUSED"),
        ({"state": "unknown", "code": "UNKNOWN_OUTCOME"}, "UNKNOWN_OUTCOME"),
    ],
)
def test_what_the_agent_refuses_or_can_not_tell_is_an_error(memory, channel_to, to, said, code):
    def script(_, say):
        say(message="pg-start: so it is.", **said)

    with ScriptedAgent(memory, SECRET, to, 3, script):
        error = failure(channel_to(memory), command(to))
    assert (error.code, error.message) == (code, "pg-start: so it is.")
    assert error.remedy


def _foreign(to):
    """Results that anybody who knows the reply address could send, and the member's own of
    another conversation."""
    right = wire.member_key(wire.group_key(SECRET, to.group_id), to.member)
    other_group = wire.member_key(wire.group_key(SECRET, "another"), to.member)
    good = {"state": "done", "exit_code": 1, "stdout": "", "stderr": "", "replayed": False}
    return [
        {**good, "key": wire.epoch_key(other_group, to.server_id, 3)},
        {**good, "key": wire.epoch_key(right, "another-server", 3)},
        {**good, "epoch": 2, "key": wire.epoch_key(right, to.server_id, 2)},
        {**good, "id": "key-0"},
        {**good, "group_id": "another"},
        {**good, "server_id": "another"},
        {**good, "exit_code": True},
        {**good, "exit_code": "0"},
        {**good, "stdout": None},
        {**good, "replayed": 0},
        {**good, "state": "sung"},
        {"state": "refused", "code": "ROOT", "message": ""},
        {"state": "running", "seconds": "long"},
    ]


def test_what_the_member_can_not_have_said_about_this_command_is_not_taken(
    memory, channel_to, to, caplog
):
    def script(_, say):
        for said in _foreign(to):
            say(**said)
        say(state="done", exit_code=0, stdout="the real one", stderr="", replayed=False)

    with ScriptedAgent(memory, SECRET, to, 3, script):
        assert channel_to(memory).run(command(to)).stdout == "the real one"
    warned = [record for record in caplog.records if record.levelname == "WARNING"]
    assert len(warned) == len(_foreign(to))
    assert all("db_a" in record.getMessage() for record in warned)


def test_forged_words_do_not_prolong_the_wait(memory, channel_to, to):
    ended = threading.Event()

    def script(_, say):
        while not ended.wait(0.05):
            say(state="running", seconds=1.0, key=b"guessed")

    begun = time.monotonic()
    with ScriptedAgent(memory, SECRET, to, 3, script):
        error = failure(channel_to(memory), command(to, limit=0.4, longest=60.0))
        ended.set()
    assert (error.code, error.heard) == ("NO_ANSWER", "")
    assert time.monotonic() - begun < 10


def test_nothing_is_sent_once_the_lease_is_lost(memory, channel_to, to):
    lease = Lease()
    lease.ended.set()
    with ScriptedAgent(memory, SECRET, to, 3) as agent:
        with pytest.raises(LeaseLost):
            channel_to(memory, lease).run(command(to))
        with pytest.raises(LeaseLost):
            channel_to(memory, lease).depose(to, 4)
    assert agent.commands == agent.notices == []
    with Broker(memory).connect() as connection:
        assert not Broker(memory).queue_exists(connection, to.commands(3))
        assert not Broker(memory).queue_exists(connection, to.commands(4))


def test_a_lease_that_is_lost_ends_the_wait(memory, channel_to, to):
    lease = Lease()
    begun = time.monotonic()
    with (
        ScriptedAgent(memory, SECRET, to, 3, lambda *_: lease.ended.set()),
        pytest.raises(LeaseLost),
    ):
        channel_to(memory, lease).run(command(to, limit=60.0))
    assert time.monotonic() - begun < 10
    assert lease.asked.count("POST") >= 2
    assert "GET" in lease.asked


def test_what_is_too_long_or_no_json_is_refused_before_anything_is_sent(memory, channel_to, to):
    lease = Lease()
    long = failure(channel_to(memory, lease), command(to, arguments={"text": "x" * 70_000}))
    assert (long.code, "too long" in long.message) == ("REFUSED", True)
    for value in (float("nan"), {1, 2}):
        wrong = failure(channel_to(memory, lease), command(to, arguments={"value": value}))
        assert (wrong.code, "JSON" in wrong.message) == ("REFUSED", True)
    assert lease.asked == []


def test_many_threads_share_a_channel(memory, channel_to, to):
    results = []
    channel = channel_to(memory)

    def run(number):
        results.append(channel.run(command(to, id=f"key-{number}")).id)

    with ScriptedAgent(memory, SECRET, to, 3):
        threads = [threading.Thread(target=run, args=(number,)) for number in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
    assert sorted(results) == sorted(f"key-{number}" for number in range(12))


def test_a_broker_that_is_away_is_unreachable_after_the_limit(channel_to, to, monkeypatch):
    monkeypatch.setattr(amqp, "PATIENCE", 0.3)
    channel = channel_to("amqp://guest:hush@127.0.0.1:1/failover")
    begun = time.monotonic()
    errors = [failure(channel, command(to, limit=0.3))]
    for call in (lambda: channel.depose(to, 4), lambda: channel.heard(to)):
        with pytest.raises(ChannelError) as raised:
            call()
        errors.append(raised.value)
    assert time.monotonic() - begun < 10
    for error in errors:
        assert error.code == "UNREACHABLE"
        assert "amqp://127.0.0.1:1/failover" in error.message
        assert "hush" not in str(error)


def test_a_connection_that_breaks_while_a_result_is_waited_for_is_replaced(
    memory, channel_to, to, monkeypatch
):
    broken = []

    def breaking(connection, seconds):
        if agent.commands and not broken:
            broken.append(connection)
            raise ConnectionResetError
        return wait(connection, seconds)

    def script(_, say):
        if broken:
            say(state="done", exit_code=0, stdout="", stderr="", replayed=True)

    monkeypatch.setattr(conversation, "wait", breaking)
    lease = Lease()
    with ScriptedAgent(memory, SECRET, to, 3, script) as agent:
        assert channel_to(memory, lease).run(command(to, limit=20.0)).replayed
    assert broken
    assert len({sent["reply_to"] for sent in agent.commands}) == 1
    assert [notice["epoch"] for notice in agent.notices] == [3]


def test_a_result_that_was_heard_counts_though_the_broker_fails_right_after(
    memory, channel_to, to, monkeypatch
):
    def failing(*_, **__):
        raise ConnectionResetError

    monkeypatch.setattr(MemoryChannel, "queue_unbind", failing)
    with ScriptedAgent(memory, SECRET, to, 3) as agent:
        channel = channel_to(memory)
        for number in range(2):
            assert channel.run(command(to, id=f"key-{number}")).exit_code == 0
    assert [sent["id"] for sent in agent.commands] == ["key-0", "key-1"]


def test_a_lost_lease_ends_the_attempts_to_reach_a_broker(channel_to, to):
    lease = Lease()
    lease.ended.set()
    with pytest.raises(LeaseLost):
        channel_to("amqp://127.0.0.1:1/", lease).run(command(to, limit=60.0))


@pytest.mark.parametrize("url", ["amqp://", "amqps://host/?cafile=/no/such", "filesystem://"])
def test_a_url_that_can_not_be_used_is_named(channel_to, url):
    with pytest.raises(ChannelError) as raised:
        channel_to(url)
    assert raised.value.code == "CONFIG"


def test_without_the_secret_there_is_no_channel():
    with pytest.raises(ChannelError) as raised:
        channel_for("memory://", ChannelContext(Session(), Unguarded()))
    assert raised.value.code == "CONFIG"
    assert "[failover] agent_key_file" in raised.value.remedy
