# SPDX-License-Identifier: Apache-2.0
"""A member that is lost again and again, or that no way brings back, does not go on for ever:
``limits.per_hour`` ends it, and the status says what was tried.

On the real engine with an emulated cloud.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from mistral_failover.convergence import conclude
from support.waiting import patiently, until


@pytest.fixture
def pet(protect: Callable[..., Any]) -> Any:
    """One server, up, whose alarms are admitted at once, three times an hour."""
    members = {"servers": ["db_a"], "replace": "lost"}
    group = protect(
        servers=("db_a",), members=members, limits={"cooldown": 0, "per_hour": 3, "patience": 60}
    )
    group.activate()
    return group


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What has stopped is tried again by each sweep."""
    monkeypatch.setattr(conclude, "next_look", lambda _since, now: now)


def deleted(group: Any, since: int) -> Counter[str]:
    """How often each server was deleted since an entry of the cloud's log."""
    return Counter(e["server"] for e in group.cloud.audit(since) if e["kind"] == "server_deleted")


def test_a_guest_that_crashes_five_times_in_a_row_is_started_three_times(pet: Any) -> None:
    former = pet.server("db_a")
    for _ in range(5):
        patiently(pet, "on_alarm", **pet.fails("crash", "db_a"))

    assert (len(pet.told("admitted")), len(pet.told("held"))) == (3, 2)
    assert pet.server("db_a") == former
    assert pet.told("done").count("Bring back db_a: done") == 3
    status = pet.status()
    assert status["held"]
    assert [each["found"] for each in status["restarts"]] == ["start"] * 3
    assert pet.cloud.violations() == []


@pytest.mark.usefixtures("at_once")
def test_a_server_that_cannot_be_made_is_tried_three_times_an_hour(pet: Any) -> None:
    since = max(each["seq"] for each in pet.cloud.audit())
    pet.cloud.api_fault("start", "fail", times=10_000)
    pet.cloud.api_fault("boot", "fail", times=10_000)
    patiently(pet, "on_alarm", **pet.fails("crash", "db_a")).assert_failed_with("FAILED")

    for _ in range(4):
        pet.run("sweep")

    status = pet.status()
    assert status["status"] == "FAILED"
    assert len(status["restarts"]) == 3
    again = status["failure"]["again_at"]
    assert again > status["restarts"][0]["at"] + 3500, "an hour after the first try"
    assert sum("per_hour" in line for line in pet.told("sweep")) == 1
    assert set(deleted(pet, since).values()) == {1}
    assert pet.cloud.violations() == []


@pytest.mark.usefixtures("at_once")
def test_an_operator_who_asks_for_it_is_not_held_back(pet: Any) -> None:
    """Nova starts servers again by then. It is not asked to: Heat has put another one in place."""
    former = pet.server("db_a")
    pet.cloud.api_fault("start", "fail", times=10_000)
    pet.cloud.api_fault("boot", "fail", times=10_000)
    patiently(pet, "on_alarm", **pet.fails("crash", "db_a")).assert_failed_with("FAILED")
    for _ in range(4):
        pet.run("sweep")
    pet.cloud.clear_api_faults()

    pet.run("sweep", group=pet.name)

    until(lambda: pet.status()["status"] == "COMPLETE")
    assert pet.runs_on() == pet.holders() == ["db_a"]
    assert former not in pet.cloud.guests()
    assert pet.cloud.violations() == []


def test_a_new_server_whose_agent_is_never_heard_is_named_with_its_console(
    protect: Callable[..., Any],
) -> None:
    group = protect(
        servers=("db_a",),
        members={"servers": ["db_a"], "replace": "lost", "restart": ["replace"]},
        limits={"cooldown": 0, "patience": 2},
    )
    group.activate()
    former, alarm = group.server("db_a"), group.fails("crash", "db_a")
    group.cloud.api_fault("boot", "hang", times=10_000)

    patiently(group, "on_alarm", **alarm).assert_failed_with("FAILED")

    now, status = group.server("db_a"), group.status()
    assert now != former
    assert status["service"]["status"] == "DOWN"
    assert f"openstack console log show {now}" in status["reason"]
    group.run("sweep")
    assert group.server("db_a") == now, "another one would not come up, either"
