# SPDX-License-Identifier: Apache-2.0
"""Over a broker, a member is deposed for good, and the last it said stays known."""

import time

import pytest

from mistral_failover.agent.broker import Broker
from support.channels import SECRET, command, failure
from support.scripted_agent import ScriptedAgent
from support.waiting import until


def test_a_deposed_epoch_has_no_queue_any_more_and_the_agent_is_told(url, channel_to, to):
    channel = channel_to(url)
    for epoch in (2, 3):
        failure(channel, command(to, epoch=epoch, limit=0.1))
    channel.depose(to, 4)
    channel.depose(to, 4)
    with Broker(url).connect() as connection:
        exists = {
            epoch: Broker(url).queue_exists(connection, to.commands(epoch)) for epoch in (2, 3, 4)
        }
    assert exists == {2: False, 3: False, 4: True}
    with ScriptedAgent(url, SECRET, to, 4) as agent:
        until(lambda: 4 in [notice["epoch"] for notice in agent.notices])
        assert channel.run(command(to, epoch=4)).exit_code == 0
        assert [sent["epoch"] for sent in agent.commands] == [4]


def test_who_comes_too_late_does_not_bring_back_a_deposed_epoch(url, channel_to, to):
    channel = channel_to(url)
    channel.depose(to, 3)
    channel.depose(to, 4)
    channel.depose(to, 6)
    channel.depose(to, 3)
    error = failure(channel, command(to, epoch=4))
    assert (error.code, "Nothing was sent" in error.message) == ("OLD_EPOCH", True)
    with Broker(url).connect() as connection:
        exists = [e for e in range(8) if Broker(url).queue_exists(connection, to.commands(e))]
    assert exists == [6]
    with ScriptedAgent(url, SECRET, to, 6) as agent:
        until(lambda: len(agent.notices) >= 3)
        assert channel.run(command(to, epoch=6)).exit_code == 0
    assert [notice["epoch"] for notice in agent.notices if notice["epoch"] < 6] == [3, 4]


def test_a_first_epoch_has_nothing_to_depose(memory, channel_to, to):
    channel_to(memory).depose(to, 0)
    with Broker(memory).connect() as connection:
        assert Broker(memory).queue_exists(connection, to.commands(0))


def test_the_latest_heartbeat_is_read_and_stays(url, channel_to, to):
    channel = channel_to(url)
    assert channel.heard(to) is None
    agent = ScriptedAgent(url, SECRET, to, 3)
    agent.beat(at=time.time() - 20)
    agent.beat(running=["pg-stop"], deposed="pg-stop runs", at=time.time() - 5)
    for _ in range(2):
        heartbeat = channel.heard(to)
        assert (heartbeat.epoch, heartbeat.running, heartbeat.deposed) == (
            3,
            ("pg-stop",),
            "pg-stop runs",
        )
        assert heartbeat.ago == pytest.approx(5, abs=3)
        assert (heartbeat.commands, heartbeat.boot) == (None, None), "an older agent tells neither"
        assert heartbeat.ended == set()
    agent.beat(boot="a-boot", in_effect=["pg-start"], ended=["4711"])
    heartbeat = channel.heard(to)
    assert (heartbeat.boot, heartbeat.in_effect) == ("a-boot", ("pg-start",))
    assert heartbeat.ended == {"4711"}
    agent.beat(commands=["pg-start", "pg-stop"])
    assert channel.heard(to).commands == {"pg-start", "pg-stop"}


def test_a_heartbeat_that_is_not_the_members_is_dropped(memory, channel_to, to):
    channel = channel_to(memory)
    channel.heard(to)
    agent = ScriptedAgent(memory, SECRET, to, 3)
    agent.beat(key=b"guessed")
    agent.beat(server_id="another")
    agent.beat(running="pg-stop")
    agent.beat(running=[1])
    agent.beat(at="now")
    agent.beat(commands="pg-stop")
    agent.beat(commands=[None])
    agent.beat(stopping=None)
    assert channel.heard(to) is None
    agent.beat()
    assert channel.heard(to).epoch == 3


def test_a_clock_that_is_ahead_makes_a_heartbeat_look_old_not_fresh_for_long(
    memory, channel_to, to
):
    channel = channel_to(memory)
    channel.heard(to)
    ScriptedAgent(memory, SECRET, to, 3).beat(at=time.time() + 60)
    assert channel.heard(to).ago == pytest.approx(60, abs=5)
