# SPDX-License-Identifier: Apache-2.0
"""The doctor says what a group lacks to be protected, although a failover of it would work: what
notices its failure, a second zone, a standby, quota for another server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from mistral_failover.actions.alarms import Admit
from mistral_failover.actions.doctor import Doctor
from mistral_failover.actions.groups import Define
from mistral_failover.actions.orders import Begin
from mistral_failover.actions.recovery import Observe
from mistral_failover.lab.emulator.server import EmulatedCloud
from mistral_failover.recovery import observe
from support.operators import Operator
from support.planned_groups import PlannedGroup, emulated, group, protect, state

__all__ = ["emulated", "group", "protect", "state"]


def found(group: PlannedGroup, check: str) -> list[tuple[str, str]]:
    """What a check says, and how bad it is; each has a remedy if it is not well."""
    rows = [r for r in group.done(Doctor(group.name))["findings"] if r["check"] == check]
    assert all(row["remedy"] for row in rows if row["level"] != "ok")
    return [(row["level"], row["sentence"]) for row in rows]


@pytest.fixture
def configure(emulated: EmulatedCloud) -> Iterator[Callable[..., Any]]:
    """Configures the cloud as its operator, until the end of the test."""
    yield emulated.client.configure
    emulated.client.configure(
        availability_zones=["nova"], quota={"instances": -1, "cores": -1, "ram": -1}, gone=[]
    )
    emulated.client.offer("compute")
    emulated.client.clear_api_faults()


def test_a_group_to_which_no_known_alarm_leads_is_named(group: PlannedGroup) -> None:
    assert [level for level, _ in found(group, "noticed")] == ["warn"]


def test_a_group_whose_looks_start_failovers_needs_no_alarm(
    protect: Callable[..., PlannedGroup],
) -> None:
    assert [level for level, _ in found(protect(heal="failover"), "noticed")] == ["ok"]


def test_an_alarm_that_came_leads_to_it_whatever_was_decided(group: PlannedGroup) -> None:
    group.done(Admit(group.cloud.alarm_body(group.server("db_a"))))

    assert found(group, "noticed") == [("ok", "alarms about it have come")]


def test_an_order_of_an_operator_is_no_alarm_that_came(group: PlannedGroup) -> None:
    group.order(Begin(group.name, lost=[]))

    assert [level for level, _ in found(group, "noticed")] == ["warn"]


def test_an_alarm_in_aodh_that_signals_its_stack_leads_to_it(group: PlannedGroup) -> None:
    Operator(group.cloud).make_alarm(group.name, group.name, group.server("db_a"))

    assert found(group, "noticed") == [("ok", f"an alarm in Aodh signals stack {group.name}")]


def test_all_members_in_one_zone_of_several_are_named(
    group: PlannedGroup, configure: Callable[..., Any]
) -> None:
    assert found(group, "spread") == [], "the cloud has one zone"
    configure(availability_zones=["nova", "west"])

    ((level, sentence),) = found(group, "spread")

    assert (level, "nova" in sentence) == ("warn", True)


def test_a_group_without_a_standby_is_named(protect: Callable[..., PlannedGroup]) -> None:
    alone, replaced = (
        protect(("db_a",)),
        protect(("db_a",), members={"servers": ["db_a"], "when_no_standby": "replace"}),
    )
    for each in (alone, replaced):
        each.order(Begin(each.name, lost=[]))

    assert ("error", "db_a is the only member, so no member can take over") in found(
        alone, "members"
    )
    assert {level for level, _ in found(replaced, "members")} == {"ok"}


@pytest.mark.parametrize(
    ("quota", "level"),
    [
        ({"instances": -1, "cores": -1, "ram": -1}, "ok"),
        ({"instances": 1, "cores": -1, "ram": -1}, "error"),
        ({"instances": -1, "cores": 1, "ram": -1}, "error"),
        ({"instances": -1, "cores": -1, "ram": 512}, "error"),
    ],
)
def test_a_failover_that_makes_a_server_needs_quota_for_it(
    protect: Callable[..., PlannedGroup],
    configure: Callable[..., Any],
    quota: dict[str, int],
    level: str,
) -> None:
    group = protect(members={"servers": ["db_a", "db_b"], "replace": "lost"})
    configure(quota=quota)

    ((found_level, _),) = found(group, "quota")

    assert found_level == level


def test_a_group_that_makes_no_servers_needs_no_quota(
    group: PlannedGroup, configure: Callable[..., Any]
) -> None:
    configure(quota={"instances": 1, "cores": 1, "ram": 1})

    assert found(group, "quota") == []


# -- a group without a standby is as good as the server that it could get


@pytest.fixture
def cold(protect: Callable[..., PlannedGroup]) -> PlannedGroup:
    """A single server that serves, and that another one would follow."""
    group = protect(("db_a",), members={"servers": ["db_a"], "replace": "lost"})
    group.order(Begin(group.name, lost=[]))
    return group


def observed(group: PlannedGroup) -> tuple[str, str]:
    """Look at the group: whether it is well, and why not."""
    group.done(Observe(group.name))
    service = group.status()["service"]
    return service["status"], "; ".join(service["reasons"])


NO_ROOM: list[tuple[dict[str, Any], str]] = [
    ({"quota": {"instances": 1, "cores": -1, "ram": -1}}, "servers: "),
    ({"quota": {"instances": -1, "cores": -1, "ram": 512}}, "MiB of RAM: "),
    ({"gone": ["m1.tiny"]}, "no flavor m1.tiny"),
    ({"gone": ["tiny"]}, "image tiny is gone"),
]


@pytest.mark.parametrize(("cloud", "why"), NO_ROOM)
def test_a_look_finds_that_the_next_server_could_not_be_made(
    cold: PlannedGroup, configure: Callable[..., Any], cloud: dict[str, Any], why: str
) -> None:
    configure(**cloud)

    status, reasons = observed(cold)

    assert status == "DEGRADED"
    assert why in reasons
    assert [level for level, _ in found(cold, "quota")] == ["error"]


def test_it_is_asked_for_once_an_hour_and_again_when_the_group_is_defined(
    cold: PlannedGroup, configure: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert observed(cold) == ("SERVING", "")
    configure(quota={"instances": 1, "cores": -1, "ram": -1})
    assert observed(cold) == ("SERVING", "")

    cold.done(Define(cold.document()))
    assert observed(cold)[0] == "DEGRADED"

    configure(quota={"instances": -1, "cores": -1, "ram": -1})
    assert observed(cold)[0] == "DEGRADED"
    monkeypatch.setattr(observe, "REPAIR_AGAIN", 0.0)
    assert observed(cold) == ("SERVING", "")


@pytest.mark.parametrize("hidden", ["limits", "flavors", "image"])
def test_what_the_project_may_not_see_is_not_known_and_no_flaw(
    cold: PlannedGroup, configure: Callable[..., Any], hidden: str
) -> None:
    configure(quota={"instances": 1, "cores": 1, "ram": 1})
    cold.cloud.api_fault(hidden, status=403, times=10_000)

    assert observed(cold) == ("SERVING", "")
    ((level, sentence),) = found(cold, "quota")
    assert (level, "not known" in sentence) == ("warn", True)


def test_a_group_with_a_standby_is_not_asked_for(
    protect: Callable[..., PlannedGroup], configure: Callable[..., Any]
) -> None:
    group = protect()
    group.order(Begin(group.name, lost=[]))
    configure(quota={"instances": 1, "cores": 1, "ram": 1})

    assert observed(group) == ("SERVING", "")
