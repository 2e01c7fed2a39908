# SPDX-License-Identifier: Apache-2.0
"""A member whose disk is full or read-only lives, and its agent can carry out nothing: it takes no
role, and that is known before anything is fenced. It is the real agent, on a disk that the emulated
guest cannot write to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from support.waiting import until

pytestmark = pytest.mark.faults

DISKS = [("disk_full", "No space left on device"), ("disk_read_only", "Read-only file system")]


@pytest.fixture
def serving(protect: Callable[..., Any]) -> Callable[..., Any]:
    """Make a group that serves on db_a."""

    def make(servers: tuple[str, ...], **more: Any) -> Any:
        made = protect(servers=servers, **{"limits": {"cooldown": 0}, **more})
        made.activate()
        return made

    return make


@pytest.mark.parametrize(("fault", "why"), DISKS)
def test_another_standby_takes_over_and_it_is_said_why(
    serving: Callable[..., Any], fault: str, why: str
) -> None:
    group = serving(("db_a", "db_b", "db_c"))
    group.fails(fault, "db_b")
    row = group.member_list()["db_b"]
    assert not row["eligible"]
    assert why in row["why_not"]
    assert why in str([row["sentence"] for row in group.plan(lost=["db_a"])["risks"]])
    (found,) = [row for row in group.examined_all("members") if row["sentence"].startswith("db_b")]
    assert found["level"] == "warn"
    assert why in found["sentence"]

    group.fails("crash")
    group.run("failover", group=group.name, lost=["db_a"]).assert_succeeded()

    assert (group.holders(), group.runs_on()) == (["db_c"], ["db_c"])
    (said,) = (each for each in group.told() if "db_b" in each and "not ready" in each)
    assert why in said


def test_nothing_is_fenced_for_the_only_standby_and_a_sweep_starts_when_it_is_ready(
    serving: Callable[..., Any],
) -> None:
    group = serving(("db_a", "db_b"))
    group.fails("disk_full", "db_b")
    before = group.traversals()
    observed = group.observed()
    assert observed["status"] == "DEGRADED"
    assert "No space left on device" in str(observed["reasons"])
    alarm = group.fails("hang")

    refused = group.run("on_alarm", **alarm).assert_failed_with("NO_ELIGIBLE_MEMBER")

    assert "No space left on device" in str(refused.output)
    assert group.traversals() == before
    assert group.status()["lost"] == []
    assert group.holders() == ["db_a"]

    group.fails("disk_writable", "db_b")
    group.run("sweep", group=group.name).assert_succeeded()
    until(lambda: group.status()["roles"] == {"active": "db_b"})


def test_a_disk_that_is_full_after_the_choice_fails_the_start_with_the_reason(
    serving: Callable[..., Any],
) -> None:
    group = serving(("db_a", "db_b"))
    group.fails("crash")
    group.cloud.set_latency(detach=0.5)
    execution = group.start("failover", group=group.name, lost=["db_a"])
    group.wait_until_told("Detach data from db_a: started")
    group.fails("disk_full", "db_b")
    run = group.ended(execution)
    group.cloud.set_latency(detach=0)

    run.assert_failed_with("FAILED")
    assert "the journal is not usable: " in group.status()["failure"]["message"]

    group.fails("disk_writable", "db_b")
    group.run("failover", group=group.name, lost=[]).assert_succeeded()
    assert group.runs_on() == ["db_b"]


def test_a_member_on_a_read_only_disk_that_is_deposed_stops_its_application(
    serving: Callable[..., Any],
) -> None:
    """What it stopped is no proof: it could not record that it did."""
    group = serving(("db_a", "db_b"), fence=[{"kind": "quiesce", "limit": 0.2}, "confirm"])
    group.fails("disk_read_only", "db_a")

    group.run("failover", group=group.name, lost=["db_a"]).assert_failed_with("BLOCKED")

    assert group.runs_on() == []
    assert group.holders() == ["db_a"]
