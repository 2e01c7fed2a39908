# SPDX-License-Identifier: Apache-2.0
"""What could go wrong with a plan is told before, each with what helps; so is how long it takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mistral_failover.actions import orders, suspensions
from mistral_failover.cloud.servers import ServerState, server_state
from mistral_failover.cloud.transport import Unguarded
from mistral_failover.cloud.volumes import attach
from mistral_failover.convergence.records import Action, Status
from mistral_failover.model.alarm_fact import AlarmFact
from mistral_failover.orders.plan import steps
from mistral_failover.runtime.request import DEFAULT_PROJECT, Request
from mistral_failover.store import details, groups, incidents
from support.operators import Operator


def codes(plan: dict[str, Any]) -> set[str]:
    for risk in plan["risks"]:
        assert risk["sentence"], risk
        assert risk["remedy"], risk
        assert not risk["sentence"].endswith("."), risk
    return {risk["code"] for risk in plan["risks"]}


def volume(group: Any, number: int = 0) -> str:
    return str(group.cloud.resources(group.name)[f"volume_{number}"]["physical_resource_id"])


def test_where_nothing_speaks_against_a_plan_only_the_missing_standby_is_told(group: Any) -> None:
    assert codes(group.plan()) == {"NO_STANDBY"}
    assert codes(group.plan(verb="switchover")) == set()


@pytest.mark.parametrize(
    ("status", "code"),
    [("error", "VOLUME_ERROR"), ("detaching", "VOLUME_BUSY"), ("backing-up", "VOLUME_BUSY")],
)
def test_a_volume_in_trouble_is_told(group: Any, status: str, code: str) -> None:
    Operator(group.cloud).set_volume(volume(group), status)

    plan = group.plan()

    assert code in codes(plan)
    assert "volume_0" in next(r["sentence"] for r in plan["risks"] if r["code"] == code)


def test_a_volume_that_hangs_elsewhere_is_told(protect: Callable[..., Any]) -> None:
    group, other = protect(), protect()
    cloud = Request(group.state, group.context()).cloud(Unguarded())
    attach(cloud, volume(group), other.server("db_a"), 20.0)

    plan = group.plan(lost=[])

    assert codes(plan) == {"VOLUME_IN_USE"}
    assert other.server("db_a") in plan["risks"][0]["remedy"]


def test_a_holder_that_nova_does_not_change_is_told_with_what_ends_that(group: Any) -> None:
    server = group.server("db_a")
    Operator(group.cloud).act(server, "lock")

    (busy,) = [row for row in group.plan()["risks"] if row["code"] == "SERVER_BUSY"]
    refused = group.ask(orders.Plan(group.name, verb="switchover")).error
    Operator(group.cloud).act(server, "unlock")

    assert f"openstack server unlock {server}" in busy["remedy"]
    assert refused["code"] == "SERVER_BUSY", "a move that can wait begins with nothing in its way"
    assert f"openstack server unlock {server}" in refused["remedy"]
    for plan in (group.plan(), group.plan(verb="switchover")):
        assert "SERVER_BUSY" not in codes(plan)


def test_a_target_that_is_not_well_and_stays_is_told(group: Any) -> None:
    group.stop("db_a")

    plan = group.plan(lost=["db_b"])

    assert {"TARGET_UNWELL", "NO_STANDBY"} <= codes(plan)


@pytest.mark.parametrize(
    ("ladder", "said", "remedy"),
    [
        (["stop", "confirm"], "an operator must confirm the fence", "failover confirm-fenced"),
        (
            ["stop", {"workflow": "house.power_off"}, "confirm"],
            "so the fence depends on house.power_off",
            "failover doctor",
        ),
    ],
)
def test_what_can_fence_a_member_whose_host_nova_shows_as_down_is_told(
    protect: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    ladder: list[Any],
    said: str,
    remedy: str,
) -> None:
    group = protect(fence=ladder)
    group.order(orders.Begin(group.name, lost=[]))
    cloud = Request(group.state, group.context()).cloud(Unguarded())
    host = server_state(cloud, group.server("db_a")).host_id
    # Nova shows it to administrators only.
    monkeypatch.setattr(ServerState, "host_silent", property(lambda state: state.host_id == host))

    plan = group.plan(lost=["db_a"], to="db_b")

    (doubt,) = [row for row in plan["risks"] if row["code"] == "FENCE_DOUBTFUL"]
    assert doubt["sentence"].endswith(said)
    assert remedy in doubt["remedy"]


def test_a_member_whose_host_is_down_will_need_a_person(group: Any) -> None:
    server = group.server("db_a")
    host = group.cloud.guests()[server]["host"]
    group.cloud.fault("host", host, "power_off")
    try:
        plan = group.plan(lost=["db_a"], to="db_b")
    finally:
        group.cloud.fault("host", host, "revive")

    (fence,) = plan["fences"]
    assert (fence["member"], fence["state"], fence["longest"]) == ("db_a", "climbs", 330.0)
    assert (
        "otherwise Nova's compute service reports its server off (within 30 s)" in fence["sentence"]
    )
    assert f"failover confirm-fenced {group.name} db_a" in fence["sentence"]


def test_a_lock_that_is_held_and_one_of_somebody_dead_are_told(group: Any) -> None:
    identity = groups.group_id("<default-project>", group.name)
    records = group.state.database.reading(lambda tx: list(tx.records(identity)))
    held, dead = records[:2]
    group.state.database.atomically(lambda tx: tx.acquire(held, "a process that lives", 600.0))
    group.state.database.atomically(lambda tx: tx.acquire(dead, "a dead process", -1.0))

    plan = group.plan()

    assert {"LOCK_HELD", "LOCK_DEAD"} <= codes(plan)
    assert not any("a process that lives" in row["sentence"] for row in plan["risks"])
    assert not any("a dead process" in row["sentence"] for row in plan["risks"])


def test_a_plan_names_the_step_that_it_waits_for_and_not_the_owner_of_its_lock(group: Any) -> None:
    identity = groups.group_id(DEFAULT_PROJECT, group.name)
    records = group.state.database.reading(lambda tx: list(tx.records(identity)))
    locked = next(each for each in records if each.type == "volume_attachment")

    def busy(tx: Any) -> None:
        assert tx.amend(locked, action=Action.UPDATE, status=Status.IN_PROGRESS)
        (now,) = (each for each in tx.records(identity) if each.id == locked.id)
        assert tx.acquire(now, "54af@vm:31354", 600.0)

    group.state.database.atomically(busy)

    plan = group.plan(lost=[])

    waits = [row["what"] for row in plan["steps"] if "if needed, after" in row["what"]]
    assert waits
    said = [*waits, *(r["sentence"] for r in plan["risks"] if r["code"] == "LOCK_HELD")]
    assert all(f'"Update {locked.name} on db_a"' in each for each in said)
    assert not any("54af" in each for each in said)


def test_a_traversal_under_way_and_one_that_failed_are_told(group: Any) -> None:
    begun = group.done(orders.Begin(group.name))
    assert "TRAVERSAL_UNDER_WAY" in codes(group.plan(lost=[]))

    group.cloud.api_fault("command_start", "fail")
    group.carry(begun)

    assert "TRAVERSAL_FAILED" in codes(group.plan(lost=[]))


def test_what_holds_alarms_back_is_told_and_holds_no_plan_back(group: Any) -> None:
    group.done(suspensions.Pause(group.name, because="work on the rack"))
    group.done(suspensions.Maintenance(group.name, because="work", minutes=5))
    identity = groups.group_id("<default-project>", group.name)
    alarm = {"id": f"alarm-of-{group.name}"[:36], "project_id": "<default-project>"}
    group.state.database.atomically(
        lambda tx: incidents.add(
            tx,
            incidents.Incident(
                **alarm,
                group_id=identity,
                source="aodh",
                fact=AlarmFact(group.name, ("db_b",)),
                payload={},
                decision="ADMITTED",
                sentence="an alarm",
            ),
        )
    )
    group.state.database.atomically(lambda tx: incidents.link(tx, alarm["id"], "an earlier one"))

    plan = group.plan(verb="switchover")

    assert codes(plan) == {"PAUSED", "MAINTENANCE", "COOLDOWN"}
    assert group.start(plan["plan"])["roles"] == {"active": "db_b"}


def test_how_long_it_takes_is_known_from_earlier_operations(group: Any) -> None:
    begun = group.start(group.plan(verb="switchover")["plan"])
    ledger = group.state.database.reading(
        lambda tx: details.operations_of(tx, traversal_id=begun["traversal"])
    )
    took = {row["verb"]: row["ended_at"] - row["started_at"] for row in ledger}

    back = group.plan(verb="switchover")

    (detach,) = (
        step
        for step in back["steps"]
        if step["type"] == "volume_attachment" and step["verb"] == "delete"
    )
    (quiesce,) = (
        step for step in back["steps"] if step["type"] == "activation" and step["verb"] == "delete"
    )
    deletes = [r["ended_at"] - r["started_at"] for r in ledger if r["verb"] == "delete"]
    assert [quiesce["expected"], detach["expected"]] == pytest.approx(deletes)
    assert took.keys() == {"create", "update", "delete"}
    assert back["seconds"] == pytest.approx(sum(step["expected"] for step in back["steps"]))


def test_the_whole_takes_as_long_as_the_longest_way_and_what_is_unknown_is_unknown() -> None:
    def step(number: int, expected: float | None, *after: int, sure: bool = True) -> Any:
        return {"number": number, "expected": expected, "after": list(after), "certain": sure}

    first, slow, quick = step(1, 1.0), step(2, 5.0, 1), step(3, 2.0, 1)

    assert steps.seconds([first, slow, quick, step(4, 1.0, 2, 3)]) == 7.0
    assert steps.seconds([first, step(2, None, 1)]) is None
    assert steps.seconds([first, step(2, None, 1, sure=False), step(3, 2.0, 2)]) == 3.0
    assert steps.seconds([]) == 0.0


def test_a_fence_that_stands_and_one_that_is_lifted_are_told(group: Any) -> None:
    group.start(group.plan()["plan"])

    stays = group.plan(lost=[], to="db_b")
    lifted = group.plan(lost=[], recovered=["db_a"])

    assert [(f["member"], f["state"]) for f in stays["fences"]] == [("db_a", "stands")]
    assert [(f["member"], f["state"]) for f in lifted["fences"]] == [("db_a", "lifted")]
    assert stays["steps"] == lifted["steps"] == []


def test_an_alarm_without_a_failover_is_reported(group: Any) -> None:
    identity = groups.group_id(DEFAULT_PROJECT, group.name)
    for number, decision in enumerate(("ADMITTED", "HELD")):
        fact = AlarmFact(group.name, ("db_b",))
        alarm = incidents.Incident(
            f"{group.name}-{number}", DEFAULT_PROJECT, identity, "aodh", fact, {}, decision, "fire"
        )
        group.state.database.atomically(lambda tx, a=alarm: incidents.add(tx, a))

    plan = group.plan(lost=["db_a"], to="db_b")

    assert {"ALARM_NOT_BEGUN", "ALARM_HELD"} <= codes(plan)
    assert all("db_b" in r["sentence"] for r in plan["risks"] if "ALARM" in r["code"])


def test_a_member_that_the_plan_brings_back_is_a_standby_after_it(group: Any) -> None:
    group.stop("db_b")

    assert "NO_STANDBY" in codes(group.plan(lost=["db_b"]))
    assert "NO_STANDBY" not in codes(group.plan(verb="replace", member="db_b"))
