# SPDX-License-Identifier: Apache-2.0
"""The channel's drivers are chosen by the URL's scheme."""

import pytest
from keystoneauth1.session import Session
from keystoneauth1.token_endpoint import Token

from mistral_failover.agent.channel.emulated import EmulatedChannel
from mistral_failover.agent.channel.interface import (
    ChannelContext,
    ChannelError,
    Command,
    channel_for,
)
from mistral_failover.agent.wire import Address
from mistral_failover.cloud.transport import Unguarded

MEANS = ChannelContext(Session(), Unguarded())


def test_the_scheme_names_the_driver():
    channel = channel_for("emulator+http://127.0.0.1:8000", MEANS)
    assert isinstance(channel, EmulatedChannel)


@pytest.mark.parametrize("url", [None, "", "smoke://127.0.0.1"])
def test_without_a_known_scheme_there_is_no_channel(url):
    with pytest.raises(ChannelError) as raised:
        channel_for(url, MEANS)
    assert raised.value.code == "CONFIG"
    assert "command_channel" in raised.value.remedy


def test_the_emulators_guests_are_reached_on_this_machine_only():
    with pytest.raises(ChannelError) as raised:
        channel_for("emulator+http://192.0.2.1:8000", MEANS)
    assert raised.value.code == "CONFIG"


def test_a_channel_without_an_agent_is_unreachable_after_the_limit():
    slept = []
    now = [0.0]

    def sleep(seconds):
        slept.append(seconds)
        now[0] += seconds

    channel = EmulatedChannel(
        "emulator+http://127.0.0.1:1",
        ChannelContext(Session(auth=Token("http://127.0.0.1:1", "token")), Unguarded()),
        clock=lambda: now[0],
        sleep=sleep,
    )
    command = Command("k1", Address("i", "g", "a", "s1"), 1, "pg-start", limit=2.0)
    with pytest.raises(ChannelError) as raised:
        channel.run(command)
    assert raised.value.code == "UNREACHABLE"
    assert slept == sorted(slept[:-1]) + slept[-1:]
    assert sum(slept) == pytest.approx(2.0)
