# SPDX-License-Identifier: Apache-2.0
"""The host of the active member has died, and Nova shows its server as running all the same: a
project sees it only by the silence of the agent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from mistral_failover.agent.channel.emulated import EmulatedChannel
from mistral_failover.agent.channel.interface import Heartbeat
from mistral_failover.agent.wire import Address
from mistral_failover.model.heartbeats import SILENT
from mistral_failover.recovery import observe as observe_module
from support.looks import observe, service

Heard = Callable[[EmulatedChannel, Address], Heartbeat | None]


def silent_for(monkeypatch: pytest.MonkeyPatch, seconds: float, *members: str) -> None:
    """Let the agents of members be silent for so long."""
    heard: Heard = EmulatedChannel.heard

    def late(channel: EmulatedChannel, to: Address) -> Heartbeat | None:
        beat = heard(channel, to)
        return replace(beat, ago=seconds) if beat and to.member in members else beat

    monkeypatch.setattr(EmulatedChannel, "heard", late)


def codes(group: Any) -> list[str]:
    return [each["code"] for each in group.status()["service"]["needs"]]


@pytest.fixture
def serving(group: Any) -> Any:
    """A group that serves on db_a, and was seen to."""
    group.activate()
    observe(group)
    assert service(group) == ("SERVING", [])
    return group


def test_an_agent_that_is_late_leaves_it_known_that_the_group_serves(
    serving: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent_for(monkeypatch, SILENT + 20, "db_a")
    observe(serving)

    assert service(serving)[0] == "DEGRADED"


@pytest.mark.parametrize("members", [("db_a",), ("db_a", "db_b")])
def test_of_an_active_member_not_heard_for_minutes_it_is_not_known_whether_it_serves(
    serving: Any, monkeypatch: pytest.MonkeyPatch, members: tuple[str, ...]
) -> None:
    silent_for(monkeypatch, 266, *members)
    observe(serving)

    state, (why,) = service(serving)
    assert state == "UNKNOWN"
    assert why.endswith(
        "is on db_a, but its agent has sent no heartbeat for 266 s: its server may have died"
    )
    assert codes(serving) == (
        ["MOVE_SILENT", "DIAGNOSE"] if members == ("db_a",) else ["REBOOT_SERVER"]
    )


def test_the_silence_outlasts_the_heartbeat_that_the_broker_has_dropped(
    serving: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: Heard = EmulatedChannel.heard

    def dropped(channel: EmulatedChannel, to: Address) -> Heartbeat | None:
        return None if to.member == "db_a" else heard(channel, to)

    monkeypatch.setattr(EmulatedChannel, "heard", dropped)
    observe(serving)
    assert service(serving)[0] == "SERVING", "it was heard just now, by the broker before"

    monkeypatch.setattr(observe_module, "HOUR", -1.0)
    observe(serving)
    assert service(serving)[0] == "UNKNOWN"


def test_the_silence_of_a_standby_leaves_it_known_that_the_group_serves(
    serving: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent_for(monkeypatch, 266, "db_b")
    observe(serving)

    state, why = service(serving)
    assert state == "DEGRADED"
    assert why == ["no member can take over (db_b: its agent has sent no heartbeat for 266 s)"]
