# SPDX-License-Identifier: Apache-2.0
"""The share of a failover's time that the cloud itself needed.

The weight of each node of the traversal's graph is the time that the emulated cloud worked for it,
by the cloud's own clock: from accepting a request to its effect, and as long as a guest took to
answer (or not to answer) a command. The heaviest path through the graph is the critical path: no
engine could have been faster with the same steps. It does not include API latency, polling and
everything of ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import networkx as nx

from mistral_failover.model.types import Verb

KINDS = {
    "volume_attachment": ("attach", "detach"),
    "activation": ("command",),
    "fence": ("command", "stop", "delete_server"),
    "stack_parameters": ("patch",),
}


@dataclass(frozen=True)
class CriticalPathTime:
    """Seconds from the traversal's cause to its end, and those on the cloud's critical path."""

    total: float
    critical_path: float

    @property
    def ratio(self) -> float:
        """Total over critical path; infinite if the cloud took no time."""
        return self.total / self.critical_path if self.critical_path else float("inf")


def critical_path(
    graph: nx.DiGraph[str],
    operations: Iterable[Mapping[str, Any]],
    resources: Mapping[str, Mapping[str, Any]],
    cloud: Iterable[Mapping[str, Any]],
) -> float:
    """Return the seconds on the heaviest path through a traversal's graph.

    ``operations``: rows of the ledger (resource_id, verb, started_at, ended_at). ``resources``: by
    id, with type, physical_id and member's server. ``cloud``: the emulator's work (kind, ids,
    accepted_at, finished_at).
    """
    worked = [row for row in cloud if row["finished_at"] is not None]
    weights = {
        _node(operation): _seconds(operation, resources[operation["resource_id"]], worked)
        for operation in operations
    }
    heaviest: dict[str, float] = {}
    for node in nx.topological_sort(graph):
        before = max((heaviest[p] for p in graph.predecessors(node)), default=0.0)
        heaviest[node] = before + weights.get(node, 0.0)
    return max(heaviest.values(), default=0.0)


def _node(operation: Mapping[str, Any]) -> str:
    kind = "cleanup" if operation["verb"] == Verb.DELETE else "update"
    return f"{kind}:{operation['resource_id']}"


def _seconds(
    operation: Mapping[str, Any],
    resource: Mapping[str, Any],
    worked: Iterable[Mapping[str, Any]],
) -> float:
    """Return the time that the cloud worked within the operation's time and for its resource. Calls
    of one operation follow each other, so their times add up."""
    kinds = KINDS.get(resource["type"], ())
    known = {resource["physical_id"], resource["server"]}
    return sum(
        float(row["finished_at"] - row["accepted_at"])
        for row in worked
        if row["kind"] in kinds
        and _concerns(row, resource, known)
        and operation["started_at"] <= row["accepted_at"] <= (operation["ended_at"] or 0.0)
    )


def _concerns(row: Mapping[str, Any], resource: Mapping[str, Any], known: set[str | None]) -> bool:
    if resource["type"] == "stack_parameters":
        return bool(resource["stack"] in row["ids"].values())
    if resource["type"] == "volume_attachment":
        return bool(row["ids"].get("volume") == resource["physical_id"])
    return bool(known & set(row["ids"].values()))
