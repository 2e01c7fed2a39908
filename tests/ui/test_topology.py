# SPDX-License-Identifier: Apache-2.0
"""Who has what, now and at each step of a finished failover."""

from __future__ import annotations

import pytest

from mistral_failover.ui.topology import (
    Fenced,
    ItemState,
    Kind,
    Movement,
    Topology,
    topology,
    topology_at,
)
from support.ui_answers import MOVING, NOW, resource, status, traversal


def holds(found: Topology) -> dict[str, dict[str, ItemState]]:
    return {m.name: {item.name: item.state for item in m.items} for m in found.members}


def test_at_rest_the_holder_has_everything() -> None:
    found = topology(status())

    assert holds(found) == {
        "db_a": {},
        "db_b": {"data": ItemState.HELD, "database": ItemState.HELD},
    }
    assert found.movements == ()
    assert [(member.role, member.active) for member in found.members] == [
        ("", False),
        ("active", True),
    ]


@pytest.mark.parametrize(
    "kind", ["dns_record", "floating_ip", "load_balancer_member", "port", "virtual_ip"]
)
def test_an_address_is_known_as_one(kind: str) -> None:
    address = resource("service", kind, "db_b", "CREATE_COMPLETE")

    (item,) = topology(status(resources=[address])).members[1].items

    assert (item.name, item.kind, item.state) == ("service", Kind.ADDRESS, ItemState.HELD)


def test_what_leaves_one_member_for_another_is_moving() -> None:
    found = topology(status("IN_PROGRESS", resources=MOVING, lost=["db_a"]))

    assert holds(found) == {
        "db_a": {"data": ItemState.LEAVING},
        "db_b": {"data": ItemState.WANTED, "database": ItemState.WANTED},
    }
    assert found.movements == (Movement("data", "db_a", "db_b"),)
    assert (found.members[0].lost, found.members[0].fenced) == (True, Fenced.FENCED)
    assert not found.members[1].active, "the goal is not reached"
    assert found.sentences() == [
        "db_a (server dbaab98b), LOST, fenced, data is leaving",
        "db_b (server da1ce15d), to be active, database is to come, data is to come",
        "data moves from db_a to db_b",
    ]


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        ("CREATE_IN_PROGRESS", ItemState.ARRIVING),
        ("CREATE_FAILED", ItemState.FAILED),
        ("UPDATE_IN_PROGRESS", ItemState.HELD),
        ("DELETE_IN_PROGRESS", ItemState.LEAVING),
        ("DELETE_FAILED", ItemState.FAILED),
        ("INIT_COMPLETE", ItemState.WANTED),
    ],
)
def test_a_record_says_how_its_member_has_the_resource(record: str, expected: ItemState) -> None:
    rows = [resource("data", "volume_attachment", "db_b", record)]
    assert holds(topology(status(resources=rows)))["db_b"] == {"data": expected}


def test_what_was_deleted_is_not_drawn() -> None:
    rows = [resource("data", "volume_attachment", "db_b", "DELETE_COMPLETE")]
    assert holds(topology(status(resources=rows)))["db_b"] == {}


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        ("CREATE_IN_PROGRESS", Fenced.FENCING),
        ("CREATE_COMPLETE", Fenced.FENCED),
        ("CREATE_FAILED", Fenced.UNPROVEN),
    ],
)
def test_a_fence_is_of_its_member(record: str, expected: Fenced) -> None:
    found = topology(status(resources=[resource("fence:db_a", "fence", None, record)]))

    assert [member.fenced for member in found.members] == [expected, Fenced.NO]


@pytest.mark.parametrize(
    ("second", "expected"),
    [
        (2.0, {"db_a": {"data": ItemState.HELD}, "db_b": {}}),
        (4.5, {"db_a": {"data": ItemState.LEAVING}, "db_b": {}}),
        (6.0, {"db_a": {}, "db_b": {"data": ItemState.ARRIVING}}),
        (7.5, {"db_a": {}, "db_b": {"data": ItemState.HELD, "database": ItemState.ARRIVING}}),
        (8.0, {"db_a": {}, "db_b": {"data": ItemState.HELD, "database": ItemState.HELD}}),
    ],
)
def test_a_replay_shows_who_had_what(
    second: float, expected: dict[str, dict[str, ItemState]]
) -> None:
    found = topology_at(traversal(), status(), NOW - 90 + second)

    assert holds(found) == expected


def test_a_replay_of_an_old_failover_has_the_members_of_its_time() -> None:
    members = [{"name": "db_c", "server": "1234", "epoch": 1}]
    now = status(members=members, traversal={"id": "another"}, resources=[])
    found = topology_at(traversal(), now, NOW - 82)

    assert [member.name for member in found.members] == ["db_c", "db_a", "db_b"]
