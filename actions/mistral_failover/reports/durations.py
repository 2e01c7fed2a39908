# SPDX-License-Identifier: Apache-2.0
"""How long the parts of a traversal took: its stages, and the critical path of its graph.

Everything is computed from the ledger. An operation lasts from its intent to its outcome, so it
includes the time that it waited for the cloud, for a member's agent and for Mistral.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypedDict

import networkx as nx

from mistral_failover.convergence import node_link
from mistral_failover.model.stages import Stage
from mistral_failover.model.types import Verb


class StageTime(TypedDict):
    """A stage in which a traversal ran operations. ``ended_at``: None while one runs. ``seconds``:
    from the first start to the last end. ``work``: the sum of the operations' times, more than
    ``seconds`` if they ran in parallel."""

    stage: str
    operations: int
    started_at: float
    ended_at: float | None
    seconds: float
    work: float


class PathStep(TypedDict):
    """An operation on the critical path; ``key``: the operation's."""

    key: str
    resource: str
    verb: Verb
    seconds: float


class CriticalPath(TypedDict):
    """The critical path of a traversal: its operations in order, and their time together."""

    seconds: float
    steps: list[PathStep]


def stages(
    graph: Mapping[str, Any] | None,
    operations: Iterable[Mapping[str, Any]],
    since: float,
    now: float,
) -> list[StageTime]:
    """Return the stages in which a traversal ran operations, in order.

    ``graph``: node-link JSON, of nodes ``update:ID`` and ``cleanup:ID``, each with its ``stage``.
    ``operations``: rows with resource_id, verb, started_at, ended_at (None: in progress).
    ``since``: when the traversal began; an operation that it took over from an earlier one counts
    from then. Times in seconds since the epoch.
    """
    rows = list(operations)
    members: dict[Stage, list[tuple[float, float | None]]] = {}
    for stage, row in zip(stage_of(graph, rows), rows, strict=True):
        members.setdefault(stage, []).append((max(row["started_at"], since), row["ended_at"]))
    found: list[StageTime] = []
    for stage in Stage:
        if spans := members.get(stage, []):
            start = min(begun for begun, _ in spans)
            ends = [now if ended is None else ended for _, ended in spans]
            running = any(ended is None for _, ended in spans)
            found.append(
                {
                    "stage": stage.value,
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


def stage_of(
    graph: Mapping[str, Any] | None, operations: Iterable[Mapping[str, Any]]
) -> list[Stage]:
    """Return the stage of each operation; END if the graph does not name one."""
    of = {node["id"]: node.get("stage") for node in (graph or {}).get("nodes", ())}
    return [Stage(of.get(node_of(row)) or Stage.END) for row in operations]


def critical_path(
    graph: Mapping[str, Any] | None,
    operations: Sequence[Mapping[str, Any]],
    since: float,
    now: float,
) -> CriticalPath:
    """Return the critical path of a traversal's graph: with the same durations of operations, the
    traversal could not have been faster.

    ``graph``: node-link JSON, of nodes ``update:ID`` and ``cleanup:ID``.
    """
    if graph is None:
        return {"seconds": 0.0, "steps": []}
    drawn = node_link.read(graph)
    of: dict[str, list[Mapping[str, Any]]] = {}
    for row in operations:
        of.setdefault(node_of(row), []).append(row)
    best: dict[str, tuple[float, tuple[str, ...]]] = {}
    for node in nx.topological_sort(drawn):
        before = max((best[p] for p in drawn.predecessors(node)), default=(0.0, ()))
        own = sum(_seconds(row, since, now) for row in of.get(node, ()))
        best[node] = (before[0] + own, (*before[1], node))
    seconds, way = max(best.values(), default=(0.0, ()))
    steps: list[PathStep] = [
        {
            "key": row["key"],
            "resource": row["resource"],
            "verb": row["verb"],
            "seconds": _seconds(row, since, now),
        }
        for node in way
        for row in of.get(node, ())
    ]
    return {"seconds": seconds, "steps": steps}


def node_of(row: Mapping[str, Any]) -> str:
    """Return the key of the node that an operation belongs to."""
    kind = "cleanup" if row["verb"] == Verb.DELETE else "update"
    return f"{kind}:{row['resource_id']}"


def _seconds(row: Mapping[str, Any], since: float, now: float) -> float:
    begun, ended = float(row["started_at"]), row["ended_at"]
    return max(0.0, (now if ended is None else float(ended)) - max(begun, since))
