# SPDX-License-Identifier: Apache-2.0
"""Held alarms that are chosen by an availability zone.

No cloud is configured: in which zone the servers are is what the store remembers of the last
observation, and what is admitted can not start.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from mistral_lib.actions.context import ActionContext

from mistral_failover.actions import alarms, suspensions
from mistral_failover.model.observation import Observation, ObservationMemory, Service
from mistral_failover.runtime.process import Runtime
from mistral_failover.store import groups, observations
from support.alarm_bodies import aodh

EAST, WEST = "east", "west"


@pytest.fixture
def paused(serve: Any, state: Runtime, project: str, context: ActionContext) -> Callable[..., str]:
    """Serve a paused group whose servers were last seen in these zones; None: they were not."""

    def make(name: str, a: str | None = EAST, b: str | None = WEST, **more: Any) -> str:
        serve(name, **more)
        zones = {server: zone for server, zone in ((f"{name}-a", a), (f"{name}-b", b)) if zone}
        identity = groups.group_id(project, name)
        seen, memory = Observation(Service.SERVING), ObservationMemory(zones=zones)
        state.database.atomically(
            lambda tx: observations.save(tx, identity, seen, memory, tx.now())
        )
        suspensions.Pause(name, "a test").run(context)
        return name

    return make


@pytest.fixture
def fails(context: ActionContext) -> Callable[..., str]:
    """Let an alarm about a server arrive, which the pause holds; its incident."""

    def hear(server: str, **about: Any) -> str:
        answer = alarms.Admit(aodh(f"m-{server}", server=server), **about).run(context)
        assert answer["decision"] == "HELD"
        return str(answer["incident"])

    return hear


def held(context: ActionContext) -> set[str]:
    return {row["group"] for row in alarms.Held().run(context)["held"]}


def test_a_zone_means_the_alarms_whose_lost_member_is_there(
    paused: Any, fails: Any, context: ActionContext
) -> None:
    for name, priority in (("low", 0), ("high", 5), ("other", 9)):
        paused(name, priority=priority)
    fails("low-a")
    fails("high-a")
    fails("other-b")

    answer = alarms.AdmitHeld("the power failed", zone=EAST).run(context)

    assert [row["group"] for row in answer["refused"]] == ["high", "low"]  # there is no cloud
    assert (answer["left"], answer["passed_over"]) == (0, [])
    assert answer["unsure"].startswith("Nova could not be asked [")
    assert held(context) == {"other"}


def test_alarms_of_a_zone_are_dismissed_and_the_others_stay(
    paused: Any, fails: Any, context: ActionContext
) -> None:
    for name in ("one", "two"):
        paused(name)
    mine = fails("one-a")
    fails("two-b")

    answer = alarms.DismissHeld("a drill", zone=EAST).run(context)

    assert [row["incident"] for row in answer["dismissed"]] == [mine]
    assert held(context) == {"two"}


def test_an_alarm_that_may_be_about_the_zone_is_passed_over_with_the_reason(
    paused: Any, fails: Any, context: ActionContext
) -> None:
    paused("known")
    fails(paused("gone", a=None) + "-a")
    fails(paused("unnamed") + "-x", group="unnamed")
    fails(paused("elsewhere", a=WEST) + "-x", group="elsewhere")

    answer = alarms.AdmitHeld("the power failed", zone=EAST).run(context)

    assert {row["group"]: row["why"] for row in answer["passed_over"]} == {
        "gone": "the zone of db_a is not known",
        "unnamed": "it does not say which member is lost",
    }
    assert (answer["admitted"], answer["refused"], answer["left"]) == ([], [], 0)
    assert held(context) == {"gone", "unnamed", "elsewhere"}


def test_an_alarm_about_members_in_two_zones_is_passed_over(
    paused: Any, context: ActionContext, state: Runtime, project: str
) -> None:
    """To admit it would fence a member in the other zone, too."""
    name = paused("both")
    identity = groups.group_id(project, name)
    hosts = {f"{name}-{x}": ["h", project, "cmp1"] for x in "ab"}
    zones = {f"{name}-a": EAST, f"{name}-b": WEST}
    seen, memory = Observation(Service.SERVING), ObservationMemory(hosts=hosts, zones=zones)
    state.database.atomically(lambda tx: observations.save(tx, identity, seen, memory, tx.now()))
    alarms.AdmitEvent({"host": "cmp1", "id": "1"}).run(context)

    answer = alarms.AdmitHeld("the power failed", zone=EAST).run(context)

    (row,) = answer["passed_over"]
    assert row["why"] == "it also reports db_b in zone west"
    assert answer["refused"] == []


def test_a_zone_in_which_no_member_is_known_is_an_error(
    paused: Any, fails: Any, context: ActionContext
) -> None:
    fails(paused("payments") + "-a")

    answer: Any = alarms.AdmitHeld("the power failed", zone="esat").run(context)

    assert answer.error["code"] == "UNKNOWN_ZONE"
    assert "east, west" in answer.error["remedy"]
    assert "Nova could not be asked" in answer.error["message"]
    assert held(context) == {"payments"}
