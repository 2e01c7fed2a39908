# SPDX-License-Identifier: Apache-2.0
"""How long the parts of a traversal took: its phases, and the heaviest way through its graph.

All of it is reckoned from the ledger: an operation begins with its intent and ends with its
outcome, so waiting for the cloud, for a member's agent and for Mistral within it all count.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import networkx as nx

PHASES = ("fence", "quiesce", "detach", "attach", "activate", "patch", "replace", "other")
"""In the order of a failover; ``other`` are the operations of types of the user's own."""
PHASE_OF: Mapping[str, Mapping[str, str]] = {
    "fence": {"create": "fence"},
    "activation": {"create": "activate", "update": "activate", "delete": "quiesce"},
    "volume_attachment": {"create": "attach", "update": "attach", "delete": "detach"},
    "stack_parameters": {"create": "patch", "update": "patch", "delete": "patch"},
    "group_member": {"create": "replace"},
}
"""By shipped type and verb; what is not here is ``other``."""


def phase_of(resource_type: str, verb: str) -> str:
    """The phase that an operation belongs to, one of :data:`PHASES`."""
    return PHASE_OF.get(resource_type, {}).get(verb, "other")


def phases(
    operations: Iterable[Mapping[str, Any]], since: float, now: float
) -> list[dict[str, Any]]:
    """The phases that a traversal went through, in the order of :data:`PHASES`.

    ``operations``: rows with type, verb, started_at, ended_at (None: under way). ``since``: when
    the traversal began; what it took up of an earlier one counts from then. Times in seconds since
    the epoch. Returns for each ``phase``, ``operations`` (how many), ``started_at``, ``ended_at``
    (None: under way), ``seconds`` from the first start to the last end, and ``work``, the sum of
    its operations, which is more where they ran side by side.
    """
    members: dict[str, list[tuple[float, float | None]]] = {}
    for row in operations:
        spans = members.setdefault(phase_of(row["type"], row["verb"]), [])
        spans.append((max(row["started_at"], since), row["ended_at"]))
    found = []
    for phase in PHASES:
        if spans := members.get(phase, []):
            start = min(begun for begun, _ in spans)
            ends = [now if ended is None else ended for _, ended in spans]
            running = any(ended is None for _, ended in spans)
            found.append(
                {
                    "phase": phase,
                    "operations": len(spans),
                    "started_at": start,
                    "ended_at": None if running else max(ends),
                    "seconds": max(0.0, max(ends) - start),
                    "work": sum(
                        max(0.0, end - begun) for (begun, _), end in zip(spans, ends, strict=True)
                    ),
                }
            )
    return found


def critical_path(
    graph: Mapping[str, Any] | None,
    operations: Sequence[Mapping[str, Any]],
    since: float,
    now: float,
) -> dict[str, Any]:
    """The heaviest way through a traversal's graph: with the same operations, each as long as it
    took, nobody could have been faster.

    ``graph``: node-link JSON, of nodes ``update:ID`` and ``cleanup:ID``. Returns ``seconds`` and
    ``steps``, each with ``resource``, ``verb``, ``seconds``, in their order.
    """
    if graph is None:
        return {"seconds": 0.0, "steps": []}
    drawn: nx.DiGraph[str] = nx.node_link_graph(dict(graph), edges="edges")
    of: dict[str, list[Mapping[str, Any]]] = {}
    for row in operations:
        kind = "cleanup" if row["verb"] == "delete" else "update"
        of.setdefault(f"{kind}:{row['resource_id']}", []).append(row)
    best: dict[str, tuple[float, tuple[str, ...]]] = {}
    for node in nx.topological_sort(drawn):
        before = max((best[p] for p in drawn.predecessors(node)), default=(0.0, ()))
        own = sum(_seconds(row, since, now) for row in of.get(node, ()))
        best[node] = (before[0] + own, (*before[1], node))
    seconds, way = max(best.values(), default=(0.0, ()))
    steps = [
        {"resource": row["resource"], "verb": row["verb"], "seconds": _seconds(row, since, now)}
        for node in way
        for row in of.get(node, ())
    ]
    return {"seconds": seconds, "steps": steps}


def _seconds(row: Mapping[str, Any], since: float, now: float) -> float:
    end: float = now if row["ended_at"] is None else row["ended_at"]
    return max(0.0, end - max(row["started_at"], since))
