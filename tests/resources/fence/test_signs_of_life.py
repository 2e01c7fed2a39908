# SPDX-License-Identifier: Apache-2.0
"""For how long a host has certainly shown no sign of life: to look takes time, and what came during
a look is not counted as silence."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from mistral_failover.agent.wire import Address
from mistral_failover.cloud.hosts import ComputeService
from mistral_failover.resources.fence import power

AGENT = Address("g", "payments", "db_a", "server-a")
REPORT = ComputeService("s", "cmp1", True, False, "2026-11-30T08:00:00")


class World:
    """A clock, an agent that sent its last heartbeat at some time, and how long questions take."""

    def __init__(self) -> None:
        self.now, self.sent = 1000.0, 0.0
        self.agent_takes = self.nova_takes = 0.0

    def heard(self, _to: Address) -> Any:
        self.now += self.agent_takes
        return SimpleNamespace(ago=self.now - self.sent)

    def report(self, *_: Any) -> ComputeService:
        self.now += self.nova_takes
        return REPORT

    def look(self) -> power._Look:
        switch: Any = SimpleNamespace(guests=[AGENT], channel=self, nova=None)
        return power._Look.of(switch, "cmp1")


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World()
    monkeypatch.setattr(power, "time", SimpleNamespace(monotonic=lambda: made.now))
    monkeypatch.setattr(power.hosts, "compute_service", made.report)
    return made


def test_silence_counts_from_the_end_of_the_earlier_look(world: World) -> None:
    world.agent_takes, world.sent = 3.0, 1002.9
    first = world.look()
    world.agent_takes, world.now = 0.0, 1005.0

    seen = world.look()

    assert seen.silence(AGENT, first) == pytest.approx(2.0)
    assert seen.silence_of_service(first) == pytest.approx(2.0)


def test_silence_counts_until_the_beginning_of_the_later_look(world: World) -> None:
    world.sent = 999.0
    first = world.look()
    world.now, world.nova_takes = 1004.0, 5.0

    seen = world.look()

    assert seen.silence(AGENT, first) == pytest.approx(4.0)
    assert seen.silence_of_service(first) == pytest.approx(4.0)


def test_an_agent_whose_heartbeat_is_new_is_silent_by_its_clock_only(world: World) -> None:
    world.sent = 990.0
    first = world.look()
    world.now, world.sent = 1010.0, 1005.0

    assert world.look().silence(AGENT, first) == pytest.approx(5.0 - power._SKEW)
