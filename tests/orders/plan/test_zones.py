# SPDX-License-Identifier: Apache-2.0
"""A standby in the zone of the volumes is preferred. Nova may refuse a volume of another zone, and
no project can see whether it does, so such a standby is no more than doubted.

Each host of the emulated cloud is also a zone of its name, which Nova and Cinder share.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mistral_failover.actions import orders
from mistral_failover.actions.doctor import Doctor
from mistral_failover.actions.members import Members

THREE = ("db_a", "db_b", "db_c")
FAR = {"db_a": "cmp1", "db_b": "cmp2", "db_c": "cmp1", "volume_0": "cmp1"}
WORDS = "volume data_0 is in zone cmp1 and its server in cmp2"


def serving(protect: Callable[..., Any], zones: dict[str, str], **more: Any) -> Any:
    group = protect(zones=zones, **more)
    group.order(orders.Begin(group.name, lost=[], to="db_a"))
    return group


def risks(plan: dict[str, Any], code: str) -> list[str]:
    return [risk["sentence"] for risk in plan["risks"] if risk["code"] == code]


def test_the_standby_in_the_zone_of_the_volume_is_chosen(protect: Callable[..., Any]) -> None:
    group = serving(protect, FAR, servers=THREE)

    plan = group.plan(verb="switchover")

    assert plan["roles"] == {"active": "db_c"}
    assert risks(plan, "ANOTHER_ZONE") == []


def test_a_standby_in_another_zone_is_better_than_none_and_the_plan_warns(
    protect: Callable[..., Any],
) -> None:
    group = serving(protect, {name: zone for name, zone in FAR.items() if name != "db_c"})

    plan = group.plan()

    assert plan["roles"] == {"active": "db_b"}
    assert risks(plan, "ANOTHER_ZONE") == [f"db_b will get active, but {WORDS}"]
    assert risks(plan, "TARGET_UNWELL") == []


def test_the_doctor_and_the_list_of_members_name_the_pair(protect: Callable[..., Any]) -> None:
    group = serving(protect, FAR, servers=THREE)

    found = group.ask(Doctor(group.name))
    (warned,) = [each for each in found["findings"] if WORDS in each["sentence"]]
    assert warned["level"] == "warn"
    assert "cross_az_attach" in warned["remedy"]
    doubts = {row["member"]: row["doubt"] for row in group.ask(Members(group.name))}
    assert doubts == {"db_a": None, "db_b": WORDS, "db_c": None}


@pytest.mark.parametrize(
    ("zones", "why"),
    [
        ({**FAR, "volume_0": "nova"}, "Cinder has zones of its own"),
        ({"db_a": "cmp2", "db_b": "cmp1", "volume_0": "cmp1"}, "db_a has it across the zones"),
        ({"db_a": "cmp1", "db_b": "cmp1", "volume_0": "cmp1"}, "all are in one zone"),
    ],
)
def test_nothing_is_said_where_zones_tell_nothing(
    protect: Callable[..., Any], zones: dict[str, str], why: str
) -> None:
    servers = tuple(name for name in THREE if name in zones)
    group = serving(protect, zones, servers=servers)
    plan = group.plan()
    assert plan["roles"] == {"active": "db_b"}, why
    assert risks(plan, "ANOTHER_ZONE") == risks(plan, "PASSED_OVER") == [], why
