# SPDX-License-Identifier: Apache-2.0
"""A command runs once in a guest, and its result comes back, or the reason why not."""

import dataclasses
import re
import threading

import pytest
from keystoneauth1.identity import v3

from mistral_failover.agent.channel.interface import (
    ChannelContext,
    ChannelError,
    Command,
    channel_for,
)
from mistral_failover.agent.wire import Address
from mistral_failover.cloud.transport import Unguarded
from support.waiting import until


@pytest.fixture
def channel_of(emulated):
    def make(cloud, guard=None):
        url = emulated.url.replace("http://", "emulator+http://")
        return channel_for(url, ChannelContext(cloud.session, guard or Unguarded()))

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


def test_one_that_falls_silent_at_work_is_given_up_after_the_limit(
    cloud, channel_of, channel, pair, emulator
):
    emulator.set_latency(command_start=30)

    class SilentOnceHeard(Unguarded):
        """Is asked after each answer that is not the last."""

        def permit(self, method):
            emulator.fault("server", pair.a, "hang")
            super().permit(method)

    cloud.session.timeout = 5
    with pytest.raises(ChannelError) as raised:
        channel_of(cloud, SilentOnceHeard()).run(command(pair.a, limit=0.5, longest=60.0))
    assert raised.value.code == "NO_ANSWER"
    assert re.fullmatch(r"it said \d+ s ago that pg-start runs", raised.value.heard)


ADDRESS = Address("group-1", "payments", "db_a", "")


def address(server_id):
    return dataclasses.replace(ADDRESS, server_id=server_id)


def test_who_is_deposed_stops_its_applications_and_takes_no_older_command(channel, pair, emulator):
    channel.run(command(pair.a))

    channel.depose(address(pair.a), 4)

    assert emulator.guests()[pair.a]["applications"] == []
    with pytest.raises(ChannelError) as raised:
        channel.run(command(pair.a, id="key-2"))
    assert raised.value.code == "OLD_EPOCH"
    heard = channel.heard(address(pair.a))
    assert (heard.epoch, heard.running, heard.stopping) == (4, (), False)
    assert heard.deposed == "stopped before epoch 4 began: pg-stop"
    assert channel.run(command(pair.a, id="key-3", epoch=4)).exit_code == 0
    assert channel.heard(address(pair.a)).deposed is None


@pytest.mark.parametrize(("fault", "running"), [("hang", ["pg"]), ("crash", [])])
def test_who_comes_back_finds_itself_deposed(channel, pair, emulator, fault, running):
    channel.run(command(pair.a))
    emulator.fault("server", pair.a, fault)

    channel.depose(address(pair.a), 4)

    assert emulator.guests()[pair.a]["applications"] == running
    assert emulator.audit(kind="deposed") == []
    emulator.fault("server", pair.a, "thaw" if fault == "hang" else "revive")
    assert emulator.guests()[pair.a]["applications"] == []
    assert [e["applications"] for e in emulator.audit(kind="deposed")] == [running]
    assert channel.heard(address(pair.a)).epoch == 4


def test_a_guest_of_a_host_that_comes_back_finds_itself_deposed(channel, pair, emulator):
    channel.run(command(pair.a))
    host = emulator.guests()[pair.a]["host"]
    emulator.fault("host", host, "power_off")
    channel.depose(address(pair.a), 4)
    assert emulator.audit(kind="deposed") == []

    emulator.fault("host", host, "revive")

    (told,) = emulator.audit(kind="deposed")
    assert (told["server"], told["epoch"]) == (pair.a, 4)
    with pytest.raises(ChannelError) as raised:
        channel.run(command(pair.a, id="key-2"))
    assert raised.value.code == "OLD_EPOCH"


def test_who_is_deposed_at_work_takes_no_effect_any_more(channel, pair, emulator):
    emulator.set_latency(command_start=3)
    caught = []

    def start():
        with pytest.raises(ChannelError) as raised:
            channel.run(command(pair.a))
        caught.append(raised.value.code)

    thread = threading.Thread(target=start)
    thread.start()
    until(lambda: emulator.audit(kind="command_started"))
    assert channel.heard(address(pair.a)).running == ("pg-start",)
    channel.depose(address(pair.a), 4)
    thread.join()

    assert caught == ["UNKNOWN_OUTCOME"]
    until(lambda: [e for e in emulator.critical() if e["outcome"] == "killed"])
    assert emulator.audit(kind="application_started") == []


def test_a_command_that_was_killed_runs_again_under_its_id_in_a_newer_epoch(
    channel, pair, emulator
):
    emulator.set_latency(command_start=30)
    thread = threading.Thread(
        target=lambda: pytest.raises(ChannelError, channel.run, command(pair.a))
    )
    thread.start()
    until(lambda: emulator.audit(kind="command_started"))
    channel.depose(address(pair.a), 4)
    thread.join()
    emulator.set_latency(command_start=0)

    channel.run(command(pair.a, epoch=4))

    (died,) = emulator.audit(kind="command_died")
    first, second = emulator.audit(kind="command_started")
    assert first["id"] == died["id"] == second["id"]


def test_a_deposed_member_takes_a_newer_command_once_everything_is_stopped(channel, pair, emulator):
    channel.run(command(pair.a))
    emulator.set_latency(command_stop=1)
    channel.depose(address(pair.a), 4)

    heard = channel.heard(address(pair.a))
    assert (heard.running, heard.stopping) == (("pg-stop",), True)
    emulator.set_latency(command_stop=0)
    assert channel.run(command(pair.a, "pg-stop", id="key-2", epoch=4)).stdout == (
        "pg is not running"
    )
    (stopped,) = emulator.audit(kind="application_stopped")
    (taken,) = [e for e in emulator.audit(kind="command_started") if e["id"] == "key-2"]
    assert stopped["seq"] < taken["seq"]


def test_a_deposed_member_that_cannot_stop_takes_no_command_until_it_can(channel, pair, emulator):
    channel.run(command(pair.a))
    emulator.api_fault("on_deposed", "fail")

    channel.depose(address(pair.a), 4)

    with pytest.raises(ChannelError) as raised:
        channel.run(command(pair.a, id="key-2", epoch=4))
    assert raised.value.code == "REFUSED"
    until(lambda: not channel.heard(address(pair.a)).stopping)
    assert channel.run(command(pair.a, id="key-2", epoch=4)).exit_code == 0


def test_a_command_of_a_newer_epoch_deposes_an_agent_that_did_not_know(channel, pair, emulator):
    channel.run(command(pair.a))

    channel.run(command(pair.a, "pg-stop", id="key-2", epoch=5))

    assert [e["epoch"] for e in emulator.audit(kind="deposed")] == [5]


def test_of_who_is_out_of_reach_the_last_word_is_known(channel, pair, emulator):
    assert channel.heard(address(pair.a)).ago == 0
    emulator.fault("server", pair.a, "hang")
    until(lambda: channel.heard(address(pair.a)).ago > 0)


def test_of_a_node_that_is_not_there_nothing_is_known_and_deposing_it_is_harmless(
    connect, channel_of, channel, pair
):
    channel.depose(address("unknown"), 4)
    assert channel.heard(address("unknown")) is None
    stranger = channel_of(connect("other"))
    stranger.depose(address(pair.a), 9)
    assert stranger.heard(address(pair.a)) is None
    assert channel.heard(address(pair.a)).epoch == 0


def test_a_guest_of_another_project_is_not_reached(connect, channel_of, pair):
    with pytest.raises(ChannelError) as raised:
        channel_of(connect("other")).run(command(pair.a, limit=0.1))
    assert raised.value.code == "UNREACHABLE"


def test_a_revoked_token_is_refused(channel, pair, emulated):
    emulated.emulation.state.tokens.clear()
    with pytest.raises(ChannelError) as raised:
        channel.run(command(pair.a))
    assert raised.value.code == "REFUSED"


def test_a_page_in_place_of_a_token_leaves_the_agent_unreachable(
    cloud, channel, pair, emulator, emulated
):
    """Another service may answer for Keystone, too; the next look asks again."""
    to = command(pair.a).to
    cloud.session.auth = v3.Password(
        f"{emulated.url}/identity/v3",
        username="demo",
        password="demo",
        project_name="demo",
        user_domain_id="default",
        project_domain_id="default",
    )
    emulator.api_fault("token", "gateway", status=404, times=99)

    with pytest.raises(ChannelError) as raised:
        channel.heard(to)
    with pytest.raises(ChannelError) as of_a_command:
        channel.run(command(pair.a, limit=0.5))

    assert {raised.value.code, of_a_command.value.code} == {"UNREACHABLE"}
