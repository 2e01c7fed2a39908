# SPDX-License-Identifier: Apache-2.0
"""A goal is one document: who holds which role, who is lost, and what follows from that."""

import json
from pathlib import Path
from typing import Any

import pytest

from mistral_failover.model.canonical import version_of
from mistral_failover.model.errors import InvalidDocument
from mistral_failover.model.goal import (
    Goal,
    WantedResource,
    empty_goal,
    fence_name,
    goal_resources,
    render_goal,
    restored_goal,
    returns,
)
from mistral_failover.model.group import Group, parse_group
from mistral_failover.model.types import check_properties

EXAMPLE = Path(__file__).parents[2] / "examples" / "postgresql.yaml"


@pytest.fixture
def payments() -> Group:
    return parse_group(EXAMPLE.read_text())


FENCE_OF_DB_A = {
    "type": "fence",
    "properties": {
        "member": "db_a",
        "ladder": [
            {"kind": "quiesce", "limit": 3, "longest": 300},
            {"kind": "stop", "limit": 120},
            {"kind": "confirm", "limit": 3600},
        ],
    },
    "requires": [],
}


def test_the_example_fails_over_to_this_goal(payments: Group) -> None:
    goal = render_goal(payments, {"active": "db_b"}, ["db_a"])
    assert goal.document == {
        "format": 1,
        "group": "payments",
        "stack": "payments",
        "roles": {"active": "db_b"},
        "lost": ["db_a"],
        "on_failure": "stop",
        "resources": {
            "data": {
                "type": "volume_attachment",
                "properties": {"volume": "data_volume", "server": "db_b"},
                "requires": [],
            },
            "database": {
                "type": "activation",
                "properties": {
                    "member": "db_b",
                    "start": "pg-start",
                    "stop": "pg-stop",
                    "data_device": {"get_attr": ["data", "device"]},
                },
                "requires": ["data"],
            },
            "routing": {
                "type": "stack_parameters",
                "properties": {"parameters": {"active": "db_b"}},
                "requires": ["database"],
            },
            "fence:db_a": FENCE_OF_DB_A,
        },
    }


def test_the_version_is_that_of_the_document_and_outlives_storage(payments: Group) -> None:
    goal = render_goal(payments, {"active": "db_b"}, ["db_a"])
    stored = Goal(json.loads(json.dumps(goal.document)))
    assert goal.version == version_of(goal.document) == stored.version
    assert (stored, hash(stored)) == (goal, hash(goal))


def test_the_same_wish_has_the_same_version_however_it_is_said(payments: Group) -> None:
    one = render_goal(payments, {"active": "db_b"}, ["db_a", "old", "db_a"])
    two = render_goal(payments, {"active": "db_b"}, {"old", "db_a"})
    assert one.version == two.version
    assert one.document["lost"] == ["db_a", "old"]
    assert one.version != render_goal(payments, {"active": "db_b"}, ["db_a"]).version


def test_a_planned_move_s_goal_differs_by_its_promise_alone_and_coming_back_drops_it(
    payments: Group,
) -> None:
    goal = render_goal(payments, {"active": "db_b"}, [])
    planned = render_goal(payments, {"active": "db_b"}, [], returns=True)

    assert planned.document == {**goal.document, "returns": True}
    assert (returns(planned), returns(goal)) == (True, False)
    assert restored_goal(planned, goal) == goal


def test_a_goal_shares_nothing_with_its_group(payments: Group) -> None:
    goal = render_goal(payments, {"active": "db_b"}, [])
    goal.document["resources"]["database"]["properties"]["data_device"]["get_attr"].append("x")
    assert payments.resources["database"].properties["data_device"] == {
        "get_attr": ["data", "device"]
    }


def test_what_is_referred_to_is_required_too() -> None:
    group = parse_group(
        {
            "failover_template_version": "2026-11-21",
            "stack": "s",
            "members": {"autoscaling_group": "g"},
            "roles": ["left", "right"],
            "resources": {
                "z": {"type": "stack_parameters", "properties": {"parameters": {"a": "b"}}},
                "y": {
                    "type": "volume_attachment",
                    "properties": {"volume": "v", "server": {"get_param": "right"}},
                },
                "x": {
                    "type": "stack_parameters",
                    "depends_on": ["z"],
                    "properties": {
                        "parameters": {
                            "a": {"get_resource": "z"},
                            "b": [{"get_attr": ["y", "device"]}],
                            "c": {"get_param": "left"},
                        }
                    },
                },
            },
        }
    )
    goal = render_goal(group, {"left": "m1", "right": "m2"}, [])
    assert goal.document["roles"] == {"left": "m1", "right": "m2"}
    wanted = {each.name: each for each in goal_resources(goal)}
    assert wanted["x"].requires == ("y", "z")
    assert wanted["y"].properties["server"] == "m2"


def test_the_resources_of_a_goal_are_given_out_by_name_as_copies(payments: Group) -> None:
    goal = render_goal(payments, {"active": "db_b"}, ["db_a"])
    resources = goal_resources(goal)
    assert [each.name for each in resources] == ["data", "database", "fence:db_a", "routing"]
    assert resources[0] == WantedResource(
        "data", "volume_attachment", {"volume": "data_volume", "server": "db_b"}, ()
    )
    properties: Any = resources[0].properties
    properties.clear()
    assert goal_resources(goal)[0].properties


def test_a_fence_meets_the_schema_of_its_type(payments: Group) -> None:
    check_properties(payments.types["fence"], FENCE_OF_DB_A["properties"])  # type: ignore[arg-type]


def test_the_empty_goal_wants_nothing_but_fences(payments: Group) -> None:
    assert empty_goal(payments).document == {
        "format": 1,
        "group": "payments",
        "stack": "payments",
        "roles": {},
        "lost": [],
        "on_failure": "stop",
        "resources": {},
    }
    wanted = goal_resources(empty_goal(payments, ["db_a"]))
    assert [each.name for each in wanted] == [fence_name("db_a")]


@pytest.mark.parametrize(
    ("roles", "lost", "path", "fragment"),
    [
        ({}, [], "roles.active", "has no member"),
        ({"active": "db_a", "standby": "db_b"}, [], "roles.standby", "not a role"),
        ({"active": "db_a"}, ["db_a"], "roles.active", '"db_a" is lost'),
        ({"active": "db_c"}, [], "roles.active", '"db_c" is not a member'),
    ],
)
def test_a_goal_that_makes_no_sense_is_refused(
    payments: Group, roles: dict[str, str], lost: list[str], path: str, fragment: str
) -> None:
    with pytest.raises(InvalidDocument) as caught:
        render_goal(payments, roles, lost)
    assert caught.value.path == path
    assert fragment in caught.value.message
    assert caught.value.remedy


# -- going back


@pytest.mark.parametrize(
    ("back_to", "now", "restored"),
    [
        (("db_a", []), ("db_b", []), ("db_a", [])),
        (("db_a", []), ("db_a", ["db_b"]), ("db_a", ["db_b"])),
        (("db_b", ["db_a"]), ("db_b", []), ("db_b", [])),
    ],
    ids=["no member was lost since", "a lost one stays fenced", "a recovered one is not fenced"],
)
def test_a_restored_goal_has_the_roles_of_the_one_and_the_lost_of_the_other(
    payments: Group,
    back_to: tuple[str, list[str]],
    now: tuple[str, list[str]],
    restored: tuple[str, list[str]],
) -> None:
    def goal(active: str, lost: list[str]) -> Goal:
        return render_goal(payments, {"active": active}, lost)

    assert restored_goal(goal(*back_to), goal(*now)) == goal(*restored)


def test_no_role_goes_back_to_a_member_that_is_lost_unless_it_recovered(payments: Group) -> None:
    home = render_goal(payments, {"active": "db_a"}, [])
    away = render_goal(payments, {"active": "db_b"}, ["db_a"])
    with pytest.raises(InvalidDocument) as caught:
        restored_goal(home, away)
    assert caught.value.path == "roles.active"
    assert "add --recovered" in caught.value.remedy
    assert restored_goal(home, away, ["db_a"]) == home
