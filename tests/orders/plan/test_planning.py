# SPDX-License-Identifier: Apache-2.0
"""What a plan says, and that it only says it."""

from __future__ import annotations

from typing import Any


def codes(plan: dict[str, Any]) -> set[str]:
    return {risk["code"] for risk in plan["risks"]}


def test_a_plan_tells_each_step_with_what_it_waits_for(group: Any) -> None:
    plan = group.plan()

    assert plan["roles"] == {"active": "db_b"}
    assert [(step["number"], step["what"], step["after"]) for step in plan["steps"]] == [
        (1, "Fence db_a", []),
        (2, "Stop active_application on db_a", [1]),
        (3, "Detach data_0 from db_a", [2]),
        (4, "Attach data_0 to db_b", [3]),
        (5, "Start active_application on db_b", [4]),
        (6, "Update the stack (active_routing)", [5]),
    ]
    assert all(step["certain"] for step in plan["steps"])
    assert plan["parallel"] == [[1], [2], [3], [4], [5], [6]]


def test_a_plan_writes_nothing_but_itself(group: Any) -> None:
    written, seen = group.written(), group.seen()

    for verb, inputs in {
        "failover": {"lost": ["db_a"]},
        "switchover": {"to": "db_b"},
        "remove": {},
    }.items():
        group.plan(verb=verb, **inputs)

    assert group.changes(seen) == []
    assert group.written() == written
