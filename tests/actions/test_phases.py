# SPDX-License-Identifier: Apache-2.0
"""How long the parts of a traversal took."""

from __future__ import annotations

from typing import Any

import networkx as nx
import pytest

from mistral_failover.actions.phases import PHASE_OF, critical_path, phase_of, phases
from mistral_failover.model.types import shipped_types


def operation(
    resource: str, kind: str, verb: str, start: float, end: float | None
) -> dict[str, Any]:
    return {
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


def test_a_phase_lasts_from_its_first_start_to_its_last_end_and_sums_its_work() -> None:
    found = phases([QUIESCE, *DETACH, ATTACH], since=10.5, now=18.0)

    assert [(p["phase"], p["seconds"], p["work"]) for p in found] == [
        ("quiesce", 0.5, 0.5),
        ("detach", 5.0, 7.0),
        ("attach", 2.0, 2.0),
    ]
    assert found[-1]["ended_at"] is None


def test_the_critical_path_is_the_heaviest_way_through_the_graph() -> None:
    graph = nx.DiGraph()
    for volume in ("v1", "v2"):
        graph.add_edge("cleanup:app", f"cleanup:{volume}")
        graph.add_edge(f"cleanup:{volume}", "update:w1")

    found = critical_path(
        nx.node_link_data(graph, edges="edges"), [QUIESCE, *DETACH, ATTACH], 10.0, 18.0
    )

    assert found["seconds"] == 1.0 + 5.0 + 2.0
    assert [step["resource"] for step in found["steps"]] == ["app", "v2", "w1"]


@pytest.mark.parametrize(
    ("kind", "verb", "phase"),
    [
        ("fence", "create", "fence"),
        ("activation", "create", "activate"),
        ("stack_parameters", "update", "patch"),
        ("group_member", "create", "replace"),
        ("a_user_s", "create", "other"),
    ],
)
def test_each_operation_belongs_to_one_phase(kind: str, verb: str, phase: str) -> None:
    assert phase_of(kind, verb) == phase


def test_every_shipped_type_has_phases_of_its_own_and_no_other_has() -> None:
    assert set(PHASE_OF) == set(shipped_types())
