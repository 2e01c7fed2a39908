# SPDX-License-Identifier: Apache-2.0
"""How long the parts of a traversal took."""

from __future__ import annotations

from typing import Any

import networkx as nx

from mistral_failover.convergence import node_link
from mistral_failover.reports.durations import critical_path, stage_of, stages


def operation(
    resource: str, kind: str, verb: str, start: float, end: float | None
) -> dict[str, Any]:
    return {
        "key": f"{verb} {resource}",
        "resource_id": resource,
        "resource": resource,
        "type": kind,
        "verb": verb,
        "started_at": start,
        "ended_at": end,
    }


QUIESCE = operation("app", "activation", "delete", 10.0, 11.0)
DETACH = [
    operation("v1", "volume_attachment", "delete", 11.0, 13.0),
    operation("v2", "volume_attachment", "delete", 11.0, 16.0),
]
ATTACH = operation("w1", "volume_attachment", "create", 16.0, None)


GRAPH = {
    "nodes": [
        {"id": "cleanup:app", "stage": "quiesce"},
        {"id": "cleanup:v1", "stage": "move_volumes"},
        {"id": "cleanup:v2", "stage": "move_volumes"},
        {"id": "update:w1", "stage": "move_volumes"},
    ]
}


def test_a_stage_lasts_from_its_first_start_to_its_last_end_and_sums_its_work() -> None:
    found = stages(GRAPH, [QUIESCE, *DETACH, ATTACH], since=10.5, now=18.0)

    assert [(s["stage"], s["seconds"], s["work"]) for s in found] == [
        ("quiesce", 0.5, 0.5),
        ("move_volumes", 7.0, 9.0),
    ]
    assert found[-1]["ended_at"] is None


def test_an_operation_whose_stage_is_not_recorded_counts_in_the_last_one() -> None:
    (found,) = stages(None, [QUIESCE], since=10.0, now=18.0)

    assert (found["stage"], found["operations"]) == ("end", 1)


def test_each_operation_has_its_stage() -> None:
    found = stage_of(GRAPH, [QUIESCE, *DETACH, ATTACH, operation("w2", "x", "create", 1.0, None)])

    assert list(found) == ["quiesce", "move_volumes", "move_volumes", "move_volumes", "end"]


def test_the_critical_path_is_the_heaviest_way_through_the_graph() -> None:
    graph = nx.DiGraph()
    for volume in ("v1", "v2"):
        graph.add_edge("cleanup:app", f"cleanup:{volume}")
        graph.add_edge(f"cleanup:{volume}", "update:w1")

    found = critical_path(node_link.written(graph), [QUIESCE, *DETACH, ATTACH], 10.0, 18.0)

    assert found["seconds"] == 1.0 + 5.0 + 2.0
    assert [step["resource"] for step in found["steps"]] == ["app", "v2", "w1"]
    assert [step["key"] for step in found["steps"]] == ["delete app", "delete v2", "create w1"]
