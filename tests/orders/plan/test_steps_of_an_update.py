# SPDX-License-Identifier: Apache-2.0
"""A dry run of a changed group file shows the steps that follow, and which of them interrupt the
service; it stores nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mistral_failover.actions import orders
from mistral_failover.actions.groups import Define
from support.operators import Operator
from support.planned_groups import PlannedGroup, emulated, group, protect, state

__all__ = ["emulated", "group", "protect", "state"]


def dry_run(group: PlannedGroup, document: dict[str, Any]) -> dict[str, Any]:
    return dict(group.done(Define(document, name=group.name, dry_run=True)))


def without_volume(document: dict[str, Any]) -> None:
    del document["resources"]["data_0"]
    del document["resources"]["active_application"]["depends_on"]
    del document["resources"]["active_application"]["properties"]["device"]


CHANGES: dict[str, tuple[Callable[[dict[str, Any]], Any], dict[str, bool]]] = {
    "limits alone": (lambda d: d.update(limits={"per_hour": 9}), {}),
    "an argument of the application": (
        lambda d: d["resources"]["active_application"]["properties"].update(more="x"),
        {"Restart active_application on db_a": True},
    ),
    "another stop command": (
        lambda d: d["resources"]["active_application"]["properties"].update(stop="end"),
        {"Restart active_application on db_a": False},
    ),
    "a parameter of the stack": (
        lambda d: d["resources"]["active_routing"]["properties"]["parameters"].update(files="f"),
        {"Update the stack (active_routing)": False},
    ),
    "a volume less": (
        without_volume,
        {
            "Restart active_application on db_a": True,
            "Detach data_0 from db_a": True,
        },
    ),
}


@pytest.mark.parametrize("what", CHANGES)
def test_the_steps_of_an_update_say_which_of_them_interrupt_the_service(
    group: PlannedGroup, what: str
) -> None:
    change, expected = CHANGES[what]
    group.cloud.add_application("other", start="begin", stop="end", stack=group.name)
    document = group.document()
    change(document)
    before, since = group.written(), group.seen()

    found = dry_run(group, document)

    assert {step["what"]: step["interrupts"] for step in found["steps"]} == expected
    assert found["why_no_steps"] is None
    assert group.written() == before
    assert group.changes(since) == []


def test_nothing_is_interrupted_where_nothing_serves(protect: Callable[..., PlannedGroup]) -> None:
    group = protect()

    steps = dry_run(group, group.document())["steps"]

    assert [step["verb"] for step in steps] == ["create"] * len(steps)
    assert steps
    assert not any(step["interrupts"] for step in steps)


def test_the_steps_are_those_that_the_update_then_carries_out(group: PlannedGroup) -> None:
    document = group.document()
    document["resources"]["active_application"]["properties"]["more"] = "x"
    planned = [step["what"] for step in dry_run(group, document)["steps"]]
    last = group.last()

    group.done(Define(document, name=group.name))
    group.order(orders.Begin(group.name, lost=[], definition="defined"))

    assert group.started(last) == planned


def test_an_update_that_could_not_start_says_why(group: PlannedGroup) -> None:
    Operator(group.cloud).delete_server(group.server("db_a"))

    found = dry_run(group, group.document())

    assert found["steps"] is None
    assert found["why_no_steps"]["code"] == "HOLDER_GONE"
    assert "failover start" in found["why_no_steps"]["remedy"]


def test_an_update_that_takes_the_active_member_out_interrupts_the_service(
    group: PlannedGroup,
) -> None:
    document = group.document() | {"members": {"servers": ["db_b"]}}

    steps = dry_run(group, document)["steps"]

    taken = {step["what"] for step in steps if step["interrupts"]}
    assert taken == {"Stop active_application on db_a", "Detach data_0 from db_a"}
