# SPDX-License-Identifier: Apache-2.0
"""Who has what, now and at each step of a finished failover."""

from __future__ import annotations

import pytest

from mistral_failover.ui.topology import (
    Doubt,
    Fenced,
    ItemState,
    Kind,
    Topology,
    topology,
    topology_at,
)
from support.ui_answers import MOVING, NOW, member, resource, status, traversal


def holds(found: Topology) -> dict[str, dict[str, ItemState]]:
    return {m.name: {item.name: item.state for item in m.items} for m in found.members}


def test_at_rest_the_holder_has_everything() -> None:
    found = topology(status())

    assert holds(found) == {
        "db_a": {},
        "db_b": {"data": ItemState.HELD, "database": ItemState.HELD},
    }
    assert not any(item.moving for each in found.members for item in each.items)
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
    (leaving,), (_, coming) = (each.items for each in found.members)
    assert (leaving.target, coming.source) == ("db_b", "db_a")
    assert "db_b" in leaving.words
    assert "db_a" in coming.words
    assert (found.members[0].lost, found.members[0].fenced) == (True, Fenced.FENCED)
    assert not found.members[1].active, "the goal is not reached"
    assert [[words for _, words in each.badges] for each in found.members] == [
        ["LOST", "fenced"],
        ["to be active"],
    ]


@pytest.mark.parametrize(
    ("condition", "doubt"),
    [
        ("runs", Doubt.NONE),
        ("hung", Doubt.HUNG),
        ("stopped", Doubt.STOPPED),
        ("deleted", Doubt.DELETED),
        ("unreachable", Doubt.UNREACHABLE),
        ("unknown", Doubt.UNKNOWN),
        (None, Doubt.NONE),
    ],
)
def test_a_member_shows_what_is_wrong_with_its_server(condition: str, doubt: Doubt) -> None:
    rows = [
        member("db_a", "aaaa", condition=condition, why="so Nova says"),
        member("db_b", "bbbb"),
    ]
    found = topology(status(members=rows)).members[0]

    assert found.doubt is doubt
    assert (doubt.value in [words for _, words in found.badges]) is (doubt is not Doubt.NONE)
    assert found.why == ("so Nova says" if doubt is not Doubt.NONE else "")


def test_what_was_left_on_a_replaced_server_is_shown_on_that_server() -> None:
    left = resource(
        "data",
        "volume_attachment",
        "db_a",
        "CREATE_COMPLETE",
        attributes={"server_id": "01d5e12e-replaced"},
    )
    new, old, other = topology(status(resources=[left])).members

    assert (new.name, new.server, new.items) == ("db_a", "dbaab98b", ())
    assert (old.name, old.server, old.doubt) == ("db_a", "01d5e12e", Doubt.REPLACED)
    assert [item.name for item in old.items] == ["data"]
    assert other.name == "db_b"


@pytest.mark.parametrize("presence", ["gone", "changed"])
def test_a_volume_that_is_not_where_it_belongs_says_where_it_is(presence: str) -> None:
    why = "volume v is in-use and attached to server x, not to y"
    row = resource(
        "data", "volume_attachment", "db_b", "CREATE_COMPLETE", presence=presence, why=why
    )
    (item,) = topology(status(resources=[row])).members[1].items

    assert item.state is ItemState.ASTRAY
    assert why in item.words


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
    members = [member("db_c", "1234", condition="hung")]
    now = status(members=members, traversal={"id": "another"}, resources=[])
    found = topology_at(traversal(), now, NOW - 82)

    assert [each.name for each in found.members] == ["db_a", "db_b", "db_c"]
    assert found.members[2].doubt is Doubt.NONE, "so it is now, not then"
