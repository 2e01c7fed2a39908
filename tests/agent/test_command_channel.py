# SPDX-License-Identifier: Apache-2.0
"""A command runs once in a guest, and its result comes back, or the reason why not."""

import threading

import pytest

from mistral_failover.agent.channel import ChannelError, Command, Means, channel_for
from mistral_failover.agent.wire import Address
from mistral_failover.cloud.guard import LeaseLost, Unguarded


@pytest.fixture
def channel_of(emulated):
    def make(cloud):
        url = emulated.url.replace("http://", "emulator+http://")
        return channel_for(url, Means(cloud.session, Unguarded()))

    return make


@pytest.fixture
def channel(cloud, channel_of, emulator):
    emulator.add_application("pg", start="pg-start", stop="pg-stop")
    return channel_of(cloud)


def command(server_id, name="pg-start", **more):
    return Command(
        **{
            "id": "key-1",
            "to": Address("group-1", "payments", "db_a", server_id),
            "epoch": 3,
            "name": name,
            "limit": 5.0,
            **more,
        }
    )


def test_a_command_runs_and_returns_its_result(channel, pair, emulator):
    result = channel.run(command(pair.a))
    assert (result.id, result.exit_code, result.replayed) == ("key-1", 0, False)
    assert result.stdout
    assert emulator.nodes()[pair.a]["applications"] == ["pg"]


def test_the_same_id_again_returns_the_recorded_result(channel, pair, emulator):
    first = channel.run(command(pair.a))
    again = channel.run(command(pair.a))
    assert again.replayed
    assert again.stdout == first.stdout
    assert len(emulator.audit(kind="application_started")) == 1


def test_a_command_that_fails_is_a_result(channel, pair, emulator):
    emulator.add_application("db", start="db-start", stop="db-stop", needs_volume=True)
    result = channel.run(command(pair.a, "db-start"))
    assert result.exit_code == 32
    assert result.stderr


def test_a_command_of_an_older_epoch_is_refused(channel, pair):
    channel.run(command(pair.a))
    with pytest.raises(ChannelError) as raised:
        channel.run(command(pair.a, "pg-stop", id="key-0", epoch=2))
    assert raised.value.code == "OLD_EPOCH"


def test_a_command_that_the_member_does_not_allow_is_refused(channel, pair):
    with pytest.raises(ChannelError) as raised:
        channel.run(command(pair.a, "rm"))
    assert raised.value.code == "REFUSED"
    assert "allow-list" in raised.value.remedy


@pytest.mark.parametrize("fault", ["crash", "hang"])
def test_a_guest_that_does_not_answer_is_given_up_after_the_limit(channel, pair, emulator, fault):
    emulator.fault("server", pair.a, fault)
    with pytest.raises(ChannelError) as raised:
        channel.run(command(pair.a, limit=0.2))
    assert raised.value.code == "NO_ANSWER"
    assert "db_a" in raised.value.message


def test_a_command_longer_than_one_http_call_is_waited_for(
    connect, channel_of, channel, pair, emulator
):
    emulator.set_latency(command_start=0.9)
    cloud = connect()
    cloud.session.timeout = 0.5
    assert channel_of(cloud).run(command(pair.a)).exit_code == 0
    assert len(emulator.audit(kind="application_started")) == 1


def test_a_guest_of_another_project_is_not_reached(connect, channel_of, pair):
    with pytest.raises(ChannelError) as raised:
        channel_of(connect("other")).run(command(pair.a, limit=0.1))
    assert raised.value.code == "UNREACHABLE"


def test_a_revoked_token_is_refused(channel, pair, emulated):
    emulated.emulation.state.tokens.clear()
    with pytest.raises(ChannelError) as raised:
        channel.run(command(pair.a))
    assert raised.value.code == "REFUSED"


def test_no_command_starts_once_the_lease_is_lost(connect, channel_of, channel, pair, emulator):
    lost = threading.Event()

    class Ending:
        request_id = None

        def permit(self, method):
            if lost.is_set():
                raise LeaseLost("The lease has ended.")
            return 5.0

    late = channel_of(connect(guard=Ending()))
    lost.set()
    with pytest.raises(LeaseLost):
        late.run(command(pair.a))
    assert emulator.audit(kind="command_started") == []
