# SPDX-License-Identifier: Apache-2.0
"""The webhook in Aodh's shape."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lab.emulator.emulated_clients import Pair
from mistral_failover.lab.emulator.client import EmulatorClient, EmulatorError
from support.scripted_http import ScriptedServer, scripted_server
from support.waiting import until


@pytest.fixture
def hook() -> Iterator[ScriptedServer]:
    """A listener."""
    with scripted_server(lambda _: (201, {}, {})) as listening:
        yield listening


def test_the_same_fault_has_the_same_body_and_a_new_one_another(
    emulator: EmulatorClient, pair: Pair
) -> None:
    emulator.fault("server", pair.a, "crash")
    first = emulator.alarm_body(pair.a)
    assert emulator.alarm_body(pair.a) == first
    assert first["current"] == "alarm"
    event = first["reason_data"]["event"]
    assert ["instance_id", 1, pair.a] in event["traits"]
    emulator.fault("server", pair.a, "revive")
    emulator.fault("server", pair.a, "crash")
    second = emulator.alarm_body(pair.a)
    assert second["reason_data"]["event"]["message_id"] != event["message_id"]
    assert second["alarm_id"] == first["alarm_id"]


def test_the_fault_of_a_host_is_a_fault_of_its_servers(
    emulator: EmulatorClient, pair: Pair
) -> None:
    before = emulator.alarm_body(pair.a)
    emulator.fault("host", "cmp1", "power_off")
    assert emulator.alarm_body(pair.a) != before


def test_it_is_posted_as_often_as_asked_for(
    emulator: EmulatorClient, pair: Pair, hook: ScriptedServer
) -> None:
    emulator.alarm(f"{hook.url}/hook", pair.a, times=3, headers={"X-Extra": "yes"})
    until(lambda: len(hook.seen) == 3)
    assert all(asked.body == emulator.alarm_body(pair.a) for asked in hook.seen)
    assert {asked.headers["X-Extra"] for asked in hook.seen} == {"yes"}
    mine = [e for e in emulator.audit(kind="alarm_emitted") if e["server"] == pair.a]
    assert [event["number"] for event in mine] == [1, 2, 3]
    until(lambda: [e["status"] for e in emulator.audit(kind="alarm_answered")].count(201) >= 3)


def test_a_listener_that_is_not_there_is_noted(emulator: EmulatorClient, pair: Pair) -> None:
    emulator.alarm("http://127.0.0.1:9/hook", pair.b)
    until(
        lambda: (
            {"server": pair.b, "status": None}.items()
            <= (emulator.audit(kind="alarm_answered") or [{}])[-1].items()
        )
    )


@pytest.mark.parametrize("url", ["http://192.0.2.1/x", "https://127.0.0.1/x", "file:///x"])
def test_alarms_stay_on_loopback(emulator: EmulatorClient, pair: Pair, url: str) -> None:
    with pytest.raises(EmulatorError) as refused:
        emulator.alarm(url, pair.a)
    assert refused.value.code == "NOT_LOOPBACK"
