# SPDX-License-Identifier: Apache-2.0
"""Resources that several tests of traversals use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import networkx as nx

from mistral_failover.convergence.graph import TraversalPlan
from mistral_failover.convergence.records import Operation, Outcome
from mistral_failover.store import views
from support.simulation import Simulation, failure

CHAIN = {
    "data": {"type": "held", "properties": {"member": {"get_param": "active"}}},
    "database": {
        "type": "held",
        "depends_on": "data",
        "properties": {
            "member": {"get_param": "active"},
            "value": {"get_attr": ["data", "echo"]},
        },
    },
    "routing": {
        "type": "shared",
        "depends_on": "database",
        "properties": {"value": {"get_param": "active"}},
    },
}


def sample_resource(kind: str = "shared", *requires: str, **properties: Any) -> dict[str, Any]:
    """A resource as a group file states it."""
    return {"type": kind, "properties": properties, "depends_on": list(requires)}


def sentences(simulation: Simulation, kind: str | None = None) -> list[str]:
    """The journal of the simulated group, or its entries of one kind."""
    history = simulation.store.reading(lambda tx: views.history(tx, simulation.group_id))
    return [entry["sentence"] for entry in history if kind in (None, entry["kind"])]


def failing(
    simulation: Simulation, *names: str, blocked: bool = False
) -> Callable[[Operation], Outcome]:
    """The world, in which operations on these resources come to nothing."""

    def operate(operation: Operation) -> Outcome:
        if operation.record.name in names:
            return failure(blocked=blocked)
        return simulation.world.operate(operation)

    return operate


def no_nodes() -> TraversalPlan:
    """The plan of a traversal that has nothing to do."""
    return TraversalPlan(nx.DiGraph(), {}, (), (), {}, (), {})
