# SPDX-License-Identifier: Apache-2.0
"""A server is locked, paused, suspended, rescued, resized, shelved, copied or migrated when a
failover needs it: another member is taken, or it waits, says what ends the state, and goes on by
itself when that is done."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from mistral_failover.reports.advice import advice
from support.operators import Operator
from support.waiting import until

pytestmark = pytest.mark.faults

THREE = ("db_a", "db_b", "db_c")
SLOW = 0.5
LONG = 3.0


class State(NamedTuple):
    """``begin``, ``end``: Nova's actions; ``end`` is None if it ends by itself. ``says``: what ends
    it, as a person is told. ``takes``: whether Nova gives such a server a volume all the same."""

    begin: str
    end: str | None
    says: str
    takes: bool = False


STATES = {
    "locked": State("lock", "unlock", "openstack server unlock"),
    "off": State("os-stop", "os-start", "openstack server start"),
    "paused": State("pause", "unpause", "openstack server unpause"),
    "suspended": State("suspend", "resume", "openstack server resume"),
    "rescued": State("rescue", "unrescue", "openstack server unrescue"),
    "resized": State("resize", "confirmResize", "openstack server resize confirm", takes=True),
    "shelved": State("shelve", "unshelve", "openstack server unshelve"),
    "copied": State("createImage", None, "openstack image list --status saving"),
    "migrated": State("os-migrateLive", None, "openstack server migration list"),
}
ASLEEP = [name for name in STATES if name in ("off", "paused", "suspended", "rescued", "shelved")]
HINDERED = [name for name in STATES if name not in ASLEEP and not STATES[name].takes]


@pytest.fixture(autouse=True)
def slowly(cloud: Any) -> Iterator[None]:
    """A detach takes long enough for something to happen meanwhile."""
    cloud.set_latency(detach=SLOW)
    yield
    cloud.set_latency(detach=0, server_task=0)


class Case:
    """A group that serves on db_a, and a state that its servers may get into."""

    def __init__(self, group: Any, state: State) -> None:
        self.group, self.state = group, state
        self.operator = Operator(group.cloud)

    def enter(self, member: str = "db_b") -> None:
        self.group.cloud.set_latency(server_task=LONG if self.state.end is None else 0)
        self.operator.act(self.group.server(member), self.state.begin)

    def leave(self, member: str = "db_b") -> None:
        if self.state.end is not None:
            self.operator.act(self.group.server(member), self.state.end)

    def sweep(self) -> None:
        self.group.run("sweep", group=self.group.name).assert_succeeded()

    def settled(self, member: str) -> None:
        """The group serves on this member, which alone has the volume."""
        group, status = self.group, self.group.status()
        assert status["status"] == "COMPLETE", status["reason"]
        assert status["roles"] == {"active": member}
        assert (group.holders(), group.runs_on()) == ([member], [member])
        assert group.cloud.violations() == []


@pytest.fixture
def case(protect: Callable[..., Any]) -> Callable[..., Case]:
    def make(name: str, servers: tuple[str, ...] = THREE, **more: Any) -> Case:
        group = protect(servers=servers, limits={"cooldown": 0}, **more)
        group.activate()
        return Case(group, STATES[name])

    return make


# -- the standby


@pytest.mark.parametrize("name", STATES)
def test_another_standby_is_taken_and_the_plan_says_why(
    case: Callable[..., Case], name: str
) -> None:
    it = case(name)
    it.enter()
    group = it.group

    risks = " ".join(row["sentence"] for row in group.plan(lost=["db_a"])["risks"])
    group.run("failover", group=group.name, lost=["db_a"]).assert_succeeded()

    assert "db_b is passed over: its server is " in risks
    assert it.state.says in risks
    it.settled("db_c")


@pytest.mark.parametrize("name", HINDERED)
def test_the_only_standby_gets_the_volume_when_the_state_has_ended(
    case: Callable[..., Case], name: str
) -> None:
    it = case(name, THREE[:2])
    it.enter()
    group = it.group

    execution = group.start("failover", group=group.name, lost=["db_a"])
    until(lambda: group.status()["waiting"])
    (waiting,) = group.status()["waiting"]
    it.leave()

    assert it.state.says in str(waiting)
    group.ended(execution).assert_succeeded()
    it.settled("db_b")


@pytest.mark.parametrize("name", ASLEEP)
def test_without_a_standby_that_runs_the_alarm_is_held_until_one_does(
    case: Callable[..., Case], name: str
) -> None:
    it = case(name, THREE[:2])
    it.enter()
    group = it.group

    run = group.run("on_alarm", **group.fails("crash")).assert_failed_with("NO_ELIGIBLE_MEMBER")

    assert it.state.says in str(run.output["error"]["reasons"])
    it.leave()
    it.sweep()
    it.settled("db_b")


@pytest.mark.parametrize(
    ("name", "servers"),
    [
        *((name, THREE) for name in STATES if name != "resized"),
        *((name, THREE[:2]) for name in STATES if STATES[name].end is None),
    ],
    ids=lambda given: given if isinstance(given, str) else str(len(given)),
)
def test_a_state_that_begins_before_the_attach_ends_no_failover(
    case: Callable[..., Case], name: str, servers: tuple[str, ...]
) -> None:
    it = case(name, servers)
    group = it.group
    group.fails("crash")
    execution = group.start("failover", group=group.name, lost=["db_a"])
    group.wait_until_told("Detach data from db_a: started")

    it.enter()
    if servers == THREE:
        group.ended(execution).assert_succeeded()
        it.settled("db_c")
        return
    until(lambda: group.status()["waiting"])
    assert it.state.says in str(group.status()["waiting"])
    group.ended(execution).assert_succeeded()
    it.settled("db_b")


# -- the doctor


def member_findings(it: Case, member: str) -> list[tuple[str, str]]:
    """Level and sentence of what the doctor finds about a member, with the remedy."""
    return [
        (row["level"], f"{row['sentence']} {row['remedy']}")
        for row in it.group.examined_all("members")
        if row["sentence"].startswith(member)
    ]


@pytest.mark.parametrize("name", [name for name in STATES if STATES[name].end])
def test_the_doctor_warns_of_a_standby_in_the_state_and_names_what_ends_it(
    case: Callable[..., Case], name: str
) -> None:
    it = case(name)
    assert member_findings(it, "db_b") == []
    it.enter()

    ((level, said),) = member_findings(it, "db_b")

    assert level == "warn"
    assert ("cannot take a role" if name in ASLEEP else "would be chosen last") in said
    assert it.state.says in said
    it.leave()
    assert member_findings(it, "db_b") == []


def test_the_doctor_names_what_gives_the_group_its_only_standby_back(
    case: Callable[..., Case],
) -> None:
    it = case("paused", THREE[:2])
    it.enter()

    (remedy,) = [
        row["remedy"]
        for row in it.group.examined_all("members")
        if row["sentence"] == "no member can take over"
    ]
    assert remedy == f"openstack server unpause {it.group.server('db_b')}"


def test_the_doctor_warns_of_a_holder_that_could_not_give_its_volumes_away(
    case: Callable[..., Case],
) -> None:
    it = case("locked")
    it.enter("db_a")

    ((level, said),) = member_findings(it, "db_a")

    assert level == "warn"
    assert "could not give its volumes away" in said
    assert it.state.says in said


# -- the lost member


@pytest.mark.parametrize("name", ["locked", "suspended", "rescued"])
def test_a_lost_server_that_gives_no_volume_away_does_when_the_state_has_ended(
    case: Callable[..., Case], name: str
) -> None:
    it = case(name, fence=["confirm"])
    group = it.group
    group.fails("crash")
    it.enter("db_a")
    group.run("failover", group=group.name, lost=["db_a"]).assert_failed_with("BLOCKED")

    run = group.run(
        "confirm_fenced", group=group.name, member="db_a", because="I pulled the plug"
    ).assert_failed_with("BLOCKED")

    assert "SERVER_BUSY" in run.output["error"]["message"]
    assert it.state.says in run.output["error"]["message"]
    it.sweep()
    assert group.status()["status"] == "BLOCKED", "it has not ended yet"
    it.leave("db_a")
    it.sweep()
    it.settled("db_b")


# -- what a person types


def first_shown(it: Case) -> str:
    """The command that the status shows first, after a look."""
    it.sweep()
    return advice(it.group.status())[0].command


@pytest.mark.parametrize("name", ["locked", "paused", "suspended", "rescued"])
def test_a_fence_that_nova_refuses_names_first_what_lets_it_go_on(
    case: Callable[..., Case], name: str
) -> None:
    it = case(name, fence=[{"kind": "quiesce", "limit": 0.5}, "stop", "confirm"])
    group = it.group
    group.fails("crash")
    it.enter("db_a")
    group.run("failover", group=group.name, lost=["db_a"]).assert_failed_with("BLOCKED")

    commands = [each.command for each in advice(group.status())]

    assert commands[0] == f"{it.state.says} {group.server('db_a')}"
    assert commands[-1].startswith("failover confirm-fenced")
    it.leave("db_a")
    it.sweep()
    it.settled("db_b")


@pytest.mark.parametrize("name", ["paused", "suspended", "rescued"])
def test_a_holder_that_a_person_stopped_names_first_what_wakes_it(
    case: Callable[..., Case], name: str
) -> None:
    it = case(name)
    it.enter("db_a")

    assert first_shown(it) == f"{it.state.says} {it.group.server('db_a')}"
    assert it.group.status()["service"]["status"] == "DOWN"
    said = [each["remedy"] for each in it.group.examined_all("members") if each["level"] == "error"]
    assert [each.partition("; ")[0] for each in said] == [first_shown(it)]
    assert "; or instead: failover start" in said[0]


def test_a_locked_holder_degrades_the_group_until_it_is_unlocked(case: Callable[..., Case]) -> None:
    it = case("locked")
    it.enter("db_a")

    assert first_shown(it) == f"{it.state.says} {it.group.server('db_a')}"
    service = it.group.status()["service"]
    assert (service["status"], service["standbys"]) == ("DEGRADED", ["db_b", "db_c"])

    it.leave("db_a")
    it.sweep()
    status = it.group.status()
    assert (status["service"]["status"], advice(status)) == ("SERVING", [])
