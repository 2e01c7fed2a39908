# SPDX-License-Identifier: Apache-2.0
"""What a traversal would do, foretold from the goal and the records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from mistral_failover.convergence.dry_run import DryRunStep, dry_run_steps
from mistral_failover.convergence.graph import plan_traversal
from mistral_failover.convergence.records import Action, Record, Status
from mistral_failover.model.goal import Goal
from mistral_failover.model.types import installed_types

TYPES = installed_types()
EPOCHS = {"a": 1, "b": 1}
NOW = 1000.0
DEVICE = {"get_attr": ["data", "device"]}


def attachment(server: str) -> dict[str, Any]:
    properties = {"volume": "v", "server": server}
    return {"type": "volume_attachment", "properties": properties, "requires": []}


def application(member: str, **arguments: Any) -> dict[str, Any]:
    properties = {"member": member, "start": "on", "stop": "off", **arguments}
    return {"type": "activation", "properties": properties, "requires": ["data"]}


def record(name: str, wanted: Mapping[str, Any], **more: Any) -> Record:
    """A record that an earlier goal left COMPLETE."""
    properties = {**wanted["properties"], **more.pop("resolved", {})}
    made = Record(
        id=f"{name}0",
        group_id="g",
        name=name,
        type=wanted["type"],
        member=properties.get("member") or properties.get("server"),
        epoch=1,
        action=Action.CREATE,
        properties=properties,
        requires=tuple(f"{required}0" for required in wanted["requires"]),
    )
    return replace(made, **more)


def foreseen(
    resources: Mapping[str, Any], records: Sequence[Record], epochs: Mapping[str, int] = EPOCHS
) -> list[list[str]]:
    """The waves, each operation as ``verb name``, with a question mark where it is not certain."""
    drawn = plan_traversal(
        Goal({"lost": [], "resources": dict(resources)}),
        TYPES,
        records,
        epochs,
        group_id="g",
        new_id=lambda name: f"{name}1",
    )
    waves = dry_run_steps(drawn, TYPES, records, epochs, NOW)
    return [[_short(each) for each in wave] for wave in waves]


def _short(each: DryRunStep) -> str:
    return f"{each.verb} {each.record.name}{'' if each.certain else '?'}"


DATA, ON_A = attachment("a"), application("a", device=DEVICE)
THERE = record("data", DATA, physical_id="v", attributes={"device": "/dev/vdb"})
RUNS = record("application", ON_A, resolved={"device": "/dev/vdb"})


def test_what_is_as_the_goal_wants_it_is_no_operation() -> None:
    assert foreseen({"data": DATA, "application": ON_A}, [THERE, RUNS]) == []


def test_a_move_stops_and_detaches_before_it_attaches_and_starts() -> None:
    goal = {"data": attachment("b"), "application": application("b", device=DEVICE)}

    assert foreseen(goal, [THERE, RUNS]) == [
        ["delete application"],
        ["delete data"],
        ["create data"],
        ["create application"],
    ]


def test_what_is_made_anew_with_what_others_report_is_certain_all_the_same() -> None:
    assert foreseen({"data": DATA, "application": ON_A}, []) == [
        ["create data"],
        ["create application"],
    ]


def test_a_change_of_what_is_reported_already_is_certain() -> None:
    started_elsewhere = replace(RUNS, properties={**(RUNS.properties or {}), "device": "/dev/vdc"})

    found = foreseen({"data": DATA, "application": ON_A}, [THERE, started_elsewhere])

    assert found == [["update application"]]


UNDER_WAY = {"status": Status.IN_PROGRESS, "owner": "another", "lease_until": NOW + 5}


@pytest.mark.parametrize(
    ("wanted", "left", "others", "found"),
    [
        (
            {"data": DATA, "application": ON_A},
            UNDER_WAY,
            [RUNS],
            [["create data?"], ["update application?"]],
        ),
        ({"data": DATA}, {**UNDER_WAY, "lease_until": NOW - 5}, [], [["create data"]]),
        ({}, {**UNDER_WAY, "action": Action.DELETE}, [], [["delete data?"]]),
    ],
    ids=["what hangs on it", "what a dead owner left", "what goes already"],
)
def test_only_what_no_operation_under_way_can_change_is_certain(
    wanted: dict[str, Any], left: dict[str, Any], others: list[Record], found: list[list[str]]
) -> None:
    assert foreseen(wanted, [replace(THERE, **left), *others]) == found


def test_what_has_no_side_effect_is_passed_over_and_its_order_kept() -> None:
    parameters = {
        "type": "stack_parameters",
        "properties": {"parameters": {"active": "a"}},
        "requires": ["application"],
    }
    routing = record("routing", parameters)

    assert foreseen({}, [THERE, RUNS, routing]) == [["delete application"], ["delete data"]]


def test_what_never_came_to_be_needs_no_removal() -> None:
    untried = replace(THERE, action=Action.INIT, status=Status.COMPLETE, properties=None)

    assert foreseen({}, [untried]) == []
