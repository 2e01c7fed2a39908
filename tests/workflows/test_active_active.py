# SPDX-License-Identifier: Apache-2.0
"""Two roles on two members, each with its own volume, on the real engine with an emulated cloud."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any

import pytest

from mistral_failover.groups import agent_health
from mistral_failover.lab.emulator.client import EmulatorClient
from support.operators import Operator

SIDES = ("left", "right")


def side(name: str) -> dict[str, Any]:
    """The resources of one role: its volume, and the application on that."""
    member = {"get_param": name}
    return {
        f"{name}_data": {
            "type": "volume_attachment",
            "properties": {"volume": f"{name}_volume", "server": member},
        },
        f"{name}_shop": {
            "type": "activation",
            "depends_on": f"{name}_data",
            "properties": {
                "member": member,
                "start": f"{name}-start",
                "stop": f"{name}-stop",
                "device": {"get_attr": [f"{name}_data", "device"]},
            },
        },
    }


@dataclass
class Sides:
    """The group, and where each side of it is by the cloud's own word."""

    group: Any
    names: dict[str, str] = field(default_factory=dict)

    def at(self) -> dict[str, tuple[list[str], list[str]]]:
        """Of each role, who has its volume and on whom its application runs."""
        nodes = self.group.cloud.guests()
        servers = {member: nodes[self.group.server(member)] for member in self.group.members}
        resources = self.group.cloud.resources(self.group.name)
        found = {}
        for name in SIDES:
            volume = resources[f"{name}_volume"]["physical_resource_id"]
            found[name] = (
                [member for member, node in servers.items() if volume in node["volumes"]],
                [m for m, node in servers.items() if self.names[name] in node["applications"]],
            )
        return found


@pytest.fixture
def sides(protect: Callable[..., Any]) -> Callable[..., Sides]:
    """Make a group of two roles over so many members."""

    def make(
        servers: tuple[str, ...] = ("db_a", "db_b"),
        hosts: Mapping[str, str] = MappingProxyType({}),
        **more: Any,
    ) -> Sides:
        group = protect(
            {**side("left"), **side("right")},
            servers=servers,
            template=partial(template, hosts=hosts),
            unresolved=True,  # its commands are made known below
            **{"roles": list(SIDES), **more},
        )
        names = {name: f"{name}-{group.name}" for name in SIDES}
        for name, application in names.items():
            group.cloud.add_application(
                application,
                start=f"{name}-start",
                stop=f"{name}-stop",
                needs_volume=True,
                told_only=True,
                stack=group.name,
            )
        return Sides(group, names)

    return make


def template(document: dict[str, Any], hosts: Mapping[str, str]) -> dict[str, Any]:
    """A volume for each side; ``hosts``: by member, where it has to be."""
    resources = document["resources"]
    volume = resources.pop("data_volume")
    resources |= {f"{name}_volume": volume for name in SIDES}
    for member, host in hosts.items():
        properties = {**resources[member]["properties"], "availability_zone": f"nova:{host}"}
        resources[member] = {**resources[member], "properties": properties}
    return document


@pytest.fixture
def up(sides: Callable[..., Sides]) -> Sides:
    """Left on db_a, right on db_b."""
    found = sides()
    found.group.activate()
    return found


def each(left: str, right: str) -> dict[str, tuple[list[str], list[str]]]:
    return {"left": ([left], [left]), "right": ([right], [right])}


# -- a member is lost


def test_the_host_of_the_lost_is_passed_over_even_where_its_other_member_has_less_to_do(
    sides: Callable[..., Sides], cloud: EmulatorClient
) -> None:
    """The host that db_a and db_c share may be what is broken."""
    shared, other = sorted(cloud.status()["hosts"])
    trio = sides(
        ("db_a", "db_b", "db_c"),
        hosts={"db_a": shared, "db_b": other, "db_c": shared},
        roles={"left": {"prefer": ["db_a"]}, "right": None},
    )
    trio.group.activate()
    assert trio.at() == each("db_a", "db_b")

    trio.group.run("on_alarm", **trio.group.fails("crash", "db_a")).assert_succeeded()

    assert trio.at() == each("db_b", "db_b")
    doubts = {name: row["doubt"] for name, row in trio.group.member_list().items()}
    assert doubts["db_c"] == "it is on the same host as db_a, which is lost"
    assert trio.group.cloud.violations() == []


def test_an_alarm_that_does_not_name_the_lost_member_is_held_and_declares_none_lost(
    up: Sides,
) -> None:
    alarm = {"alarm_name": "slow", "alarm_id": "a1", "previous": "ok", "current": "alarm"}

    run = up.group.run("on_alarm", **alarm, group=up.group.name).assert_succeeded()

    admission = run.output["admission"]
    assert admission["decision"] == "HELD"
    assert "does not say which member is lost" in admission["sentence"]
    refused = up.group.run("failover", group=up.group.name, incident=admission["incident"])
    refused.assert_failed_with("BAD_INPUT")
    assert up.at() == each("db_a", "db_b")
    up.group.run(
        "failover", group=up.group.name, incident=admission["incident"], lost=["db_b"]
    ).assert_succeeded()
    assert up.at() == each("db_a", "db_a")


def test_a_person_who_does_not_say_who_is_lost_is_asked(up: Sides) -> None:
    run = up.group.run("failover", group=up.group.name).assert_failed_with("BAD_INPUT")

    assert "left on db_a, right on db_b" in run.output["error"]["message"]
    assert up.at() == each("db_a", "db_b")


# -- planned moves


def test_a_role_moves_alone_and_home_is_not_where_the_agent_is_silent_or_where_work_is_done(
    up: Sides, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = up.group
    group.run("switchover", group=group.name, role="left", to="db_b").assert_succeeded()

    assert up.at() == each("db_b", "db_b")
    assert group.status()["lost"] == []

    with monkeypatch.context() as patch:
        patch.setattr(agent_health, "SILENT", 0.0)  # an agent that answers was heard 0 s ago
        group.fails("hang", "db_a")
        run = group.run("failback", group=group.name).assert_failed_with("NO_ELIGIBLE_MEMBER")
        assert "has sent no heartbeat" in run.output["error"]["reasons"]["db_a"]
        assert "has sent no heartbeat" in group.member_list()["db_a"]["doubt"]
    group.cloud.fault("server", group.server("db_a"), "thaw")

    group.run(
        "maintenance", group=group.name, because="a disk", minutes=5, members=["db_a"]
    ).assert_succeeded()
    run = group.run("failback", group=group.name).assert_failed_with("NO_ELIGIBLE_MEMBER")
    assert "in maintenance until" in run.output["error"]["reasons"]["db_a"]
    assert "a disk" in run.output["error"]["reasons"]["db_a"]

    assert up.at() == each("db_b", "db_b")
    assert group.cloud.violations() == []


def test_two_roles_go_home_in_one_traversal(sides: Callable[..., Sides]) -> None:
    swapped = sides()
    swapped.group.run(
        "activate_first", group=swapped.group.name, to={"left": "db_b", "right": "db_a"}
    ).assert_succeeded()

    run = swapped.group.run("failback", group=swapped.group.name).assert_succeeded()

    assert run.output["outcome"]["reason"] == "moved: left on db_a and right on db_b"
    assert swapped.at() == each("db_a", "db_b")
    assert len(swapped.group.traversals()) == 2
    assert swapped.group.cloud.violations() == []


def test_a_lost_member_s_role_moves_alone_and_goes_home_once_its_member_has_recovered(
    up: Sides,
) -> None:
    group = up.group
    assert up.at() == each("db_a", "db_b")

    group.run("on_alarm", **group.fails("crash", "db_a")).assert_succeeded()

    assert up.at() == each("db_b", "db_b")
    status = group.status()
    assert (status["roles"], status["lost"]) == ({"left": "db_b", "right": "db_b"}, ["db_a"])
    assert not any("right_" in sentence and "db_a" in sentence for sentence in group.told())
    assert group.told().count("Start right_shop on db_b: started") == 1

    refused = group.run("failback", group=group.name).assert_failed_with("NO_ELIGIBLE_MEMBER")
    assert refused.output["error"]["reasons"] == {"db_a": "it is declared lost"}
    assert "recovered" in refused.output["error"]["remedy"]

    unwell = group.run("failback", group=group.name, recovered=["db_a"])
    unwell.assert_failed_with("NO_ELIGIBLE_MEMBER")
    assert "SHUTOFF" in unwell.output["error"]["reasons"]["db_a"]

    Operator(group.cloud).start_server(group.server("db_a"))
    group.run("failback", group=group.name, recovered=["db_a"]).assert_succeeded()
    assert up.at() == each("db_a", "db_b")
    assert group.status()["lost"] == []
    assert group.cloud.violations() == []

    again = group.run("failback", group=group.name).assert_succeeded()
    assert again.output["begun"]["sentence"] == (
        f"left, right of {group.name} are already at home: nothing to do"
    )


def test_only_the_role_that_is_named_goes_home(sides: Callable[..., Sides]) -> None:
    swapped = sides()
    swapped.group.run(
        "activate_first", group=swapped.group.name, to={"left": "db_b", "right": "db_a"}
    ).assert_succeeded()
    group = swapped.group

    group.run("failback", group=group.name, role="middle").assert_failed_with("BAD_INPUT")
    group.run("failback", group=group.name, recovered=["x"]).assert_failed_with("UNKNOWN_MEMBER")
    group.run("failback", group=group.name, role="right", to="db_a").assert_failed_with(
        "NO_ELIGIBLE_MEMBER"
    )
    group.run("failback", group=group.name, to="db_b").assert_succeeded()

    assert swapped.at() == each("db_b", "db_b")
    group.run("failback", group=group.name, role="left").assert_succeeded()
    assert swapped.at() == each("db_a", "db_b")


def test_a_failback_that_fails_takes_every_role_back_and_who_recovered_stays_so(up: Sides) -> None:
    group = up.group
    group.run("failover", group=group.name, lost=["db_a"]).assert_succeeded()
    group.cloud.api_fault("command_start", "fail")

    run = group.run("failback", group=group.name, recovered=["db_a"])

    run.assert_failed_with("RETURNED")
    assert up.at() == each("db_b", "db_b")
    status = group.status()
    assert (status["status"], status["lost"]) == ("COMPLETE", [])
    assert group.cloud.violations() == []
    group.run("failback", group=group.name).assert_succeeded()
    assert up.at() == each("db_a", "db_b")


# -- who may take a role


def test_the_members_are_told_with_what_they_hold_and_why_they_may_take_nothing(
    sides: Callable[..., Sides],
) -> None:
    servers = ("db_a", "db_b", "db_c", "db_d")
    trio = sides(
        servers,
        hosts={"db_a": "compute-1", "db_b": "compute-2", "db_c": "compute-1"},
        members={"servers": list(servers), "priority": {"db_b": 60, "db_d": 0}},
    )
    group = trio.group
    before = trio.group.member_list()
    assert {row["epoch"] for row in before.values()} == {None}, "looking is no meeting"
    group.activate()
    group.run("on_alarm", **group.fails("crash", "db_b")).assert_succeeded()
    group.run(
        "maintenance", group=group.name, because="a disk", minutes=5, members=["db_c"]
    ).assert_succeeded()

    found = trio.group.member_list()

    assert list(found) == ["db_a", "db_b", "db_c", "db_d"]
    assert {name: row["roles"] for name, row in found.items()} == {
        "db_a": ["right"],
        "db_b": [],
        "db_c": ["left"],
        "db_d": [],
    }
    assert [name for name, row in found.items() if row["eligible"]] == ["db_a"]
    assert found["db_b"]["why_not"] == "it is declared lost"
    assert "in maintenance until" in found["db_c"]["why_not"]
    assert "priority 0" in found["db_d"]["why_not"]
    assert (found["db_b"]["epoch"], found["db_a"]["epoch"]) == (2, 1)
    assert found["db_a"]["host"] == found["db_c"]["host"] != found["db_b"]["host"]
    assert found["db_a"]["server"] == group.server("db_a")
    assert found["db_a"]["age"] >= 0
    assert found["db_b"]["priority"] == 60
