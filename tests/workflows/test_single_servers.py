# SPDX-License-Identifier: Apache-2.0
"""Every way in which the only server of a group is lost, named or of an autoscaling group; and what
else may be lost with it.

On the real engine with an emulated cloud.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from mistral_failover.lab.testing.workflows import Run
from support.operators import Operator
from support.waiting import patiently, until

pytestmark = pytest.mark.faults

BY_NAME: dict[str, Any] = {"members": {"servers": ["db_a"], "replace": "lost"}}
SCALED: dict[str, Any] = {"members": {"autoscaling_group": "nodes", "replace": "lost"}}
ACTIVE = {"get_param": "active"}
ON = {"server": ACTIVE, "when_host_is_down": "delete_server"}
STARTS = {"start": "start", "stop": "stop", "device": {"get_attr": ["data", "device"]}}
RESOURCES: dict[str, Any] = {
    "data": {"type": "volume_attachment", "properties": {"volume": "data_volume", **ON}},
    "database": {
        "type": "activation",
        "depends_on": "data",
        "properties": {"member": ACTIVE, **STARTS},
    },
}


def autoscaled(stack: dict[str, Any]) -> dict[str, Any]:
    """The same server in an autoscaling group of one."""
    resources = dict(stack["resources"])
    server = resources.pop("db_a")
    own = {key: value for key, value in server["properties"].items() if key != "scheduler_hints"}
    nodes = {
        "type": "OS::Heat::AutoScalingGroup",
        "properties": {
            "min_size": 1,
            "max_size": 2,
            "desired_capacity": 1,
            "resource": {**server, "properties": own},
        },
    }
    return {**stack, "resources": {**resources, "nodes": nodes}}


@pytest.fixture(params=["by name", "by autoscaling group"])
def pet(request: pytest.FixtureRequest, protect: Callable[..., Any]) -> Any:
    """A single server, up."""
    scaled = request.param != "by name"
    group = protect(
        RESOURCES,
        servers=("db_a",),
        template=autoscaled if scaled else lambda stack: stack,
        limits={"cooldown": 0},
        **(SCALED if scaled else BY_NAME),
    )
    group.activate()
    # Heat gives the members of an autoscaling group their names.
    group.server = lambda member: next(
        m["server"] for m in group.status()["members"] if m["name"] == member
    )
    group.members = tuple(m["name"] for m in group.status()["members"])
    return group


def crashed(group: Any, member: str) -> Run:
    return patiently(group, "on_alarm", **group.fails("crash", member))


def in_error(group: Any, member: str) -> Run:
    alarm = group.fails("crash", member)
    Operator(group.cloud).reset_server(group.server(member), "error")
    return patiently(group, "on_alarm", **alarm)


def deleted(group: Any, member: str) -> Run:
    alarm = group.fails("crash", member)
    Operator(group.cloud).delete_server(group.server(member))
    return patiently(group, "on_alarm", **alarm)


def on_a_dead_host(group: Any, member: str) -> Run:
    patiently(group, "on_alarm", **group.fails("power_off", member)).assert_failed_with("BLOCKED")
    said = {"group": group.name, "member": member, "because": "its power is off"}
    return patiently(group, "confirm_fenced", **said)


@pytest.mark.parametrize(
    ("lost", "stays"),
    [(crashed, True), (in_error, True), (deleted, False), (on_a_dead_host, False)],
)
def test_the_only_server_is_back_however_it_was_lost(
    pet: Any, lost: Callable[[Any, str], Run], *, stays: bool
) -> None:
    (member,) = pet.members
    former = pet.server(member)

    lost(pet, member).assert_succeeded()

    status = pet.status()
    (now,) = [m["name"] for m in status["members"]]
    assert (status["status"], status["roles"], status["lost"]) == ("COMPLETE", {"active": now}, [])
    assert (pet.server(now) == former) == stays
    pet.members = (now,)
    assert pet.runs_on() == pet.holders() == [now]
    assert pet.cloud.violations() == []


def test_two_alarms_about_it_bring_it_back_once(pet: Any) -> None:
    (member,) = pet.members
    alarm = pet.fails("crash", member)
    first, second = (pet.start("on_alarm", **alarm) for _ in range(2))

    for execution in (first, second):
        pet.workflows.wait(execution, timeout=90).assert_succeeded()

    until(lambda: pet.status()["status"] == "COMPLETE")
    assert Counter(pet.told("done"))[f"Bring back {member}: done"] == 1
    assert pet.runs_on() == [member]


COLD = {"servers": ["db_a", "db_b"], "when_no_standby": "replace", "restart": ["replace"]}


def in_zones(stack: dict[str, Any]) -> dict[str, Any]:
    """Each member in a zone of its own; the emulated cloud names them as its hosts."""
    resources = dict(stack["resources"])
    for member, zone in (("db_a", "cmp1"), ("db_b", "cmp2")):
        own = {k: v for k, v in resources[member]["properties"].items() if k != "scheduler_hints"}
        own["availability_zone"] = zone
        resources[member] = {**resources[member], "properties": own}
    return {**stack, "resources": resources}


def test_no_server_is_made_when_a_zone_is_lost_and_the_standby_is_in_another_one(
    protect: Callable[..., Any],
) -> None:
    group = protect(RESOURCES, template=in_zones, members=COLD)
    group.activate()
    former = {member: group.server(member) for member in group.members}
    group.fails("crash", "db_a")

    body = {"zone": "cmp1", "id": group.name, "group": group.name, "reason": "its power failed"}
    patiently(group, "on_event", body=body, kind="signal").assert_succeeded()

    assert group.runs_on() == group.holders() == ["db_b"]
    assert {member: group.server(member) for member in group.members} == former
    assert not any(line.startswith("Bring back") for line in group.told())
