# SPDX-License-Identifier: Apache-2.0
"""A name in the DNS follows the active member, and always exists while the group does."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from support.operators import Operator

_numbers = itertools.count(1)
ACTIVE = {"get_param": "active"}
DATABASE = {
    "type": "activation",
    "properties": {"member": ACTIVE, "start": "start", "stop": "stop"},
}


def on_a_network(stack: dict[str, Any]) -> dict[str, Any]:
    """The template, each of whose servers has an address."""
    for name, one in stack["resources"].items():
        if one["type"] == "OS::Nova::Server":
            own = {**one["properties"], "networks": [{"network": "net1"}]}
            stack["resources"][name] = {**one, "properties": own}
    return stack


def entry(named: str, **properties: Any) -> dict[str, Any]:
    """The resource in the zone of this name, with more properties."""
    own = {"zone": named, "name": f"db.{named}", "ttl": 30, "server": ACTIVE}
    return {"type": "dns_record", "depends_on": "database", "properties": {**own, **properties}}


@dataclass
class Named:
    """A group with a name in a zone of its own."""

    group: Any
    operator: Operator
    zone: str
    zone_id: str

    @property
    def name(self) -> str:
        """The name."""
        return f"db.{self.zone}"

    def answered(self) -> list[list[str]]:
        """The members of each answer that the name servers gave, one after the other."""
        events = self.group.cloud.audit(0, "dns_answer")
        mine = [each["records"] for each in events if each["name"] == self.name]
        return [[self.member(record) for record in records] for records in mine]

    def member(self, address: str) -> str:
        """The member with an address, or the address."""
        servers = {self.group.server(member): member for member in self.group.members}
        found = self.group.cloud.answering(address)
        return servers[found[0]] if found else address

    def recordset(self) -> dict[str, Any] | None:
        """What Designate has."""
        (found, *_) = [*self.operator.recordsets(self.zone_id), None]
        return found


@pytest.fixture
def defined(protect: Callable[..., Any], cloud: Any) -> Callable[..., Named]:
    """Make a group with a name; ``properties``: more of the resource; ``unresolved``: as of
    ``protect``."""

    def make(*, unresolved: bool = False, **properties: Any) -> Named:
        operator, zone = Operator(cloud), f"zone{next(_numbers)}.example.org."
        resources = {"database": DATABASE, "name": entry(zone, **properties)}
        zone_id = operator.make_zone(zone)
        group = protect(resources, template=on_a_network, unresolved=unresolved)
        group.cloud.add_application(group.name, start="start", stop="stop", stack=group.name)
        return Named(group, operator, zone, zone_id)

    return make


@pytest.fixture
def named(defined: Callable[..., Named]) -> Named:
    """A group with a name, active on db_a."""
    made = defined()
    outcome = made.group.activate()
    assert outcome["status"] == "COMPLETE", outcome
    return made


def test_the_name_follows_a_planned_move_and_a_rollback(named: Named) -> None:
    group = named.group
    home = group.status()["goal"]

    group.run("switchover", group=group.name).assert_succeeded()
    group.run("rollback", group=group.name).assert_succeeded()

    assert group.status()["goal"] == home, "the promise of the move is gone"
    assert named.answered() == [["db_a"], ["db_b"], ["db_a"]]
    assert group.runs_on() == ["db_a"]


def test_the_name_leaves_a_lost_member_after_its_fence(named: Named) -> None:
    group = named.group
    old, before = group.server("db_a"), group.cloud.audit()[-1]["seq"]
    group.fails("hang")

    group.run("failover", group=group.name).assert_succeeded()

    assert len(named.answered()) == 2
    assert named.answered()[-1] == ["db_b"]
    assert group.changes_after_stop(before, old, "/dns/")


def test_the_name_stays_until_it_is_proven_that_the_member_is_off(named: Named) -> None:
    group = named.group
    group.fails("compute_down")  # the guest still runs, and nothing can prove otherwise
    group.cloud.fault("server", group.server("db_a"), "hang")

    group.run("failover", group=group.name)

    assert group.status()["traversal"]["status"] == "BLOCKED"
    assert named.answered() == [["db_a"]]


def test_the_name_goes_with_the_group_unless_it_has_another_owner(named: Named) -> None:
    group = named.group

    group.run("remove", group=group.name).assert_succeeded()

    assert named.recordset() is None

    group.activate()
    found = named.recordset()
    assert found is not None
    named.operator.set_recordset(named.zone_id, found["id"], description="of the web team")
    group.run("remove", group=group.name).assert_succeeded()

    assert named.recordset() is not None


def test_what_was_changed_by_hand_is_seen_and_set_right_by_the_next_move(named: Named) -> None:
    group, operator = named.group, named.operator
    assert group.observed()["status"] == "SERVING"
    assert group.examined("addresses")["level"] == "ok"
    found = named.recordset()
    assert found is not None

    group.cloud.api_fault("name_server", "fail")
    operator.set_recordset(named.zone_id, found["id"], ttl=30)
    error = group.observed()
    operator.set_recordset(named.zone_id, found["id"], records=["192.0.2.9"])
    changed = group.observed()
    operator.delete_recordset(named.zone_id, found["id"])
    gone = group.observed()

    assert error["status"] == "UNKNOWN"
    assert "is in ERROR" in error["reasons"][0]
    assert [each["status"] for each in (changed, gone)] == ["DOWN"] * 2
    assert "leads to 192.0.2.9, not" in changed["reasons"][0]
    assert "no longer exists" in gone["reasons"][0]
    group.run("switchover", group=group.name).assert_succeeded()
    assert named.answered()[-1] == ["db_b"]
    assert group.observed()["status"] == "SERVING"


def test_the_name_of_another_owner_is_refused(defined: Callable[..., Named]) -> None:
    named = defined()
    group, operator = named.group, named.operator
    operator.make_recordset(named.zone_id, named.name, "A", "192.0.2.9")

    with pytest.raises(AssertionError, match="DNS_RECORD_IN_USE"):
        group.activate()

    assert named.answered() == [["192.0.2.9"]]
    found = group.examined("addresses")
    assert found["level"] == "error"
    assert "DNS_RECORD_IN_USE" in found["sentence"]


def test_another_target_and_another_time_to_live_change_it_in_place(named: Named) -> None:
    group, found = named.group, named.recordset()
    targets = {"db_a": "203.0.113.1", "db_b": "203.0.113.2"}

    group.redefine({"database": DATABASE, "name": entry(named.zone, ttl=5, targets=targets)})
    group.activate()

    now = named.recordset()
    assert found is not None
    assert now is not None
    assert (now["id"], now["ttl"], now["records"]) == (found["id"], 5, ["203.0.113.1"])


def test_a_zone_that_does_not_exist_is_named(defined: Callable[..., Named]) -> None:
    """What was never made need not be found to be deleted."""
    named = defined(unresolved=True, zone="nowhere.example.org")
    group = named.group
    assert "no zone nowhere.example.org." in group.examined("addresses")["sentence"]
    with pytest.raises(AssertionError, match="NOT_FOUND"):
        group.activate()

    group.redefine({"database": DATABASE, "name": entry(named.zone)})
    outcome = group.activate()

    assert outcome["status"] == "COMPLETE", group.told()
    assert named.answered() == [["db_a"]]
