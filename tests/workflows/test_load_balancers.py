# SPDX-License-Identifier: Apache-2.0
"""A load balancer follows the active member: it never leads to two members."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from support.operators import Operator

ACTIVE = {"get_param": "active"}
DATABASE = {
    "type": "activation",
    "properties": {"member": ACTIVE, "start": "start", "stop": "stop"},
}
ENTRY = {
    "type": "load_balancer_member",
    "depends_on": "database",
    "properties": {"pool": "pool", "server": ACTIVE},
}


def balanced(stack: dict[str, Any]) -> dict[str, Any]:
    """The template, with a load balancer, and a disabled member of its pool for each server."""
    servers = [n for n, one in stack["resources"].items() if one["type"] == "OS::Nova::Server"]
    members = {}
    for name in servers:
        one = stack["resources"][name]
        one["properties"] = {**one["properties"], "networks": [{"network": "net1"}]}
        members[f"{name}_in_pool"] = {
            "type": "OS::Octavia::PoolMember",
            "properties": {
                "pool": {"get_resource": "pool"},
                "address": {"get_attr": [name, "networks", "net1", 0]},
                "protocol_port": 5432,
                "admin_state_up": False,
            },
        }
    stack["resources"] |= {
        "balancer": {"type": "OS::Octavia::LoadBalancer", "properties": {"vip_subnet": "inner"}},
        "pool": {
            "type": "OS::Octavia::Pool",
            "properties": {
                "loadbalancer": {"get_resource": "balancer"},
                "protocol": "TCP",
                "lb_algorithm": "ROUND_ROBIN",
            },
        },
        **members,
    }
    return stack


@pytest.fixture
def defined(protect: Callable[..., Any]) -> Callable[..., Any]:
    """Make a group behind a load balancer; ``properties``: more of the pool's member."""

    def make(*, unresolved: bool = False, **properties: Any) -> Any:
        entry = {**ENTRY, "properties": {**ENTRY["properties"], **properties}}
        resources = {"database": DATABASE, "entry": entry}
        group = protect(resources, template=balanced, unresolved=unresolved)
        group.cloud.add_application(group.name, start="start", stop="stop", stack=group.name)
        return group

    return make


@pytest.fixture
def moving(defined: Callable[..., Any]) -> Callable[..., Any]:
    """Make a group behind a load balancer, and bring it up on db_a."""

    def make(**properties: Any) -> Any:
        group = defined(**properties)
        outcome = group.activate()
        assert outcome["status"] == "COMPLETE", outcome
        return group

    return make


def answers(group: Any) -> list[str]:
    """The members that answer at the load balancer's address."""
    servers = {group.server(member): member for member in group.members}
    balancer = Operator(group.cloud).load_balancer(physical_id(group, "balancer"))
    return sorted(servers[each] for each in group.cloud.answering(balancer["vip_address"]))


def physical_id(group: Any, name: str) -> str:
    """The id of what the stack has."""
    return str(group.cloud.resources(group.name)[name]["physical_resource_id"])


def led(group: Any, since: int = 0) -> Iterator[set[str]]:
    """The members that the load balancer led to, after each of its changes."""
    names = {physical_id(group, f"{member}_in_pool"): member for member in group.members}
    now: set[str] = set()
    for event in group.cloud.audit(since, "pool_member"):
        if event["member"] in names:
            member = names[event["member"]]
            now = now | {member} if event["enabled"] else now - {member}
            yield set(now)


def test_the_load_balancer_follows_a_planned_move(moving: Callable[..., Any]) -> None:
    group = moving(drain=0.1)
    assert answers(group) == ["db_a"]

    group.run("switchover", group=group.name).assert_succeeded()

    assert answers(group) == group.runs_on() == ["db_b"]
    assert all(len(members) < 2 for members in led(group))
    drained = [
        (event["enabled"], event["weight"])
        for event in group.cloud.audit(0, "pool_member")
        if event["member"] == physical_id(group, "db_a_in_pool")
    ]
    assert drained == [(False, 1), (True, 1), (True, 0), (False, 1)]


def test_the_load_balancer_leaves_a_lost_member_after_its_fence(
    moving: Callable[..., Any],
) -> None:
    group = moving(drain=200)
    old = group.server("db_a")
    before = group.cloud.audit()[-1]["seq"]
    group.fails("hang")

    group.run("failover", group=group.name).assert_succeeded()

    assert answers(group) == ["db_b"]
    assert all(len(members) < 2 for members in led(group))
    assert group.changes_after_stop(before, old, "/load-balancer/")


def test_the_load_balancer_stays_until_it_is_proven_that_the_member_is_off(
    moving: Callable[..., Any],
) -> None:
    group = moving()
    group.fails("compute_down")  # the guest still runs, and nothing can prove otherwise
    group.cloud.fault("server", group.server("db_a"), "hang")

    blocked = group.run("failover", group=group.name)

    assert blocked.state == "ERROR"
    assert group.status()["traversal"]["status"] == "BLOCKED"
    assert answers(group) == ["db_a"]

    host = group.cloud.guests()[group.server("db_a")]["host"]
    group.cloud.fault("host", host, "power_off")
    said = {"group": group.name, "member": "db_a", "because": "its power is off"}
    group.run("confirm_fenced", **said).assert_succeeded()

    assert answers(group) == ["db_b"]
    group.cloud.fault("host", host, "revive")
    assert answers(group) == ["db_b"]


def test_a_member_that_another_role_still_needs_stays_enabled(protect: Callable[..., Any]) -> None:
    """Two roles are on one member, and one of them moves away."""
    entries = {
        f"{role}_entry": {
            "type": "load_balancer_member",
            "properties": {"pool": "pool", "server": {"get_param": role}, "shared": True},
        }
        for role in ("left", "right")
    }
    group = protect(entries, template=balanced, roles=["left", "right"])
    group.activate()
    assert answers(group) == ["db_a", "db_b"]

    group.run("switchover", group=group.name, role="right", to="db_a").assert_succeeded()
    assert answers(group) == ["db_a"]
    group.run("switchover", group=group.name, role="right", to="db_b").assert_succeeded()

    assert answers(group) == ["db_a", "db_b"]
    assert all("db_a" in members for members in list(led(group))[-2:])


def test_what_was_changed_by_hand_is_seen(moving: Callable[..., Any]) -> None:
    group = moving()
    assert group.observed()["status"] == "SERVING"
    operator, pool = Operator(group.cloud), physical_id(group, "pool")
    a, b = (physical_id(group, f"{member}_in_pool") for member in ("db_a", "db_b"))

    operator.set_pool_member(pool, a, admin_state_up=False)
    disabled = group.observed()
    operator.set_pool_member(pool, a, admin_state_up=True, weight=0)
    drained = group.observed()
    operator.set_pool_member(pool, a, weight=1)
    operator.set_pool_member(pool, b, admin_state_up=True)
    both = group.observed()

    assert [found["status"] for found in (disabled, drained, both)] == ["DOWN"] * 3
    assert disabled["reasons"][0].startswith("entry on db_a: ")
    assert "is disabled" in disabled["reasons"][0]
    assert "its weight is 0" in drained["reasons"][0]
    assert f"also leads to {group_address(group, 'db_b')}" in both["reasons"][0]
    operator.set_pool_member(pool, b, admin_state_up=False)
    assert group.observed()["status"] == "SERVING"


def group_address(group: Any, member: str) -> str:
    """Where the pool's member leads to."""
    pool, identity = physical_id(group, "pool"), physical_id(group, f"{member}_in_pool")
    shown = Operator(group.cloud).pool_member(pool, identity)
    return f"{shown['address']}:{shown['protocol_port']}"


def test_a_member_that_another_one_shares_the_pool_with_is_not_enabled(
    defined: Callable[..., Any],
) -> None:
    group = defined()
    pool, other = physical_id(group, "pool"), physical_id(group, "db_b_in_pool")
    Operator(group.cloud).set_pool_member(pool, other, admin_state_up=True)

    group.run("activate_first", group=group.name).assert_failed_with("FAILED")

    assert "POOL_IN_USE" in str(group.status()["traversal"])
    Operator(group.cloud).set_pool_member(
        pool, physical_id(group, "db_a_in_pool"), admin_state_up=True
    )
    found = group.examined("addresses")
    assert found["level"] == "error"
    assert "POOL_IN_USE" in found["sentence"]


def test_a_load_balancer_in_error_is_named(moving: Callable[..., Any]) -> None:
    group = moving()
    group.cloud.api_fault("load_balancer", "fail")
    group.fails("hang")

    failed = group.run("failover", group=group.name)

    assert failed.state == "ERROR"
    assert "LOAD_BALANCER_ERROR" in str(group.status()["traversal"])
    assert "LOAD_BALANCER_ERROR" in group.examined("addresses")["sentence"]


def test_a_wrong_pool_is_corrected_in_the_group_file(defined: Callable[..., Any]) -> None:
    """What was never made need not be found to be deleted."""
    group = defined(pool="poool", unresolved=True)
    assert "NOT_FOUND" in group.examined("addresses")["sentence"]
    group.run("activate_first", group=group.name).assert_failed_with("FAILED")
    assert "NOT_FOUND" in str(group.status()["traversal"])

    group.redefine({"database": DATABASE, "entry": ENTRY})
    outcome = group.activate()
    assert outcome["status"] == "COMPLETE", group.told()
    assert answers(group) == ["db_a"]
    assert group.examined("addresses")["level"] == "ok"


def test_a_changed_drain_leaves_the_member_enabled(moving: Callable[..., Any]) -> None:
    group = moving()
    before = len(list(led(group)))

    longer = {**ENTRY, "properties": {**ENTRY["properties"], "drain": 5}}
    group.redefine({"database": DATABASE, "entry": longer})
    group.activate()

    assert answers(group) == ["db_a"]
    assert len(list(led(group))) == before, "nothing was sent to the load balancer"
